"""A name bound to a cast of a loop's index ends the compiler. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(y: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        for i in T.serial(4):
            b = T.cast(i, "bool")
            y[i] = T.cast(b, "int32")


y = torch.zeros(4, dtype=torch.int32)
try:
    tilelang.compile(f, target="c", execution_backend="cython")(y)
except Exception as error:
    print(f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")
    sys.exit(1)
print(f"y = {y.tolist()}, right is [0, 1, 1, 1]")
sys.exit(y.tolist() != [0, 1, 1, 1])
