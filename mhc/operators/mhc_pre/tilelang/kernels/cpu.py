"""mHC Forward Pre and its backward as serial TileLang loops, for the `c` target; formulas and indices are `macros`.

One program for all B, S, n and D, and for gamma or none (ones). All sizes and indices are 64-bit.

Sums. A plain float32 loop over L equal terms rounds the same way again and again, and leaves the bound 6 sqrt(L) u sum|a|
from L = 1000 or so. Here no term sees more than LANES-fold repetition of one loop: a block of LINES * LANES terms is added
in LANES lanes, the lanes in a tree, and blocks are added one after the other, which makes at most
LINES + log2(LANES) + ceil(L / 256) additions in a row. That, times u, is the worst case, and stays below the bound up to
L = 2 million, whatever the terms. Sums over tokens go by blocks of TOKENS (worst case inside the bound up to 36,000 tokens),
sums over the M rows by groups of n. Compensated sums would be closer still, but turn an infinite term into NaN.
"""

import tilelang.language as T

import mhc.operators.mhc_pre.tilelang.kernels.macros as pre

LANES = 32
LINES = 8
BLOCK = LINES * LANES
TOKENS = 32


def accumulation(dtype):
    """The dtype of parameters and sums, by name."""
    return "float64" if dtype == "float64" else "float32"


