"""The detour through shared memory that the notes took for a store at several indices."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

B, S, n = 2, 3, 4


def the_detour_on_c():
    @T.prim_func
    def kernel(x: T.Tensor((B, S, n), "float32"), output: T.Tensor((B, S, n), "float32")):
        with T.Kernel(B, S, is_cpu=True) as (b, s):
            shared = T.alloc_shared((n,), "float32")
            for i in T.serial(n):
                shared[i] = x[b, s, i] * 2.0
            for i in T.serial(n):
                output[b, s, i] = shared[i]

    x, output = torch.randn(B, S, n), torch.empty(B, S, n)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, output)
    return torch.equal(output, x * 2)


def what_it_costs_on_cuda():
    @T.prim_func
    def kernel(x: T.Tensor((B, S, n), "float32"), output: T.Tensor((B, S, n), "float32")):
        with T.Kernel(B, S, threads=32) as (b, s):
            shared = T.alloc_shared((n,), "float32")
            for i in T.serial(n):
                shared[i] = x[b, s, i] * 2.0
            T.copy(shared, output[b, s, 0:n])

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    return "extern __shared__" in source, "__syncthreads();" in source


def instead_on_cuda():
    @T.prim_func
    def kernel(x: T.Tensor((B, S, n), "float32"), output: T.Tensor((B, S, n), "float32")):
        with T.Kernel(B, S, threads=32) as (b, s):
            for i in T.Parallel(n):
                output[b, s, i] = x[b, s, i] * 2.0

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    return "__shared__" not in source, "__syncthreads" not in source


if __name__ == "__main__":
    from runner import show

    show(globals())
