"""A sum from shared memory to shared memory with clear=False."""
# mypy: ignore-errors

import re

import tilelang
import tilelang.language as T
import tvm


def is_the_old_value_read():
    @T.prim_func
    def kernel(x: T.Tensor((64, 64), "float32"), y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            tile, sums = T.alloc_shared((64, 64), "float32"), T.alloc_shared((64,), "float32")
            T.copy(x, tile)
            T.copy(y, sums)
            T.reduce_sum(tile, sums, dim=1, clear=False)
            T.copy(sums, y)

    target = tvm.target.Target("cuda -arch=sm_80")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    read = re.search(r"sums_frag\[\w+\] = \(\(float\*\)buf_dyn_shmem\)", source)
    added = re.search(r"sums_frag\[\w+\] = \(sums_frag\[\w+\] \+", source)
    return read is not None and added is not None and read.start() < added.start()


if __name__ == "__main__":
    from runner import show

    show(globals())
