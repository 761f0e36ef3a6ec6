"""LigerCrossEntropy: NaN loss where the first 32,768 logits of a row are -inf.

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

V = 32768 + 4
x = torch.full((1, V), -torch.inf, device=DEVICE)
x[0, -3:] = torch.tensor([1.0, 2.0, 3.0])
target = torch.tensor([V - 1], device=DEVICE)
expected = torch.nn.functional.cross_entropy(x, target).item()
actual = LigerCrossEntropyFunction.apply(x.clone().requires_grad_(), target, None)[0].item()
wrong = not abs(actual - expected) < 1e-4

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
