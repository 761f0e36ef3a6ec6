"""TileLang kernels of mHC Forward Pre in two passes over x, one program for every shape (arXiv 2512.24880 eqs. 14-19).

    terms    w[j] = term j of phi * gamma                      (where `presplit`; else `project` makes them tile by tile)
    project  partials[t, split, :] = shares of h_mix, and after them of sum(x * x)
    finish   the shares' sum, the gates, h_in

All sizes are dynamic. Rows of x begin anywhere, so a thread takes eight elements of two bytes as two aligned loads of 16
bytes and shifts them (`load_8`): loads of two bytes took 2.5 times as long.

The projection runs on bfloat16 tensor cores at float32 accuracy, in the terms of `tilelang_terms_kernels`.

Evaluation order: w = phi * gamma is rounded to float32 first, so the class of a result may differ from that of
float64 only where w, x * x or a partial sum leaves the float32 range.

Symbols: BT tokens of a tile, K = n * D, M = n * n + 2 * n rows of phi, BM columns of a tile of them.
"""

import tilelang.language as T

from mhc.pre.tilelang_macros import by_gate, gate_argument, inverse_rms, sigmoid
from mhc.pre.tilelang_terms_kernels import (
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

MAX_ROWS = 384  # of phi, rounded up to any block_m, with n at most 16
AHEAD = 4  # streams that the second pass has on their way while it makes the gates


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
    """The three kernels as one function of (x [N, K], phi [M, K], alpha [3], bias [M], gamma [K], h_in [N, D], h_post
    [N, n], h_res [N, n * n], inv_rms [N], h_mix [N, M], h_pre [N, n], w [terms, rows, pitch], partials
    [N, splits, rows + 1], norm_eps, hc_eps).

    All sizes are dynamic. w and partials are scratch; rows = M rounded up to block_m, pitch = K rounded up to block_k.
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
    across = 8 * finish_threads
    lanes = BK // 8  # that share a row of x
    f32, i64, u32, bf16 = "float32", "int64", "uint32", "bfloat16"
    halves = dtype != "float32"
    rowwise = T.GemmWarpPolicy.FullRow

    def wide(value):
        return T.cast(value, i64)

    def bits(element):
        return T.cast(T.reinterpret(element, "uint16"), u32)

    def flat(buffer, size):
        return T.Tensor((size,), buffer.dtype, buffer.data)

    def chunks(buffer, size):
        """A tensor of two-byte elements in aligned words, four by four."""
        return T.Tensor((size // 8 + 1, 4), u32, buffer.data)

    @T.macro
    def load_8(buffer, size, start, count, raw, at):
        """raw[at .. at + 8]: the aligned words that hold buffer[start .. start + count], none past the tensor's end."""
        if count > 0:
            if halves:
                chunk = T.alloc_var(i64)
                chunk = start // 8
                if (chunk + 2) * 8 <= size:
                    for e in T.vectorized(4):
                        raw[at + e] = chunks(buffer, size)[chunk, e]
                    if start % 8 != 0:
                        for e in T.vectorized(4):
                            raw[at + 4 + e] = chunks(buffer, size)[chunk + 1, e]
                else:
                    for e in T.unroll(8):
                        raw[at + e] = T.uint32(0)
                        if chunk * 8 + 2 * e < size:
                            raw[at + e] = bits(flat(buffer, size)[chunk * 8 + 2 * e])
                        if chunk * 8 + 2 * e + 1 < size:
                            raw[at + e] = raw[at + e] | (bits(flat(buffer, size)[chunk * 8 + 2 * e + 1]) << T.uint32(16))
            else:
                for e in T.unroll(8):
                    if e < count:
                        raw[at + e] = T.reinterpret(flat(buffer, size)[start + e], u32)

    @T.macro
    def take_8(raw, at, start, count, words, to):
        """to[0 .. 8] = what load_8 loaded, and zeros from count on; words [8] is scratch."""
        for e in T.unroll(8):
            words[e] = raw[at + e]
        if halves:
            shift = T.cast(start % 8, "int32")
            for e in T.unroll(6):
                words[e] = T.if_then_else((shift & 4) != 0, words[e + 2], words[e])
            for e in T.unroll(5):
                words[e] = T.if_then_else((shift & 2) != 0, words[e + 1], words[e])
            for e in T.unroll(4):
                words[e] = T.if_then_else(
                    (shift & 1) != 0, (words[e] >> T.uint32(16)) | (words[e + 1] << T.uint32(16)), words[e]
                )
            for e in T.unroll(4):
                to[2 * e] = T.if_then_else(
                    2 * e < count, T.reinterpret(T.cast(words[e] & T.uint32(0xFFFF), "uint16"), dtype), T.cast(0, dtype)
                )
                to[2 * e + 1] = T.if_then_else(
                    2 * e + 1 < count, T.reinterpret(T.cast(words[e] >> T.uint32(16), "uint16"), dtype), T.cast(0, dtype)
                )
        else:
            for e in T.unroll(8):
                to[e] = T.if_then_else(e < count, T.reinterpret(words[e], dtype), T.cast(0, dtype))

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

    @T.prim_func
    def main(
        x: T.Tensor((N, K), dtype),
        phi: T.Tensor((M, K), f32),
        alpha: T.Tensor((3,), f32),
        bias: T.Tensor((M,), f32),
        gamma: T.Tensor((K,), f32),
        h_in: T.Tensor((N, D), dtype),
        h_post: T.Tensor((N, n), f32),
        h_res: T.Tensor((N, n * n), f32),
        inv_rms: T.Tensor((N,), f32),
        h_mix: T.Tensor((N, M), f32),
        h_pre: T.Tensor((N, n), f32),
        w: T.Tensor((terms, rows, pitch), bf16),
        partials: T.Tensor((N, splits, rows + 1), f32),
        norm_eps: T.float32,
        hc_eps: T.float32,
    ):
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
            x_2 = T.alloc_shared((BT, BK), bf16)
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
            term = T.alloc_local((24,), bf16)
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
                                if x_terms == 3:
                                    term[16 + e] = nearest(next_remainder(v1))
                        for e in T.vectorized(8):
                            x_0[i, c + e] = term[e]
                        if x_terms > 1:
                            for e in T.vectorized(8):
                                x_1[i, c + e] = term[8 + e]
                        if x_terms > 2:
                            for e in T.vectorized(8):
                                x_2[i, c + e] = term[16 + e]
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
                                (x_0, x_1, x_2)[a],
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

        with T.Kernel(N * T.ceildiv(D, across), threads=finish_threads) as program:
            tid = T.get_thread_binding()
            parts = T.ceildiv(D, across)
            bd = T.alloc_var("int32")
            token = T.alloc_var(i64)
            bd = T.cast(program, "int32") % parts
            # the last tokens first: L2 has them
            token = N - 1 - wide(T.cast(program, "int32") // parts)
            h = T.alloc_shared((MAX_ROWS + 1,), f32)
            pre = T.alloc_shared((16,), f32)
            row = T.alloc_shared((across,), dtype)
            raw = T.alloc_local((AHEAD * 8,), u32)
            held = T.alloc_local((8,), dtype)
            mixed = T.alloc_local((8,), f32)
            out = T.alloc_local((8,), dtype)
            few = T.alloc_local((8,), f32)
            words = T.alloc_local((8,), u32)
            share_sum = T.alloc_var(f32)
            scale = T.alloc_var(f32)
            shift = T.alloc_var(f32)
            to_row = T.alloc_var(i64)
            to_chunk = T.alloc_var("int32")
            d = bd * across + tid * 8
            # x, alpha and bias are on their way while the partial sums are made
            for i in T.unroll(AHEAD):
                load_8(x, N * K, token * K + i * D + d, T.if_then_else(i < n, D - d, 0), raw, i * 8)
            if tid < M:
                scale = alpha[T.if_then_else(tid < n, 0, T.if_then_else(tid < 2 * n, 1, 2))]
                shift = bias[tid]
            if overlap:
                T.pdl_sync()
            for r in T.serial(T.ceildiv(rows + 1, finish_threads)):
                place = r * finish_threads + tid
                if place < rows + 1:
                    share_sum = T.float32(0)
                    for eight in T.serial(T.ceildiv(splits, 8)):
                        for e in T.unroll(8):
                            few[e] = T.float32(0)
                            if eight * 8 + e < splits:
                                few[e] = partials[token, eight * 8 + e, place]
                        for e in T.unroll(8):
                            share_sum = share_sum + few[e]
                    h[place] = share_sum
            T.sync_threads()
            inv = inverse_rms(h[rows], K, norm_eps)
            for r in T.serial(T.ceildiv(M, finish_threads)):
                m = r * finish_threads + tid
                if m < M:
                    if r > 0:
                        scale = by_gate(m, n, alpha[0], alpha[1], alpha[2])
                        shift = bias[m]
                    z = gate_argument(scale, h[m], inv, shift)
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
            for e in T.unroll(8):
                mixed[e] = T.float32(0)
            for batch in T.serial(T.ceildiv(n, AHEAD)):
                if batch > 0:
                    for i in T.unroll(AHEAD):
                        load_8(
                            x,
                            N * K,
                            token * K + (batch * AHEAD + i) * D + d,
                            T.if_then_else(batch * AHEAD + i < n, D - d, 0),
                            raw,
                            i * 8,
                        )
                for i in T.unroll(AHEAD):
                    if batch * AHEAD + i < n:
                        take_8(raw, i * 8, token * K + (batch * AHEAD + i) * D + d, D - d, words, held)
                        for e in T.unroll(8):
                            mixed[e] = mixed[e] + pre[batch * AHEAD + i] * T.cast(held[e], f32)
            for e in T.unroll(8):
                out[e] = T.cast(mixed[e], dtype)
            if D % 8 == 0:
                to_row = token
                to_chunk = d // 8
                if d < D:
                    for e in T.vectorized(8):
                        T.Tensor((N, D // 8, 8), dtype, h_in.data)[to_row, to_chunk, e] = out[e]
            else:  # through shared memory, for stores side by side
                for e in T.vectorized(8):
                    row[tid * 8 + e] = out[e]
                T.sync_threads()
                for e in T.unroll(8):
                    to = e * finish_threads + tid
                    if bd * across + to < D:
                        h_in[token, bd * across + to] = row[to]

    return main
