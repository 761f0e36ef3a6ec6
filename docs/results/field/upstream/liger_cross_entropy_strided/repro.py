"""LigerCrossEntropy returns the logits as their gradient if they are not contiguous in the last dimension.

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

from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction  # noqa: E402

torch.manual_seed(0)
base = torch.randn(5, 4, device=DEVICE)
target = torch.tensor([0, 1, 2, 3], device=DEVICE)
x, y = base.clone().requires_grad_(), base.clone().requires_grad_()
LigerCrossEntropyFunction.apply(x.T, target, None)[0].backward()
torch.nn.functional.cross_entropy(y.T, target).backward()
expected, actual = y.grad[0].tolist(), x.grad[0].tolist()
wrong = not torch.allclose(x.grad, y.grad, atol=1e-5)

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
