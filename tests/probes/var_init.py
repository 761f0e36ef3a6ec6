"""The initial value of T.alloc_var: on c, and inside a loop."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

n = 4


def is_it_there_on_c():
    @T.prim_func
    def kernel(y: T.Tensor((1,), "int32")):
        with T.Kernel(1, is_cpu=True) as _:
            value = T.alloc_var("int32", init=77)
            y[0] = value

    target = tvm.target.Target("c")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    return "int32_t value[1];" in source, "77" in source


def in_a_loop_for_cuda():
    @T.prim_func
    def kernel(x: T.Tensor((n, n), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for row in T.serial(n):
                total = T.alloc_var("float32", init=0.0)
                for i in T.serial(n):
                    total = total + x[row, i]
                y[row] = total

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    return [line.strip() for line in source.splitlines() if "for (" in line or line.lstrip().startswith("float total")]


def instead_assign_it():
    @T.prim_func
    def kernel(x: T.Tensor((n, n), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            total = T.alloc_var("float32")
            for row in T.serial(n):
                total = 0.0
                for i in T.serial(n):
                    total = total + x[row, i]
                y[row] = total

    x, y = torch.arange(n * n, dtype=torch.float32).view(n, n), torch.empty(n)
    tilelang.compile(kernel, target="c", execution_backend="cython")(x, y)
    return y.tolist()


if __name__ == "__main__":
    from runner import show

    show(globals())
