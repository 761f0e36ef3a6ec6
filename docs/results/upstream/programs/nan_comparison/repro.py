"""x != x of a float is folded to false, and not (x < 2) becomes x >= 2. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((2,), "float32"), y: T.Tensor((2, 2), "int32")):
    with T.Kernel(1):
        for i in T.serial(2):
            y[0, i] = T.if_then_else(x[i] != x[i], 1, 0)
            y[1, i] = T.if_then_else(not (x[i] < T.float32(2)), 1, 0)


x, y = torch.tensor([float("nan"), 1.0]), torch.zeros(2, 2, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
right = [(x != x).int().tolist(), (~(x < 2)).int().tolist()]
print(f"y = {y.tolist()}, right is {right}")
sys.exit(y.tolist() != right)
