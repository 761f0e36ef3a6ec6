"""T.abs on the c target: raises InternalError.

Exits with 1: REPRODUCED, 0: NOT REPRODUCED, 2: OTHER, something else went wrong.
"""

import os
import re
import sys
import tilelang
import tilelang.language as T


def other(kind, error, trace):
    sys.__excepthook__(kind, error, trace)
    print(f"OTHER: {kind.__name__}: {error}", flush=True)
    os._exit(2)


sys.excepthook = other


n = 4

def compiled(function):
    @T.prim_func
    def kernel(x: T.Tensor((n,), 'float32'), y: T.Tensor((n,), 'float32')):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = T.cast(function(x[i]), 'float32')
    return tilelang.compile(kernel, target='c', execution_backend='cython')

def absolute():
    return compiled(T.abs)


WHERE = 'T.abs on the c target'
KIND, FOUND = 'InternalError', 'Unresolved call .*fabs'
raised = ""
try:
    absolute()
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
