"""In the interpreter `tl.reduce` over all axes that keeps them gives one axis. Exits with 1: reproduced, 0: not. Needs no GPU."""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def f(x, y):
    i = tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]
    v = tl.load(x + i)
    kept = tl.reduce(v, axis=None, combine_fn=larger, keep_dims=True)
    tl.static_print("shape:", kept.shape)
    tl.store(y + i, v - tl.permute(kept, [1, 0]))


print(f"Triton {triton.__version__}")
x, y = torch.arange(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
try:
    f[(1,)](x, y)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(1)
print(y.tolist())
sys.exit(y.tolist() != [-7, -6, -5, -4, -3, -2, -1, 0])
