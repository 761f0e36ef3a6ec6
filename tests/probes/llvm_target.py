"""The LLVM target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

n = 4


@T.prim_func
def twice(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
    with T.Kernel(1, is_cpu=True) as _:
        for i in T.serial(n):
            y[i] = x[i] * 2.0


def is_it_in_the_wheel():
    return bool(tvm.runtime.enabled("llvm"))


def compile_for_it():
    return tilelang.compile(twice, target="llvm")


def instead_c():
    x, y = torch.randn(n), torch.empty(n)
    tilelang.compile(twice, target="c", execution_backend="cython")(x, y)
    return torch.equal(y, x * 2)


if __name__ == "__main__":
    from runner import show

    show(globals())
