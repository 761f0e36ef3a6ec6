"""TileLang kernels of mHC Forward Pre in two passes over bfloat16 x, compiled for n and D (arXiv 2512.24880 eqs. 14-19).

    terms    w[j] = term j of phi * gamma
    project  partials[t, split, :] = shares of h_mix, and after them of sum(x * x)
    finish   the shares' sum, the gates, h_in

The projection runs on bfloat16 tensor cores at float32 accuracy, in the terms of `bf16_split`.

Evaluation order: w = phi * gamma is rounded to float32 first, so the class of a result may differ from that of
float64 only where w, x * x or a partial sum leaves the float32 range.

Symbols: BT tokens of a tile, K = n * D, M = n * n + 2 * n rows of phi, BM columns of a tile of them.
"""

import tilelang.language as T
from tilelang.layout import make_swizzled_layout

from mhc.operators.mhc_pre.tilelang.kernels.bf16_split import (
    ORDER_1,
    emit,
    first_term,
    nearest,
    next_remainder,
    remainder,
    with_lower,
)
from mhc.operators.mhc_pre.tilelang.kernels.fwd_finish import MAX_ROWS, add_shares
from mhc.operators.mhc_pre.tilelang.kernels.macros import by_gate, gate_argument, inverse_rms, sigmoid
from mhc.operators.mhc_pre.tilelang.kernels.signature import forward_parameters, function


