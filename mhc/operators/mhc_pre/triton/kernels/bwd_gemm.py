"""The streams pass of the Triton backward as two matrix products, for many streams.

    dx  = dh_mix @ (phi * gamma) - coef * x + h_pre * dh_in        [N, K], contraction M
    psi = dh_mix^T @ x                                             [M, K], contraction N

With M = n*n + 2n rows the products outweigh the memory traffic, so each has a kernel with tiles of its own. float32 is
three bfloat16 terms h m l: dh_mix comes as [N, 5, MP], zero from M to MP, in h m l and, for psi, m and l scaled by 2**8
and 2**16; phi * gamma as [3, M, n * DP]. A tile of each of the six serves the products hh mh lh hm mm hl. Only h carries
NaN and infinity, and only hh decides the class of a result: a lower product can turn an infinity into NaN. Unscaled
terms end at 2**-133: tokens whose dh_mix is all below 2**-102 are faint, and have their dx made again of the scaled ones.
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


@triton.jit
def weights_kernel(
    phi,
    gamma,
    w,
    D,
    K,
    M: tl.constexpr,
    DP: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """w [3, M, n * DP]: the terms of phi * gamma, each stream's columns padded with zeros from D to DP."""
    m = tl.program_id(1).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    pitch = (K // D).to(tl.int64) * DP
    k = j // DP * D + j % DP
    inside = (m < M)[:, None] & (j < pitch)[None, :]
    on = (j < pitch) & (j % DP < D)
    v = tl.load(phi + m[:, None] * K + k[None, :], inside & on[None, :], 0.0)  # [ROWS, BLOCK]
    if HAS_GAMMA:
        v *= tl.load(gamma + k, on, 0.0)[None, :]
    w_h, w_m, w_l = split_bf16(v)
    w_m, w_l = unscaled(w_m, w_l)
    at = w + m[:, None] * pitch + j[None, :]
    tl.store(at, w_h, inside)
    tl.store(at + M * pitch, w_m, inside)
    tl.store(at + 2 * M * pitch, w_l, inside)


@triton.jit
def _upstream(dh_in, h_pre, t, d, i, N, D, n: tl.constexpr):
    """h_pre * dh_in, [BT, BD] of stream i."""
    live = t < N
    h = tl.load(h_pre + t * n + i, live, 0.0)
    at = dh_in + (t * D)[:, None] + d[None, :]
    return h[:, None] * widen(tl.load(at, live[:, None] & (d < D)[None, :], 0.0), tl.float32)


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
def _own(x, coef, t, d, i, N, D, K):
    """coef * x, [BT, BD] of stream i."""
    live = t < N
    f = tl.load(coef + t, live, 0.0)
    at = x + (t * K)[:, None] + (i * D + d)[None, :]
    return f[:, None] * widen(tl.load(at, live[:, None] & (d < D)[None, :], 0.0), tl.float32)


@triton.jit
def dx_kernel(
    x,
    dh_in,
    h_pre,
    dh_mix,
    coef,
    w,
    dx,
    flags,
    N,
    D,
    K,
    n: tl.constexpr,
    MP: tl.constexpr,
    DP: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    BC: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """dx of one tile [BT, BD] inside one stream; flags [tiles]: something in it is infinite or NaN."""
    M: tl.constexpr = n * n + 2 * n
    C: tl.constexpr = 5 * MP
    pid = tl.program_id(0)
    t0, i, d0 = _tile(pid, N, n, DP, BT, BD, GROUP)
    row = tl.arange(0, BT)
    c = tl.arange(0, BC)
    t = t0 + row
    d = d0 + tl.arange(0, BD)
    # rows past N repeat the last token and are not stored
    left_at = (dh_mix + t0 * C) + (tl.minimum(row, N - 1 - t0) * C)[:, None] + c[None, :]  # [BT, BC]
    right_at = (w + i * DP + d0) + tl.arange(0, BD)[None, :]  # [1, BD]
    term: tl.constexpr = M * n * DP
    # dx = dvec_mm * gamma - dinv_rms * inv_rms**3 / K * x + h_pre * dh_in
    acc = _upstream(dh_in, h_pre, t, d, i, N, D, n)
    for c0 in tl.range(0, MP, BC, num_stages=STAGES):
        h = tl.load(left_at + c0)
        m = tl.load(left_at + MP + c0)
        l = tl.load(left_at + 2 * MP + c0)
        # past M dh_mix is 0 and any finite row will do
        at = right_at + (tl.minimum(c0 + c, M - 1).to(tl.int64) * (n * DP))[:, None]  # [BC, BD]
        w_h = tl.load(at)
        w_m = tl.load(at + term)
        w_l = tl.load(at + 2 * term)
        acc = dot(h, w_h, acc)
        acc = dot(m, w_h, acc)
        acc = dot(l, w_h, acc)
        acc = dot(h, w_m, acc)
        acc = dot(m, w_m, acc)
        acc = dot(h, w_l, acc)
    acc -= _own(x, coef, t, d, i, N, D, K)
    out = narrow(acc, dx.dtype.element_ty)
    tl.store(dx + (t * K)[:, None] + (i * D + d)[None, :], out, (t < N)[:, None] & (d < D)[None, :])
    bad = tl.where(finite(widen(out, tl.float32)), 0, 1)
    tl.store(flags + pid, tl.max(bad))


@triton.jit
def _product(left_at, right_at, live, acc, M: tl.constexpr, MP: tl.constexpr, pitch: tl.constexpr, BC: tl.constexpr):
    """acc + left @ right, over the MP columns at left_at [BT, 1] and the M rows at right_at [1, BD]."""
    for c0 in range(0, MP, BC):
        c = c0 + tl.arange(0, BC)
        m = c.to(tl.int64)[:, None]
        left = tl.load(left_at + c[None, :], live[:, None], 0.0)  # [BT, BC]
        right = tl.load(right_at + m * pitch, m < M, 0.0)  # [BC, BD]
        acc = dot(left, right, acc)
    return acc


@triton.jit
def classes_kernel(
    x,
    dh_in,
    h_pre,
    dh_mix,
    faint,
    coef,
    w,
    dx,
    flags,
    N,
    D,
    K,
    n: tl.constexpr,
    MP: tl.constexpr,
    DP: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    BC: tl.constexpr,
    GROUP: tl.constexpr,
    FLAGS: tl.constexpr,
):
    """Where dx is infinite or NaN: the class of hh alone. Of faint tokens: all of dx, the terms of dh_mix scaled.

    Apart from dx_kernel, whose registers it would double.
    """
    M: tl.constexpr = n * n + 2 * n
    C: tl.constexpr = 5 * MP
    term: tl.constexpr = M * n * DP
    PART: tl.constexpr = BD // 4 if BD >= 64 else BD  # of the columns, so that a part fits into registers
    tiles = tl.cdiv(N, BT) * n * (DP // BD)
    first = tl.program_id(0) * FLAGS
    mine = tl.minimum(first + tl.arange(0, FLAGS), tiles - 1)
    t0s, _, _ = _tile(mine, N, n, DP, BT, BD, GROUP)
    tokens = t0s[:, None] + tl.arange(0, BT)[None, :]
    if tl.max(tl.load(flags + mine)) + tl.max(tl.load(faint + tokens, tokens < N, 0)) > 0:
        for tile in range(first, tl.minimum(first + FLAGS, tiles)):
            if tl.load(flags + tile) > 0:
                t0, i, d0 = _tile(tile, N, n, DP, BT, BD, GROUP)
                t = t0 + tl.arange(0, BT)
                live = t < N
                left_at = dh_mix + (t * C)[:, None]
                for part in range(0, BD, PART):
                    d = d0 + part + tl.arange(0, PART)
                    w_at = w + (i * DP + d)[None, :]
                    acc = _product(left_at, w_at, live, _upstream(dh_in, h_pre, t, d, i, N, D, n), M, MP, n * DP, BC)
                    acc -= _own(x, coef, t, d, i, N, D, K)
                    on = live[:, None] & (d < D)[None, :]
                    at = dx + (t * K)[:, None] + (i * D + d)[None, :]
                    on = on & ~finite(widen(tl.load(at, on, 0.0), tl.float32)) & ~finite(acc)
                    tl.store(at, narrow(acc, dx.dtype.element_ty), on)
        # in a loop of its own, so that it fits into registers
        for tile in range(first, tl.minimum(first + FLAGS, tiles)):
            t0, i, d0 = _tile(tile, N, n, DP, BT, BD, GROUP)
            t = t0 + tl.arange(0, BT)
            live = t < N
            weak = tl.load(faint + t, live, 0) > 0
            if tl.max(weak.to(tl.int32)) > 0:
                left_at = dh_mix + (t * C)[:, None]
                for part in range(0, BD, PART):
                    d = d0 + part + tl.arange(0, PART)
                    w_at = w + (i * DP + d)[None, :]
                    acc = tl.zeros([BT, PART], tl.float32)
                    acc = _product(left_at + 4 * MP, w_at, live, acc, M, MP, n * DP, BC) * ORDER_1
                    acc = _product(left_at + 3 * MP, w_at, live, acc, M, MP, n * DP, BC)
                    acc = _product(left_at + 3 * MP, w_at + term, live, acc, M, MP, n * DP, BC) * ORDER_1
                    acc = _product(left_at, w_at + 2 * term, live, acc, M, MP, n * DP, BC)
                    acc = _product(left_at, w_at + term, live, acc, M, MP, n * DP, BC)
                    acc = _product(left_at, w_at, live, acc, M, MP, n * DP, BC)
                    acc += _upstream(dh_in, h_pre, t, d, i, N, D, n)
                    acc -= _own(x, coef, t, d, i, N, D, K)
                    on = (live & weak)[:, None] & (d < D)[None, :]
                    at = dx + (t * K)[:, None] + (i * D + d)[None, :]
                    on = on & finite(widen(tl.load(at, on, 0.0), tl.float32))
                    tl.store(at, narrow(acc, dx.dtype.element_ty), on)


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
):
    """psi [splits, M, K] = dh_mix^T x over a chunk of tokens, with an accumulator for each of LEFTS terms of dh_mix."""
    M: tl.constexpr = n * n + 2 * n
    C: tl.constexpr = 5 * MP
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
            # the blocks of order 0, 1, 2 are 0, 3, 4
            at = dh_mix + (t * C)[:, None] + ((q + 2 * (q > 0)) * MP + m)[None, :]
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
