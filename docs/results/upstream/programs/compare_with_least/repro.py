"""x[i] >= -2147483648 of int32 does not compile. Exits with 1: reproduced, 0: not reproduced."""

import sys

import tilelang
import tilelang.language as T
from tilelang import tvm


@T.prim_func
def f(x: T.Tensor((2,), "int32"), y: T.Tensor((2,), "int32")):
    with T.Kernel(1):
        for i in T.serial(2):
            if x[i] >= -2147483648:
                y[i] = 1


try:
    with tvm.target.Target("c"):
        tilelang.lower(f, target="c", enable_host_codegen=False, enable_device_compile=False)
except Exception as error:
    print(f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}")
    sys.exit("exceeds maximum of int32" in str(error))
