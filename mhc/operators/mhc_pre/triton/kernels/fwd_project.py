"""Triton kernels of mHC Forward Pre (arXiv 2512.24880 eqs. 14-19).

The projection runs on bf16 tensor cores at float32 accuracy, in the terms of `bf16_split`.

Evaluation order: w = phi * gamma is rounded to float32 first, so the class of a result may differ from that of
float64 only where w, x * x or a partial sum leaves the float32 range.

Symbols: T tokens of a tile, K = n * D, M = n * n + 2 * n rows of phi, BM columns of a tile of M.
"""

import triton
import triton.language as tl

from mhc.operators.mhc_pre.triton.kernels.bf16_split import add_orders, dot, split_bf16, widen


@triton.jit
def mma_column(k):
    """Where element 8 t + 4 j + 2 h + l of a block of 32 goes in mma_tile: 16 j + 8 h + 2 t + l."""
    return ((k >> 2) & 1) * 16 + ((k >> 1) & 1) * 8 + ((k >> 3) & 3) * 2 + (k & 1)


@triton.jit
def mma_rows(v, WARPS: tl.constexpr):
    """v [T] in the row order of mma_tile."""
    T: tl.constexpr = v.shape[0]
    return tl.reshape(tl.permute(tl.reshape(v, (T // (8 * WARPS), WARPS, 8)), (1, 0, 2)), (T,))


@triton.jit
def mma_tile(x, WARPS: tl.constexpr):
    """x [T, 32] with rows and columns permuted so that a tile that the threads loaded 16 bytes at a time, four to a
    row, already lies in the registers of an m16n8k16 operand: row 8 (w + WARPS a) + g -> 16 w + 8 a + g."""
    T: tl.constexpr = x.shape[0]
    x = tl.reshape(x, (T // (8 * WARPS), WARPS, 8, 4, 2, 2, 2))  # a w g t j h l
    return tl.reshape(tl.permute(x, (1, 0, 2, 4, 5, 3, 6)), (T, 32))  # w a g, j h t l


@triton.jit
def split_phi_kernel(
    phi_ptr,
    gamma_ptr,
    w_ptr,
    K,
    pitch,
    M,
    HAS_GAMMA: tl.constexpr,
    MMA_ORDER: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """w[j, m, k] = term j of phi[m, k] * gamma[k], rows padded with zeros to the pitch, a multiple of 64."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    m = tl.program_id(1).to(tl.int64)
    k = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(phi_ptr + m * K + k, mask=k < K, other=0.0)  # [BLOCK]
    if HAS_GAMMA:
        w *= tl.load(gamma_ptr + k, mask=k < K, other=0.0)
    w0, w1, w2 = split_bf16(w)
    column = k
    if MMA_ORDER:
        column = (k & -32) + mma_column(k)
    inside = k < pitch
    tl.store(w_ptr + m * pitch + column, w0, mask=inside)
    tl.store(w_ptr + (M + m) * pitch + column, w1, mask=inside)
    tl.store(w_ptr + (2 * M + m) * pitch + column, w2, mask=inside)


@triton.jit
def project(
    x_ptr,
    rows,
    phi_ptr,
    gamma_ptr,
    w_ptr,
    pitch,
    m,
    first,
    last,
    K,
    M: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    PRESPLIT: tl.constexpr,
    EVEN: tl.constexpr,
    BT: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """(x * gamma) @ phi.T and sum(x * x) over the blocks first..last of K: ([BT, BM], [BT])."""
    DOUBLE: tl.constexpr = x_ptr.dtype.element_ty == tl.float64
    WHOLE: tl.constexpr = DOUBLE or x_ptr.dtype.element_ty == tl.float32
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    acc0 = tl.zeros([BT, BM], ACC)
    acc1 = tl.zeros([BT, BM], ACC)
    acc2 = tl.zeros([BT, BM], ACC)
    squares = tl.zeros([BT, BK // 8], ACC)
    m64 = m.to(tl.int64)[:, None]  # [BM, 1]
    inside_m = (m < M)[:, None]
    for block in tl.range(first, last, num_stages=STAGES):
        k = block * BK + tl.arange(0, BK).to(tl.int64)  # [BK]
        x_offsets = rows[:, None] + k[None, :]
        if EVEN:
            x = tl.load(x_ptr + x_offsets)  # [BT, BK]
            inside = inside_m
        else:
            x = tl.load(x_ptr + x_offsets, mask=(k < K)[None, :], other=0.0)
            inside = inside_m & (k < K)[None, :]
        # squares += x * x
        v = widen(x, ACC)
        squares += tl.sum(tl.reshape(v * v, (BT, BK // 8, 8)), 2)
        # h_mix += (x * gamma) @ phi.T
        if PRESPLIT:
            w0 = tl.load(w_ptr + m64 * pitch + k[None, :], mask=inside, other=0.0)  # [BM, BK]
            w1 = tl.load(w_ptr + (M + m64) * pitch + k[None, :], mask=inside, other=0.0)
            w2 = tl.load(w_ptr + (2 * M + m64) * pitch + k[None, :], mask=inside, other=0.0)
        else:
            w = tl.load(phi_ptr + m64 * K + k[None, :], mask=inside, other=0.0)  # [BM, BK]
            if HAS_GAMMA:
                if EVEN:
                    w *= tl.load(gamma_ptr + k)[None, :]
                else:
                    w *= tl.load(gamma_ptr + k, mask=k < K, other=0.0)[None, :]
            if not WHOLE:
                w0, w1, w2 = split_bf16(w)
        if DOUBLE:
            acc0 += tl.sum(v[:, None, :] * w[None, :, :], 2)
        elif WHOLE:
            # a block at a time: one product after another would drift. Of a product and an addition Triton makes one
            # operation again, of a product and a subtraction it does not.
            acc0 -= dot(v, tl.trans(w), tl.zeros([BT, BM], tl.float32))
        elif x.dtype == tl.bfloat16:
            x += tl.zeros([BT, BK], tl.bfloat16)  # takes x to registers: see project_bf16
            acc0 = dot(x, tl.trans(w0), acc0)
            acc1 = dot(x, tl.trans(w1), acc1)
            acc2 = dot(x, tl.trans(w2), acc2)
        else:
            x0, x1, _ = split_bf16(v)
            acc0 = dot(x0, tl.trans(w0), acc0)
            acc1 = dot(x0, tl.trans(w1), acc1)
            acc1 = dot(x1, tl.trans(w0), acc1)
            acc2 = dot(x0, tl.trans(w2), acc2)
            acc2 = dot(x1, tl.trans(w1), acc2)
    if WHOLE and not DOUBLE:
        acc0 = -acc0
    return add_orders(acc0, acc1, acc2), tl.sum(squares, 1)


@triton.jit
def project_bf16(
    x_ptr,
    rows,
    w_ptr,
    pitch,
    m,
    first,
    last,
    K,
    M: tl.constexpr,
    EVEN: tl.constexpr,
    BT: tl.constexpr,
    BM: tl.constexpr,
    STAGES: tl.constexpr,
    WARPS: tl.constexpr,
):
    """project() for bfloat16 x and w in mma order; rows come out as mma_rows gives them.

    x crosses shared memory once on its way to the registers, where the squares and the tensor cores both take it. As
    a shared operand it would be read once for every term of w; and Triton (3.6, 3.7) is wrong there: it sizes the
    buffers of a load that a register and an asynchronous wgmma both use for the register alone, and copies the next
    tile over one that the wgmma still reads.
    """
    acc0 = tl.zeros([BT, BM], tl.float32)
    acc1 = tl.zeros([BT, BM], tl.float32)
    acc2 = tl.zeros([BT, BM], tl.float32)
    squares = tl.zeros([BT, 4], tl.float32)
    m64 = m.to(tl.int64)[:, None]
    columns = tl.arange(0, 64)[None, :]
    inside_m = (m < M)[:, None]
    for block in tl.range(first, last, num_stages=STAGES):
        k = block * 64 + tl.arange(0, 32).to(tl.int64)  # [32]
        left_ptr = x_ptr + rows[:, None] + k[None, :]
        right_ptr = left_ptr + 32
        if EVEN:
            left = tl.load(left_ptr)  # [BT, 32]
            right = tl.load(right_ptr)
        else:
            left = tl.load(left_ptr, mask=(k < K)[None, :], other=0.0)
            right = tl.load(right_ptr, mask=(k + 32 < K)[None, :], other=0.0)
        w_block = w_ptr + block * 64 + columns
        w0 = tl.load(w_block + m64 * pitch, mask=inside_m, other=0.0)  # [BM, 64]
        w1 = tl.load(w_block + (M + m64) * pitch, mask=inside_m, other=0.0)
        w2 = tl.load(w_block + (2 * M + m64) * pitch, mask=inside_m, other=0.0)
        # squares += x * x
        v_left = widen(left, tl.float32)
        v_right = widen(right, tl.float32)
        squares += tl.sum(tl.reshape(v_left * v_left + v_right * v_right, (BT, 4, 8)), 2)
        # h_mix += x @ w.T
        x = tl.join(mma_tile(left, WARPS), mma_tile(right, WARPS))  # [BT, 32, 2]
        x = tl.reshape(tl.permute(x, (0, 2, 1)), (BT, 64))
        acc0 = dot(x, tl.trans(w0), acc0)
        acc1 = dot(x, tl.trans(w1), acc1)
        acc2 = dot(x, tl.trans(w2), acc2)
    return add_orders(acc0, acc1, acc2), mma_rows(tl.sum(squares, 1), WARPS)


@triton.jit
def partial_kernel(
    x_ptr,
    phi_ptr,
    gamma_ptr,
    w_ptr,
    part_ptr,
    N,
    K,
    pitch,
    M: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    PRESPLIT: tl.constexpr,
    MMA_ORDER: tl.constexpr,
    EVEN: tl.constexpr,
    SPLITS: tl.constexpr,
    BT: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
    WARPS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """part[t, split, :] = (h_mix over the split's share of K, in columns 0..M; sum(x * x) in column M)."""
    pid = tl.program_id(0)
    split = pid % SPLITS
    t = (pid // SPLITS).to(tl.int64) * BT + tl.arange(0, BT)  # [BT]
    m = tl.program_id(1) * BM + tl.arange(0, BM)  # [BM]
    rows = tl.minimum(t, N - 1) * K
    total = tl.cdiv(K, BK)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    first = total * split // SPLITS
    last = total * (split + 1) // SPLITS
    if MMA_ORDER:
        h, squares = project_bf16(x_ptr, rows, w_ptr, pitch, m, first, last, K, M, EVEN, BT, BM, STAGES, WARPS)
        t = mma_rows(t, WARPS)
    else:
        h, squares = project(
            x_ptr,
            rows,
            phi_ptr,
            gamma_ptr,
            w_ptr,
            pitch,
            m,
            first,
            last,
            K,
            M,
            HAS_GAMMA,
            PRESPLIT,
            EVEN,
            BT,
            BM,
            BK,
            STAGES,
        )
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    h = tl.where(m[None, :] == M, squares[:, None], h)
    width = tl.num_programs(1) * BM
    tl.store(part_ptr + (t[:, None] * SPLITS + split) * width + m[None, :], h, mask=(t < N)[:, None])
