"""T.cumsum after a pipelined T.gemm leaves rows 0 to 3 out. Exits with 1: reproduced, 0: not reproduced.

With a GPU of sm_90 it runs the kernel; without one it looks for the scan behind a branch on threadIdx.x in the CUDA source.
"""

import re
import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(a: T.Tensor((16, 32), "float16"), b: T.Tensor((32, 32), "float16"), y: T.Tensor((16, 32), "float32")):
    with T.Kernel(1, threads=32):
        a_shared = T.alloc_shared((16, 32), "float16")
        b_shared = T.alloc_shared((32, 32), "float16")
        c = T.alloc_fragment((16, 32), "float32")
        total = T.alloc_fragment((16, 32), "float32")
        T.fill(c, 0.0)
        for k in T.Pipelined(1, num_stages=2):
            T.copy(a[0:16, k * 32 : k * 32 + 32], a_shared)
            T.copy(b[k * 32 : k * 32 + 32, 0:32], b_shared)
            T.gemm(a_shared, b_shared, c)
        T.cumsum(c, total, dim=1)
        T.copy(total, y)


if torch.cuda.is_available():
    a, b = (torch.randint(-2, 3, size, device="cuda").half() for size in ((16, 32), (32, 32)))
    y = torch.zeros(16, 32, device="cuda")
    tilelang.compile(f, target="cuda")(a, b, y)
    right = (a.float() @ b.float()).cumsum(1)
    wrong = (y != right).any(1).nonzero().flatten().tolist()
    print(f"rows that are wrong: {wrong}")
    sys.exit(bool(wrong))
target = tilelang.tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
with target:
    source = tilelang.lower(f, target=target, enable_host_codegen=False, enable_device_compile=False).kernel_source
found = re.search(r"threadIdx\.x\) < (\d+).*\} else \{.*CumSum2D<32", source, re.DOTALL)
print(f"only threads from {found[1]} on scan" if found else "all threads scan")
sys.exit(bool(found))
