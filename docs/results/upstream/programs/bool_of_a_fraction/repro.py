"""a constant fraction cast to bool: value.

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


def program():
    @T.prim_func
    def f(y: T.Tensor((1,), 'float16')):
        with T.Kernel(1) as bx:
            if T.cast(T.float16(0.5), 'bool'):
                y[0] = T.float16(0.0)
    y = torch.tensor([7.0], dtype=torch.float16)
    tilelang.compile(f, target='c', execution_backend='cython')(y)
    got = [y.tolist()]
    right = [[0.0]]
    return 'right' if got == right else f'{got}, right is {right}'


WHERE = 'a constant fraction cast to bool'
EXPECTED = "'right'"
actual = program()
print(f"{WHERE}: expected {EXPECTED}, actual {actual!r}")
wrong = repr(actual) != EXPECTED
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
