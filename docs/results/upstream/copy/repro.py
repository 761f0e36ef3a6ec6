"""T.copy of a local buffer on the c target: raises InternalError.

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


B = 2
n = 4

@T.prim_func
def copies(x: T.Tensor((B, n), 'float32'), y: T.Tensor((B, n), 'float32')):
    with T.Kernel(B, is_cpu=True) as b:
        local = T.alloc_local((n,), 'float32')
        T.copy(x[b, 0:n], local)
        T.copy(local, y[b, 0:n])

def on_c():
    return tilelang.compile(copies, target='c', execution_backend='cython')


WHERE = 'T.copy of a local buffer on the c target'
KIND, FOUND = 'InternalError', 'Target context required'
raised = ""
try:
    on_c()
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
