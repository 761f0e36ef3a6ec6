"""A loop with uint32 bounds compares them as signed numbers. Exits with 1: reproduced, 0: not reproduced. Needs no GPU."""

import re
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def constant(y):
    n = tl.zeros([1], tl.int32)
    for _ in range(2147483646, 2147483648):
        n += 1
    tl.store(y + tl.arange(0, 1), n)


@triton.jit
def given(y, a, b):
    n = tl.zeros([1], tl.int32)
    for _ in range(a, b):
        n += 1
    tl.store(y + tl.arange(0, 1), n)


def compiled(kernel: triton.JITFunction, signature: dict[str, str]) -> dict[str, str]:
    return dict(triton.compile(ASTSource(kernel, signature, {}), target=GPUTarget("cuda", 90, 32)).asm)


print(f"Triton {triton.__version__}")
text = compiled(constant, {"y": "*i32"})["ttir"]
dropped = "scf.for" not in text and "dense<2>" not in text
print(f"range(2147483646, 2147483648) never runs: {dropped}")
signed = re.findall(r"setp\.\w+\.s32[^\n]*", compiled(given, {"y": "*i32", "a": "u32", "b": "u32"})["ptx"])
print(f"range(a, b) of uint32 compares as signed: {signed}")
sys.exit(dropped and bool(signed))
