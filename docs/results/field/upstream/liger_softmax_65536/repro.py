"""LigerSoftmax raises for more than 65,536 columns, though it has kernels for several blocks.

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

from liger_kernel.ops.softmax import LigerSoftmaxFunction  # noqa: E402

x = torch.zeros(1, 70000, device=DEVICE)
expected = 1 / 70000
try:
    actual = LigerSoftmaxFunction.apply(x)[0, 0].item()
    wrong = False
except RuntimeError as error:
    actual, wrong = f"RuntimeError: {error}", True

print(f"expected {expected}, actual {actual}")
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
