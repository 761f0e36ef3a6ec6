"""j // -2 >= 0 is true for every j of a parallel axis of two. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(y: T.Tensor((2, 2), "int32")):
    with T.Kernel(1):
        for i, j in T.Parallel(2, 2):
            y[i, j] = T.if_then_else(j // -2 >= 0, 0, 1)


y = torch.zeros(2, 2, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(y)
print(f"y = {y.tolist()}, right is [[0, 1], [0, 1]]")
sys.exit(y.tolist() != [[0, 1], [0, 1]])
