"""Float constants on the c target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch

PI = 3.141592653589793


def written(value, dtype):
    @T.prim_func
    def kernel(y: T.Tensor((1,), dtype)):
        with T.Kernel(1, is_cpu=True) as _:
            y[0] = T.cast(value, dtype)

    y = torch.empty(1, dtype=getattr(torch, dtype))
    tilelang.compile(kernel, target="c", execution_backend="cython")(y)
    return y.item()


def float64_constant():
    return written(PI, "float64") - PI


def float32_constant():
    return written(PI, "float32") - torch.tensor(PI).item()


def of_seven_digits():
    return written(3.140625, "float64") - 3.140625


def instead_a_parameter():
    @T.prim_func
    def kernel(value: T.Tensor((1,), "float64"), y: T.Tensor((1,), "float64")):
        with T.Kernel(1, is_cpu=True) as _:
            y[0] = value[0]

    y = torch.empty(1, dtype=torch.float64)
    tilelang.compile(kernel, target="c", execution_backend="cython")(torch.tensor([PI], dtype=torch.float64), y)
    return y.item() - PI


if __name__ == "__main__":
    from runner import show

    show(globals())
