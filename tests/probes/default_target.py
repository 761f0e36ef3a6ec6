"""No target, or "cuda" without an architecture, on a machine without CUDA's runtime."""
# mypy: ignore-errors

import unittest

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


def cuda_without_an_architecture():
    if torch.version.cuda is not None:
        raise unittest.SkipTest("this PyTorch brings CUDA's runtime; the probe wants one that does not")
    tilelang.lower(twice, target="cuda")


def instead_the_architecture():
    target = tvm.target.Target("cuda -arch=sm_80")
    with target:
        source = tilelang.lower(twice, target=target).kernel_source
    return "twice_kernel" in source


if __name__ == "__main__":
    from runner import show

    show(globals())
