"""int32(float32(x) / 2.0) > 0 is false for every x. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((4,), "int32"), y: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        for i in T.serial(4):
            y[i] = T.if_then_else(T.cast(T.cast(x[i], "float32") / 2.0, "int32") > 0, 1, 0)


x, y = torch.tensor([1, 2, 3, 4], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
print(f"y = {y.tolist()}, right is [0, 1, 1, 1]")
sys.exit(y.tolist() != [0, 1, 1, 1])
