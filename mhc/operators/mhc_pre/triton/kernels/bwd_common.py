"""The three kernels of the Triton backward: gates, streams, parameters."""

import triton
import triton.language as tl

from mhc.operators.mhc_pre.triton.kernels.bf16_split import (
    ORDER_1,
    ORDER_2,
    add_orders,
    dot,
    finite,
    narrow,
    scalar,
    split_bf16,
    widen,
)
from mhc.operators.mhc_pre.triton.kernels.fp16_split import large, scale_fp16, sizes, split_fp16

FAINT = tl.constexpr(2.0**-100)
"""Below it the terms of phi * gamma, of which some have a factor of 2**-16, are not exact: bfloat16 ends at 2**-133."""


@triton.jit
def _pack(row, j, v, on, MP: tl.constexpr, FORM: tl.constexpr):
    """Entries v of columns j of dh_mix, in the terms that a second pass wants; whole where its rows are not bfloat16.

    streams: blocks of MP columns h m l h m h, the left sides of hh mh lh hm mm hl.
    wide: blocks h m l. hopper: 24 h, 8 l, 24 m, 24 h, 16 l. m and l are scaled.
    Only the first h carries NaN and infinity.
    """
    at = row + j
    if row.dtype.element_ty != tl.bfloat16:
        tl.store(at, v, on)
    else:
        h, m, l = split_bf16(v)
        tl.store(at, h, on)
        low = tl.where(finite(v), h, tl.zeros(h.shape, h.dtype))
        if FORM == "hopper":
            tl.store(at + tl.where(j < 8, 24, 72), l, on)
            tl.store(at + 32, m, on)
            tl.store(at + 56, low, on)
        else:
            tl.store(at + MP, m, on)
            tl.store(at + 2 * MP, l, on)
            if FORM == "streams":
                tl.store(at + 3 * MP, low, on)
                tl.store(at + 4 * MP, m, on)
                tl.store(at + 5 * MP, low, on)


@triton.jit
def _pack_fp16(row, j, v, factor, on, MP: tl.constexpr):
    """The same entries times a token's factor, in two terms of float16; zeros where the factor is 0."""
    v = tl.where(factor > 0, v * factor, 0.0)
    h, l = split_fp16(v)
    tl.store(row + j, h, on)
    tl.store(row + MP + j, l, on)