@T.macro
def block_sum(lanes, size, term):
    """lanes[0] = the sum of term(k) for k < size <= BLOCK; term may be called for no other k."""
    for c in T.serial(LANES):
        lanes[c] = 0.0
    for line in T.serial(T.ceildiv(size, LANES)):
        for c in T.serial(T.min(LANES, size - line * LANES)):
            lanes[c] += term(line * LANES + c)
    for level in T.unroll(5):  # 16, 8, 4, 2, 1
        for c in T.serial(LANES // 2 >> level):
            lanes[c] += lanes[c + (LANES // 2 >> level)]


def forward(*, dtype, max_n):
    """All six outputs; x and h_in in `dtype`, "float16", "float32" or "float64"; n up to max_n."""
    acc = accumulation(dtype)
    N, K, M, n, D = (T.dynamic(name, "int64") for name in ("N", "K", "M", "n", "D"))

    @T.prim_func
    def serial_forward(
        x: T.Tensor((N, K), dtype),
        phi: T.Tensor((M, K), acc),
        alpha: T.Tensor((3,), acc),
        bias: T.Tensor((M,), acc),
        gamma: T.Tensor((K,), acc),
        h_in: T.Tensor((N, D), dtype),
        h_post: T.Tensor((N, n), acc),
        h_res: T.Tensor((N, n * n), acc),
        inv_rms: T.Tensor((N,), acc),
        h_mix: T.Tensor((N, M), acc),
        h_pre: T.Tensor((N, n), acc),
        norm_eps: T.float64,
        hc_eps: T.float64,
    ):
        with T.Kernel(1, is_cpu=True):
            v = T.alloc_local((BLOCK,), acc)
            weighted = T.alloc_local((BLOCK,), acc)
            lanes = T.alloc_local((LANES,), acc)
            squares = T.alloc_local((1,), acc)
            mix = T.alloc_local((pre.rows(max_n),), acc)
            for t in T.serial(N):
                squares[0] = 0.0
                for row in T.serial(M):
                    mix[row] = 0.0
                for block in T.serial(T.ceildiv(K, BLOCK)):
                    size = T.min(BLOCK, K - block * BLOCK)
                    for k in T.serial(size):
                        v[k] = T.cast(x[t, block * BLOCK + k], acc)
                        weighted[k] = v[k] * gamma[block * BLOCK + k]
                    block_sum(lanes, size, lambda k: v[k] * v[k])  # gamma is not in the mean
                    squares[0] += lanes[0]
                    for row in T.serial(M):
                        block_sum(lanes, size, lambda k: weighted[k] * phi[row, block * BLOCK + k])
                        mix[row] += lanes[0]

                inv_rms[t] = pre.inverse_rms(squares[0], K, T.cast(norm_eps, acc))
                for row in T.serial(M):
                    h_mix[t, row] = mix[row]
                for i in T.serial(n):
                    row_pre, row_post = pre.pre_row(n, i), pre.post_row(n, i)
                    z_pre = pre.gate_argument(alpha[0], mix[row_pre], inv_rms[t], bias[row_pre])
                    z_post = pre.gate_argument(alpha[1], mix[row_post], inv_rms[t], bias[row_post])
                    h_pre[t, i] = pre.pre_gate(z_pre, T.cast(hc_eps, acc))
                    h_post[t, i] = pre.post_gate(z_post)
                for i, j in T.grid(n, n):
                    row_res = pre.res_row(n, i, j)
                    h_res[t, i * n + j] = pre.gate_argument(alpha[2], mix[row_res], inv_rms[t], bias[row_res])

                for block in T.serial(T.ceildiv(D, BLOCK)):
                    size = T.min(BLOCK, D - block * BLOCK)
                    for d in T.serial(size):
                        v[d] = 0.0
                    for i in T.serial(n):
                        for d in T.serial(size):
                            v[d] += h_pre[t, i] * T.cast(x[t, pre.column(D, i, block * BLOCK + d)], acc)
                    for d in T.serial(size):
                        h_in[t, block * BLOCK + d] = T.cast(v[d], dtype)

    return serial_forward


def backward(*, dtype, max_n):
    """All five gradients; x, dh_in and dx in `dtype`; n up to max_n. dh_mix and coefficient are scratch."""
    acc = accumulation(dtype)
    N, K, M, n, D = (T.dynamic(name, "int64") for name in ("N", "K", "M", "n", "D"))

    @T.prim_func
    def serial_backward(
        x: T.Tensor((N, K), dtype),
        phi: T.Tensor((M, K), acc),
        alpha: T.Tensor((3,), acc),
        gamma: T.Tensor((K,), acc),
        inv_rms: T.Tensor((N,), acc),
        h_mix: T.Tensor((N, M), acc),
        h_pre: T.Tensor((N, n), acc),
        h_post: T.Tensor((N, n), acc),
        dh_in: T.Tensor((N, D), dtype),
        dh_post: T.Tensor((N, n), acc),
        dh_res: T.Tensor((N, n * n), acc),
        dx: T.Tensor((N, K), dtype),
        dphi: T.Tensor((M, K), acc),
        dalpha: T.Tensor((3,), acc),
        dbias: T.Tensor((M,), acc),
        dgamma: T.Tensor((K,), acc),
        dh_mix: T.Tensor((N, M), acc),
        coefficient: T.Tensor((N,), acc),
        hc_eps: T.float64,
    ):
        with T.Kernel(1, is_cpu=True):
            lanes = T.alloc_local((LANES,), acc)
            total = T.alloc_local((LANES,), acc)
            dgamma_part = T.alloc_local((LANES,), acc)
            weighted = T.alloc_local((TOKENS, LANES), acc)
            dgate = T.alloc_local((pre.rows(max_n),), acc)
            dbias_part = T.alloc_local((pre.rows(max_n),), acc)
            dalpha_part = T.alloc_local((3,), acc)
            dinv_rms = T.alloc_local((1,), acc)
            group = T.alloc_local((2,), acc)

            for gate in T.serial(3):
                dalpha[gate] = 0.0
            for row in T.serial(M):
                dbias[row] = 0.0
                for k in T.serial(K):
                    dphi[row, k] = 0.0
            for k in T.serial(K):
                dgamma[k] = 0.0

            for tile in T.serial(T.ceildiv(N, TOKENS)):
                tokens = T.min(TOKENS, N - tile * TOKENS)

                # the gates: dh_mix, the coefficient of x in dx, dbias, dalpha
                for row in T.serial(M):
                    dbias_part[row] = 0.0
                for gate in T.serial(3):
                    dalpha_part[gate] = 0.0
                for token in T.serial(tokens):
                    t = tile * TOKENS + token
                    for i in T.serial(n):
                        total[0] = 0.0
                        for block in T.serial(T.ceildiv(D, BLOCK)):
                            block_sum(
                                lanes,
                                T.min(BLOCK, D - block * BLOCK),
                                lambda k: (
                                    T.cast(dh_in[t, block * BLOCK + k], acc)
                                    * T.cast(x[t, pre.column(D, i, block * BLOCK + k)], acc)
                                ),
                            )
                            total[0] += lanes[0]
                        dgate[pre.pre_row(n, i)] = pre.pre_slope(total[0], h_pre[t, i], T.cast(hc_eps, acc))
                        dgate[pre.post_row(n, i)] = pre.post_slope(dh_post[t, i], h_post[t, i])
                    for i, j in T.grid(n, n):
                        dgate[pre.res_row(n, i, j)] = dh_res[t, i * n + j]
                    dinv_rms[0] = 0.0
                    for g in T.serial(n + 2):  # n rows of phi that belong to the same gate
                        group[0] = 0.0
                        group[1] = 0.0
                        for j in T.serial(n):
                            row = g * n + j
                            dt = pre.by_gate(row, n, alpha[0], alpha[1], alpha[2]) * dgate[row]
                            dh_mix[t, row] = dt * inv_rms[t]
                            group[0] += dt * h_mix[t, row]
                            group[1] += dgate[row] * (h_mix[t, row] * inv_rms[t])
                            dbias_part[row] += dgate[row]
                        dinv_rms[0] += group[0]
                        dalpha_part[T.min(g, 2)] += group[1]
                    coefficient[t] = pre.norm_coefficient(dinv_rms[0], inv_rms[t], K)
                for row in T.serial(M):
                    dbias[row] += dbias_part[row]
                for gate in T.serial(3):
                    dalpha[gate] += dalpha_part[gate]

                # dx, dgamma, dphi of LANES columns of one stream at a time
                for i in T.serial(n):
                    for chunk in T.serial(T.ceildiv(D, LANES)):
                        size = T.min(LANES, D - chunk * LANES)
                        first = pre.column(D, i, chunk * LANES)
                        for c in T.serial(size):
                            dgamma_part[c] = 0.0
                        for token in T.serial(tokens):
                            t = tile * TOKENS + token
                            for c in T.serial(size):
                                total[c] = 0.0
                            for g in T.serial(n + 2):
                                for c in T.serial(size):
                                    lanes[c] = 0.0
                                for j in T.serial(n):
                                    for c in T.serial(size):
                                        lanes[c] += dh_mix[t, g * n + j] * phi[g * n + j, first + c]
                                for c in T.serial(size):
                                    total[c] += lanes[c]
                            for c in T.serial(size):
                                v = T.cast(x[t, first + c], acc)
                                dh = T.cast(dh_in[t, chunk * LANES + c], acc)
                                weighted[token, c] = v * gamma[first + c]
                                dgamma_part[c] += v * total[c]
                                dx[t, first + c] = T.cast(
                                    pre.dx_element(total[c], gamma[first + c], coefficient[t], v, h_pre[t, i], dh), dtype
                                )
                        for c in T.serial(size):
                            dgamma[first + c] += dgamma_part[c]
                        for row in T.serial(M):
                            for c in T.serial(size):
                                lanes[c] = 0.0
                            for token in T.serial(tokens):
                                for c in T.serial(size):
                                    lanes[c] += dh_mix[tile * TOKENS + token, row] * weighted[token, c]
                            for c in T.serial(size):
                                dphi[row, first + c] += lanes[c]

    return serial_backward
