"""The message "Load/Store of buffer ... occurred before its declaration"."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

n = 4


def a_buffer_of_no_function():
    x = tvm.tir.decl_buffer((n,), "float32", "x")  # neither a parameter nor allocated

    @T.prim_func
    def kernel(y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = x[i]

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def a_local_buffer_of_another_kernel():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            local = T.alloc_local((n,), "float32")
            for i in T.serial(n):
                local[i] = x[i]
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = local[i]

    return kernel


def instead_a_parameter():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), workspace: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                workspace[i] = x[i] * 2.0
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = workspace[i] * 2.0

    x, workspace, y = torch.randn(n), torch.empty(n), torch.empty(n)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, workspace, y)
    return torch.equal(y, x * 4)


if __name__ == "__main__":
    from runner import show

    show(globals())
