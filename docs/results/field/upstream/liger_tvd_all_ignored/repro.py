"""LigerTVDLoss raises ZeroDivisionError where all labels are ignored.

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

from liger_kernel.ops.tvd import LigerTVDLossFunction  # noqa: E402

p, q = torch.rand(2, 3, device=DEVICE), torch.rand(2, 3, device=DEVICE)
labels = torch.tensor([-100, -100], device=DEVICE)
expected = "0, as LigerJSD and LigerCrossEntropy return"
try:
    actual = LigerTVDLossFunction.apply(p, q, labels, "batchmean", -100).item()
    wrong = False
except ZeroDivisionError as error:
    actual, wrong = f"ZeroDivisionError: {error}", True

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
