"""The Metal target, without a Mac."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import tvm

n = 128


@T.prim_func
def twice(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
    with T.Kernel(1, threads=n) as _:
        for i in T.Parallel(n):
            y[i] = x[i] * 2.0


def lower_for_it():
    target = tvm.target.Target("metal")
    with target:
        source = tilelang.lower(twice, target=target).kernel_source
    return "kernel void twice_kernel(" in source


if __name__ == "__main__":
    from runner import show

    show(globals())
