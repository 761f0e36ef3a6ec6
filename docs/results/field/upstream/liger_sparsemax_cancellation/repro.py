"""LigerSparsemax: wrong by orders of magnitude for large logits, since the maximum is not subtracted.

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

from liger_kernel.ops.sparsemax import LigerSparsemaxFunction  # noqa: E402

x = torch.tensor([[2.0**25, 0.0]], device=DEVICE)
y = LigerSparsemaxFunction.apply(x, -1)
expected, actual = [1.0, 0.0], y[0].tolist()
wrong = actual != expected

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
