"""x // 3 > 3074457345618258602 of int64 is true for every x. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((2,), "int64"), y: T.Tensor((2,), "int32")):
    with T.Kernel(1):
        for i in T.serial(2):
            y[i] = T.if_then_else(x[i] // 3 > 3074457345618258602, 1, 0)


x, y = torch.tensor([5, -5]), torch.zeros(2, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
print(f"y = {y.tolist()}, right is [0, 0]")
sys.exit(y.tolist() != [0, 0])
