"""In the interpreter reductions and scans along a negative axis are wrong. Exits with 1: reproduced, 0: not. Needs no GPU."""

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
def f(x, y, AXIS: tl.constexpr):
    i = tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(y + i, tl.associative_scan(tl.load(x + i), AXIS, larger))


@triton.jit
def g(x, y, AXIS: tl.constexpr):
    i = tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(y + i, tl.broadcast_to(tl.xor_sum(tl.load(x + i), AXIS, keep_dims=True), [2, 4]))


print(f"Triton {triton.__version__}")
x = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]], dtype=torch.int32)
wrong = False
for kernel in f, g:
    for axis in 1, -1, 0, -2:
        y = torch.zeros_like(x)
        try:
            kernel[(1,)](x, y, axis)
            found = y.tolist()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        print(f"{'associative_scan' if kernel is f else 'xor_sum'}, axis {axis}: {found}")
        wrong |= axis < 0 and found != right
        right = found
sys.exit(wrong)
