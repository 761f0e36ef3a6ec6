"""T.isfinite, T.isinf and T.abs on the c target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch

n = 4


def compiled(function):
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = T.cast(function(x[i]), "float32")

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def is_finite():
    return compiled(T.isfinite)


def is_infinite():
    return compiled(T.isinf)


def absolute():
    return compiled(T.abs)


def instead_the_bits():
    infinite = T.uint32(0x7F800000)

    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = T.cast((T.reinterpret(x[i], "uint32") & infinite) != infinite, "float32")

    x, y = torch.tensor([1.0, float("inf"), float("-inf"), float("nan")]), torch.empty(n)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, y)
    return y.tolist()


if __name__ == "__main__":
    from runner import show

    show(globals())
