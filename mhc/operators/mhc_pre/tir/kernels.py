"""mHC Forward Pre as a TIR script: buffers matched by hand, loops, a block; one script for CUDA and for the `c` target.

A block of threads computes a few tokens. x and phi go through shared memory in chunks of columns; the block's threads are
shares of a chunk's columns, and each thread of a share keeps the sums of some tokens times some rows of phi in registers.
The next chunk is loaded while this one is multiplied. With one thread the same lines are plain loops over tokens. Formulas
and indices are TileLang's `macros`. All sizes are dynamic and 64-bit. Products are (x * gamma) * phi, in the accumulation
dtype. Columns, rows and tokens past the last are zeros.

What TileLang 0.1.8 asks of a script. Threads are bound by loops: under `T.launch_thread`, a buffer allocated outside
`T.block` becomes a parameter of the kernel that no call passes. threadIdx.y and .z are bound too, or the pass that places
barriers fails ("indexing -1 on an array of size 2"). A macro's parameter renames the dynamic size that is passed to it.

Sums. A share adds its columns of a chunk, then the chunks; the shares are added last. That is at most chunk / shares +
K / chunk + shares additions in a row, of which the bound 6 sqrt(K) u sum|a| holds even for equal terms, which round in the
same way again and again, up to K = 147,000 on one thread. The squares are added so too: a thread's of the columns it loads,
and then the threads'.
"""

import tilelang.language as T

import mhc.operators.mhc_pre.tilelang.kernels.macros as pre


def bound(threads, extent, thread):
    """A loop over blocks or threads on CUDA, a plain loop on one thread."""
    return T.thread_binding(extent, thread=thread) if threads > 1 else T.serial(extent)


@T.macro
def barrier(threads):
    """Wait for the block's threads."""
    if threads > 1:
        T.tvm_storage_sync("shared")


