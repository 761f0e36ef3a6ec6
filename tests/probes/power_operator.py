"""`**` on a tensor, on an element, and in a kernel."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
from tvm import te


def on_a_te_tensor():
    return te.placeholder((4,), name="A") ** 2


def on_a_te_element():
    A = te.placeholder((4,), name="A")
    return te.compute((4,), lambda i: A[i] ** 2, name="B")


def in_a_kernel():
    @T.prim_func
    def square(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(4):
                y[i] = x[i] ** 2

    return square


def in_a_macro_as_its_docstring_has_it():
    @T.macro
    def my_macro(x: T.int32) -> T.int32:
        return x**2

    @T.prim_func
    def my_func(A: T.Tensor((10,), T.int32), B: T.Tensor((10,), T.int32)):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(10):
                B[i] = my_macro(A[i])

    return my_func


def instead_a_product_or_pow():
    @T.prim_func
    def square(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32"), z: T.Tensor((4,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(4):
                y[i] = x[i] * x[i]
                z[i] = T.pow(x[i], 2.0)

    kernel = tilelang.compile(square, target="c", execution_backend="cython")
    x, y, z = torch.randn(4), torch.empty(4), torch.empty(4)
    kernel(x, y, z)
    return torch.equal(y, x * x), torch.allclose(z, x * x, rtol=1e-6)


if __name__ == "__main__":
    from runner import show

    show(globals())
