"""LigerFusedLinearCrossEntropy: no gradient of weight and bias where the input needs none.

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

from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction  # noqa: E402

hidden = torch.randn(4, 3, device=DEVICE)  # a frozen backbone
weight = torch.randn(5, 3, device=DEVICE, requires_grad=True)
target = torch.tensor([0, 1, 2, 3], device=DEVICE)
LigerFusedLinearCrossEntropyFunction.apply(hidden, weight, target)[0].backward()
expected, actual = "a gradient", "None" if weight.grad is None else "a gradient"
wrong = weight.grad is None

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
