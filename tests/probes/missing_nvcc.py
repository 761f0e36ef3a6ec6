"""Compiling for CUDA without nvcc. Wants CUDA_HOME=nowhere in the environment, set before TileLang is imported."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

n = 128


@T.prim_func
def twice(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
    with T.Kernel(1, threads=n) as _:
        for i in T.Parallel(n):
            y[i] = x[i] * 2.0


def with_the_default_backend():
    return tilelang.compile(twice, target="cuda -arch=sm_90", execution_backend="tvm_ffi")


def with_the_cython_backend():
    return tilelang.compile(twice, target="cuda -arch=sm_90", execution_backend="cython")


def instead_lower_only():
    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(twice, target=target).kernel_source
    return "__launch_bounds__(128, 1) twice_kernel" in source


def instead_on_c():
    @T.prim_func
    def loops(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = x[i] * 2.0

    x, y = torch.randn(n), torch.empty(n)
    tilelang.compile(loops, target="c", execution_backend="cython")(x, y)
    return torch.equal(y, x * 2)


if __name__ == "__main__":
    from runner import show

    show(globals())