def forward(*, dtype, max_n, threads, tokens, rows, chunk, token_tile, row_tile):
    """All six outputs; x and h_in in `dtype`, and n up to max_n.

    threads: of a block, 1 for the `c` target. It computes `tokens` tokens, `rows` rows of phi and `chunk` columns at a time,
    and a thread token_tile * row_tile sums.
    """
    acc = "float64" if dtype == "float64" else "float32"
    scalar = T.float64 if dtype == "float64" else T.float32  # Metal has no float64
    scope = "shared" if threads > 1 else "local"
    N, K, M, n, D = (T.dynamic(name, "int64") for name in ("N", "K", "M", "n", "D"))

    across, down = rows // row_tile, tokens // token_tile  # threads of a share
    shares = threads // (across * down)
    mine = chunk // shares  # columns of a share
    vector = 1 if threads == 1 else 2 if acc == "float64" else 4  # 16 bytes of shared memory at once
    pitch = chunk + vector  # so that neighbouring rows are in different banks
    width = min(threads, 32)  # threads that load a row's columns
    loaders = threads // width
    x_rows, phi_rows, columns = tokens // loaders, rows // loaders, chunk // width  # that a thread loads of a chunk
    outputs = tokens * rows // threads if threads > 1 else rows

    def sixteen_bytes():
        return T.vectorized(vector) if vector > 1 else T.serial(1)

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
        for block in bound(threads, T.ceildiv(N, tokens), "blockIdx.x"):
            for thread in bound(threads, threads, "threadIdx.x"):
                for _y in bound(threads, 1, "threadIdx.y"):
                    for _z in bound(threads, 1, "threadIdx.z"):
                        with T.block("tokens"):
                            x_tile = T.alloc_buffer((tokens, pitch), acc, scope=scope)
                            phi_tile = T.alloc_buffer((rows, pitch), acc, scope=scope)
                            sums = T.alloc_buffer((shares, tokens, rows), acc, scope=scope)
                            squares = T.alloc_buffer((tokens, width), acc, scope=scope)
                            scale = T.alloc_buffer((tokens,), acc, scope=scope)
                            gates = T.alloc_buffer((tokens, max_n), acc, scope=scope)
                            x_next = T.alloc_buffer((x_rows * columns,), dtype, scope="local")
                            gamma_next = T.alloc_buffer((columns,), acc, scope="local")
                            phi_next = T.alloc_buffer((phi_rows * columns,), acc, scope="local")
                            x_now = T.alloc_buffer((token_tile * vector,), acc, scope="local")
                            phi_now = T.alloc_buffer((row_tile * vector,), acc, scope="local")
                            part = T.alloc_buffer((token_tile * row_tile,), acc, scope="local")
                            total = T.alloc_buffer((token_tile * row_tile,), acc, scope="local")
                            square_part = T.alloc_buffer((1,), acc, scope="local")
                            square_total = T.alloc_buffer((x_rows,), acc, scope="local")
                            value = T.alloc_buffer((1,), acc, scope="local")
                            lane = thread % width
                            loader = thread // width
                            share = thread // (across * down)
                            place = thread % (across * down)
                            for i in T.unroll(x_rows):
                                square_total[i] = 0.0

                            for step in T.serial(T.ceildiv(M, rows)):
                                for e in T.unroll(token_tile * row_tile):
                                    total[e] = 0.0
                                # one turn more than chunks: turn c loads chunk c and multiplies chunk c - 1
                                for c in T.serial(T.ceildiv(K, chunk) + 1):
                                    barrier(threads)
                                    if c > 0:
                                        for i in T.unroll(x_rows):
                                            square_part[0] = 0.0
                                            for e in T.unroll(columns):
                                                value[0] = T.cast(x_next[i * columns + e], acc)
                                                square_part[0] += value[0] * value[0]
                                                x_tile[loader * x_rows + i, e * width + lane] = value[0] * gamma_next[e]
                                            if step == 0:  # gamma is not in the mean
                                                square_total[i] += square_part[0]
                                        for i in T.unroll(phi_rows):
                                            for e in T.unroll(columns):
                                                phi_tile[loader * phi_rows + i, e * width + lane] = phi_next[i * columns + e]
                                    barrier(threads)
                                    for e in T.unroll(columns):
                                        k = c * chunk + e * width + lane
                                        gamma_next[e] = 0.0
                                        if k < K:
                                            gamma_next[e] = gamma[k]
                                        for i in T.unroll(x_rows):
                                            t = block * tokens + loader * x_rows + i
                                            x_next[i * columns + e] = T.cast(0.0, dtype)
                                            if k < K and t < N:
                                                x_next[i * columns + e] = x[t, k]
                                        for i in T.unroll(phi_rows):
                                            row = step * rows + loader * phi_rows + i
                                            phi_next[i * columns + e] = 0.0
                                            if k < K and row < M:
                                                phi_next[i * columns + e] = phi[row, k]
                                    if c > 0:
                                        for e in T.unroll(token_tile * row_tile):
                                            part[e] = 0.0
                                        for at in T.unroll(mine // vector):
                                            for i in T.unroll(token_tile):
                                                for e in sixteen_bytes():
                                                    x_now[i * vector + e] = x_tile[
                                                        place // across + i * down, share * mine + at * vector + e
                                                    ]
                                            for j in T.unroll(row_tile):
                                                for e in sixteen_bytes():
                                                    phi_now[j * vector + e] = phi_tile[
                                                        place % across + j * across, share * mine + at * vector + e
                                                    ]
                                            for e in T.unroll(vector):
                                                for i in T.unroll(token_tile):
                                                    for j in T.unroll(row_tile):
                                                        part[i * row_tile + j] += (
                                                            x_now[i * vector + e] * phi_now[j * vector + e]
                                                        )
                                        for e in T.unroll(token_tile * row_tile):
                                            total[e] += part[e]

                                for i in T.unroll(token_tile):
                                    for j in T.unroll(row_tile):
                                        sums[share, place // across + i * down, place % across + j * across] = total[
                                            i * row_tile + j
                                        ]
                                for i in T.unroll(x_rows):
                                    squares[loader * x_rows + i, lane] = square_total[i]
                                barrier(threads)
                                if thread < tokens:
                                    value[0] = 0.0
                                    for e in T.serial(width):
                                        value[0] += squares[thread, e]
                                    scale[thread] = pre.inverse_rms(value[0], K, norm_eps)
                                    if step == 0 and block * tokens + thread < N:
                                        inv_rms[block * tokens + thread] = scale[thread]
                                barrier(threads)

                                # h_mix and the gates
                                for e in T.serial(outputs):
                                    token = (e * threads + thread) // rows
                                    at_row = (e * threads + thread) % rows
                                    t = block * tokens + token
                                    row = step * rows + at_row
                                    if row < M and t < N:
                                        value[0] = 0.0
                                        for s in T.unroll(shares):
                                            value[0] += sums[s, token, at_row]
                                        h_mix[t, row] = value[0]
                                        z = pre.gate_argument(
                                            pre.by_gate(row, n, alpha[0], alpha[1], alpha[2]),
                                            value[0],
                                            scale[token],
                                            bias[row],
                                        )
                                        if row < pre.post_row(n, 0):
                                            gates[token, row] = pre.pre_gate(z, hc_eps)
                                            h_pre[t, row] = gates[token, row]
                                        elif row < pre.res_row(n, 0, 0):
                                            h_post[t, row - pre.post_row(n, 0)] = pre.post_gate(z)
                                        else:
                                            h_res[t, row - pre.res_row(n, 0, 0)] = z
                            barrier(threads)

                            # h_in, rounded once
                            for token in T.serial(tokens):
                                t = block * tokens + token
                                for step in T.serial(T.ceildiv(D, threads)):
                                    d = step * threads + thread
                                    if d < D and t < N:
                                        value[0] = 0.0
                                        for i in T.serial(n):
                                            value[0] += gates[token, i] * T.cast(x[t, pre.column(D, i, d)], acc)
                                        h_in[t, d] = T.cast(value[0], dtype)

    return tir_forward
