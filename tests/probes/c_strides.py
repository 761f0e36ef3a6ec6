"""A symbolic stride on the c target."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch

n = 4


def as_it_stands():
    N, stride = T.dynamic("N"), T.dynamic("stride")

    @T.prim_func
    def kernel(x: T.StridedTensor((N, n), (stride, 1), "float32"), y: T.Tensor((N,), "float32")):
        with T.Kernel(N, is_cpu=True) as row:
            y[row] = x[row, 0]

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def a_strided_view_for_a_dense_tensor():
    @T.prim_func
    def kernel(x: T.Tensor((n, n), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(n, is_cpu=True) as row:
            y[row] = x[row, 0]

    tilelang.compile(kernel, target="c", execution_backend="cython")(torch.randn(n, n).t(), torch.empty(n))


def instead_the_stride_as_a_number():
    N, size = T.dynamic("N"), T.dynamic("size")

    @T.prim_func
    def kernel(x: T.Tensor((size,), "float32"), stride: T.int32, y: T.Tensor((N,), "float32")):
        with T.Kernel(N, is_cpu=True) as row:
            y[row] = x[row * stride]

    x, y = torch.randn(5, 8), torch.empty(5)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x.view(-1), 8, y)
    return torch.equal(y, x[:, 0])


if __name__ == "__main__":
    from runner import show

    show(globals())
