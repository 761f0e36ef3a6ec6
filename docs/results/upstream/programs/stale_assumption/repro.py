"""An assumption about an element outlives a store to it. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((2,), "int32"), y: T.Tensor((2,), "int32")):
    with T.Kernel(1):
        y[0] = x[0]
        T.assume(y[0] < 7)
        y[0] = x[1]
        y[1] = T.if_then_else(y[0] < 7, 1, 2)


x, y = torch.tensor([5, 9], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
print(f"y = {y.tolist()}, right is [9, 2]")
sys.exit(y.tolist() != [9, 2])
