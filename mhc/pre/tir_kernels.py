"""mHC Forward Pre as a TIR script: buffers matched by hand, loops, a block; one script for CUDA and for the `c` target.

With threads > 1 a block of that many threads computes a token and adds up in shared memory; with threads = 1 the same lines
are plain loops over tokens. Formulas and indices are `tilelang_macros`. All sizes are dynamic and 64-bit.

What TileLang 0.1.8 asks of a script. Threads are bound by loops: under `T.launch_thread`, a buffer allocated outside
`T.block` turns into a parameter of the kernel that nobody passes. threadIdx.y and .z are bound too, or the pass that places
barriers fails ("indexing -1 on an array of size 2"). A macro's parameter renames the dynamic size that is passed to it.

Sums. A thread adds blocks of LINES terms, and the threads are added in a tree: at most LINES + log2(threads) + ceil(L /
(LINES * threads)) additions in a row for L terms, of which the bound 6 sqrt(L) u sum|a| holds even for equal terms, which
round in the same way again and again, up to L = 147,000 on one thread.
"""

import tilelang.language as T

import mhc.pre.tilelang_macros as pre

LINES = 64


def bound(threads, extent, thread):
    """A loop over blocks or threads on CUDA, a plain loop on one thread."""
    return T.thread_binding(extent, thread=thread) if threads > 1 else T.serial(extent)


@T.macro
def barrier(threads):
    """Wait for the block's threads."""
    if threads > 1:
        T.tvm_storage_sync("shared")


@T.macro
def thread_sum(total, part, K, first, step, term):
    """total[0] = the sum of term(k) over k = first, first + step, ... < K."""
    total[0] = 0.0
    for block in T.serial(T.ceildiv(K, LINES * step)):
        part[0] = 0.0
        for line in T.serial(LINES):
            if (block * LINES + line) * step + first < K:
                part[0] += term((block * LINES + line) * step + first)
        total[0] += part[0]


@T.macro
def block_sum(shared, total, thread, threads):
    """shared[0] = the sum of the threads' total[0], in an order that depends on their number alone; for thread 0 to read."""
    shared[thread] = total[0]
    for half in T.unroll(threads.bit_length() - 1):
        barrier(threads)
        if thread < threads // 2 >> half:
            shared[thread] += shared[thread + (threads // 2 >> half)]


def forward(*, dtype, max_n, threads):
    """All six outputs; x and h_in in `dtype`, and n up to max_n. threads: a power of 2; 1 for the `c` target."""
    acc = "float64" if dtype == "float64" else "float32"
    scalar = T.float64 if dtype == "float64" else T.float32  # Metal has no float64
    scope = "shared" if threads > 1 else "local"
    N, K, M, n, D = (T.dynamic(name, "int64") for name in ("N", "K", "M", "n", "D"))

    @T.prim_func
    def tir_forward(
        x_handle: T.handle,
        phi_handle: T.handle,
        alpha_handle: T.handle,
        bias_handle: T.handle,
        gamma_handle: T.handle,
        h_in_handle: T.handle,
        h_post_handle: T.handle,
        h_res_handle: T.handle,
        inv_rms_handle: T.handle,
        h_mix_handle: T.handle,
        h_pre_handle: T.handle,
        norm_eps: scalar,
        hc_eps: scalar,
    ):
        x = T.match_buffer(x_handle, (N, K), dtype)
        phi = T.match_buffer(phi_handle, (M, K), acc)
        alpha = T.match_buffer(alpha_handle, (3,), acc)
        bias = T.match_buffer(bias_handle, (M,), acc)
        gamma = T.match_buffer(gamma_handle, (K,), acc)
        h_in = T.match_buffer(h_in_handle, (N, D), dtype)
        h_post = T.match_buffer(h_post_handle, (N, n), acc)
        h_res = T.match_buffer(h_res_handle, (N, n * n), acc)
        inv_rms = T.match_buffer(inv_rms_handle, (N,), acc)
        h_mix = T.match_buffer(h_mix_handle, (N, M), acc)
        h_pre = T.match_buffer(h_pre_handle, (N, n), acc)
        for t in bound(threads, N, "blockIdx.x"):
            for thread in bound(threads, threads, "threadIdx.x"):
                for _y in bound(threads, 1, "threadIdx.y"):
                    for _z in bound(threads, 1, "threadIdx.z"):
                        with T.block("token"):
                            shared = T.alloc_buffer((threads,), acc, scope=scope)
                            mix = T.alloc_buffer((pre.rows(max_n),), acc, scope=scope)
                            gates = T.alloc_buffer((max_n,), acc, scope=scope)
                            scale = T.alloc_buffer((1,), acc, scope=scope)
                            total = T.alloc_buffer((1,), acc, scope="local")
                            part = T.alloc_buffer((1,), acc, scope="local")

                            # rms: gamma is not in the mean
                            thread_sum(
                                total, part, K, thread, threads, lambda k: T.cast(x[t, k], acc) * T.cast(x[t, k], acc)
                            )
                            block_sum(shared, total, thread, threads)
                            if thread == 0:
                                scale[0] = pre.inverse_rms(shared[0], K, norm_eps)
                                inv_rms[t] = scale[0]
                            barrier(threads)

                            # h_mix, a row at a time
                            for row in T.serial(M):
                                thread_sum(
                                    total,
                                    part,
                                    K,
                                    thread,
                                    threads,
                                    lambda k: T.cast(x[t, k], acc) * gamma[k] * phi[row, k],
                                )
                                block_sum(shared, total, thread, threads)
                                if thread == 0:
                                    mix[row] = shared[0]
                                    h_mix[t, row] = shared[0]
                                barrier(threads)

                            # the gates
                            for step in T.serial(T.ceildiv(M, threads)):
                                row = step * threads + thread
                                if row < M:
                                    z = pre.gate_argument(
                                        pre.by_gate(row, n, alpha[0], alpha[1], alpha[2]), mix[row], scale[0], bias[row]
                                    )
                                    if row < pre.post_row(n, 0):
                                        gates[row] = pre.pre_gate(z, hc_eps)
                                        h_pre[t, row] = gates[row]
                                    elif row < pre.res_row(n, 0, 0):
                                        h_post[t, row - pre.post_row(n, 0)] = pre.post_gate(z)
                                    else:
                                        h_res[t, row - pre.res_row(n, 0, 0)] = z
                            barrier(threads)

                            # h_in, rounded once
                            for step in T.serial(T.ceildiv(D, threads)):
                                d = step * threads + thread
                                if d < D:
                                    total[0] = 0.0
                                    for i in T.serial(n):
                                        total[0] += gates[i] * T.cast(x[t, pre.column(D, i, d)], acc)
                                    h_in[t, d] = T.cast(total[0], dtype)

    return tir_forward
