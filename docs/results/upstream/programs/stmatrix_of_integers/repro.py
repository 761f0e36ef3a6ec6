"""T.copy from a GEMM's result into shared memory of int16 stores halves. Exits with 1: reproduced, 0: not reproduced.

With a GPU of sm_90 it runs the kernel; without one it looks for integers that are packed as halves in the CUDA source.
"""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(a: T.Tensor((16, 32), "int8"), b: T.Tensor((16, 32), "int8"), y: T.Tensor((16, 16), "int16")):
    with T.Kernel(1, threads=32):
        a_shared = T.alloc_shared((16, 32), "int8")
        b_shared = T.alloc_shared((16, 32), "int8")
        c = T.alloc_fragment((16, 16), "int32")
        c_shared = T.alloc_shared((16, 16), "int16")
        T.copy(a, a_shared)
        T.copy(b, b_shared)
        T.clear(c)
        T.gemm(a_shared, b_shared, c, transpose_B=True)
        T.copy(c, c_shared)
        T.copy(c_shared, y)


if torch.cuda.is_available():
    a, b = (torch.randint(-1, 2, (16, 32), dtype=torch.int8, device="cuda") for _ in range(2))
    y = torch.zeros(16, 16, dtype=torch.int16, device="cuda")
    tilelang.compile(f, target="cuda", execution_backend="cython")(a, b, y)
    right = (a.double() @ b.double().T).to(torch.int16)
    print(f"{int((y != right).sum())} of 256 are wrong: y[0, :4] = {y[0, :4].tolist()}, right is {right[0, :4].tolist()}")
    print(f"as the bits of float16, they are {y[0, :4].view(torch.float16).tolist()}")
    sys.exit(not torch.equal(y, right))
target = tilelang.tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
with target:
    source = tilelang.lower(f, target=target, enable_host_codegen=False, enable_device_compile=False).kernel_source
found = [line for line in source.splitlines() if "stmatrix" in line and "__pack_half2(((short)" in line]
print(f"packed as halves: {found[0].strip()}" if found else "no integer is packed as a half")
sys.exit(bool(found))
