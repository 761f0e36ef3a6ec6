"""A condition is evaluated outside of the guard that is around it. Exits with 1: reproduced, 0: not reproduced."""

import subprocess
import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(d: T.Tensor((1,), "int32"), y: T.Tensor((4,), "int32")):
    with T.Kernel(1):
        for i in T.serial(4):
            if i < d[0]:
                if 10 // d[0] > 2:
                    y[i] = 1


if len(sys.argv) > 1:
    d, y = torch.tensor([0], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    tilelang.compile(f, target="c", execution_backend="cython")(d, y)
    sys.exit(y.tolist() != [0, 0, 0, 0])
status = subprocess.run([sys.executable, __file__, "run"], check=False).returncode
print(f"status {status}, right is 0")
sys.exit(status != 0)
