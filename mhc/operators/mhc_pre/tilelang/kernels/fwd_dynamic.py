"""TileLang kernels of mHC Forward Pre in two passes over x, for every shape of bfloat16 and float16 x (arXiv 2512.24880
eqs. 14-19).

    terms    w[j] = term j of phi * gamma                      (where `presplit`; else `project` makes them tile by tile)
    project  partials[t, split, :] = shares of h_mix, and after them of sum(x * x)
    finish   the shares' sum, the gates, h_in (`fwd_finish`)

All sizes are dynamic. The projection runs on bfloat16 tensor cores at float32 accuracy, in the terms of
`bf16_split`.

Evaluation order: w = phi * gamma is rounded to float32 first, so the class of a result may differ from that of
float64 only where w, x * x or a partial sum leaves the float32 range.

Symbols: BT tokens of a tile, K = n * D, M = n * n + 2 * n rows of phi, BM columns of a tile of them.
"""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels.bf16_split import (
    ORDER_1,
    X_TERMS,
    emit,
    first_term,
    nearest,
    next_remainder,
    products,
    remainder,
    with_lower,
)
from mhc.operators.mhc_pre.tilelang.kernels.fwd_finish import pieces, second_pass
from mhc.operators.mhc_pre.tilelang.kernels.signature import forward_parameters, function


