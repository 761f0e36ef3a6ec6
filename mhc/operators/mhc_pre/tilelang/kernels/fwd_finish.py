"""The second pass of a TileLang forward in two passes: the sums' shares, the gates, and h_in. All sizes are dynamic.

Rows of x begin anywhere, so a thread takes eight elements of two bytes as two aligned loads of 16 bytes and shifts them
(`Pieces`): loads of two bytes took 2.5 times as long.

Symbols: K = n * D, M = n * n + 2 * n rows of phi.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels.macros import by_gate, gate_argument, inverse_rms, sigmoid

MAX_ROWS = 384  # of phi, rounded up to any block_m, with n at most 16
AHEAD = 4  # streams that the second pass has on their way while it makes the gates


@dataclass(frozen=True)
class Pieces:
    """Eight neighbours of a tensor, in two steps with other work between them.

    load(buffer, size, start, count, raw, at): raw[at .. at + 8] = the words that hold buffer[start .. start + count], none
    past the tensor's end.
    take(raw, at, start, count, words, to): to[0 .. 8] = what `load` loaded, and zeros from count on; words [8] is scratch.
    """

    load: Any
    take: Any


def pieces(dtype: str, vector: int = 1) -> Pieces:
    """For elements of two bytes; and of four, `vector` of them in each load: its rows begin at multiples of as many."""
    u32, i64 = "uint32", "int64"

    def bits(element):
        return T.cast(T.reinterpret(element, "uint16"), u32)

    def flat(buffer, size):
        return T.Tensor((size,), buffer.dtype, buffer.data)

    def chunks(buffer, size):
        """A tensor of two-byte elements in aligned words, four by four."""
        return T.Tensor((size // 8 + 1, 4), u32, buffer.data)

    def vectors(buffer, size):
        """A tensor of four-byte elements as words."""
        return T.Tensor((size // vector, vector), u32, buffer.data)

    @T.macro
    def load_8(buffer, size, start, count, raw, at):
        if count > 0:
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

    @T.macro
    def take_8(raw, at, start, count, words, to):
        for e in T.unroll(8):
            words[e] = raw[at + e]
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

    @T.macro
    def load_8_whole(buffer, size, start, count, raw, at):
        chunk = T.alloc_var(i64)
        for v in T.unroll(8 // vector):
            if v * vector < count:
                chunk = start // vector + v
                for e in T.vectorized(vector):
                    raw[at + v * vector + e] = vectors(buffer, size)[chunk, e]

    @T.macro
    def take_8_whole(raw, at, start, count, words, to):
        for e in T.unroll(8):
            to[e] = T.if_then_else(e < count, T.reinterpret(raw[at + e], dtype), T.cast(0, dtype))

    return Pieces(load_8_whole, take_8_whole) if dtype == "float32" else Pieces(load_8, take_8)


@T.macro
def add_shares(h, partials, token, splits, count, threads):
    """h[0 .. count] = the sum over the splits of a token's partials [N, splits, count], eight loads on their way."""
    few = T.alloc_local((8,), "float32")
    share_sum = T.alloc_var("float32")
    for r in T.serial(T.ceildiv(count, threads)):
        place = r * threads + T.get_thread_binding()
        if place < count:
            share_sum = T.float32(0)
            for eight in T.serial(T.ceildiv(splits, 8)):
                for e in T.unroll(8):
                    few[e] = T.float32(0)
                    if eight * 8 + e < splits:
                        few[e] = partials[token, eight * 8 + e, place]
                for e in T.unroll(8):
                    share_sum = share_sum + few[e]
            h[place] = share_sum


def second_pass(*, dtype: str, moves: Pieces, N, K, M, D, n, splits, rows, overlap: bool, threads: int):
    """A macro of (x [N, K], alpha, bias, partials [N, splits, rows + 1], h_in [N, D], h_post [N, n], h_res [N, n * n],
    inv_rms [N], h_mix [N, M], h_pre [N, n], norm_eps, hc_eps), a kernel by itself.

    partials: shares of h_mix, and behind the rows of phi that of sum(x * x). moves: how eight elements of x are loaded.
    overlap: it may start before the first pass ends.
    """
    load_8, take_8 = moves.load, moves.take
    across = 8 * threads
    f32, i64, u32 = "float32", "int64", "uint32"

    @T.macro
    def finish(x, alpha, bias, partials, h_in, h_post, h_res, inv_rms, h_mix, h_pre, norm_eps, hc_eps):
        with T.Kernel(N * T.ceildiv(D, across), threads=threads) as program:
            tid = T.get_thread_binding()
            parts = T.ceildiv(D, across)
            bd = T.alloc_var("int32")
            token = T.alloc_var(i64)
            bd = T.cast(program, "int32") % parts
            # the last tokens first: L2 has them
            token = N - 1 - T.cast(T.cast(program, "int32") // parts, i64)
            h = T.alloc_shared((MAX_ROWS + 1,), f32)
            pre = T.alloc_shared((16,), f32)
            row = T.alloc_shared((across,), dtype)
            raw = T.alloc_local((AHEAD * 8,), u32)
            held = T.alloc_local((8,), dtype)
            mixed = T.alloc_local((8,), f32)
            out = T.alloc_local((8,), dtype)
            words = T.alloc_local((8,), u32)
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
            add_shares(h, partials, token, splits, rows + 1, threads)
            T.sync_threads()
            inv = inverse_rms(h[rows], K, norm_eps)
            for r in T.serial(T.ceildiv(M, threads)):
                m = r * threads + tid
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
                    to = e * threads + tid
                    if bd * across + to < D:
                        h_in[token, bd * across + to] = row[to]

    return finish
