"""Triton kernels of Sinkhorn: whole matrices in registers, [T tokens, NP rows, NP columns], NP a power of two.

What pads a matrix from n to NP is 0 after each step, so that it is in no sum. Source: arXiv 2512.24880, eqs. 8 and 9.
"""

import triton
import triton.language as tl

from mhc.operators.mhc_pre.triton.kernels.bf16_split import scalar


@triton.jit
def quotient(a, s, inside, n: tl.constexpr, NP: tl.constexpr):
    """a / s rounded once, and 0 in what pads it.

    Not a product with 1 / s: where one entry is all of its sum, M is 1, and the backward cancels against that.
    """
    if s.dtype == tl.float64:
        found = a / s
    else:
        found = tl.div_rn(a, s)
    if n < NP:
        found = tl.where(inside, found, 0.0)
    return found


@triton.jit
def step(m, inside, eps, AXIS: tl.constexpr, EPS: tl.constexpr, n: tl.constexpr, NP: tl.constexpr):
    """m / s, and s: the sums over an axis, with eps."""
    s = tl.sum(m, axis=AXIS, keep_dims=True)
    if EPS:
        s = s + scalar(eps, s.dtype)
    return quotient(m, s, inside, n, NP), s


@triton.jit
def step_back(dm, m, s, inside, AXIS: tl.constexpr, n: tl.constexpr, NP: tl.constexpr):
    """Of a step m = a / s: da = (dm - sum(dm m)) / s."""
    return quotient(dm - tl.sum(dm * m, axis=AXIS, keep_dims=True), s, inside, n, NP)


@triton.jit
def tile(N, n: tl.constexpr, NP: tl.constexpr, BT: tl.constexpr):
    """Offsets of this program's matrices, which of them exist, and what is inside of a matrix."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    i = tl.arange(0, NP)
    inside = (i < n)[None, :, None] & (i < n)[None, None, :]
    at = (t * (n * n))[:, None, None] + (i * n)[None, :, None] + i[None, None, :]
    return at, (t < N)[:, None, None] & inside, inside


@triton.jit
def start(logits, at, on, inside, eps, SOFTMAX: tl.constexpr, n: tl.constexpr, NP: tl.constexpr):
    """p = exp(logits), or the softmax of their rows; and the first M, which is p, or p + eps."""
    z = tl.load(logits + at, on, 0.0)
    z = tl.where(inside, z, float("-inf"))
    if SOFTMAX:
        # a NaN in a row makes NaN of it; the interpreter warns of the largest of NaN
        p = tl.exp(z - tl.max(tl.where(z == z, z, float("inf")), axis=2, keep_dims=True))
        p = quotient(p, tl.sum(p, axis=2, keep_dims=True), inside, n, NP)
        return p, tl.where(inside, p + scalar(eps, p.dtype), 0.0)
    else:
        p = tl.exp(z)
        return p, p


@triton.jit
def sinkhorn_kernel(
    logits,
    y,
    N,
    eps: tl.float64,
    PAIRS: tl.constexpr,
    SOFTMAX: tl.constexpr,
    n: tl.constexpr,
    NP: tl.constexpr,
    BT: tl.constexpr,
):
    """Steps over columns and rows in turn, PAIRS times; SOFTMAX: one more over columns."""
    at, on, inside = tile(N, n, NP, BT)
    _p, m = start(logits, at, on, inside, eps, SOFTMAX, n, NP)
    for _ in range(PAIRS):
        m, _c = step(m, inside, eps, 1, SOFTMAX, n, NP)
        m, _r = step(m, inside, eps, 2, SOFTMAX, n, NP)
    if SOFTMAX:
        m, _c = step(m, inside, eps, 1, SOFTMAX, n, NP)
    tl.store(y + at, m, on)


@triton.jit
def sinkhorn_backward_kernel(
    logits,
    dy,
    dlogits,
    kept,
    N,
    eps: tl.float64,
    PAIRS: tl.constexpr,
    SOFTMAX: tl.constexpr,
    n: tl.constexpr,
    NP: tl.constexpr,
    BT: tl.constexpr,
):
    """The forward, which keeps M in front of each pair of steps; then the pairs in reverse, each made again from its M.

    kept [PAIRS, N, n, n] is scratch.
    """
    at, on, inside = tile(N, n, NP, BT)
    p, m = start(logits, at, on, inside, eps, SOFTMAX, n, NP)
    stride = tl.full((), n * n, tl.int64) * N
    here = kept + at
    for _ in range(PAIRS):
        tl.store(here, m, on)
        here += stride
        m, _c = step(m, inside, eps, 1, SOFTMAX, n, NP)
        m, _r = step(m, inside, eps, 2, SOFTMAX, n, NP)
    dm = tl.load(dy + at, on, 0.0)
    if SOFTMAX:
        m, c = step(m, inside, eps, 1, SOFTMAX, n, NP)
        dm = step_back(dm, m, c, inside, 1, n, NP)
    tl.debug_barrier()  # what is kept may be another thread's
    for _ in range(PAIRS):
        here -= stride
        by_columns, c = step(tl.load(here, on, 0.0), inside, eps, 1, SOFTMAX, n, NP)
        by_rows, r = step(by_columns, inside, eps, 2, SOFTMAX, n, NP)
        dm = step_back(dm, by_rows, r, inside, 2, n, NP)
        dm = step_back(dm, by_columns, c, inside, 1, n, NP)
    if SOFTMAX:
        # of p = softmax(logits): p (dp - sum(dp p))
        dm = dm - tl.sum(dm * p, axis=2, keep_dims=True)
    tl.store(dlogits + at, dm * p, on)
