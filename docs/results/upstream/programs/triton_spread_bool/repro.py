"""In the interpreter a comparison of two single floats keeps their dtype. Exits with 1: reproduced, 0: not. Needs no GPU."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl


@triton.jit
def f(x, y):
    i = tl.arange(0, 4)
    positive = tl.load(x) > 0.0
    tl.store(y + i, (positive & (i < 2)).to(tl.int32))


print(f"Triton {triton.__version__}")
x, y = torch.ones(1), torch.full((4,), 7, dtype=torch.int32)
try:
    f[(1,)](x, y)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(1)
print(y.tolist())
sys.exit(y.tolist() != [1, 1, 0, 0])
