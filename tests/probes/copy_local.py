"""T.copy into and out of a local buffer."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm

B = 2
n = 4


@T.prim_func
def copies(x: T.Tensor((B, n), "float32"), y: T.Tensor((B, n), "float32")):
    with T.Kernel(B, is_cpu=True) as b:
        local = T.alloc_local((n,), "float32")
        T.copy(x[b, 0:n], local)
        T.copy(local, y[b, 0:n])


def on_c():
    return tilelang.compile(copies, target="c", execution_backend="cython")


def on_c_inside_the_target():
    with tvm.target.Target("c"):
        return tilelang.compile(copies, target="c", execution_backend="cython")


def instead_on_c_without_vectorising():
    with tvm.target.Target("c"):
        kernel = tilelang.compile(
            copies, target="c", execution_backend="cython", pass_configs={"tir.disable_vectorize": True}
        )
    x, y = torch.randn(B, n), torch.empty(B, n)
    kernel(x, y)
    return torch.equal(x, y)


def instead_on_c_a_loop():
    @T.prim_func
    def loops(x: T.Tensor((B, n), "float32"), y: T.Tensor((B, n), "float32")):
        with T.Kernel(B, is_cpu=True) as b:
            local = T.alloc_local((n,), "float32")
            for i in T.serial(n):
                local[i] = x[b, i]
            for i in T.serial(n):
                y[b, i] = local[i]

    x, y = torch.randn(B, n), torch.empty(B, n)
    tilelang.compile(loops, target="c", execution_backend="cython")(x, y)
    return torch.equal(x, y)


def on_cuda_every_thread_writes_all():
    @T.prim_func
    def kernel(x: T.Tensor((B, n), "float32"), y: T.Tensor((B, n), "float32")):
        with T.Kernel(B, threads=32) as b:
            local = T.alloc_local((n,), "float32")
            T.copy(x[b, 0:n], local)
            T.copy(local, y[b, 0:n])

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    return "threadIdx" not in source, "*(float4*)(y + (((int)blockIdx.x) * 4)) = *(float4*)(local + 0);" in source


def instead_on_cuda_a_fragment():
    @T.prim_func
    def kernel(x: T.Tensor((B, n), "float32"), y: T.Tensor((B, n), "float32")):
        with T.Kernel(B, threads=32) as b:
            fragment = T.alloc_fragment((n,), "float32")
            T.copy(x[b, 0:n], fragment)
            T.copy(fragment, y[b, 0:n])

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(kernel, target=target).kernel_source
    return "threadIdx" in source, "__syncthreads" not in source


if __name__ == "__main__":
    from runner import show

    show(globals())
