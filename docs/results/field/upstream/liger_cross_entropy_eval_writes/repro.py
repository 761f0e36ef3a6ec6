"""LigerCrossEntropy zeroes the logits of ignored tokens when no gradient is asked for.

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

logits = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device=DEVICE)
with torch.no_grad():
    LigerCrossEntropyFunction.apply(logits, torch.tensor([0, -100], device=DEVICE), None)
expected, actual = [4.0, 5.0, 6.0], logits[1].tolist()
wrong = actual != expected

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
