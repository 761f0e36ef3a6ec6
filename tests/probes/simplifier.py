"""TVM's simplifier takes floats for real numbers: NaN, infinity and rounding are lost inside one expression."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

SPECIAL = torch.tensor([1.0, float("inf"), float("-inf"), float("nan")])
BIG = 2.0**27  # 1 + BIG rounds to BIG in float32


def in_one_expression():
    @T.prim_func
    def kernel(x: T.Tensor((4,), "float32"), y: T.Tensor((4, 4), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(4):
                y[0, i] = x[i] - x[i]
                y[1, i] = x[i] * T.float32(0)
                y[2, i] = T.cast(x[i] != x[i], "float32")
                y[3, i] = (x[i] + T.float32(BIG)) - T.float32(BIG)

    y = torch.empty(4, 4)
    tilelang.compile(kernel, target="c", execution_backend="cython")(SPECIAL, y)
    return dict(zip(("x - x", "x * 0", "x != x", "x + c - c"), y.tolist(), strict=True))


def x_minus_x_for_cuda():
    @T.prim_func
    def kernel(x: T.Tensor((4,), "float32"), y: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.serial(4):
                y[i] = x[i] - x[i]

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        return "y[i] = 0x0p+0f" in tilelang.lower(kernel, target=target).kernel_source


def instead_a_step_at_a_time():
    infinite = T.uint32(0x7F800000)

    @T.prim_func
    def kernel(x: T.Tensor((4,), "float32"), y: T.Tensor((4, 4), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            step = T.alloc_local((2,), "float32")
            for i in T.serial(4):
                step[0] = x[i]
                step[1] = x[i]
                y[0, i] = step[0] - step[1]
                y[1, i] = T.cast((T.reinterpret(x[i], "uint32") & infinite) != infinite, "float32")
                y[2, i] = T.cast(T.isnan(x[i]), "float32")
                up = x[i] + T.float32(BIG)
                y[3, i] = up - T.float32(BIG)

    y = torch.empty(4, 4)
    tilelang.compile(kernel, target="c", execution_backend="cython")(SPECIAL, y)
    return dict(zip(("x - x by a buffer", "finite by bits", "isnan", "x + c - c by a name"), y.tolist(), strict=True))


if __name__ == "__main__":
    from runner import show

    show(globals())
