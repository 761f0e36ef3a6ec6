"""tl.clamp of float64 between -c and c does not compile for sm_90. Exits with 1: reproduced, 0: not reproduced. Needs no GPU."""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def f(x, y):
    i = tl.arange(0, 4)
    v = tl.load(x + i)
    tl.store(y + i, tl.clamp(v, tl.full([4], -0.5, v.dtype), tl.full([4], 0.5, v.dtype)))


def refused(dtype: str, capability: int) -> bool:
    try:
        triton.compile(ASTSource(f, {"x": dtype, "y": dtype}, {}), target=GPUTarget("cuda", capability, 32))
    except RuntimeError as error:
        print(f"{dtype} for sm_{capability}: {error}")
        return True
    print(f"{dtype} for sm_{capability}: compiles")
    return False


print(f"Triton {triton.__version__}")
found = [refused(dtype, capability) for dtype in ("*fp32", "*fp64") for capability in (80, 90)]
sys.exit(found != [False] * 4)
