"""TileLang kernels of mHC Forward Pre for float32 x: whole float32 numbers in plain multiply-adds, two passes over x.

    project  partials[t, split, :] = shares of h_mix, and after them of sum(x * x)
    finish   the shares' sum, the gates, h_in (`fwd_finish`)

Tensor cores take no float32, and its bfloat16 terms are not enough below 2**-126: there the first has few digits or is 0, so
that products of order 3 count, infinity times it is NaN, and a subnormal operand is aligned as if it had its digits.

A warp takes eight rows of phi, a lane two or four tokens 32 apart: for four columns of K it loads a vector of each row, the
same for all lanes, and one of each of its tokens. Tiles come by cp.async into a ring of slots. What a thread has copied it
squares and weights with gamma in place, before the others see it.

Evaluation order: (x * gamma) * phi, as in the formula. A step of block_k columns is added up by itself, then the steps, then
the splits: at most block_k + K / (block_k * splits) + splits additions in a row, of which the bound 6 sqrt(K) u sum|a| holds
in the worst case too. The squares: four columns of a lane by themselves, then its steps, the lanes, and the splits.

Symbols: BT tokens of a tile, K = n * D, M = n * n + 2 * n rows of phi, BM columns of a tile of them.
"""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.fp32_schedule import WARP_ROWS as ROWS
from mhc.operators.mhc_pre.tilelang.kernels.fwd_finish import pieces, second_pass
from mhc.operators.mhc_pre.tilelang.kernels.signature import forward_parameters, function

PAD = 4  # floats between the rows of a tile: eight neighbouring rows are in different banks


