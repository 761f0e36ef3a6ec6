"""InternalError: Check failed: (!((pa && pa->dtype.is_uint() && pa->value == 0U) && (pb && pb->dtype.i: raises InternalError.

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


def program():
    @T.prim_func
    def f(y: T.Tensor((1,), 'int32')):
        with T.Kernel(1, threads=1) as bx:
            for j in T.serial(2):
                if T.cast(T.cast(j, 'int64'), 'uint32') >= 1:
                    y[0] = 0
    target = tilelang.tvm.target.Target({'kind': 'cuda', 'arch': 'sm_90'})
    with target:
        tilelang.lower(f, target=target)


WHERE = 'InternalError: Check failed: (!((pa && pa->dtype.is_uint() && pa->value == 0U) && (pb && pb->dtype.i'
KIND, FOUND = 'InternalError', 'Check failed: \\(!\\(\\(pa \\&\\& pa\\->dtype\\.is_uint\\(\\) \\&\\& pa\\->value == '
raised = ""
try:
    program()
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
