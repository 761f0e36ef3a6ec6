"""`output[b, s, i] = local[i]`: stores at several indices, lazily and eagerly."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

B, S, n = 2, 3, 4


def lazily_3d():
    @T.prim_func
    def kernel(x: T.Tensor((B, S, n), "float32"), output: T.Tensor((B, S, n), "float32")):
        with T.Kernel(B, S, is_cpu=True) as (b, s):
            local = T.alloc_local((n,), "float32")
            for i in T.serial(n):
                local[i] = x[b, s, i] * 2.0
            for i in T.serial(n):
                output[b, s, i] = local[i]

    x, output = torch.randn(B, S, n), torch.empty(B, S, n)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, output)
    return torch.equal(output, x * 2)


def lazily_4d():
    @T.prim_func
    def kernel(x: T.Tensor((B, S, n, n), "float32"), output: T.Tensor((B, S, n, n), "float32")):
        with T.Kernel(B, S, is_cpu=True) as (b, s):
            local = T.alloc_local((n, n), "float32")
            for i, j in T.grid(n, n):
                local[i, j] = x[b, s, i, j] * 2.0
            for i, j in T.grid(n, n):
                output[b, s, i, j] = local[i, j]

    x, output = torch.randn(B, S, n, n), torch.empty(B, S, n, n)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, output)
    return torch.equal(output, x * 2)


def eagerly_3d():
    @tilelang.jit(target="c", execution_backend="cython")
    def kernel(x):
        B, S, n = T.const("B S n")
        x: T.Tensor[[B, S, n], T.float32]
        output = T.empty((B, S, n), T.float32)
        with T.Kernel(B, S, is_cpu=True) as (b, s):
            local = T.alloc_local((n,), "float32")
            for i in T.serial(n):
                local[i] = x[b, s, i] * 2.0
            for i in T.serial(n):
                output[b, s, i] = local[i]
        return output

    x = torch.randn(B, S, n)
    return torch.equal(kernel(x), x * 2)


def eagerly_4d():
    @tilelang.jit(target="c", execution_backend="cython")
    def kernel(x, output):
        B, S, n = T.const("B S n")
        x: T.Tensor[[B, S, n, n], T.float32]
        output: T.Tensor[[B, S, n, n], T.float32]
        with T.Kernel(B, S, is_cpu=True) as (b, s):
            local = T.alloc_local((n, n), "float32")
            for i, j in T.grid(n, n):
                local[i, j] = x[b, s, i, j] * 2.0
            for i, j in T.grid(n, n):
                output[b, s, i, j] = local[i, j]

    x, output = torch.randn(B, S, n, n), torch.empty(B, S, n, n)
    kernel(x, output)
    return torch.equal(output, x * 2)


def for_cuda():
    @T.prim_func
    def kernel(x: T.Tensor((B, S, n), "float32"), output: T.Tensor((B, S, n), "float32")):
        with T.Kernel(B, S, threads=32) as (b, s):
            local = T.alloc_local((n,), "float32")
            for i in T.serial(n):
                local[i] = x[b, s, i] * 2.0
            for i in T.serial(n):
                output[b, s, i] = local[i]

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    return "output[(((((int)blockIdx.x) * 12) + (((int)blockIdx.y) * 4)) + i_1)] = local[i_1];" in source


if __name__ == "__main__":
    from runner import show

    show(globals())
