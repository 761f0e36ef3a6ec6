"""** in a kernel: raises TypeError.

Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
"""

import os
import re
import sys
import tilelang.language as T


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other


def in_a_kernel():
    @T.prim_func
    def square(x: T.Tensor((4,), 'float32'), y: T.Tensor((4,), 'float32')):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(4):
                y[i] = x[i] ** 2
    return square


WHERE = '** in a kernel'
KIND, FOUND = 'TypeError', 'unsupported operand type'
raised = ""
try:
    in_a_kernel()
except Exception as error:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if re.search(FOUND, line)]
    if type(error).__name__ != KIND or not lines:
        raise
    raised = f"{KIND}: {lines[0]}"
print(f"{WHERE}: expected no exception, actual {raised or 'none'}")
wrong = raised != ""
print("REPRODUCED" if wrong else "NOT REPRODUCED")
sys.exit(wrong)