def general(
    *,
    dtype: str,
    has_gamma: bool,
    terms: int,
    presplit: bool,
    overlap: bool,
    block_tokens: int,
    block_m: int,
    block_k: int,
    threads: int,
    finish_threads: int,
):
    """The three kernels as one function of `forward_parameters`; scratch: w [terms, rows, pitch] and partials
    [N, splits, rows + 1].

    All sizes are dynamic. rows = M rounded up to block_m, pitch = K rounded up to block_k.
    """
    N = T.dynamic("N", "int64")
    K, M, D, n, splits = (T.dynamic(name) for name in ("K", "M", "D", "n", "splits"))
    BT, BM, BK = block_tokens, block_m, block_k
    m_tiles = T.ceildiv(M, BM)
    rows = m_tiles * BM
    blocks = T.ceildiv(K, BK)
    pitch = blocks * BK
    x_terms = X_TERMS[dtype]
    pairs = products(x_terms, terms)
    x_pieces = BT * BK // 8 // threads  # of eight elements, for each thread
    w_pieces = BM * BK // 8 // threads
    assert x_pieces * threads * 8 == BT * BK, "threads without a piece of x would leave its tile unwritten"
    assert w_pieces * threads * 8 == BM * BK, "threads without a piece of w would leave its tile unwritten"
    lanes = BK // 8  # that share a row of x
    f32, i64, u32, bf16 = "float32", "int64", "uint32", "bfloat16"
    rowwise = T.GemmWarpPolicy.FullRow
    moves = pieces(dtype)
    load_8, take_8 = moves.load, moves.take
    finish = second_pass(
        **{"dtype": dtype, "moves": moves, "N": N, "K": K, "M": M, "D": D, "n": n, "splits": splits, "rows": rows},
        **{"overlap": overlap, "threads": finish_threads},
    )

    def wide(value):
        return T.cast(value, i64)

    @T.macro
    def load_weight(phi, gamma, m, k, count, to, at, norms):
        """to[at .. at + 8] = (phi * gamma)[m, k .. k + count] rounded to float32, and zeros; norms [8] is scratch."""
        if (K % 4 == 0) and (count == 8):
            m_at = T.alloc_var(i64)
            k_at = T.alloc_var("int32")
            m_at = wide(m)
            k_at = k // 4
            for half in T.unroll(2):
                for e in T.vectorized(4):
                    to[at + half * 4 + e] = T.Tensor((M, K // 4, 4), f32, phi.data)[m_at, k_at + half, e]
                if has_gamma:
                    for e in T.vectorized(4):
                        norms[half * 4 + e] = T.Tensor((K // 4, 4), f32, gamma.data)[k_at + half, e]
            if has_gamma:
                for e in T.unroll(8):
                    to[at + e] = to[at + e] * norms[e]
        else:
            for e in T.unroll(8):
                to[at + e] = T.float32(0)
                if e < count:
                    to[at + e] = phi[wide(m), k + e] * gamma[k + e] if has_gamma else phi[wide(m), k + e]

    @T.macro
    def main(x, phi, alpha, bias, gamma, h_in, h_post, h_res, inv_rms, h_mix, h_pre, w, partials, norm_eps, hc_eps):
        if presplit:
            with T.Kernel(T.ceildiv(pitch, 256), rows, threads=256) as (bk, wm):
                wk = bk * 256 + T.get_thread_binding()
                if wk < pitch:
                    wv = T.alloc_var(f32)
                    wv = T.float32(0)
                    if (wk < K) and (wm < M):
                        wv = phi[wide(wm), wk] * gamma[wk] if has_gamma else phi[wide(wm), wk]
                    w[0, wide(wm), wk] = first_term(wv)
                    wrest = remainder(wv, first_term(wv))
                    w[1, wide(wm), wk] = nearest(wrest)
                    if terms == 3:
                        w[2, wide(wm), wk] = nearest(next_remainder(wrest))

        with T.Kernel(T.ceildiv(N, BT) * m_tiles * splits, threads=threads) as program:
            tid = T.get_thread_binding()
            bm = T.alloc_var("int32")
            split = T.alloc_var("int32")
            first = T.alloc_var("int32")
            last = T.alloc_var("int32")
            first_token = T.alloc_var(i64)
            bm = T.cast(program, "int32") % m_tiles
            split = T.cast(program, "int32") // m_tiles % splits
            first_token = wide(T.cast(program, "int32") // m_tiles // splits) * BT
            x_0 = T.alloc_shared((BT, BK), bf16)
            x_1 = T.alloc_shared((BT, BK), bf16)
            w_0 = T.alloc_shared((BM, BK), bf16)
            w_1 = T.alloc_shared((BM, BK), bf16)
            w_2 = T.alloc_shared((BM, BK), bf16)
            acc_0 = T.alloc_fragment((BT, BM), f32)
            acc_1 = T.alloc_fragment((BT, BM), f32)
            acc_2 = T.alloc_fragment((BT, BM), f32)
            squares = T.alloc_local((x_pieces,), f32)
            raw = T.alloc_local((x_pieces * 8,), u32)
            loaded = T.alloc_local((8,), dtype)
            norms = T.alloc_local((8,), f32)
            weights = T.alloc_local((w_pieces * 8,), f32)
            made = T.alloc_local((w_pieces * 24,), bf16)
            term = T.alloc_local((16,), bf16)
            words = T.alloc_local((8,), u32)
            w_row = T.alloc_var(i64)
            w_column = T.alloc_var("int32")
            emit([T.clear(one) for one in (acc_0, acc_1, acc_2)[:terms]])
            for p in T.unroll(x_pieces):
                squares[p] = T.float32(0)
            first = blocks // splits * split + T.min(split, blocks % splits)
            last = blocks // splits * (split + 1) + T.min(split + 1, blocks % splits)
            if presplit and overlap:
                T.pdl_sync()
            if overlap and not presplit:
                T.pdl_trigger()  # few programs: the second pass has room beside them
            # a step's loads are on their way during the products of the step before
            for step in T.serial(first, last + 1):
                if step > first:
                    for p in T.unroll(x_pieces):
                        i = (p * threads + tid) // (BK // 8)
                        c = (p * threads + tid) % (BK // 8) * 8
                        take_8(
                            raw,
                            p * 8,
                            (first_token + i) * K + (step - 1) * BK + c,
                            T.if_then_else(first_token + i < N, K - (step - 1) * BK - c, 0),
                            words,
                            loaded,
                        )
                        for e in T.unroll(8):
                            v = T.cast(loaded[e], f32)
                            squares[p] = squares[p] + v * v
                            if x_terms == 1:
                                term[e] = loaded[e]
                            else:
                                v0 = first_term(v)
                                v1 = remainder(v, v0)
                                term[e] = v0
                                term[8 + e] = nearest(v1)
                        for e in T.vectorized(8):
                            x_0[i, c + e] = term[e]
                        if x_terms > 1:
                            for e in T.vectorized(8):
                                x_1[i, c + e] = term[8 + e]
                    for p in T.unroll(w_pieces):
                        r = (p * threads + tid) // (BK // 8)
                        wc = (p * threads + tid) % (BK // 8) * 8
                        if not presplit:
                            for e in T.unroll(8):
                                u = weights[p * 8 + e]
                                u0 = first_term(u)
                                u1 = remainder(u, u0)
                                made[p * 24 + e] = u0
                                made[p * 24 + 8 + e] = nearest(u1)
                                if terms == 3:
                                    made[p * 24 + 16 + e] = nearest(next_remainder(u1))
                        for e in T.vectorized(8):
                            w_0[r, wc + e] = made[p * 24 + e]
                        for e in T.vectorized(8):
                            w_1[r, wc + e] = made[p * 24 + 8 + e]
                        if terms == 3:
                            for e in T.vectorized(8):
                                w_2[r, wc + e] = made[p * 24 + 16 + e]
                if step < last:
                    for p in T.unroll(x_pieces):
                        li = (p * threads + tid) // (BK // 8)
                        lc = step * BK + (p * threads + tid) % (BK // 8) * 8
                        token = first_token + li
                        load_8(x, N * K, token * K + lc, T.if_then_else(token < N, K - lc, 0), raw, p * 8)
                    for p in T.unroll(w_pieces):
                        lr = bm * BM + (p * threads + tid) // (BK // 8)
                        lk = step * BK + (p * threads + tid) % (BK // 8) * 8
                        if presplit:
                            w_row = wide(lr)
                            w_column = lk // 8
                            for j in T.unroll(terms):
                                for e in T.vectorized(8):
                                    made[p * 24 + j * 8 + e] = T.Tensor((terms, rows, pitch // 8, 8), bf16, w.data)[
                                        j, w_row, w_column, e
                                    ]
                        else:
                            load_weight(
                                phi, gamma, lr, lk, T.if_then_else(lr < M, T.min(K - lk, 8), 0), weights, p * 8, norms
                            )
                if step > first:
                    emit(
                        [
                            T.gemm(
                                (x_0, x_1)[a],
                                (w_0, w_1, w_2)[b],
                                (acc_0, acc_1, acc_2)[a + b],
                                transpose_B=True,
                                policy=rowwise,
                            )
                            for a, b in pairs
                        ]
                    )
            if presplit and overlap:
                T.pdl_trigger()
            for p in T.unroll(x_pieces):
                total = T.alloc_var(f32)
                total = squares[p]
                for level in T.unroll(lanes.bit_length() - 1):
                    total = total + T.shfl_xor(total, 1 << level)
                si = (p * threads + tid) // (BK // 8)
                if (tid % lanes == 0) and (bm == 0) and (first_token + si < N):
                    partials[first_token + si, split, rows] = total
            for i, r in T.Parallel(BT, BM):
                if terms == 3:
                    acc_1[i, r] += acc_2[i, r] * T.float32(ORDER_1)
                acc_0[i, r] = with_lower(acc_0[i, r], acc_1[i, r] * T.float32(ORDER_1))
            for i, r in T.Parallel(BT, BM):
                if first_token + i < N:
                    partials[first_token + i, split, bm * BM + r] = acc_0[i, r]

        finish(x, alpha, bias, partials, h_in, h_post, h_res, inv_rms, h_mix, h_pre, norm_eps, hc_eps)

    scratch = {"w": T.Tensor((terms, rows, pitch), bf16), "partials": T.Tensor((N, splits, rows + 1), f32)}
    return function("main", forward_parameters(N, n, D, M, K, dtype, scratch), lambda a: main(**vars(a)))
