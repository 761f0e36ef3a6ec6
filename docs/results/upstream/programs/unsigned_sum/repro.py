"""uint32(i) - 2 > 100 is folded to false. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(y: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        for i in T.serial(4):
            y[i] = T.if_then_else(T.cast(T.cast(i, "uint32") - T.uint32(2), "int64") > 100, 1, 0)


y = torch.zeros(4, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(y)
right = [int((i - 2) % 2**32 > 100) for i in range(4)]
print(f"y = {y.tolist()}, right is {right}")
sys.exit(y.tolist() != right)
