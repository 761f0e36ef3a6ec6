"""tl.argmin of a flattened block gives a wrong index. Exits with 1: reproduced, 0: not. Needs no GPU; with one it also runs."""

import re
import sys

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def f(x, y):
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    block = tl.load(x + rows * 16 + columns)
    tl.store(y, tl.argmin(tl.reshape(block, [256]), axis=0))


print(f"Triton {triton.__version__}")
attributes = {(0,): [["tt.divisibility", 16]]}
made = triton.compile(ASTSource(f, {"x": "*i8", "y": "*i32"}, {}, attributes), target=GPUTarget("cuda", 90, 32))
(line,) = re.findall(r"tt\.reshape [^\n]*", made.asm["ttir"])
print(line.partition(" loc(")[0])
wrong = "allow_reorder" in line
if torch.cuda.is_available():
    results = []
    for smallest in range(256):
        x, y = torch.zeros(256, dtype=torch.int8, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
        x[smallest] = -1
        f[(1,)](x, y)
        results.append(y.item())
    differ = [at for at, got in enumerate(results) if got != at]
    print(f"{len(differ)} of 256 are wrong" + (f": {results[differ[0]]} for {differ[0]}" if differ else ""))
    wrong = bool(differ)
sys.exit(wrong)
