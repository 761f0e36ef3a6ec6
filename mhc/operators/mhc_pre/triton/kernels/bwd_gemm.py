"""The streams pass of the Triton backward as two matrix products, for many streams.

    dx  = dh_mix @ (phi * gamma) - coef * x + h_pre * dh_in        [N, K], contraction M
    psi = dh_mix^T @ x                                             [M, K], contraction N

With M = n*n + 2n rows the products outweigh the memory traffic, so each has a kernel with tiles of its own. For dx both
sides are scaled and two terms of float16 (`fp16_split`): dh_mix comes as [N, 2, MP], zero from M to MP, phi * gamma as
[2, M, n * DP]. `mend_kernel` makes dx again, in float32, where their marks say so. For psi dh_mix comes in three terms of
bfloat16, [N, 3, MP] (`bf16_split`), since x is bfloat16 and has no scale.
"""

import triton
import triton.language as tl

from mhc.operators.mhc_pre.triton.kernels.bf16_split import (
    ORDER_1,
    ORDER_2,
    dot,
    finite,
    narrow,
    split_bf16,
    unscaled,
    widen,
)
from mhc.operators.mhc_pre.triton.kernels.fp16_split import ORDER, in_doubt, large, scale_fp16, sizes, split_fp16, together


@triton.jit
def weights_kernel(
    phi,
    gamma,
    w,
    scale,
    marks,
    D,
    K,
    M: tl.constexpr,
    DP: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """w [2, M, n * DP]: the terms of phi * gamma, scaled; scale and marks [n * DP]. Zeros from D to DP of each stream."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    m = tl.arange(0, ROWS).to(tl.int64)
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    pitch = (K // D).to(tl.int64) * DP
    k = j // DP * D + j % DP
    on = (m < M)[:, None] & ((j < pitch) & (j % DP < D))[None, :]
    v = tl.load(phi + m[:, None] * K + k[None, :], on, 0.0)  # [ROWS, BLOCK]
    if HAS_GAMMA:
        v *= tl.load(gamma + k, (j < pitch) & (j % DP < D), 0.0)[None, :]
    top, least, some = sizes(v, on, 0)
    factor, back, mark = scale_fp16(top, least, some, 2 * large(v, on, top[None, :], 0) > M)
    tl.store(scale + j, back, j < pitch)
    tl.store(marks + j, mark, j < pitch)
    h, l = split_fp16(tl.where((factor > 0)[None, :], v * factor[None, :], 0.0))
    at = w + m[:, None] * pitch + j[None, :]
    inside = (m < M)[:, None] & (j < pitch)[None, :]
    tl.store(at, h, inside)
    tl.store(at + M * pitch, l, inside)


@triton.jit
def _finish(
    acc,
    dx,
    x,
    dh_in,
    h_pre,
    coef,
    t0,
    i,
    d0,
    chosen,
    N,
    D,
    K,
    n: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    NEAR: tl.constexpr,
):
    """Stores dx = acc + h_pre * dh_in - coef * x, [BT, BD] of stream i, where chosen.

    NEAR: offsets inside the tile fit in 32 bits.
    """
    row = tl.arange(0, BT)
    live = row < N - t0
    at, on = _place(live, D - d0, D, BT, BD, NEAR)
    h = tl.load(h_pre + t0 * n + i + row * n, live, 0.0)
    acc += h[:, None] * widen(tl.load(dh_in + t0 * D + d0 + at, on, 0.0), tl.float32)
    at, on = _place(live, D - d0, K, BT, BD, NEAR)
    base = t0 * K + i * D + d0
    acc -= tl.load(coef + t0 + row, live, 0.0)[:, None] * widen(tl.load(x + base + at, on, 0.0), tl.float32)
    tl.store(dx + base + at, narrow(acc, dx.dtype.element_ty), on & chosen)


@triton.jit
def _place(live, width, pitch, BT: tl.constexpr, BD: tl.constexpr, NEAR: tl.constexpr):
    """Offsets in a tile of rows `pitch` apart, and which of them there are: `live` rows, columns below width."""
    offset: tl.constexpr = tl.int32 if NEAR else tl.int64
    col = tl.arange(0, BD)
    return tl.arange(0, BT).to(offset)[:, None] * pitch + col[None, :], live[:, None] & (col < width)[None, :]


@triton.jit
def _tile(pid, N, n: tl.constexpr, DP: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, GROUP: tl.constexpr):
    """First token, stream and first column of a program: GROUP tiles of tokens share columns of w in the L2."""
    columns: tl.constexpr = n * (DP // BD)
    group = pid // (GROUP * columns)
    width = tl.minimum(tl.cdiv(N, BT) - group * GROUP, GROUP)
    rest = pid % (GROUP * columns)
    column = (rest // width).to(tl.int64)
    return (group * GROUP + rest % width).to(tl.int64) * BT, column // (DP // BD), column % (DP // BD) * BD


@triton.jit
def dx_kernel(
    x,
    dh_in,
    h_pre,
    left,
    left_scale,
    coef,
    w,
    w_scale,
    dx,
    N,
    D,
    K,
    n: tl.constexpr,
    MP: tl.constexpr,
    DP: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    GROUP: tl.constexpr,
    BC: tl.constexpr,
    STAGES: tl.constexpr,
    NEAR: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """dx of one tile [BT, BD] inside one stream."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    M: tl.constexpr = n * n + 2 * n
    # last tokens first: the L2 still holds them from psi
    t0, i, d0 = _tile(tl.num_programs(0) - 1 - tl.program_id(0), N, n, DP, BT, BD, GROUP)
    row = tl.arange(0, BT)
    c = tl.arange(0, BC)
    # rows past N repeat the last token and are not stored
    left_at = (left + t0 * (2 * MP)) + (tl.minimum(row, N - 1 - t0) * (2 * MP))[:, None] + c[None, :]  # [BT, BC]
    right_at = (w + i * DP + d0) + tl.arange(0, BD)[None, :]  # [1, BD]
    term: tl.constexpr = M * n * DP
    acc = tl.zeros([BT, BD], tl.float32)
    low = tl.zeros([BT, BD], tl.float32)
    for c0 in tl.range(0, MP, BC, num_stages=STAGES):
        h = tl.load(left_at + c0)
        l = tl.load(left_at + MP + c0)
        # past M dh_mix is 0 and any row will do
        at = right_at + (tl.minimum(c0 + c, M - 1).to(tl.int64) * (n * DP))[:, None]  # [BC, BD]
        w_h = tl.load(at)
        w_l = tl.load(at + term)
        acc = dot(h, w_h, acc)
        low = dot(l, w_h, low)
        low = dot(h, w_l, low)
    live = row < N - t0
    acc = (acc + low * ORDER) * tl.load(left_scale + t0 + row, live, 0.0)[:, None]
    acc = acc * tl.load(w_scale + i * DP + d0 + tl.arange(0, BD))[None, :]
    # dx = dvec_mm * gamma - dinv_rms * inv_rms**3 / K * x + h_pre * dh_in
    _finish(acc, dx, x, dh_in, h_pre, coef, t0, i, d0, True, N, D, K, n, BT, BD, NEAR)


@triton.jit
def _float32(dh_mix, at, on, MP: tl.constexpr):
    """dh_mix from its three terms, exactly; h alone where it is not finite."""
    h = widen(tl.load(dh_mix + at, on, 0.0), tl.float32)
    low = widen(tl.load(dh_mix + at + MP, on, 0.0), tl.float32) * ORDER_1
    low += widen(tl.load(dh_mix + at + 2 * MP, on, 0.0), tl.float32) * ORDER_2
    return tl.where(finite(h), h + low, h)


@triton.jit
def mend_kernel(
    x,
    dh_in,
    h_pre,
    dh_mix,
    left_marks,
    coef,
    phi,
    gamma,
    w_marks,
    dx,
    N,
    D,
    K,
    n: tl.constexpr,
    MP: tl.constexpr,
    DP: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    GROUP: tl.constexpr,
    BC: tl.constexpr,
    TILES: tl.constexpr,
    NEAR: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """dx again, in float32, where `in_doubt` of the marks of token and column. TILES tiles of dx_kernel a program."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    M: tl.constexpr = n * n + 2 * n
    C: tl.constexpr = 3 * MP
    PART: tl.constexpr = BD // 4 if BD >= 64 else BD  # of the columns, so that a part fits into registers
    tiles = tl.cdiv(N, BT) * n * (DP // BD)
    first = tl.program_id(0) * TILES
    t0s, streams, d0s = _tile(tl.minimum(first + tl.arange(0, TILES), tiles - 1), N, n, DP, BT, BD, GROUP)
    tokens = t0s[:, None] + tl.arange(0, BT)[None, :]
    columns = (streams * DP + d0s)[:, None] + tl.arange(0, BD)[None, :]
    rows = together(tl.load(left_marks + tokens, tokens < N, 0))
    if tl.max(in_doubt(rows, together(tl.load(w_marks + columns))).to(tl.int32)) > 0:
        for tile in range(first, tl.minimum(first + TILES, tiles)):
            t0, i, d0 = _tile(tile, N, n, DP, BT, BD, GROUP)
            t = t0 + tl.arange(0, BT)
            live = t < N
            mark = tl.load(left_marks + t, live, 0)[:, None]
            all_w = tl.load(w_marks + i * DP + d0 + tl.arange(0, BD))[None, :]
            if tl.max(in_doubt(mark, all_w).to(tl.int32)) > 0:
                for part in range(0, BD, PART):
                    d = d0 + part + tl.arange(0, PART)
                    on_d = d < D
                    again = in_doubt(mark, tl.load(w_marks + i * DP + d)[None, :])
                    acc = tl.zeros([BT, PART], tl.float32)
                    for c0 in range(0, MP, BC):
                        c = c0 + tl.arange(0, BC)
                        a = _float32(dh_mix, (t * C)[:, None] + c[None, :], live[:, None], MP)  # [BT, BC]
                        on = (c < M)[:, None] & on_d[None, :]
                        b = tl.load(phi + c.to(tl.int64)[:, None] * K + (i * D + d)[None, :], on, 0.0)  # [BC, PART]
                        if HAS_GAMMA:
                            b *= tl.load(gamma + i * D + d, on_d, 0.0)[None, :]
                        acc = dot(a, b, acc)
                    _finish(acc, dx, x, dh_in, h_pre, coef, t0, i, d0 + part, again, N, D, K, n, BT, PART, NEAR)


@triton.jit
def psi_kernel(
    x,
    dh_mix,
    psi,
    N,
    D,
    K,
    chunk,
    n: tl.constexpr,
    MP: tl.constexpr,
    DP: tl.constexpr,
    LEFTS: tl.constexpr,
    BT: tl.constexpr,
    BM: tl.constexpr,
    BD: tl.constexpr,
    STAGES: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """psi [splits, M, K] = dh_mix^T x over a chunk of tokens, with an accumulator for each of LEFTS terms of dh_mix."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    M: tl.constexpr = n * n + 2 * n
    C: tl.constexpr = 3 * MP
    blocks: tl.constexpr = (M + BM - 1) // BM
    # blocks of rows next to each other: they read the same x
    pid = tl.program_id(0)
    m0 = pid % blocks * BM
    column = (pid // blocks).to(tl.int64)
    i = column // (DP // BD)
    d = column % (DP // BD) * BD + tl.arange(0, BD)
    split = tl.program_id(1).to(tl.int64)
    on_d = d < D
    m = m0 + tl.arange(0, BM)
    on_m = m < MP
    accs = ()
    for _ in tl.static_range(LEFTS):
        accs = accs + (tl.zeros([BM, BD], tl.float32),)
    for t0 in tl.range(split * chunk, tl.minimum((split + 1) * chunk, N), BT, num_stages=STAGES):
        t = t0 + tl.arange(0, BT)
        live = t < N
        x_at = x + (t * K)[:, None] + (i * D + d)[None, :]
        x_t = tl.load(x_at, live[:, None] & on_d[None, :], 0.0)  # [BT, BD]
        news = ()
        for q in tl.static_range(LEFTS):
            at = dh_mix + (t * C)[:, None] + (q * MP + m)[None, :]
            left = tl.load(at, live[:, None] & on_m[None, :], 0.0)  # [BT, BM]
            if x.dtype.element_ty == tl.bfloat16:
                acc = dot(tl.trans(left), x_t, accs[q])
            else:  # float16 is two terms
                h, scaled, none = split_bf16(widen(x_t, tl.float32))
                low, none = unscaled(scaled, none)
                acc = dot(tl.trans(left), h, accs[q])
                # a zero term of x must not meet an infinite one of dh_mix
                left = tl.where(finite(widen(left, tl.float32)), left, tl.zeros(left.shape, left.dtype))
                acc = dot(tl.trans(left), low, acc)
            news = news + (acc,)
        accs = news
    total = accs[0]
    rest = accs[1] * ORDER_1
    if LEFTS == 3:
        rest += accs[2] * ORDER_2
    # the rows of h alone decide the class
    total = tl.where(finite(total), total + rest, total)
    at = psi + (split * M + m)[:, None] * K + (i * D + d)[None, :]
    tl.store(at, total, (m < M)[:, None] & on_d[None, :])
