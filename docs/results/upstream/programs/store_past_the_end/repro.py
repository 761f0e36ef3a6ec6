"""T.copy of a tile writes past the end of a tensor on sm_90. Exits with 1: reproduced, 0: not reproduced.

With a GPU of sm_90 it runs the kernel; without one it looks for the store by a descriptor in the CUDA source.
"""

import sys

import tilelang
import tilelang.language as T
import torch


@T.prim_func
def f(x: T.Tensor((8,), "int32"), y: T.Tensor((5,), "int32")):
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((8,), "int32")
        T.copy(x, tile)
        T.copy(tile, y[0:8])


if torch.cuda.is_available():
    memory = torch.zeros(16, dtype=torch.int32, device="cuda")
    tilelang.compile(f, target="cuda")(torch.arange(1, 9, dtype=torch.int32, device="cuda"), memory[:5])
    print(f"y and what lies behind it: {memory.tolist()}")
    sys.exit(bool(memory[5:].any()))
target = tilelang.tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
with target:
    source = tilelang.lower(f, target=target, enable_host_codegen=False, enable_device_compile=False).kernel_source
found = "tma_store(y_desc" in source
print(f"y is stored by {'a descriptor' if found else 'threads'}")
sys.exit(found)
