"""A WGMMA product whose N is 8 modulo 16."""
# mypy: ignore-errors

import re

import tilelang
import tilelang.language as T
import tvm


def shapes(N):
    @T.prim_func
    def product(a: T.Tensor((64, 64), "bfloat16"), b: T.Tensor((64, N), "bfloat16"), c: T.Tensor((64, N), "float32")):
        with T.Kernel(1, threads=128) as _:
            left, right = T.alloc_shared((64, 64), "bfloat16"), T.alloc_shared((64, N), "bfloat16")
            total = T.alloc_fragment((64, N), "float32")
            T.copy(a, left)
            T.copy(b, right)
            T.clear(total)
            T.gemm(left, right, total)
            T.copy(total, c)

    target = tvm.target.Target("cuda -arch=sm_90a")
    with target, tvm.transform.PassContext(opt_level=3, config={"tl.disable_warp_specialized": True}):
        source = tilelang.lower(product, target=target).kernel_source
    return re.findall(r"tl::wgmma_ss<[^>]*kFloat32, (\d+, \d+, \d+)", source)


def is_it_refused():
    return shapes(24)


def instead_a_multiple_of_16():
    return shapes(32)


if __name__ == "__main__":
    from runner import show

    show(globals())
