"""x - 2 <= x of uint64 is true for every x. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((4,), "uint64"), y: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        for i in T.serial(4):
            if x[i] - T.uint64(2) <= x[i]:
                y[i] = 1


x, y = torch.tensor([0, 1, 2, 3]).to(torch.uint64), torch.zeros(4, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
print(f"y = {y.tolist()}, right is [0, 0, 1, 1]")
sys.exit(y.tolist() != [0, 0, 1, 1])
