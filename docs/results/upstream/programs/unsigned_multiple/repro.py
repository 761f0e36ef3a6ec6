"""(x * 3) % 3 of uint32 is folded to 0. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((2,), "int64"), y: T.Tensor((2,), "int64")):
    with T.Kernel(1):
        for i in T.serial(2):
            y[i] = T.cast(T.cast(x[i], "uint32") * T.uint32(3), "int64") % 3


x, y = torch.tensor([5, 2**31]), torch.zeros(2, dtype=torch.int64)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
right = [value * 3 % 2**32 % 3 for value in x.tolist()]
print(f"y = {y.tolist()}, right is {right}")
sys.exit(y.tolist() != right)
