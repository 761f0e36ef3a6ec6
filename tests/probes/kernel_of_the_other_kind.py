"""A kernel for the CPU on a GPU target, and the other way round."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import tvm

n = 4


def for_threads_on_c():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=1) as _:
            for i in T.serial(n):
                y[i] = x[i]

    return tilelang.compile(kernel, target="c", execution_backend="cython")


def for_the_cpu_on_cuda():
    @T.prim_func
    def kernel(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_cpu=True) as _:
            for i in T.serial(n):
                y[i] = x[i]

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        return tilelang.lower(kernel, target=target)


def instead_a_macro_for_the_body():
    @T.macro
    def body(x, y, i):
        y[i] = x[i] * 2.0

    @T.prim_func
    def on_c(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(n, is_cpu=True) as i:
            body(x, y, i)

    @T.prim_func
    def on_cuda(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=32) as _:
            for i in T.Parallel(n):
                body(x, y, i)

    sources = []
    for kernel, name in ((on_c, "c"), (on_cuda, "cuda -arch=sm_90")):
        target = tvm.target.Target(name)
        with target:
            sources.append(tilelang.lower(kernel, target=target).kernel_source)
    return "* 2.0" in sources[0], "* 0x1p+1f" in sources[1]


if __name__ == "__main__":
    from runner import show

    show(globals())
