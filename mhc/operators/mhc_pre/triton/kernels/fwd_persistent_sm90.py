"""mHC Forward Pre with x read once: groups of programs hold a tile of tokens in shared memory between its two uses.

    h_mix = (x * gamma) @ phi.T,  s = sum(x * x)               over all K = n * D columns of a token
    h_in  = sum_i h_pre[i] * x[i]                              h_pre is a function of the token's h_mix and s

Program g of a group of G owns the columns g * W .. (g + 1) * W of every stream, W = D / G. Its share of
w = phi * gamma stays in registers, a ring of tiles of x [T, n * W] fills its shared memory. For each tile it sends its
share of h_mix and s to the group, waits for the G shares, adds them in their order and writes h_in for its columns from
the tile that is still there. A program's partitions: load_tiles -> project_tiles (two, half of the columns each)
-> ... -> combine_tiles, which frees the slot together with write_small.

The shares go through the words of `exchange_sm90`. All programs must run at the same time: cooperative launch.

w is the sum of two bfloat16 terms, w0 + w1 / 2**8: an error of 2**-17 |w|, inside the bound 6 sqrt(K) 2**-24 from
K = 1821 on. Rows of w0 and w1 are separate rows of the product, and w1's count only where they are finite: w0 decides
the class of a result. Where x is float16, so are the terms of w, w0 + w1 / 2**11: each row of a half of a program's columns
has a factor of its own (`fp16_split`), and a row with an element that has too few digits then is marked. Where there is a
mark, one more launch makes all outputs again.

OVERLAP: the loads of x begin while w is still being split.

Symbols: T tokens of a tile, SLOTS tiles of a program's ring, NC chunks of C columns in a tile. Places of a share: [0, n)
the rows of h_pre, 7 the squares, from 8 on the rows n .. M = n * n + 2 * n; 32 in all, so n <= 4.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_wait

from mhc.operators.mhc_pre.triton.kernels.bf16_split import ORDER_1, split_bf16
from mhc.operators.mhc_pre.triton.kernels.exchange_sm90 import complete, request, send
from mhc.operators.mhc_pre.triton.kernels.fp16_split import ODD, ORDER, SPREAD, absolute, scale_fp16, split_fp16
from mhc.operators.mhc_pre.triton.kernels.fwd_finish import sigmoid


@triton.jit
def split_resident_kernel(
    phi_ptr,
    gamma_ptr,
    w_ptr,
    part_ptr,
    K,
    words,
    n: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """w[k // 16, :] = the registers of a wgmma operand [64, 16]: row 16 a + 8 r + g is term r of place 8 a + g.

    Also sets the workspace of the shares to zero.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    k = tl.program_id(0) * BLOCK
    w = load_rows(phi_ptr, gamma_ptr, k, K, n, HAS_GAMMA, BLOCK)
    w0, w1, _ = split_bf16(w)
    store_terms(w_ptr, k, w0, w1, BLOCK)
    clear(part_ptr, words)


@triton.jit
def load_rows(phi_ptr, gamma_ptr, k, K, n: tl.constexpr, HAS_GAMMA: tl.constexpr, C: tl.constexpr):
    """phi * gamma [32, C] of C columns from k on, by places; 0 where a place is empty."""
    place = tl.arange(0, 32)
    row = tl.where(place < 8, place, place - 8 + n)
    inside = tl.where(place < 8, place < n, row < n * n + 2 * n)[:, None]
    columns = k + tl.arange(0, C)
    w = tl.load(phi_ptr + row.to(tl.int64)[:, None] * K + columns[None, :], mask=inside, other=0.0)
    if HAS_GAMMA:
        w *= tl.load(gamma_ptr + columns)[None, :]
    return w


@triton.jit
def store_terms(w_ptr, k, w0, w1, C: tl.constexpr):
    """Stores two terms [32, C] of columns from k on, a multiple of 16, as `split_resident_kernel` says."""
    terms = tl.reshape(tl.join(w0, w1), (4, 8, C // 16, 2, 4, 2, 2))  # a g, step h q l, r
    terms = tl.reshape(tl.permute(terms, (2, 0, 1, 4, 3, 6, 5)), (64 * C,))  # step a g q h r l
    tl.store(w_ptr + k.to(tl.int64) * 64 + tl.arange(0, 64 * C), terms)


@triton.jit
def clear(part_ptr, words):
    """Sets the workspace of the shares to zero, all programs together."""
    zeros = tl.zeros([1024], tl.int32)
    for start in range(tl.program_id(0) * 1024, words, tl.num_programs(0) * 1024):
        at = start + tl.arange(0, 1024)
        tl.store(part_ptr + at, zeros, mask=at < words)


@triton.jit
def split_scaled_kernel(
    phi_ptr,
    gamma_ptr,
    w_ptr,
    back_ptr,
    mark_ptr,
    part_ptr,
    K,
    D,
    words,
    n: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    HALF: tl.constexpr,
    PIECE: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The same in float16 terms: a program splits PIECE columns of a half of program g's, HALF chunks.

    back_ptr[2 g + half, place] is the reciprocal of a row's factor; mark_ptr[2 g + half] is not 0 where a row has an
    element that the terms do not hold.
    """
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    PIECES: tl.constexpr = HALF * C // PIECE
    part = tl.program_id(0) // PIECES
    g = part // 2
    top = tl.zeros([32, C], tl.float32)
    some = tl.full([32, C], float("inf"), tl.float32)
    for c in tl.static_range(HALF):
        w = load_rows(phi_ptr, gamma_ptr, chunk_start(g, part % 2 * HALF + c, D, W, C), K, n, HAS_GAMMA, C)
        size = absolute(w)
        top, some = tl.maximum(top, size), tl.minimum(some, tl.where(size > 0, size, float("inf")))
    top, some = tl.max(top, 1)[:, None], tl.min(some, 1)[:, None]
    factor, back, mark = scale_fp16(top, some, some, True)
    if tl.program_id(0) % PIECES == 0:
        tl.store(back_ptr + part * 32 + tl.arange(0, 32)[:, None], back)
        tl.store(mark_ptr + part, tl.max(tl.max(mark & (ODD | SPREAD), 1), 0))
    k = chunk_start(g, tl.program_id(0) % (2 * PIECES), D, W, PIECE)
    w0, w1 = split_fp16(load_rows(phi_ptr, gamma_ptr, k, K, n, HAS_GAMMA, PIECE) * factor)
    store_terms(w_ptr, k, w0, w1, PIECE)
    clear(part_ptr, words)


@triton.jit
def chunk_start(g, c, D, W: tl.constexpr, C: tl.constexpr):
    """The first column of chunk c of program g: its columns of stream after stream."""
    return (c * C // W) * D + g * W + (c * C) % W


@gluon.jit
def load_tiles(
    x_desc,
    ring,
    full,
    empty,
    q,
    g,
    D,
    steps,
    GROUPS: gl.constexpr,
    W: gl.constexpr,
    T: gl.constexpr,
    C: gl.constexpr,
    NC: gl.constexpr,
    SLOTS: gl.constexpr,
):
    """Partition of one warp: fills the ring."""
    for j in range(steps):
        slot = j % SLOTS
        mbarrier.wait(empty.index(slot), ((j // SLOTS) & 1) ^ 1)
        mbarrier.expect(full.index(slot), T * C * NC * 2)
        token = (q + j * GROUPS) * T
        for c in gl.static_range(NC):
            column = chunk_start(g, c, D, W, C)
            tma.async_copy_global_to_shared(x_desc, [token, column], full.index(slot), ring.index(slot * NC + c))


@gluon.jit
def load_w(w_ptr, k, C: gl.constexpr, A: gl.constexpr):
    """The operand [64, C] at column k, 16 bytes a thread and step of 16."""
    flat: gl.constexpr = gl.BlockedLayout([8], [32], [4], [0])
    w = gl.load(w_ptr + (k // 16) * 1024 + gl.arange(0, 64 * C, layout=flat))
    w = gl.permute(
        gl.reshape(w, (C // 16, 4, 8, 4, 2, 2, 2)), (1, 5, 2, 0, 4, 3, 6)
    )  # step a g q h r l -> a r g, step h q l
    return gl.convert_layout(gl.reshape(w, (64, C)), A)


@gluon.jit
def project_tiles(
    half: gl.constexpr,
    w_ptr,
    ring,
    sums,
    squares_of,
    full,
    summed,
    sent,
    g,
    D,
    steps,
    n: gl.constexpr,
    W: gl.constexpr,
    T: gl.constexpr,
    C: gl.constexpr,
    NC: gl.constexpr,
    SLOTS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of a warp group: its chunks' share of h_mix and of the squares, for each tile of the ring."""
    MMA: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, T, 16])
    A: gl.constexpr = gl.DotOperandLayout(0, MMA, 2)
    X: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    first: gl.constexpr = half * (NC // 2)
    LOW: gl.constexpr = ORDER if ring.dtype == gl.float16 else ORDER_1
    if OVERLAP:
        gdc_wait()
    w = ()
    for c in gl.static_range(NC // 2):
        w = w + (load_w(w_ptr, chunk_start(g, first + c, D, W, C), C, A),)
    for j in range(steps):
        slot = j % SLOTS
        mbarrier.wait(full.index(slot), (j // SLOTS) & 1)
        # h_mix.T = w @ x.T
        acc = warpgroup_mma_init(gl.zeros([64, T], gl.float32, layout=MMA))
        for c in gl.static_range(NC // 2):
            tile = ring.index(slot * NC + first + c)
            acc = warpgroup_mma(w[c], tile.permute((1, 0)), acc, is_async=True)
        # squares += x * x
        squares = gl.zeros([T, C], gl.float32, layout=X)
        for c in gl.static_range(NC // 2):
            v = ring.index(slot * NC + first + c).load(X).to(gl.float32)
            squares += v * v
        squares = gl.sum(squares, 1)  # [T]
        acc = warpgroup_mma_wait(0, deps=(acc,))
        # w0's row + w1's / 2**8, or / 2**11
        high, low = gl.split(gl.permute(gl.reshape(acc, (4, 2, 8, T)), (0, 2, 3, 1)))
        low = gl.reshape(low, (32, T)) * LOW
        h = gl.reshape(high, (32, T)) + gl.where(gl.abs(low) < float("inf"), low, 0.0)
        mbarrier.wait(sent.index(j & 1), ((j >> 1) & 1) ^ 1)
        sums.index((j & 1) * 2 + half).store(h)
        squares_of.index((j & 1) * 2 + half).store(squares)
        mbarrier.arrive(summed.index(j & 1), count=1)


@gluon.jit
def publish_tiles(
    odd: gl.constexpr,
    part_ptr,
    back_ptr,
    sums,
    squares_of,
    summed,
    sent,
    q,
    g,
    steps,
    G: gl.constexpr,
    T: gl.constexpr,
    RING: gl.constexpr,
    SCALED: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of one warp: the program's share of every other tile, to all programs of the group."""
    P: gl.constexpr = gl.BlockedLayout([T, 1], [1, 32], [1, 1], [1, 0])
    token = gl.arange(0, T, layout=gl.SliceLayout(1, P))
    place = gl.arange(0, 32, layout=gl.SliceLayout(0, P))
    if OVERLAP:
        gdc_wait()
    if SCALED:
        back0 = gl.load(back_ptr + 2 * g * 32 + place)[None, :]
        back1 = gl.load(back_ptr + (2 * g + 1) * 32 + place)[None, :]
    for i in range((steps + 1 - odd) // 2):
        j = 2 * i + odd
        mbarrier.wait(summed.index(odd), i & 1)
        h0 = sums.index(2 * odd).permute((1, 0)).load(P)  # [T, 32]
        h1 = sums.index(2 * odd + 1).permute((1, 0)).load(P)
        if SCALED:
            h = h0 * back0 + h1 * back1
        else:
            h = h0 + h1
        squares = squares_of.index(2 * odd).load(gl.SliceLayout(1, P)) + squares_of.index(2 * odd + 1).load(
            gl.SliceLayout(1, P)
        )
        mbarrier.arrive(sent.index(odd), count=1)
        share = part_ptr + ((q * RING + j % RING) * G + g) * (T * 32)
        values = gl.where((place == 7)[None, :], squares[:, None], h)
        send(share + token[:, None] * 32 + place[None, :], values, j // RING)


@gluon.jit
def write_small(
    part_ptr,
    alpha_ptr,
    bias_ptr,
    post_ptr,
    res_ptr,
    inv_ptr,
    mix_ptr,
    pre_ptr,
    empty,
    q,
    g,
    N,
    K,
    steps,
    norm_eps,
    hc_eps,
    n: gl.constexpr,
    G: gl.constexpr,
    UP: gl.constexpr,
    GROUPS: gl.constexpr,
    T: gl.constexpr,
    SLOTS: gl.constexpr,
    RING: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of one warp: every output but h_in, of every G-th token of a tile from the g-th on."""
    P: gl.constexpr = gl.BlockedLayout([UP, 1], [1, 32], [1, 1], [1, 0])
    M: gl.constexpr = n * n + 2 * n
    place = gl.arange(0, 32, layout=gl.SliceLayout(0, P))
    m = gl.where(place < 8, place, place - 8 + n)
    m = gl.where((place >= n) & (place < 8), M, m)
    alpha0, alpha1, alpha2 = gl.load(alpha_ptr), gl.load(alpha_ptr + 1), gl.load(alpha_ptr + 2)
    alpha = gl.where(m < n, alpha0, gl.where(m < 2 * n, alpha1, alpha2))[None, :]
    bias = gl.load(bias_ptr + m, mask=m < M, other=0.0)[None, :]
    place = place[None, :]
    m = m[None, :]
    token = g + G * gl.arange(0, UP, layout=gl.SliceLayout(1, P))  # [UP]
    offsets = gl.minimum(token, T - 1)[:, None] * 32 + place
    if OVERLAP:
        gdc_wait()
    for j in range(steps):
        first = (q + j * GROUPS) * T
        t = (first + token).to(gl.int64)
        inside = (token < T) & (t < N)
        keep = inside[:, None]
        pointers = part_ptr + (q * RING + j % RING) * (G * T * 32) + offsets
        h = complete(request(pointers, G, T * 128), pointers, j // RING, G, T * 128)  # [UP, 32]
        mbarrier.arrive(empty.index(j % SLOTS), count=1)
        squares = gl.sum(gl.where(place == 7, h, 0.0), 1)  # [UP]
        inv = gl.div_rn(1.0, gl.sqrt_rn(squares / K + norm_eps))
        z = alpha * (h * inv[:, None]) + bias
        s = sigmoid(z)
        t2 = t[:, None]
        gl.store(inv_ptr + t, inv, mask=inside)
        gl.store(mix_ptr + t2 * M + m, h, mask=keep & (m < M))
        gl.store(pre_ptr + t2 * n + m, s + hc_eps, mask=keep & (m < n))
        gl.store(post_ptr + t2 * n + (m - n), 2.0 * s, mask=keep & (m >= n) & (m < 2 * n))
        gl.store(res_ptr + t2 * (n * n) + (m - 2 * n), z, mask=keep & (m >= 2 * n) & (m < M))


@gluon.jit
def combine_tiles(
    part_ptr,
    alpha_ptr,
    bias_ptr,
    h_in_ptr,
    ring,
    empty,
    q,
    g,
    N,
    D,
    K,
    steps,
    norm_eps,
    hc_eps,
    n: gl.constexpr,
    G: gl.constexpr,
    GROUPS: gl.constexpr,
    W: gl.constexpr,
    T: gl.constexpr,
    C: gl.constexpr,
    NC: gl.constexpr,
    SLOTS: gl.constexpr,
    RING: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of a warp group: h_in = sum_i h_pre[i] * x[i] from the tile in the ring."""
    P: gl.constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])  # a place in each of a token's eight lanes
    X: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])  # eight columns in each of them
    place = gl.arange(0, 8, layout=gl.SliceLayout(0, P))
    offsets = gl.arange(0, T, layout=gl.SliceLayout(1, P))[:, None] * 32 + place[None, :]
    token = gl.arange(0, T, layout=gl.SliceLayout(1, X))
    d = gl.arange(0, C, layout=gl.SliceLayout(0, X))
    alpha = gl.load(alpha_ptr)
    bias = gl.load(bias_ptr + place, mask=place < n, other=0.0)[None, :]
    if OVERLAP:
        gdc_wait()
    pointers = part_ptr + q * RING * (G * T * 32) + offsets
    words = request(pointers, G, T * 128)
    for j in range(steps):
        slot = j % SLOTS
        h = complete(words, pointers, j // RING, G, T * 128)  # [T, 8]
        # the next tile's shares are on their way while this tile is combined
        pointers = part_ptr + (q * RING + (j + 1) % RING) * (G * T * 32) + offsets
        words = request(pointers, G, T * 128)
        squares = gl.sum(gl.where((place == 7)[None, :], h, 0.0), 1)
        inv = gl.div_rn(1.0, gl.sqrt_rn(squares / K + norm_eps))  # [T]
        pre = sigmoid(alpha * (h * inv[:, None]) + bias) + hc_eps
        gate = ()
        for i in gl.static_range(n):
            gate = gate + (gl.convert_layout(gl.sum(gl.where((place == i)[None, :], pre, 0.0), 1), gl.SliceLayout(1, X)),)
        t = ((q + j * GROUPS) * T + token).to(gl.int64)
        for part in gl.static_range(W // C):
            acc = gl.zeros([T, C], gl.float32, layout=X)
            for i in gl.static_range(n):
                acc += gate[i][:, None] * ring.index(slot * NC + i * (W // C) + part).load(X).to(gl.float32)
            gl.store(
                h_in_ptr + t[:, None] * D + (g * W + part * C + d)[None, :],
                acc.to(h_in_ptr.dtype.element_ty),
                mask=(t < N)[:, None],
                cache_modifier=".cs",
            )
        mbarrier.arrive(empty.index(slot), count=1)


@gluon.jit
def resident_kernel(
    x_desc,
    w_ptr,
    back_ptr,
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
    tiles,
    norm_eps,
    hc_eps,
    n: gl.constexpr,
    G: gl.constexpr,
    UP: gl.constexpr,
    GROUPS: gl.constexpr,
    W: gl.constexpr,
    T: gl.constexpr,
    C: gl.constexpr,
    NC: gl.constexpr,
    SLOTS: gl.constexpr,
    RING: gl.constexpr,
    PROJECT_REGS: gl.constexpr,
    SMALL_REGS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """The whole forward for the tiles q, q + GROUPS, ... of group q, columns of program g.

    back_ptr: of `split_scaled_kernel`, where x is float16.
    """
    SCALED: gl.constexpr = x_desc.dtype == gl.float16
    q = gl.program_id(0) // G
    g = gl.program_id(0) % G
    steps = (tiles - q + GROUPS - 1) // GROUPS
    ring = gl.allocate_shared_memory(x_desc.dtype, [SLOTS * NC, T, C], x_desc.layout)
    PLAIN2: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0, 1])
    PLAIN1: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    sums = gl.allocate_shared_memory(gl.float32, [4, 32, T], PLAIN2)
    squares_of = gl.allocate_shared_memory(gl.float32, [4, T], PLAIN1)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    summed = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    sent = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    for odd in gl.static_range(2):
        mbarrier.init(summed.index(odd), count=2)
        mbarrier.init(sent.index(odd), count=1)
    gl.warp_specialize(
        [
            (
                combine_tiles,
                (
                    part_ptr,
                    alpha_ptr,
                    bias_ptr,
                    h_in_ptr,
                    ring,
                    empty,
                    q,
                    g,
                    N,
                    D,
                    K,
                    steps,
                    norm_eps,
                    hc_eps,
                    n,
                    G,
                    GROUPS,
                    W,
                    T,
                    C,
                    NC,
                    SLOTS,
                    RING,
                    OVERLAP,
                ),
            ),
            (
                project_tiles,
                (0, w_ptr, ring, sums, squares_of, full, summed, sent, g, D, steps, n, W, T, C, NC, SLOTS, OVERLAP),
            ),
            (
                project_tiles,
                (1, w_ptr, ring, sums, squares_of, full, summed, sent, g, D, steps, n, W, T, C, NC, SLOTS, OVERLAP),
            ),
            (load_tiles, (x_desc, ring, full, empty, q, g, D, steps, GROUPS, W, T, C, NC, SLOTS)),
            (
                publish_tiles,
                (0, part_ptr, back_ptr, sums, squares_of, summed, sent, q, g, steps, G, T, RING, SCALED, OVERLAP),
            ),
            (
                publish_tiles,
                (1, part_ptr, back_ptr, sums, squares_of, summed, sent, q, g, steps, G, T, RING, SCALED, OVERLAP),
            ),
            (
                write_small,
                (
                    part_ptr,
                    alpha_ptr,
                    bias_ptr,
                    post_ptr,
                    res_ptr,
                    inv_ptr,
                    mix_ptr,
                    pre_ptr,
                    empty,
                    q,
                    g,
                    N,
                    K,
                    steps,
                    norm_eps,
                    hc_eps,
                    n,
                    G,
                    UP,
                    GROUPS,
                    T,
                    SLOTS,
                    RING,
                    OVERLAP,
                ),
            ),
        ],
        [4, 4, 1, 1, 1, 1],
        [PROJECT_REGS, PROJECT_REGS, SMALL_REGS, SMALL_REGS, SMALL_REGS, SMALL_REGS],
    )