def two_pass(
    *,
    n: int,
    D: int,
    has_gamma: bool,
    terms: int,
    overlap: bool,
    block_tokens: int,
    block_m: int,
    block_k: int,
    threads: int,
    stages: int,
    finish_threads: int,
):
    """The three kernels as one function of `forward_parameters`; scratch: w [terms, rows, pitch] and partials
    [N, splits, rows + 1].

    N and splits are dynamic. rows = M rounded up to block_m, pitch = K. D is a multiple of 8, K
    of block_k, so that x goes to shared memory as it is, by TMA or cp.async.
    """
    N, splits = (T.dynamic(name, "int64") for name in ("N", "splits"))
    M, K = n * (n + 2), n * D
    assert D % 8 == 0 and K % block_k == 0
    BT, BM, BK = block_tokens, block_m, block_k
    m_tiles = T.ceildiv(M, BM)
    rows = m_tiles * BM
    blocks = T.ceildiv(K, BK)
    pitch = blocks * BK
    each = 8  # elements of h_in, that a thread makes
    across = each * finish_threads
    f32, dtype = "float32", "bfloat16"
    orders = tuple(range(terms))
    rowwise = T.GemmWarpPolicy.FullRow  # two warp groups with all columns each, not half of them

    def product(x_r, w_q, sums, order):
        """x times a term of phi * gamma; by wgmma one batch, which the last one waits for."""
        return T.gemm(x_r, w_q, sums, transpose_B=True, policy=rowwise, wg_wait=0 if order == orders[-1] else -1)

    def by_8(buffer, streams):
        """A tensor [N, streams * D] with an axis for each 16 bytes of it; bound to a name it would take x's away."""
        return T.Tensor((N, streams, D // 8, 8), dtype, buffer.data)

    @T.macro
    def main(x, phi, alpha, bias, gamma, h_in, h_post, h_res, inv_rms, h_mix, h_pre, w, partials, norm_eps, hc_eps):
        with T.Kernel(T.ceildiv(pitch, 4 * 256), rows, threads=256) as (bk, wm):
            k4 = T.alloc_var("int32")
            values = T.alloc_local((4,), f32)
            norms = T.alloc_local((4,), f32)
            made = T.alloc_local((terms, 4), "bfloat16")
            k4 = bk * 256 + T.get_thread_binding()  # four columns of a row of phi
            if k4 < pitch // 4:
                for e in T.unroll(4):
                    values[e] = T.float32(0)
                if wm < M:
                    for e in T.vectorized(4):
                        values[e] = T.Tensor((M, K // 4, 4), f32, phi.data)[wm, k4, e]
                    if has_gamma:
                        for e in T.vectorized(4):
                            norms[e] = T.Tensor((K // 4, 4), f32, gamma.data)[k4, e]
                        for e in T.unroll(4):
                            values[e] = values[e] * norms[e]
                for e in T.unroll(4):
                    made[0, e] = first_term(values[e])
                    wrest = remainder(values[e], first_term(values[e]))
                    made[1, e] = nearest(wrest)
                    if terms == 3:
                        made[2, e] = nearest(next_remainder(wrest))
                for order in T.unroll(terms):
                    for e in T.vectorized(4):
                        T.Tensor((terms, rows, pitch // 4, 4), "bfloat16", w.data)[order, wm, k4, e] = made[order, e]

        with T.Kernel(T.ceildiv(N, BT) * m_tiles * splits, threads=threads) as program:
            bm = program % m_tiles
            split = program // m_tiles % splits
            bt = program // m_tiles // splits
            x_s = T.alloc_shared((BT, BK), dtype)
            w_s = T.alloc_shared((terms, BM, BK), "bfloat16")
            w_0 = T.alloc_shared((BM, BK), "bfloat16")
            w_1 = T.alloc_shared((BM, BK), "bfloat16")
            w_2 = T.alloc_shared((BM, BK), "bfloat16")
            x_r = T.alloc_fragment((BT, BK), dtype)
            acc_0 = T.alloc_fragment((BT, BM), f32)
            acc_1 = T.alloc_fragment((BT, BM), f32)
            acc_2 = T.alloc_fragment((BT, BM), f32)
            squares = T.alloc_fragment((BT, BK), f32)
            total = T.alloc_fragment((BT,), f32)
            emit([T.clear(one) for one in (acc_0, acc_1, acc_2)[:terms]])
            T.clear(squares)
            T.annotate_layout({x_s: make_swizzled_layout(x_s)})
            first = blocks * split // splits
            last = blocks * (split + 1) // splits
            if overlap:
                T.pdl_sync()
            for step in T.Pipelined(T.cast(last - first, "int32"), num_stages=stages):
                k0 = (first + step) * BK
                T.copy(x[bt * BT, k0], x_s)
                if overlap:
                    T.copy(w[T.int64(0), bm * BM, k0], w_s)
                else:  # loaded by cp.async: TileLang 0.1.8 finds no layout for a part of a tensor
                    emit([T.copy(w[q, bm * BM, k0], (w_0, w_1, w_2)[q]) for q in orders])
                # read once, for the squares and for all products
                T.copy(x_s, x_r)
                for i, c in T.Parallel(BT, BK):
                    squares[i, c] += T.cast(x_r[i, c], f32) * T.cast(x_r[i, c], f32)
                # where they are one batch, the terms share a tensor: nothing is loaded into it before the last has ended
                emit(
                    [
                        product(x_r, w_s[q, :, :] if overlap else (w_0, w_1, w_2)[q], (acc_0, acc_1, acc_2)[q], q)
                        for q in orders
                    ]
                )
            if overlap:
                T.pdl_trigger()
            T.reduce_sum(squares, total)
            for i in T.Parallel(BT):
                if (bt * BT + i < N) and (bm == 0):
                    partials[bt * BT + i, split, rows] = total[i]
            for i, r in T.Parallel(BT, BM):
                if terms == 3:
                    acc_1[i, r] += acc_2[i, r] * T.float32(ORDER_1)
                acc_0[i, r] = with_lower(acc_0[i, r], acc_1[i, r] * T.float32(ORDER_1))
            for i, r in T.Parallel(BT, BM):
                if bt * BT + i < N:
                    partials[bt * BT + i, split, bm * BM + r] = acc_0[i, r]

        with T.Kernel(N * T.ceildiv(D, across), threads=finish_threads) as program:
            tid = T.get_thread_binding()
            parts = T.ceildiv(D, across)
            bd = program % parts
            # the last tokens first: L2 has them
            token = N - 1 - program // parts
            h = T.alloc_shared((MAX_ROWS + 1,), f32)
            pre = T.alloc_shared((16,), f32)
            mixed = T.alloc_local((each,), f32)
            held = T.alloc_local((n * each,), dtype)
            out = T.alloc_local((each,), dtype)
            # an axis of its own for 16 bytes, and indices in variables: a cast in one halves the loads
            row = T.alloc_var("int64")
            d8 = T.alloc_var("int32")
            row = token
            d8 = T.cast(bd, "int32") * finish_threads + tid
            if d8 < D // 8:  # x is on its way while the gates are made
                for i in T.unroll(n):
                    for e in T.vectorized(each):
                        held[i * each + e] = by_8(x, n)[row, i, d8, e]
            if overlap:
                T.pdl_sync()
            add_shares(h, partials, token, splits, rows + 1, finish_threads)
            T.sync_threads()
            inv = inverse_rms(h[rows], K, norm_eps)
            for r in T.serial(T.ceildiv(M, finish_threads)):
                m = r * finish_threads + tid
                if m < M:
                    z = gate_argument(by_gate(m, n, alpha[0], alpha[1], alpha[2]), h[m], inv, bias[m])
                    gate = sigmoid(z)
                    if m < n:
                        pre[m] = gate + hc_eps
                    if bd == 0:
                        h_mix[token, m] = h[m]
                        if m < n:
                            h_pre[token, m] = gate + hc_eps
                        else:
                            if m < 2 * n:
                                h_post[token, m - n] = T.float32(2.0) * gate
                            else:
                                h_res[token, m - 2 * n] = z
                        if m == 0:
                            inv_rms[token] = inv
            T.sync_threads()
            for e in T.unroll(each):
                mixed[e] = T.float32(0)
            if d8 < D // 8:
                for i in T.unroll(n):
                    for e in T.unroll(each):
                        mixed[e] = mixed[e] + pre[i] * T.cast(held[i * each + e], f32)
                for e in T.unroll(each):
                    out[e] = T.cast(mixed[e], dtype)
                for e in T.vectorized(each):
                    by_8(h_in, 1)[row, 0, d8, e] = out[e]

    scratch = {"w": T.Tensor((terms, rows, pitch), "bfloat16"), "partials": T.Tensor((N, splits, rows + 1), f32)}
    return function("main", forward_parameters(N, n, D, M, K, dtype, scratch), lambda a: main(**vars(a)))
