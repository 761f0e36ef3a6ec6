"""T.gemm on the c target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch

n = 16


def as_it_stands():
    @T.prim_func
    def product(x: T.Tensor((n, n), "float32"), y: T.Tensor((n, n), "float32"), z: T.Tensor((n, n), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            a, b = T.alloc_shared((n, n), "float32"), T.alloc_shared((n, n), "float32")
            c = T.alloc_local((n, n), "float32")
            for i, j in T.grid(n, n):
                a[i, j] = x[i, j]
                b[i, j] = y[i, j]
                c[i, j] = 0.0
            T.gemm(a, b, c)
            for i, j in T.grid(n, n):
                z[i, j] = c[i, j]

    return tilelang.compile(product, target="c", execution_backend="cython")


def instead_three_loops():
    @T.prim_func
    def product(x: T.Tensor((n, n), "float32"), y: T.Tensor((n, n), "float32"), z: T.Tensor((n, n), "float32")):
        with T.Kernel(n, n, is_cpu=True) as (i, j):
            total = T.alloc_local((1,), "float32")
            total[0] = 0.0
            for k in T.serial(n):
                total[0] += x[i, k] * y[k, j]
            z[i, j] = total[0]

    x, y, z = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    tilelang.compile(product, target="c", execution_backend="cython")(x, y, z)
    return torch.allclose(z.double(), x.double() @ y.double(), atol=1e-5)


if __name__ == "__main__":
    from runner import show

    show(globals())
