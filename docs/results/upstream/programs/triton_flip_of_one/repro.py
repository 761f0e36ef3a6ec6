"""tl.flip of an axis of length 1 is refused. Exits with 1: reproduced, 0: not. Needs no GPU."""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def f(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.flip(tl.load(x + i), 0))


def reason(n: int) -> str:
    source = ASTSource(f, {"x": "*i32", "y": "*i32", "N": "constexpr"}, {"N": n})
    try:
        triton.compile(source, target=GPUTarget("cuda", 90, 32))
    except Exception as error:
        while error.__cause__ is not None:
            error = error.__cause__
        return f"{type(error).__name__}: {error}"
    return ""


print(f"Triton {triton.__version__}")
found = {n: reason(n) for n in (2, 1)}
for n, why in found.items():
    print(f"flip of {n}: {why or 'compiles'}")
sys.exit(bool(found[1]) and not found[2])
