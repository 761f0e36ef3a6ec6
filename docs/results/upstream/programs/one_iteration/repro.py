"""`continue` in a loop of one iteration leaves the loop around it. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((4,), "int32"), y: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        for i in T.serial(4):
            y[i] = 1
            for j in T.serial(1):
                if x[i] > 3:
                    continue
            y[i] = 2


x, y = torch.tensor([0, 5, 0, 9], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
tilelang.compile(f, target="c", execution_backend="cython")(x, y)
print(f"y = {y.tolist()}, right is [2, 2, 2, 2]")
sys.exit(y.tolist() != [2, 2, 2, 2])
