"""bfloat16 on the c target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch

n = 5


def as_it_stands():
    @T.prim_func
    def widen(x: T.Tensor((n,), "bfloat16"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = T.cast(x[i], "float32")

    return tilelang.compile(widen, target="c", execution_backend="cython")


def instead_its_bits():
    @T.prim_func
    def widen(x: T.Tensor((n,), "uint16"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = T.reinterpret(T.cast(x[i], "uint32") << 16, "float32")

    x, y = torch.tensor([0.1, -3.0, 1e-40, float("inf"), 3e38], dtype=torch.bfloat16), torch.empty(n)
    tilelang.compile(widen, target="c", execution_backend="cython")(x.view(torch.uint16), y)
    return torch.equal(y, x.float())


if __name__ == "__main__":
    from runner import show

    show(globals())
