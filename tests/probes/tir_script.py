"""The kernel as a TIR script: match_buffer, alloc_buffer, plain loops or thread bindings."""
# mypy: ignore-errors

import tilelang
import tilelang.language as T
import torch
import tvm


def a_size_without_a_name():
    @T.prim_func
    def sums(x_handle: T.handle, y_handle: T.handle):
        N = T.int32()
        x = T.match_buffer(x_handle, (N, 8), "float32")
        y = T.match_buffer(y_handle, (N,), "float32")
        for row in range(N):
            y[row] = x[row, 0]

    return tilelang.compile(sums, target="c", execution_backend="cython")


def instead_a_named_size_on_c():
    N = T.dynamic("N")

    @T.prim_func
    def sums(x_handle: T.handle, y_handle: T.handle):
        x = T.match_buffer(x_handle, (N, 8), "float32")
        y = T.match_buffer(y_handle, (N,), "float32")
        total = T.alloc_buffer((1,), "float32", scope="local")
        for row in range(N):
            total[0] = T.float32(0)
            for i in range(8):
                total[0] = total[0] + x[row, i]
            y[row] = total[0]

    x, y = torch.ones(5, 8), torch.empty(5)
    tilelang.compile(sums, target="c", execution_backend="cython")(x, y)
    return torch.equal(y, x.sum(1))


def shared_memory_with_one_thread_dimension():
    @T.prim_func
    def reverse(x_handle: T.handle, y_handle: T.handle):
        x = T.match_buffer(x_handle, (4, 32), "float32")
        y = T.match_buffer(y_handle, (4, 32), "float32")
        shared = T.alloc_buffer((32,), "float32", scope="shared")
        for block in T.thread_binding(4, thread="blockIdx.x"):
            for thread in T.thread_binding(32, thread="threadIdx.x"):
                shared[thread] = x[block, thread]
                y[block, thread] = shared[31 - thread]

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        return tilelang.lower(reverse, target=target)


def instead_all_three_thread_dimensions():
    @T.prim_func
    def reverse(x_handle: T.handle, y_handle: T.handle):
        x = T.match_buffer(x_handle, (4, 32), "float32")
        y = T.match_buffer(y_handle, (4, 32), "float32")
        for block in T.thread_binding(4, thread="blockIdx.x"):
            for thread in T.thread_binding(32, thread="threadIdx.x"):
                for _y in T.thread_binding(1, thread="threadIdx.y"):
                    for _z in T.thread_binding(1, thread="threadIdx.z"):
                        with T.block("reverse"):
                            shared = T.alloc_buffer((32,), "float32", scope="shared")
                            shared[thread] = x[block, thread]
                            y[block, thread] = shared[31 - thread]

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(reverse, target=target).kernel_source
    return "__shared__" in source, "__syncthreads();" in source, "float* __restrict__ shared" not in source


def instead_for_cuda():
    N = T.dynamic("N")

    @T.prim_func
    def sums(x_handle: T.handle, y_handle: T.handle):
        x = T.match_buffer(x_handle, (N, 8), "float32")
        y = T.match_buffer(y_handle, (N,), "float32")
        total = T.alloc_buffer((1,), "float32", scope="local")
        for block in T.thread_binding(T.ceildiv(N, 32), thread="blockIdx.x"):
            for thread in T.thread_binding(32, thread="threadIdx.x"):
                if block * 32 + thread < N:
                    total[0] = T.float32(0)
                    for i in range(8):
                        total[0] = total[0] + x[block * 32 + thread, i]
                    y[block * 32 + thread] = total[0]

    target = tvm.target.Target("cuda -arch=sm_90")
    with target:
        source = tilelang.lower(sums, target=target).kernel_source
    return "blockIdx.x" in source, "(int64_t)" in source


if __name__ == "__main__":
    from runner import show

    show(globals())
