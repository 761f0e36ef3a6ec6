"""Atomics on the c target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch

n = 4


def as_it_stands():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((1,), "float32")):
        with T.Kernel(n, is_cpu=True) as i:
            T.atomic_add(y[0], x[i])

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def instead_a_sum_in_order():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((1,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            y[0] = 0.0
            for i in T.serial(n):  # blocks are a serial loop on c: nothing to be atomic against
                y[0] += x[i]

    x, y = torch.arange(n, dtype=torch.float32), torch.empty(1)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, y)
    return y.item()


if __name__ == "__main__":
    from runner import show

    show(globals())
