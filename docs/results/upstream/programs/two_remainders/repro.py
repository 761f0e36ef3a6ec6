"""(i + 1) % 2 and i % 2 in one index are taken for the same number. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((2, 2), "int32"), y: T.Tensor((3,), "int32")):
    with T.Kernel(1):
        for i in T.serial(3):
            y[i] = x[(i + 1) % 2, i % 2]


x, y = torch.arange(4, dtype=torch.int32).reshape(2, 2), torch.zeros(3, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
right = [int(x[(i + 1) % 2, i % 2]) for i in range(3)]
print(f"y = {y.tolist()}, right is {right}")
sys.exit(y.tolist() != right)
