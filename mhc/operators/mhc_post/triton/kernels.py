"""Triton kernels of mHC post: tiles [T tokens, streams, BC columns], products in registers, one stream after the other.

Source: arXiv 2512.24880, eq. 3.
"""

import triton
import triton.language as tl

from mhc.operators.mhc_pre.triton.kernels.bf16_split import narrow, widen


@triton.jit
def post_kernel(
    x,
    f,
    h_post,
    h_res,
    y,
    N,
    C,
    n: tl.constexpr,
    NP: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BT: tl.constexpr,
    BC: tl.constexpr,
):
    """y[o] = sum_i h_res[o, i] x[i] + h_post[o] f, for one tile; NP is n or more."""
    blocks = tl.cdiv(C, BC)
    t = (tl.program_id(0) // blocks).to(tl.int64) * BT + tl.arange(0, BT)
    c = (tl.program_id(0) % blocks).to(tl.int64) * BC + tl.arange(0, BC)
    o = tl.arange(0, NP)
    F = h_res.dtype.element_ty
    live = (t < N)[:, None]
    on = live & (c < C)[None, :]  # [T, BC]
    on_o = live & (o < n)[None, :]  # [T, NP]
    row = (t * n)[:, None] + o[None, :]
    total = tl.zeros([BT, NP, BC], F)
    for i in tl.static_range(n):
        x_i = widen(tl.load(x + ((t * n + i) * C)[:, None] + c[None, :], on, 0.0), F)
        at = (t * (n * n) + i * n)[:, None] + o[None, :] if TRANSPOSED else row * n + i
        total += tl.load(h_res + at, on_o, 0.0)[:, :, None] * x_i[:, None, :]
    added = widen(tl.load(f + (t * C)[:, None] + c[None, :], on, 0.0), F)
    total += tl.load(h_post + row, on_o, 0.0)[:, :, None] * added[:, None, :]
    at = (row * C)[:, :, None] + c[None, None, :]
    tl.store(y + at, narrow(total, y.dtype.element_ty), on[:, None, :] & on_o[:, :, None])


@triton.jit
def post_backward_kernel(
    x,
    f,
    h_post,
    h_res,
    dy,
    dx,
    df,
    dh_post,
    dh_res,
    N,
    C,
    n: tl.constexpr,
    NS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    BT: tl.constexpr,
    BC: tl.constexpr,
):
    """Gradients of NS streams of x, with their entries of h_res; the program of the first streams has those of f and h_post.

    dx[i] = sum_o h_res[o, i] dy[o];      df = sum_o h_post[o] dy[o]
    dh_res[o, i] = sum_C dy[o] x[i];      dh_post[o] = sum_C dy[o] f
    """
    GROUPS: tl.constexpr = (n + NS - 1) // NS
    t = (tl.program_id(0) // GROUPS).to(tl.int64) * BT + tl.arange(0, BT)
    i0 = tl.program_id(0) % GROUPS * NS
    i = i0 + tl.arange(0, NS)
    F = h_res.dtype.element_ty
    live = t < N
    first = live & (i0 == 0)
    on_i = live[:, None] & (i < n)[None, :]  # [T, NS]
    row = (t * n)[:, None] + i[None, :]

    mixing = ()  # n of [T, NS]
    posts = ()  # n of [T]
    sums = ()  # n of [T, NS, BC]: dh_res
    post_sums = ()  # n of [T, BC]: dh_post
    for o in tl.static_range(n):
        at = row * n + o if TRANSPOSED else (t * (n * n) + o * n)[:, None] + i[None, :]
        mixing = mixing + (tl.load(h_res + at, on_i, 0.0),)
        posts = posts + (tl.load(h_post + t * n + o, first, 0.0),)
        sums = sums + (tl.zeros([BT, NS, BC], F),)
        post_sums = post_sums + (tl.zeros([BT, BC], F),)

    for c0 in range(0, C, BC):
        c = c0 + tl.arange(0, BC).to(tl.int64)
        inside = (c < C)[None, :]
        on = live[:, None] & inside  # [T, BC]
        at_x = (row * C)[:, :, None] + c[None, None, :]
        on_x = on_i[:, :, None] & inside[:, None, :]  # [T, NS, BC]
        streams = widen(tl.load(x + at_x, on_x, 0.0), F)
        at_f = (t * C)[:, None] + c[None, :]
        added = widen(tl.load(f + at_f, first[:, None] & inside, 0.0), F)
        d_streams = tl.zeros([BT, NS, BC], F)
        d_added = tl.zeros([BT, BC], F)
        next_sums = ()
        next_posts = ()
        for o in tl.static_range(n):
            g = widen(tl.load(dy + ((t * n + o) * C)[:, None] + c[None, :], on, 0.0), F)
            d_streams += mixing[o][:, :, None] * g[:, None, :]
            d_added += posts[o][:, None] * g
            next_sums = next_sums + (sums[o] + g[:, None, :] * streams,)
            next_posts = next_posts + (post_sums[o] + g * added,)
        sums = next_sums
        post_sums = next_posts
        tl.store(dx + at_x, narrow(d_streams, dx.dtype.element_ty), on_x)
        tl.store(df + at_f, narrow(d_added, df.dtype.element_ty), first[:, None] & inside)

    for o in tl.static_range(n):
        at = row * n + o if TRANSPOSED else (t * (n * n) + o * n)[:, None] + i[None, :]
        tl.store(dh_res + at, tl.sum(sums[o], axis=2), on_i)
        tl.store(dh_post + t * n + o, tl.sum(post_sums[o], axis=1), first)
