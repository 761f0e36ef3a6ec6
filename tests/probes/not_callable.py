"""The message "... is not a callable object"."""
# mypy: ignore-errors

import inspect

import tilelang
import tilelang.language as T
import torch
import tvm


@T.prim_func
def twice(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32")):
    with T.Kernel(1, is_cpu=True) as _:
        for i in T.serial(4):
            y[i] = x[i] * 2.0


def signature_of_a_statement():
    return inspect.signature(tvm.tir.Evaluate(0))


def jit_of_a_statement():
    return tilelang.jit(tvm.tir.Evaluate(0))


def jit_on_top_of_prim_func():
    return tilelang.jit(twice)


def instead_compile():
    kernel = tilelang.compile(twice, target="c", execution_backend="cython")
    x, y = torch.randn(4), torch.empty(4)
    kernel(x, y)
    return torch.equal(y, x * 2)


def instead_jit_of_a_function_that_returns_it():
    @tilelang.jit(target="c", execution_backend="cython")
    def factory():
        return twice

    x, y = torch.randn(4), torch.empty(4)
    factory()(x, y)
    return torch.equal(y, x * 2)


if __name__ == "__main__":
    from runner import show

    show(globals())
