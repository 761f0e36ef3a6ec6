"""float16 to bfloat16 to int32 on sm_90. Exits with 1: reproduced, 0: not. Compiles without a GPU, and runs where there is one."""

import subprocess
import sys
import tempfile
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def f(x, y):
    tl.store(y, tl.load(x).to(tl.bfloat16).to(tl.int32))


bin = Path(triton.__file__).parent / "backends/nvidia/bin"
print(f"Triton {triton.__version__}")
made = triton.compile(ASTSource(fn=f, signature={"x": "*fp16", "y": "*i32"}, constexprs={}), target=GPUTarget("cuda", 90, 32))
print(*(line.strip() for line in made.asm["ptx"].splitlines() if "cvt" in line), sep="\n")
with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
    file.write(made.asm["cubin"])
    file.flush()
    sass = subprocess.run([bin / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
found = [line.partition("*/")[2].strip() for line in sass.splitlines() if "F2F" in line or "F2I" in line]
print(*found, sep="\n")
try:
    import torch

    if torch.cuda.is_available():
        x, y = torch.tensor([3.0], dtype=torch.float16, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
        f[(1,)](x, y)
        print(f"3.0 becomes {y.item()}")
except ImportError:
    pass
sys.exit(len(found) < 2)
