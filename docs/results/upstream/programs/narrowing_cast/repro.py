"""A comparison of a value that a cast has wrapped around is folded. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((2,), "int8"), y: T.Tensor((2,), "int32")):
    with T.Kernel(1):
        for i in T.serial(2):
            y[i] = T.if_then_else(T.cast(T.cast(x[i], "uint8"), "int32") > 200, 1, 0)


x, y = torch.tensor([-1, -100], dtype=torch.int8), torch.zeros(2, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
right = [int(value % 256 > 200) for value in x.tolist()]
print(f"y = {y.tolist()}, right is {right}")
sys.exit(y.tolist() != right)
