"""Fragments, parallel loops and reductions on the c target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch

n = 4


def a_fragment():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            fragment = T.alloc_fragment((n,), "float32")
            for i in T.serial(n):
                fragment[i] = x[i]
            for i in T.serial(n):
                y[i] = fragment[i]

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def a_parallel_loop():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.Parallel(n):
                y[i] = x[i]

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def a_reduction_of_a_local_buffer():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((1,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            values = T.alloc_local((n,), "float32")
            total = T.alloc_local((1,), "float32")
            for i in T.serial(n):
                values[i] = x[i]
            T.reduce_sum(values, total, dim=0)
            y[0] = total[0]

    return kernel


def instead_a_local_buffer_and_a_loop():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((1,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            total = T.alloc_local((1,), "float32")
            total[0] = 0.0
            for i in T.serial(n):
                total[0] += x[i]
            y[0] = total[0]

    x, y = torch.arange(n, dtype=torch.float32), torch.empty(1)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, y)
    return y.item()


if __name__ == "__main__":
    from runner import show

    show(globals())
