"""tl.topk gives int32 or float32 where it takes a part of a narrow dtype. Exits with 1: reproduced, 0: not. Needs no GPU."""

import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def f(x, y, K: tl.constexpr):
    v = tl.topk(tl.load(x + tl.arange(0, 16)), K)
    tl.static_print("K =", K, "of 16:", v.dtype)
    tl.store(y + tl.arange(0, K), v + v)


def adds_in(dtype: str, k: int) -> str:
    made = triton.compile(ASTSource(f, {"x": dtype, "y": dtype, "K": "constexpr"}, {"K": k}), target=GPUTarget("cuda", 90, 32))
    (line,) = [one for one in made.asm["ttir"].splitlines() if "arith.addi" in one or "arith.addf" in one]
    return line.partition(" : ")[2].partition(" loc(")[0]


print(f"Triton {triton.__version__}")
found = {(dtype, k): adds_in(dtype, k) for dtype in ("*i8", "*u8", "*i16", "*fp16", "*bf16", "*i32") for k in (16, 4)}
for (dtype, k), line in found.items():
    print(f"{dtype}, {k} of 16: v + v of {line}")
narrow = [dtype for dtype, k in found if k == 4 and found[dtype, 4].replace("4x", "16x") != found[dtype, 16]]
sys.exit(bool(narrow))
