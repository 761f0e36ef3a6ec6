"""Triton kernels of mHC Forward Pre after the projection: the gates and h_in; and the whole forward in one kernel.

Symbols: T tokens of a tile, MP columns, at least M = n * n + 2 * n. Source: arXiv 2512.24880 eqs. 14-19.
"""

import triton
import triton.language as tl

from mhc.operators.mhc_pre.triton.kernels.bf16_split import narrow, scalar, widen
from mhc.operators.mhc_pre.triton.kernels.fwd_project import project


@triton.jit
def sigmoid(z):
    """From the exponential of a number that is not positive."""
    e = tl.exp(-tl.abs(z))
    return tl.where(z >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def inverse_rms(squares, K, norm_eps):
    """rsqrt(mean(x * x) + norm_eps) [T], from sum(x * x)."""
    mean = squares / K + scalar(norm_eps, squares.dtype)
    if squares.dtype == tl.float64:
        return 1.0 / tl.sqrt(mean)
    else:
        return tl.div_rn(1.0, tl.sqrt_rn(mean))


@triton.jit
def gates(h, squares, m, alpha_ptr, bias_ptr, K, norm_eps, n: tl.constexpr):
    """inv_rms [T], z = alpha * h_mix * inv_rms + bias [T, MP] and sigmoid(z), from h_mix [T, MP], sum(x * x) [T]."""
    inv = inverse_rms(squares, K, norm_eps)
    # z = alpha * (h_mix * inv_rms) + bias
    alpha = tl.where(m < n, tl.load(alpha_ptr), tl.where(m < 2 * n, tl.load(alpha_ptr + 1), tl.load(alpha_ptr + 2)))
    bias = tl.load(bias_ptr + m, mask=m < n * n + 2 * n, other=0.0)  # [MP]
    z = alpha[None, :] * (h * inv[:, None]) + bias[None, :]
    return inv, z, sigmoid(z)


@triton.jit
def store_gates(h, inv, z, s, m, t, inside_t, post_ptr, res_ptr, inv_ptr, mix_ptr, pre_ptr, hc_eps, n: tl.constexpr):
    """Writes inv_rms, h_mix, h_pre = s + hc_eps, h_post = 2 * s and h_res = z, each from its columns."""
    M: tl.constexpr = n * n + 2 * n
    row = t[:, None]
    col = m[None, :]
    keep = inside_t[:, None]
    tl.store(inv_ptr + t, inv, mask=inside_t)
    tl.store(mix_ptr + row * M + col, h, mask=keep & (col < M))
    tl.store(pre_ptr + row * n + col, s + scalar(hc_eps, s.dtype), mask=keep & (col < n))
    tl.store(post_ptr + row * n + (col - n), 2.0 * s, mask=keep & (col >= n) & (col < 2 * n))
    tl.store(res_ptr + row * (n * n) + (col - 2 * n), z, mask=keep & (col >= 2 * n) & (col < M))


@triton.jit
def load_streams(x_ptr, rows, inside_t, d, D, n: tl.constexpr):
    """x[t, 0..n, d]: n tiles [T, BD]."""
    pointers = x_ptr + rows[:, None] + d[None, :]
    inside = inside_t[:, None] & (d < D)[None, :]
    streams = ()
    for i in tl.static_range(n):
        streams = streams + (tl.load(pointers + i * D, mask=inside, other=0.0, eviction_policy="evict_first"),)
    return streams


@triton.jit
def combine(streams, gate, h_in_ptr, t, inside_t, d, D, n: tl.constexpr):
    """h_in[t, d] = sum_i gate[i][t] * x[t, i, d]."""
    acc = tl.zeros([t.shape[0], d.shape[0]], gate[0].dtype)
    for i in tl.static_range(n):
        acc += gate[i][:, None] * widen(streams[i], acc.dtype)  # [T, BD]
    tl.store(
        h_in_ptr + t[:, None] * D + d[None, :],
        narrow(acc, h_in_ptr.dtype.element_ty),
        mask=inside_t[:, None] & (d < D)[None, :],
        eviction_policy="evict_first",
    )


@triton.jit
def sum_partials(part_ptr, t, inside_t, m, SPLITS: tl.constexpr, WIDTH: tl.constexpr):
    """sum over the splits, in their order: [T, MP]."""
    h = tl.zeros([t.shape[0], m.shape[0]], part_ptr.dtype.element_ty)
    for split in tl.static_range(SPLITS):
        h += tl.load(
            part_ptr + (t[:, None] * SPLITS + split) * WIDTH + m[None, :],
            mask=inside_t[:, None] & (m < WIDTH)[None, :],
            other=0.0,
        )
    return h


@triton.jit
def stream_gates(
    part_ptr,
    t,
    inside_t,
    alpha_ptr,
    bias_ptr,
    K,
    norm_eps,
    hc_eps,
    n: tl.constexpr,
    NP: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """h_pre[t, 0..n]: n tensors [T], from the first NP columns of the partial sums and the squares alone."""
    i = tl.arange(0, NP)
    h = sum_partials(part_ptr, t, inside_t, i, SPLITS, WIDTH)  # [T, NP]
    squares = tl.sum(sum_partials(part_ptr, t, inside_t, n * n + 2 * n + tl.arange(0, 1), SPLITS, WIDTH), 1)
    _, _, s = gates(h, squares, i, alpha_ptr, bias_ptr, K, norm_eps, n)
    return columns(s + scalar(hc_eps, s.dtype), i, n)


@triton.jit
def columns(v, m, n: tl.constexpr):
    """The first n columns of v [T, MP]: n tensors [T]."""
    each = ()
    for i in tl.static_range(n):
        each = each + (tl.sum(tl.where(m[None, :] == i, v, 0.0), 1),)
    return each


@triton.jit
def finish_kernel(
    x_ptr,
    part_ptr,
    alpha_ptr,
    bias_ptr,
    h_in_ptr,
    post_ptr,
    res_ptr,
    inv_ptr,
    mix_ptr,
    pre_ptr,
    N,
    D,
    K,
    norm_eps: tl.float64,
    hc_eps: tl.float64,
    n: tl.constexpr,
    NP: tl.constexpr,
    SPLITS: tl.constexpr,
    WIDTH: tl.constexpr,
    MP: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    PIECE: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Sums the partials, makes the gates, then h_in for a block of D, in pieces. Last tokens come first: L2 has them."""
    t = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64) * BT + tl.arange(0, BT)  # [BT]
    inside_t = t < N
    d = tl.program_id(1).to(tl.int64) * BD + tl.arange(0, PIECE)  # [PIECE]
    rows = tl.minimum(t, N - 1) * K
    # x is on its way while the gates are made
    streams = load_streams(x_ptr, rows, inside_t, d, D, n)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    gate = stream_gates(part_ptr, t, inside_t, alpha_ptr, bias_ptr, K, norm_eps, hc_eps, n, NP, SPLITS, WIDTH)
    for left in tl.static_range(BD // PIECE, 0, -1):
        if left > 1:
            following = load_streams(x_ptr, rows, inside_t, d + PIECE, D, n)
        combine(streams, gate, h_in_ptr, t, inside_t, d, D, n)
        d += PIECE
        if left > 1:
            streams = following
    if tl.program_id(1) == 0:
        m = tl.arange(0, MP)
        h = sum_partials(part_ptr, t, inside_t, m, SPLITS, WIDTH)  # [BT, MP]
        squares = tl.sum(tl.where(m[None, :] == n * n + 2 * n, h, 0.0), 1)
        inv, z, s = gates(h, squares, m, alpha_ptr, bias_ptr, K, norm_eps, n)
        store_gates(h, inv, z, s, m, t, inside_t, post_ptr, res_ptr, inv_ptr, mix_ptr, pre_ptr, hc_eps, n)


@triton.jit
def fused_kernel(
    x_ptr,
    phi_ptr,
    gamma_ptr,
    alpha_ptr,
    bias_ptr,
    h_in_ptr,
    post_ptr,
    res_ptr,
    inv_ptr,
    mix_ptr,
    pre_ptr,
    mark_ptr,
    N,
    D,
    K,
    norm_eps: tl.float64,
    hc_eps: tl.float64,
    n: tl.constexpr,
    MARKS: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    EVEN: tl.constexpr,
    BT: tl.constexpr,
    MP: tl.constexpr,
    BK: tl.constexpr,
    BD: tl.constexpr,
    STAGES: tl.constexpr,
):
    """The whole forward of BT tokens in one program: what `resident` of float16 x makes again, and a mode.

    MARKS: how many marks it reads; it returns at once if all are 0. With MARKS = 0 it always runs.
    """
    if MARKS:
        tl.static_assert(MARKS <= 64)
        i = tl.arange(0, 64)
        if tl.max(tl.load(mark_ptr + i, mask=i < MARKS, other=0), 0) == 0:
            return
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)  # [BT]
    inside_t = t < N
    m = tl.arange(0, MP)
    rows = tl.minimum(t, N - 1) * K
    h, squares = project(
        x_ptr,
        rows,
        phi_ptr,
        gamma_ptr,
        phi_ptr,
        K,
        m,
        0,
        tl.cdiv(K, BK),
        K,
        n * n + 2 * n,
        HAS_GAMMA,
        False,
        EVEN,
        BT,
        MP,
        BK,
        STAGES,
    )
    inv, z, s = gates(h, squares, m, alpha_ptr, bias_ptr, K, norm_eps, n)
    store_gates(h, inv, z, s, m, t, inside_t, post_ptr, res_ptr, inv_ptr, mix_ptr, pre_ptr, hc_eps, n)
    pre = s + scalar(hc_eps, s.dtype)
    gate = columns(pre, m, n)
    for start in range(0, D, BD):
        d = start + tl.arange(0, BD).to(tl.int64)
        streams = load_streams(x_ptr, rows, inside_t, d, D, n)
        combine(streams, gate, h_in_ptr, t, inside_t, d, D, n)
