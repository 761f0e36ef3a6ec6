"""`d != 0 and 10 // d > 2` divides by 0. Exits with 1: reproduced, 0: not reproduced."""

import subprocess
import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(d: T.Tensor((1,), "int32"), y: T.Tensor((1,), "int32")):
    with T.Kernel(1):
        if d[0] != 0 and 10 // d[0] > 2:
            y[0] = 1


if len(sys.argv) > 1:
    d, y = torch.tensor([0], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    tilelang.compile(f, target="c", execution_backend="cython")(d, y)
    sys.exit(y.tolist() != [0])
status = subprocess.run([sys.executable, __file__, "run"], check=False).returncode
print(f"status {status}, right is 0")
sys.exit(status != 0)
