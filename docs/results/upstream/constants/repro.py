"""a float64 constant on the c target has seven digits: value.

Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
"""

import os
import sys
import tilelang
import tilelang.language as T
import torch


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other


def written(value, dtype):
    @T.prim_func
    def kernel(y: T.Tensor((1,), dtype)):
        with T.Kernel(1, is_cpu=True) as _:
            y[0] = T.cast(value, dtype)
    y = torch.empty(1, dtype=getattr(torch, dtype))
    tilelang.compile(kernel, target='c', execution_backend='cython')(y)
    return y.item()

PI = 3.141592653589793

def float64_constant():
    return written(PI, 'float64') - PI


WHERE = 'a float64 constant on the c target has seven digits'
EXPECTED = '0.0'
FOUND = '3.4641020674186507e-07'
actual = float64_constant()
print(f"{WHERE}: expected {EXPECTED}, actual {actual!r}")
wrong = repr(actual) != EXPECTED
if wrong and repr(actual) != FOUND:
    print(f"OTHER: {actual!r}")
    sys.exit(2)
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
