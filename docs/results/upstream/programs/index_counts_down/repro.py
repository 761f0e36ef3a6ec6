"""(1 - i) % 4 in an index loses the 1. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((4,), "int32"), y: T.Tensor((5,), "int32")):
    with T.Kernel(1):
        for i in T.serial(5):
            y[i] = x[(1 - i) % 4]


x, y = torch.arange(4, dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
right = [(1 - i) % 4 for i in range(5)]
print(f"y = {y.tolist()}, right is {right}")
sys.exit(y.tolist() != right)
