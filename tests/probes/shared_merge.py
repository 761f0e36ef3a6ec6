"""Aggressive merging of shared memory, and a buffer that every turn of a loop reads."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import tvm

n = 64


def are_the_two_buffers_apart():
    @T.prim_func
    def kernel(q: T.Tensor((n, n), "float32"), k: T.Tensor((4, n, n), "float32"), y: T.Tensor((4, n, n), "float32")):
        with T.Kernel(1, threads=128) as _:
            before, inside = T.alloc_shared((n, n), "float32"), T.alloc_shared((n, n), "float32")
            fragment = T.alloc_fragment((n, n), "float32")
            T.copy(q, before)
            for t in T.serial(4):
                T.copy(k[t, 0:n, 0:n], fragment)
                for i, j in T.Parallel(n, n):
                    fragment[i, j] = fragment[i, j] * before[j, i]
                T.copy(fragment, inside)
                for i, j in T.Parallel(n, n):
                    y[t, i, j] = inside[j, i]

    target = tvm.target.Target("cuda -arch=sm_90")
    config = {
        "tl.enable_aggressive_shared_memory_merge": True,
        "tl.disable_tma_lower": True,
        "tl.disable_warp_specialized": True,
    }
    with target, tvm.transform.PassContext(opt_level=3, config=config):
        source = tilelang.lower(kernel, target=target).kernel_source
    stores = [line for line in source.splitlines() if "((float*)buf_dyn_shmem)" in line.split(" = ")[0]]
    return ["+ 4096" in line.split(" = ")[0] for line in stores]


if __name__ == "__main__":
    from runner import show

    show(globals())