def whole(
    *,
    has_gamma: bool,
    vector: int,
    overlap: bool,
    block_tokens: int,
    block_m: int,
    block_k: int,
    stages: int,
    finish_threads: int,
):
    """The two kernels as one function of `forward_parameters`, with scratch partials [N, splits, rows + 1].

    All sizes are dynamic. rows = M rounded up to block_m. vector: elements of x in a load, 4 where D is
    a multiple of 4, else 1.
    """
    N = T.dynamic("N", "int64")
    K, M, D, n, splits = (T.dynamic(name) for name in ("K", "M", "D", "n", "splits"))
    BT, BM, BK = block_tokens, block_m, block_k
    f32, i64 = "float32", "int64"
    warps = BM // ROWS
    threads = 32 * warps
    tokens = BT // 32  # of a lane
    m_tiles = T.ceildiv(M, BM)
    rows = m_tiles * BM
    blocks = T.ceildiv(K, BK)
    lanes = BK // 4  # that share a row of a tile
    stride = threads // lanes  # rows between a thread's pieces, of four columns; its columns are the same in all of them
    whole_pieces = BT // stride  # for every thread; the last rows are for some
    x_pieces = -(-BT // stride)
    w_pieces = BM // stride
    assert threads % lanes == 0 and w_pieces * stride == BM and stages >= 2
    finish = second_pass(
        **{"dtype": f32, "moves": pieces(f32, vector), "N": N, "K": K, "M": M, "D": D, "n": n, "splits": splits},
        **{"rows": rows, "overlap": overlap, "threads": finish_threads},
    )

    def wide(value):
        return T.cast(value, i64)

    @T.macro
    def copy_4(tile, slot, r, column, source, size, at, k, there):
        """tile[slot, r, column .. column + 4] = source[at .. at + 4], of a tensor of `size` elements, on its way; zeros from
        column K on, which k counts, and where not `there`.
        """
        for v in T.unroll(4 // vector):
            T.ptx_cp_async(
                T.access_ptr(tile[slot, r, column + v * vector], "w", vector),
                T.access_ptr(T.Tensor((size,), f32, source.data)[at + v * vector], "r", vector),
                4 * vector,
                there and (k + v * vector < K),
            )

    @T.macro
    def load_step(step, last, slot, x, phi, x_s, w_s, x_from, w_from, x_count, w_count, row, column):
        """The tiles of a step on their way into a slot; a group of copies in any case, which the ring counts."""
        if step < last:
            at = T.alloc_var(i64)
            k = step * BK + column
            at = x_from + k
            for p in T.unroll(whole_pieces):
                copy_4(x_s, slot, row + p * stride, column, x, N * K, at, k, row + p * stride < x_count)
                at = at + K * stride
            for p in T.unroll(whole_pieces, x_pieces):
                if row + p * stride < BT:
                    copy_4(x_s, slot, row + p * stride, column, x, N * K, at, k, row + p * stride < x_count)
            at = w_from + k
            for p in T.unroll(w_pieces):
                copy_4(w_s, slot, row + p * stride, column, phi, wide(M) * K, at, k, row + p * stride < w_count)
                at = at + K * stride
        T.ptx_commit_group()

    @T.macro
    def weigh(x_s, slot, r, column, own, norms, squares, p):
        """squares[p] += the squares of four columns of a row, which are then times gamma; own [4] is scratch."""
        for e in T.vectorized(4):
            own[e] = x_s[slot, r, column + e]
        square = T.alloc_var(f32)
        square = T.float32(0)
        for e in T.unroll(4):
            square = square + own[e] * own[e]
        squares[p] = squares[p] + square
        if has_gamma:
            for e in T.unroll(4):
                own[e] = own[e] * norms[e]
            for e in T.vectorized(4):
                x_s[slot, r, column + e] = own[e]

    @T.macro
    def main(x, phi, alpha, bias, gamma, h_in, h_post, h_res, inv_rms, h_mix, h_pre, partials, norm_eps, hc_eps):
        with T.Kernel(T.ceildiv(N, BT) * m_tiles * splits, threads=threads) as program:
            tid = T.get_thread_binding()
            warp = tid // 32
            lane = tid % 32
            bm = T.alloc_var("int32")
            split = T.alloc_var("int32")
            first = T.alloc_var("int32")
            last = T.alloc_var("int32")
            slot = T.alloc_var("int32")
            x_count = T.alloc_var("int32")
            first_token = T.alloc_var(i64)
            x_from = T.alloc_var(i64)
            w_from = T.alloc_var(i64)
            bm = T.cast(program, "int32") % m_tiles
            split = T.cast(program, "int32") // m_tiles % splits
            first_token = wide(T.cast(program, "int32") // m_tiles // splits) * BT
            row = tid // lanes
            column = tid % lanes * 4
            x_from = (first_token + row) * K
            w_from = wide(bm * BM + row) * K
            x_count = T.cast(T.min(N - first_token, BT), "int32")
            w_count = M - bm * BM
            x_s = T.alloc_shared((stages, BT, BK + PAD), f32)
            w_s = T.alloc_shared((stages, BM, BK + PAD), f32)
            total = T.alloc_local((tokens * ROWS,), f32)
            part = T.alloc_local((tokens * ROWS,), f32)
            squares = T.alloc_local((x_pieces,), f32)
            square = T.alloc_var(f32)
            own = T.alloc_local((4,), f32)
            norms = T.alloc_local((4,), f32)
            x_l = T.alloc_local((4,), f32)
            w_l = T.alloc_local((ROWS * 4,), f32)
            for e in T.unroll(tokens * ROWS):
                total[e] = T.float32(0)
            for p in T.unroll(x_pieces):
                squares[p] = T.float32(0)
            first = blocks // splits * split + T.min(split, blocks % splits)
            last = blocks // splits * (split + 1) + T.min(split + 1, blocks % splits)
            for ahead in T.serial(stages - 1):
                load_step(first + ahead, last, ahead, x, phi, x_s, w_s, x_from, w_from, x_count, w_count, row, column)
            for step in T.serial(first, last):
                slot = (step - first) % stages
                if has_gamma:
                    for v in T.unroll(4 // vector):
                        if step * BK + column + v * vector < K:
                            for e in T.vectorized(vector):
                                norms[v * vector + e] = gamma[step * BK + column + v * vector + e]
                        else:  # beside x there are zeros, and 0 times what a register holds may be NaN
                            for e in T.unroll(vector):
                                norms[v * vector + e] = T.float32(0)
                T.ptx_wait_group(stages - 2)
                for p in T.unroll(whole_pieces):
                    weigh(x_s, slot, row + p * stride, column, own, norms, squares, p)
                for p in T.unroll(whole_pieces, x_pieces):
                    if row + p * stride < BT:
                        weigh(x_s, slot, row + p * stride, column, own, norms, squares, p)
                T.sync_threads()
                load_step(
                    *(step + stages - 1, last, (slot + stages - 1) % stages, x, phi, x_s, w_s),
                    *(x_from, w_from, x_count, w_count, row, column),
                )
                for e in T.unroll(tokens * ROWS):
                    part[e] = T.float32(0)
                for c in T.serial(lanes):
                    for r in T.unroll(ROWS):
                        for e in T.vectorized(4):
                            w_l[r * 4 + e] = w_s[slot, warp * ROWS + r, c * 4 + e]
                    for i in T.unroll(tokens):
                        for e in T.vectorized(4):
                            x_l[e] = x_s[slot, i * 32 + lane, c * 4 + e]
                        for e in T.unroll(4):
                            for r in T.unroll(ROWS):
                                part[i * ROWS + r] = part[i * ROWS + r] + x_l[e] * w_l[r * 4 + e]
                for e in T.unroll(tokens * ROWS):
                    total[e] = total[e] + part[e]
            if overlap:
                T.pdl_trigger()
            for p in T.unroll(x_pieces):
                square = squares[p]
                for level in T.unroll(lanes.bit_length() - 1):
                    square = square + T.shfl_xor(square, 1 << level)
                if (row + p * stride < x_count) and (tid % lanes == 0) and (bm == 0):
                    partials[first_token + row + p * stride, split, rows] = square
            for i in T.unroll(tokens):
                if i * 32 + lane < x_count:
                    for r in T.unroll(ROWS):
                        partials[first_token + i * 32 + lane, split, bm * BM + warp * ROWS + r] = total[i * ROWS + r]

        finish(x, alpha, bias, partials, h_in, h_post, h_res, inv_rms, h_mix, h_pre, norm_eps, hc_eps)

    scratch = {"partials": T.Tensor((N, splits, rows + 1), f32)}
    return function("main", forward_parameters(N, n, D, M, K, f32, scratch), lambda a: main(**vars(a)))
