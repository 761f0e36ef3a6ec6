"""rms_norm and layer_norm: ZeroDivisionError in the backward of an input without tokens.

Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong. Without a GPU it runs in Triton's interpreter.
"""

import os
import sys

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other

from fla.modules.norm import layernorm  # noqa: E402

if not CUDA:  # the interpreter cannot time configs
    layernorm.layer_norm_fwd_kernel.configs = layernorm.layer_norm_fwd_kernel.configs[:1]
x = torch.randn(0, 8, device=DEVICE, requires_grad=True)
weight = torch.ones(8, device=DEVICE, requires_grad=True)
y = layernorm.rms_norm(x, weight, None)
expected = "gradients of shapes (0, 8) and (8,), as torch.nn.functional.rms_norm has"
try:
    y.sum().backward()
    actual, wrong = f"shapes {tuple(x.grad.shape)} and {tuple(weight.grad.shape)}", False
except ZeroDivisionError as error:
    actual, wrong = f"ZeroDivisionError: {error}", True

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