@triton.jit
def gates_kernel(
    x,
    dh_in,
    h_mix,
    h_pre,
    h_post,
    dh_post,
    dh_res,
    inv_rms,
    alpha,
    dh_mix,
    left,
    scale,
    marks,
    coef,
    sums,
    N,
    D,
    chunk,
    hc_eps: tl.float64,
    n: tl.constexpr,
    NP: tl.constexpr,
    RP: tl.constexpr,
    MP: tl.constexpr,
    FORM: tl.constexpr,
    C: tl.constexpr,
    PP: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    STAGES: tl.constexpr,
    NEAR: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Token gradients of this program's tokens.

    dh_mix in packed terms [N, C], in blocks of MP columns, M or more; wide: also scaled as float16, left [N, 2, MP], with
    scale and marks [N] (`fp16_split`); coef = sum_M(dt * h_mix) * inv_rms**3 / K [N]; and the sums of its tokens for dbias
    and dalpha, sums [programs, M + 3]. NEAR: offsets inside a tile fit in 32 bits, which halves the registers of addresses.
    """
    M: tl.constexpr = n * n + 2 * n
    F = coef.dtype.element_ty
    offset: tl.constexpr = tl.int32 if NEAR else tl.int64
    pid = tl.program_id(0).to(tl.int64)
    if FORM == "wide":  # last tokens first: psi begins with the first ones, which the L2 still holds
        pid = tl.num_programs(0) - 1 - pid
    i = tl.arange(0, NP)
    r = tl.arange(0, RP)
    a_pre = tl.load(alpha)
    a_post = tl.load(alpha + 1)
    a_res = tl.load(alpha + 2)
    b_pre = tl.zeros([NP], F)
    b_post = tl.zeros([NP], F)
    b_res = tl.zeros([RP], F)
    s_pre = tl.zeros([NP], F)
    s_post = tl.zeros([NP], F)
    s_res = tl.zeros([RP], F)
    for t0 in range(0, chunk, BT):
        t = pid * chunk + t0 + tl.arange(0, BT)
        live = t < N
        on = live[:, None] & (i < n)[None, :]  # [BT, NP]
        on_res = live[:, None] & (r < n * n)[None, :]  # [BT, RP]
        col = (t * n)[:, None] + i[None, :]
        row = (t * M)[:, None]
        inv = tl.load(inv_rms + t, live, 0.0)
        s = tl.load(h_pre + col, on, 0.0) - scalar(hc_eps, F)
        p = tl.load(h_post + col, on, 0.0)
        d_post = tl.load(dh_post + col, on, 0.0)
        d_res = tl.load(dh_res + (t * n * n)[:, None] + r[None, :], on_res, 0.0)
        m_pre = tl.load(h_mix + row + i[None, :], on, 0.0)
        m_post = tl.load(h_mix + row + n + i[None, :], on, 0.0)
        m_res = tl.load(h_mix + row + 2 * n + r[None, :], on_res, 0.0)
        # dh_pre = sum_D dh_in * x
        first = pid * chunk + t0
        row_at = tl.arange(0, BT).to(offset)[:, None] * D  # [BT, 1]
        accs = ()
        for _ in tl.static_range(n):
            accs = accs + (tl.zeros([BT, BD], F),)
        for d0 in tl.range(0, D, BD, num_stages=STAGES):
            d = d0 + tl.arange(0, BD).to(offset)[None, :]
            on_d = live[:, None] & (d < D)  # [BT, BD]
            g = widen(tl.load(dh_in + first * D + (row_at + d), on_d, 0.0), F)
            news = ()
            for k in tl.static_range(n):
                at = x + (first * n + k) * D + (row_at * n + d)
                news = news + (accs[k] + widen(tl.load(at, on_d, 0.0), F) * g,)
            accs = news
        dh_pre = tl.zeros([BT, NP], F)
        for k in tl.static_range(n):
            dh_pre = tl.where(i[None, :] == k, tl.sum(accs[k], axis=1)[:, None], dh_pre)
        # s = h_pre - hc_eps;  dh_pre2 = dh_pre * s * (1 - s)
        d_pre = tl.where(on, dh_pre * s * (1 - s), 0.0)
        # dh_post2 = dh_post * h_post * (1 - h_post / 2)
        d_post = d_post * p * (1 - p / 2)
        # dbias, dalpha: this program's share
        b_pre += tl.sum(d_pre, axis=0)
        b_post += tl.sum(d_post, axis=0)
        b_res += tl.sum(d_res, axis=0)
        s_pre += tl.sum(d_pre * (m_pre * inv[:, None]), axis=0)
        s_post += tl.sum(d_post * (m_post * inv[:, None]), axis=0)
        s_res += tl.sum(d_res * (m_res * inv[:, None]), axis=0)
        # dt = cat(alpha[0] * dh_pre2, alpha[1] * dh_post2, alpha[2] * dh_res);  dinv_rms = sum_M dt * h_mix
        d_pre *= a_pre
        d_post *= a_post
        d_res *= a_res
        if n * n < RP:  # not 0 times an infinite alpha
            d_res = tl.where(on_res, d_res, 0.0)
        dinv = tl.sum(d_pre * m_pre, axis=1) + tl.sum(d_post * m_post, axis=1) + tl.sum(d_res * m_res, axis=1)
        tl.store(coef + t, dinv * inv * inv / (D * n) * inv, live)
        # dh_mix = dt * inv_rms
        d_pre *= inv[:, None]
        d_post *= inv[:, None]
        d_res = tl.where(on_res, d_res * inv[:, None], 0.0)  # zeros from M to MP
        if FORM == "wide":
            res_top, res_least, res_some = sizes(d_res, on_res, 1)
            pre_top, pre_least, pre_some = sizes(d_pre, on, 1)
            post_top, post_least, post_some = sizes(d_post, on, 1)
            top = tl.maximum(res_top, tl.maximum(pre_top, post_top))
            many = large(d_res, on_res, top[:, None], 1) + large(d_pre, on, top[:, None], 1)
            many += large(d_post, on, top[:, None], 1)
            least = tl.minimum(res_least, tl.minimum(pre_least, post_least))
            some = tl.minimum(res_some, tl.minimum(pre_some, post_some))
            factor, back, mark = scale_fp16(top, least, some, 2 * many > M)
            tl.store(scale + t, back, live)
            tl.store(marks + t, mark, live)
            out = left + (t * (2 * MP))[:, None]
            _pack_fp16(out, i[None, :], d_pre, factor[:, None], on, MP)
            _pack_fp16(out, n + i[None, :], d_post, factor[:, None], on, MP)
            _pack_fp16(out, 2 * n + r[None, :], d_res, factor[:, None], live[:, None] & (r < MP - 2 * n)[None, :], MP)
        out = dh_mix + (t * C)[:, None]
        _pack(out, i[None, :], d_pre, on, MP, FORM)
        _pack(out, n + i[None, :], d_post, on, MP, FORM)
        _pack(out, 2 * n + r[None, :], d_res, live[:, None] & (r < MP - 2 * n)[None, :], MP, FORM)
        if FORM == "streams":
            pad = C - PP + tl.arange(0, PP)
            after = pad >= (6 if dh_mix.dtype.element_ty == tl.bfloat16 else 1) * MP
            zeros = tl.zeros([BT, PP], dh_mix.dtype.element_ty)
            tl.store(out + pad[None, :], zeros, live[:, None] & after[None, :])
    if OVERLAP:
        if FORM == "wide":
            tl.extra.cuda.gdc_wait()  # for phi * gamma, which is made meanwhile: what waits for this kernel needs both
        tl.extra.cuda.gdc_launch_dependents()
    base = sums + pid * (M + 3)
    tl.store(base + i, b_pre, i < n)
    tl.store(base + n + i, b_post, i < n)
    tl.store(base + 2 * n + r, b_res, r < n * n)
    tl.store(base + M, tl.sum(s_pre, axis=0))
    tl.store(base + M + 1, tl.sum(s_post, axis=0))
    tl.store(base + M + 2, tl.sum(s_res, axis=0))


@triton.jit
def _right(phi, gamma, col, k, on_k, K, M: tl.constexpr, HAS_GAMMA: tl.constexpr, WHOLE: tl.constexpr):
    """The right sides of hh mh lh hm mm hl: phi * gamma in rows h h h m m l; or phi * gamma as it is."""
    m = (col % M).to(tl.int64)
    p = (col // M)[:, None]
    v = tl.load(phi + m[:, None] * K + k[None, :], (p < 6) & on_k[None, :], 0.0)
    if HAS_GAMMA:
        v = v * tl.load(gamma + k, on_k, 0.0)[None, :]
    if WHOLE:
        return tl.where(p == 0, v, 0.0)
    else:
        h, m, l = split_bf16(v)
        low = widen(tl.where(finite(v), h, tl.zeros(h.shape, h.dtype)), tl.float32)
        m, l = widen(m, tl.float32), widen(l, tl.float32)
        # a left side of order j is scaled by 2**(8 j): the right side takes the factor back
        right = tl.where(p == 0, widen(h, tl.float32), low)
        right = tl.where(p == 1, low * ORDER_1, tl.where(p == 2, low * ORDER_2, right))
        right = tl.where(p == 3, m * ORDER_1, tl.where(p == 4, m * ORDER_2, right))
        right = tl.where(p == 5, l * ORDER_2, tl.where(p > 5, 0.0, right))
        return narrow(right, tl.bfloat16)


@triton.jit
def _load(at, on, EVEN: tl.constexpr):
    """A load, zero where masked off; EVEN: nothing is."""
    if EVEN:
        return tl.load(at)
    else:
        return tl.load(at, on, 0.0)


@triton.jit
def _psi(left, x_t, acc, X_TERMS: tl.constexpr):
    """acc + left^T x_t, [<= W, NS * BD]."""
    if left.dtype == tl.float32:
        return acc - dot(tl.trans(left), x_t, tl.zeros(acc.shape, acc.dtype))  # negative, and a tile at a time: see project
    elif X_TERMS == 1:
        return dot(tl.trans(left), x_t, acc)
    else:
        xs = split_bf16(widen(x_t, tl.float32))
        acc = dot(tl.trans(left), xs[0], acc)
        # a zero term of x must not meet an infinite one of dh_mix
        left = tl.trans(tl.where(finite(widen(left, tl.float32)), left, tl.zeros(left.shape, left.dtype)))
        return acc + dot(left, xs[1], tl.zeros(acc.shape, acc.dtype)) * ORDER_1


@triton.jit
def streams_kernel(
    x,
    dh_in,
    phi,
    gamma,
    h_pre,
    dh_mix,
    coef,
    dx,
    psi,
    N,
    D,
    K,
    n: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    NS: tl.constexpr,
    C: tl.constexpr,
    W: tl.constexpr,
    R: tl.constexpr,
    X_TERMS: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    STAGES: tl.constexpr,
    EVEN: tl.constexpr,
    NEAR: tl.constexpr,
):
    """dx, and psi = dh_mix^T x over this program's tokens in rows of terms, psi [splits, R, K].

    Programs are (columns, streams, splits). Columns of packed dh_mix are taken in chunks of W, the first R of them
    for psi. EVEN: the blocks fill N, n and D. NEAR: offsets inside a tile fit in 32 bits.
    """
    M: tl.constexpr = n * n + 2 * n
    LEFTS: tl.constexpr = (C + W - 1) // W
    PSIS: tl.constexpr = (R + W - 1) // W
    F = coef.dtype.element_ty
    WHOLE: tl.constexpr = dh_mix.dtype.element_ty != tl.bfloat16
    offset: tl.constexpr = tl.int32 if NEAR else tl.int64
    col = tl.arange(0, NS * BD)
    i = tl.program_id(1).to(offset) * NS + col // BD
    d = tl.program_id(0).to(offset) * BD + col % BD
    k = i * D + d  # [NS * BD]
    on_k = (i < n) & (d < D)
    i_h = tl.program_id(1).to(offset) * NS + tl.arange(0, NS)
    d_g = tl.program_id(0).to(offset) * BD + tl.arange(0, BD)

    rights = ()  # LEFTS of [<= W, NS * BD]
    psis = ()  # PSIS of [<= W, NS * BD]
    for q in tl.static_range(0, C, W):
        rights = rights + (_right(phi, gamma, q + tl.arange(0, min(W, C - q)), k, on_k, K, M, HAS_GAMMA, WHOLE),)
        if q < R:
            psis = psis + (tl.zeros([min(W, C - q), NS * BD], F),)

    # last tokens first: the L2 still holds them from the gates
    tiles = tl.cdiv(N, BT)
    for tile in tl.range(tl.program_id(2), tiles, tl.num_programs(2), num_stages=STAGES):
        t0 = (tiles - 1 - tile).to(tl.int64) * BT
        row = tl.arange(0, BT)
        live = row < N - t0
        at = t0 * K + (row.to(offset)[:, None] * K + k[None, :])
        x_t = _load(x + at, live[:, None] & on_k[None, :], EVEN)  # [BT, NS * BD]
        c = _load(coef + t0 + row, live, EVEN)[:, None]  # [BT, 1]
        h_at = (h_pre + t0 * n) + (row[:, None] * n + i_h[None, :])
        h = _load(h_at, live[:, None] & (i_h < n)[None, :], EVEN)  # [BT, NS]
        g_at = (dh_in + t0 * D) + (row.to(offset)[:, None] * D + d_g[None, :])
        g = _load(g_at, live[:, None] & (d_g < D)[None, :], EVEN)  # [BT, BD]
        # dx = dvec_mm * gamma - dinv_rms * inv_rms**3 / K * x + h_pre * dh_in
        out = tl.reshape(h[:, :, None] * widen(g, F)[:, None, :], [BT, NS * BD]) - c * widen(x_t, F)
        news = ()
        products = tl.zeros(out.shape, F)
        for q in tl.static_range(LEFTS):
            left_at = (dh_mix + t0 * C) + (row[:, None] * C + (q * W + tl.arange(0, min(W, C - q * W)))[None, :])
            left = _load(left_at, live[:, None], EVEN)  # [BT, <= W]
            # psi = sum_tokens dh_mix^T x; first, so that the wait for dvec_mm also ends its reading of x
            if q < PSIS:
                news = news + (_psi(left, x_t, psis[q], X_TERMS),)
            # dvec_mm = dh_mix @ phi
            if WHOLE:  # apart: a large out would round each of them
                products = dot(left, rights[q], products)
            else:
                out = dot(left, rights[q], out)
        if WHOLE:
            out = -(-out - products)
        psis = news
        if EVEN:
            tl.store(dx + at, narrow(out, dx.dtype.element_ty))
        else:
            tl.store(dx + at, narrow(out, dx.dtype.element_ty), live[:, None] & on_k[None, :])

    base = psi + tl.program_id(2).to(tl.int64) * R * K
    for q in tl.static_range(PSIS):
        rows = (q * W + tl.arange(0, min(W, C - q * W))).to(tl.int64)
        total = -psis[q] if WHOLE and psis[q].dtype == tl.float32 else psis[q]
        tl.store(base + rows[:, None] * K + k[None, :], total, (rows < R)[:, None] & on_k[None, :])


@triton.jit
def _mend_dx(
    least,
    k,
    x,
    dh_in,
    h_pre,
    dh_mix,
    coef,
    phi,
    gamma,
    dx,
    N,
    D,
    K,
    n: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    FORM: tl.constexpr,
    C: tl.constexpr,
    BT: tl.constexpr,
):
    """dx of columns k once more, from whole phi and gamma, where one of `least` is FAINT.

    FORM, C: how dh_mix is packed, and the columns of its rows.
    """
    F = coef.dtype.element_ty
    M: tl.constexpr = n * n + 2 * n
    stride = tl.full((), 1, tl.int64) * K
    on_k = k < K
    i, d = k // D, k % D
    if tl.min(least) < FAINT:
        for t0 in tl.range(0, N, BT, num_stages=1):
            t = t0 + tl.arange(0, BT).to(tl.int64)
            live = t < N
            dvec_mm = tl.zeros([BT, k.shape[0]], F)
            for m in tl.range(0, M, num_stages=1):
                left = dh_mix + t * C + m
                middle, low = left + M, left + 2 * M
                if FORM == "hopper":
                    middle, low = left + 32, left + tl.where(m < 8, 24, 72)
                h, l = widen(tl.load(left, live, 0.0), F), widen(tl.load(low, live, 0.0), F)
                v = add_orders(h, widen(tl.load(middle, live, 0.0), F), l)
                dvec_mm += v[:, None] * tl.load(phi + m * stride + k, on_k, 0.0)[None, :]
            if HAS_GAMMA:
                dvec_mm *= tl.load(gamma + k, on_k, 0.0)[None, :]
            on = live[:, None] & on_k[None, :]
            at = t[:, None] * K + k[None, :]
            h = tl.load(h_pre + t[:, None] * n + i[None, :], on, 0.0)
            g = widen(tl.load(dh_in + t[:, None] * D + d[None, :], on, 0.0), F)
            c = tl.load(coef + t, live, 0.0)[:, None]
            out = h * g - c * widen(tl.load(x + at, on, 0.0), F) + dvec_mm
            tl.store(dx + at, narrow(out, dx.dtype.element_ty), on)


@triton.jit
def parameters_kernel(
    phi,
    gamma,
    psi,
    sums,
    dphi,
    dgamma,
    dalpha,
    dbias,
    x,
    dh_in,
    h_pre,
    dh_mix,
    coef,
    dx,
    N,
    D,
    K,
    splits,
    programs,
    n: tl.constexpr,
    M: tl.constexpr,
    R: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
    FORM: tl.constexpr,
    C: tl.constexpr,
    BT: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """dphi = psi * gamma and dgamma = sum_M psi * phi over column blocks; the last programs add up dbias and dalpha.

    FORM: dx was made from phi * gamma in terms that end at 2**-133, and is mended in blocks in which one is FAINT.
    OVERLAP: "late" where the kernel in front lets this one start after psi and sums are there, and the end waits for it.
    """
    if OVERLAP and OVERLAP != "late":
        tl.extra.cuda.gdc_wait()
    F = psi.dtype.element_ty
    blocks = tl.cdiv(K, BK)
    stride = tl.full((), 1, tl.int64) * K
    pid = tl.program_id(0)
    if pid < blocks:
        k = pid.to(tl.int64) * BK + tl.arange(0, BK)
        on_k = k < K
        if HAS_GAMMA:
            gam = tl.load(gamma + k, on_k, 0.0)
            dgam = tl.zeros([BK], F)
        least = tl.full([BM, BK], 1.0, F)
        for m0 in range(0, M, BM):
            rows = (m0 + tl.arange(0, BM)).to(tl.int64)
            on = (rows < M)[:, None] & on_k[None, :]
            at = rows[:, None] * K + k[None, :]
            total = tl.zeros([BM, BK], F)
            rest = tl.zeros([BM, BK], F)
            part = psi + at
            for _ in range(splits):
                total += tl.load(part, on, 0.0)
                for p in tl.static_range(M, R, M):  # terms of order 1 and 2
                    rest += tl.load(part + p * stride, on, 0.0) * (ORDER_1 if p == M else ORDER_2)
                part += R * stride
            total = tl.where(finite(total), total + rest, total)
            if HAS_GAMMA:
                # dgamma = sum_tokens x * dvec_mm = sum_M psi * phi
                w = tl.load(phi + at, on, 0.0)
                dgam += tl.sum(total * w, axis=0)
                total = total * gam[None, :]
                if FORM != "":
                    some = (w != 0) & (gam[None, :] != 0)
                    least = tl.minimum(least, tl.where(some, tl.abs(w * gam[None, :]), 1.0))
            elif FORM != "":
                w = tl.load(phi + at, on, 0.0)
                least = tl.minimum(least, tl.where(w != 0, tl.abs(w), 1.0))
            # dphi = sum_tokens dh_mix^T (x * gamma)
            tl.store(dphi + at, total, on)
        if HAS_GAMMA:
            tl.store(dgamma + k, dgam, on_k)
        if FORM != "":
            _mend_dx(least, k, x, dh_in, h_pre, dh_mix, coef, phi, gamma, dx, N, D, K, n, HAS_GAMMA, FORM, C, BT)
    else:
        # dbias = sum_tokens cat(dh_pre2, dh_post2, dh_res);  dalpha = sum_tokens of the same times t
        col = (pid - blocks) * BC + tl.arange(0, BC)
        acc = tl.zeros([BP, BC], F)
        for p0 in range(0, programs, BP):
            p = (p0 + tl.arange(0, BP)).to(tl.int64)
            acc += tl.load(sums + p[:, None] * (M + 3) + col[None, :], (p < programs)[:, None] & (col < M + 3)[None, :], 0.0)
        total = tl.sum(acc, axis=0)  # [BC]
        tl.store(dbias + col, total, col < M)
        tl.store(dalpha + col - M, total, (col >= M) & (col < M + 3))
    if OVERLAP == "late":
        tl.extra.cuda.gdc_wait()
