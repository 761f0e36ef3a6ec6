"""A loop does not update a variable that takes over another one with the same initial value. Exits with 1: reproduced, 0: not.

Without a GPU the kernels are compiled for sm_90 only.
"""

import sys

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def previous(x, y, n):
    last = tl.load(x)
    now = last
    for i in range(1, n):
        last = now
        now = tl.load(x + i)
    tl.store(y, last)


@triton.jit
def previous_while(x, y, n):
    last = tl.load(x)
    now = last
    i = 1
    while i < n:
        last = now
        now = tl.load(x + i)
        i += 1
    tl.store(y, last)


print(f"Triton {triton.__version__}")
wrong = False
for kernel in previous, previous_while:
    if torch.cuda.is_available():
        x, y = torch.arange(10, 18, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
        kernel[(1,)](x, y, 8)
        print(f"{kernel.fn.__name__}: {y.item()}, right is 16")
        wrong |= y.item() != 16
    else:
        source = ASTSource(fn=kernel, signature={"x": "*i64", "y": "*i64", "n": "i32"})
        text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]
        print(f"{kernel.fn.__name__}: {'no loop is left' if 'scf.' not in text else 'a loop is left'}")
        wrong |= "scf." not in text
sys.exit(wrong)
