"""The Triton backward with x and dh_in read once: a group of programs holds a tile of tokens in shared memory until its dx.

    dh_pre = sum_D dh_in * x                                   [N, n]; dh_mix [N, M] and coef [N] are functions of it
    dx     = dh_mix @ phi * gamma - coef * x + h_pre * dh_in   [N, n, D]
    psi    = dh_mix^T x                                        [3M, K], added up later

Program g of a group of G owns columns g * BD .. (g + 1) * BD of every stream. For each tile of 64 tokens it sends its share
of dh_pre to the group. The tokens of all tiles go round the programs: token u is added up and taken through the gates by
program u % G, which sends its row of dh_mix and coef to all. The words are those of `exchange_sm90`; all programs must run
at the same time: cooperative launch. Partitions of a program:

    load_tiles   one warp: fills the ring of x and dh_in
    send_shares  two warps: the program's share of dh_pre
    send_rows    one warp: rows of dh_mix for its tokens, and its part of dbias and dalpha
    sum_psi      a warp group: rows of dh_mix into shared memory, then psi
    make_dx      two warp groups in turn: dx, which leaves through x's place

The terms and products are those of `bwd_fused_sm90`.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_wait

from mhc.operators.mhc_pre.triton.kernels.bf16_split import finite, nearest
from mhc.operators.mhc_pre.triton.kernels.bwd_fused_sm90 import (
    BT,
    COLS,
    accumulators,
    allocate_rights,
    end_psi,
    make_rights,
    no_psi,
    row_values,
    start_dx,
    start_psi,
    store_psi,
)
from mhc.operators.mhc_pre.triton.kernels.exchange_sm90 import complete, complete_row, marked, request, send
from mhc.operators.mhc_pre.triton.kernels.ring_sm90 import advance

# Words of a token's row, in two sides of 24: 12 with the first and second terms of columns 4 side to 4 side + 3 of each
# eight columns of dh_mix, 6 with two third terms each, coef twice, 4 that are not read. In a tile the fours of the same
# place lie side by side, so that neighbouring threads read neighbouring words.
ROW = gl.constexpr(48)
READ = gl.constexpr(20)  # of a side
FOURS = gl.constexpr(4 * 2 * 64)  # words from one place to the next


@triton.jit
def clear_kernel(words, count, BLOCK: tl.constexpr, OVERLAP: tl.constexpr):
    """Sets the workspace of the words to zero: none has come."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(words + at, tl.zeros([BLOCK], tl.int32), at < count)


@gluon.jit
def _eight(a, b, c, d):
    """[64, 8] of the columns 0 and 4, 1 and 5, 2 and 6, 3 and 7, [64, 2] each."""
    return gl.reshape(gl.join(gl.join(a, c), gl.join(b, d)), (64, 8))


@gluon.jit
def _side_by_side(a, b, c, d):
    """[64, 32] of four pieces [64, 8]."""
    v = gl.join(gl.join(a, c), gl.join(b, d))
    return gl.reshape(gl.permute(v, (0, 2, 3, 1)), (64, 32))


@gluon.jit
def _upper(word):
    """The bfloat16 in the upper half of each word."""
    return (word >> 16).to(gl.int16).to(gl.bfloat16, bitcast=True)


@gluon.jit
def _lower(word):
    """The bfloat16 in the lower half of each word."""
    return word.to(gl.int16).to(gl.bfloat16, bitcast=True)


@gluon.jit
def _low(h):
    """The first terms among the lower orders: 0 where they are not finite."""
    return gl.where(finite(h), h, gl.zeros_like(h))


@gluon.jit
def load_tiles(x, dh_in, x_s, g_s, full, empty, count, tiles, split, splits, d0, STAGES: gl.constexpr):
    """Partition of one warp: fills the ring."""
    slot = 0
    phase = 1
    for j in range(count):
        t0 = (tiles - 1 - split - j * splits) * BT
        mbarrier.wait(empty.index(slot), phase)
        bar = full.index(slot)
        mbarrier.expect(bar, x.block_type.nbytes + dh_in.block_type.nbytes)
        tma.async_copy_global_to_shared(x, [0, t0, d0], bar, x_s.index(slot))
        tma.async_copy_global_to_shared(dh_in, [t0, d0], bar, g_s.index(slot))
        slot, phase = advance(slot, phase, STAGES)


@gluon.constexpr_function
def pair_layout(pairs):
    """Pairs of columns [64, pairs] as two warps' operands of mma.m16n8k16.

    A lane has the pairs lane % 4 of each four, of tokens lane / 4 and lane / 4 + 8 of each sixteen.
    """
    fours = [[0, 1 << b] for b in range(2, pairs.bit_length() - 1)]
    lanes = [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]]
    return gl.DistributedLinearLayout([[8, 0], *fours, [32, 0]], lanes, [[16, 0]], [], [64, pairs])


@gluon.jit
def _fours(pairs, PAIRS: gl.constexpr):
    """The pieces [64, 4] of pairs [64, PAIRS], in their order."""
    if PAIRS == 4:
        return (gl.convert_layout(pairs, pair_layout(4), assert_trivial=True),)
    else:
        low, high = gl.split(gl.permute(gl.reshape(pairs, (64, 2, PAIRS // 2)), (0, 2, 1)))
        return _fours(low, PAIRS // 2) + _fours(high, PAIRS // 2)


@gluon.constexpr_function
def diagonal_asm(steps, kind):
    """The diagonals of x @ d^T for 16 tokens, as products with 8 tokens of d each, `steps` sixteens of columns added up.

    Inputs: two registers (a token and the eighth after it) for each four of x, then of d, then 1 for an odd token.
    A lane has columns 2 (lane % 4) and the next of its token's row: the diagonal is the first for an even token, if it is
    there at all: in one of the token's four lanes.
    """
    x, d, odd = 2, 2 + 4 * steps, 2 + 8 * steps
    lines = ["{ .reg .f32 a<4>, b<4>; .reg .pred p;"]
    lines += [f"mov.f32 {sums}{k}, 0f00000000;" for sums in "ab" for k in range(4)]
    for s in range(0, 4 * steps, 4):
        left = ", ".join(f"${x + s + k}" for k in range(4))
        for k, name in enumerate("ab"):
            sums = ", ".join(f"{name}{i}" for i in range(4))
            right = f"${d + s + k}, ${d + s + k + 2}"
            lines.append(
                f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{{sums}}}, {{{left}}}, {{{right}}}, {{{sums}}};"
            )
    return "\n".join([*lines, f"setp.ne.b32 p, ${odd}, 0; selp.f32 $0, a1, a0, p; selp.f32 $1, b3, b2, p; }}"])


@gluon.constexpr_function
def kind_of(dtype):
    """A 16-bit type's name in PTX."""
    return "f16" if dtype == gl.float16 else "bf16"


@gluon.constexpr_function
def diagonal_constraints(steps):
    return ",".join(["=f"] * 2 + ["r"] * (8 * steps + 2))


@gluon.jit
def _send_diagonals(pointers, a, b, c, d, lap):
    """Stores the four sums of a token, with their marks, from the lane that has them: lane / 8 = lane % 4."""
    mark = (lap & 1) ^ 1
    gl.inline_asm_elementwise(
        """{ .reg .b32 l, r; .reg .pred p;
        mov.u32 l, %laneid; shr.u32 r, l, 3; and.b32 l, l, 3; setp.eq.b32 p, l, r;
        @p st.relaxed.gpu.global.v4.b32 [$1], {$2, $3, $4, $5}; mov.u32 $0, 0; }""",
        "=r,l,r,r,r,r",
        [pointers, marked(a, mark), marked(b, mark), marked(c, mark), marked(d, mark)],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def send_shares(
    words,
    x_s,
    g_s,
    full,
    g,
    count,
    n: gl.constexpr,
    G: gl.constexpr,
    NS: gl.constexpr,
    BD: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of two warps: dh_in * x summed over the program's columns, four words a token."""
    PAIRS: gl.constexpr = BD // 2
    P: gl.constexpr = pair_layout(PAIRS)
    S: gl.constexpr = pair_layout(4)
    plane: gl.constexpr = gl.NVMMASharedLayout(x_s.type.layout.swizzle_byte_width, 32, 2)
    streams = x_s._reinterpret(gl.int32, [STAGES * NS, BT, PAIRS], plane)
    grads = g_s._reinterpret(gl.int32, [STAGES, BT, PAIRS], plane)
    token = gl.arange(0, BT, layout=gl.SliceLayout(1, S))[:, None] + gl.zeros([BT, 4], gl.int32, layout=S)
    at = (token * G + g) * 4
    odd = token % 2
    slot = 0
    phase = 0
    if OVERLAP:
        gdc_wait()
    for j in range(count):
        mbarrier.wait(full.index(slot), phase)
        d = _fours(grads.index(slot).load(P), PAIRS)
        sums = ()
        for i in gl.static_range(n):
            sums = sums + (
                gl.inline_asm_elementwise(
                    diagonal_asm(BD // 16, kind_of(x_s.dtype)),
                    diagonal_constraints(BD // 16),
                    _fours(streams.index(slot * NS + i).load(P), PAIRS) + d + (odd,),
                    dtype=gl.float32,
                    is_pure=True,
                    pack=2,
                ),
            )
        for _ in gl.static_range(n, 4):
            sums = sums + (gl.zeros([BT, 4], gl.float32, layout=S),)
        _send_diagonals(words + (j % STAGES) * (BT * G * 4) + at, sums[0], sums[1], sums[2], sums[3], j // STAGES)
        slot, phase = advance(slot, phase, STAGES)


@gluon.jit
def _bits(v):
    """The 16 bits of a bfloat16."""
    return v.to(gl.int16, bitcast=True).to(gl.int32) & 0xFFFF


@gluon.jit
def _token(
    k,
    h_mix,
    h_pre,
    h_post,
    dh_post,
    dh_res,
    inv_rms,
    g,
    tiles,
    split,
    splits,
    N,
    m,
    pre,
    post,
    res,
    n: gl.constexpr,
    G: gl.constexpr,
):
    """What the gates of the program's k-th token need, a lane for each; zeros where there is no such token."""
    M: gl.constexpr = n * n + 2 * n
    u = g + k * G
    t = ((tiles - 1 - split - u // BT * splits) * BT + u % BT).to(gl.int64)
    live = (t >= 0) & (t < N)
    inv = gl.load(inv_rms + t, live, 0.0)
    mix = gl.load(h_mix + t * M + m, live & (m < M), 0.0)
    gate = gl.load(h_pre + t * n + m, live & pre, 0.0) + gl.load(h_post + t * n + (m - n), live & post, 0.0)
    d = gl.load(dh_post + t * n + (m - n), live & post, 0.0) + gl.load(dh_res + t * (n * n) + (m - 2 * n), live & res, 0.0)
    return live, inv, mix, gate, d


@gluon.jit
def send_rows(
    words,
    rows,
    alpha,
    h_mix,
    h_pre,
    h_post,
    dh_post,
    dh_res,
    inv_rms,
    sums,
    g,
    count,
    tiles,
    split,
    splits,
    N,
    K,
    hc_eps,
    n: gl.constexpr,
    G: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of one warp: every G-th token from the g-th on, a lane for each of its M gates."""
    M: gl.constexpr = n * n + 2 * n
    PAIR: gl.constexpr = gl.BlockedLayout([1, 2], [16, 2], [1, 1], [1, 0])
    LANE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    m = gl.arange(0, 32, layout=LANE)
    at = gl.where(m < 24, m // 8 * FOURS + m // 4 % 2 * 4 + m % 4, 4 * FOURS + m % 2 * 4 + 2 + m // 2 % 2)
    pair = gl.arange(0, 16, layout=gl.SliceLayout(1, PAIR))
    third_word = gl.where(pair < 12, 12 + pair // 4 * 2, 20) + pair % 2
    at_third = third_word // 4 * FOURS + pair // 2 % 2 * 4 + third_word % 4
    pre = m < n
    post = (m >= n) & (m < 2 * n)
    res = (m >= 2 * n) & (m < M)
    a = gl.where(pre, gl.load(alpha), gl.where(post, gl.load(alpha + 1), gl.load(alpha + 2)))
    bias = gl.zeros([32], gl.float32, layout=LANE)
    scale = gl.zeros([32], gl.float32, layout=LANE)
    if OVERLAP:
        gdc_wait()
    live, inv, mix, gate, d = _token(
        0, h_mix, h_pre, h_post, dh_post, dh_res, inv_rms, g, tiles, split, splits, N, m, pre, post, res, n, G
    )
    for k in range((count * BT - g + G - 1) // G):
        u = g + k * G
        j = u // BT
        r = u % BT
        pointers = words + (j % STAGES) * (BT * G * 4) + r * (G * 4) + m
        shares = request(pointers, G // 8, 128)
        # dh_pre2 = dh_pre * s * (1 - s), s = h_pre - hc_eps;  dh_post2 = dh_post * h_post * (1 - h_post / 2)
        s = gate - hc_eps
        now = gl.where(post, d * gate * (1 - gate / 2), d)
        here, now_mix, now_inv = live & (m < M), mix, inv
        live, inv, mix, gate, d = _token(
            k + 1, h_mix, h_pre, h_post, dh_post, dh_res, inv_rms, g, tiles, split, splits, N, m, pre, post, res, n, G
        )
        part = complete(shares, pointers, j // STAGES, G // 8, 128)
        # of the 32 sums every fourth belongs to the same stream
        part = gl.expand_dims(gl.sum(gl.reshape(part, (8, 4)), 0), 0)
        part = gl.convert_layout(gl.reshape(part.broadcast_to(8, 4), (32,)), LANE)
        now = gl.where(here, gl.where(pre, part * s * (1 - s), now), 0.0)
        bias += now
        scale += now * (now_mix * now_inv)
        now = gl.where(here, now * a, 0.0)  # not 0 times an infinite alpha
        coef = gl.sum(now * now_mix, 0) * now_inv * now_inv / K * now_inv
        out = gl.where(m < M, now * now_inv, 0.0)
        # out = first + second / 2**8 + third / 2**16 as in split_bf16, but for the last bits of the second and of every
        # other third, which are marks
        first = gl.where(finite(out), nearest(out), out.to(gl.bfloat16))
        left = gl.where(finite(out), out - first.to(gl.float32), 0.0) * 256.0
        second = _bits(nearest(left)) & 0xFFFE
        third = _bits(nearest((left - (second << 16).to(gl.float32, bitcast=True)) * 256.0))
        row = rows + (j % STAGES) * (BT * ROW) + r * 8
        word = gl.where(m < 24, (_bits(first) << 16) | second, coef.to(gl.int32, bitcast=True)).to(gl.float32, bitcast=True)
        send(row + at, word, j // STAGES)
        even, odd = gl.split(gl.convert_layout(gl.reshape(third, (16, 2)), PAIR))
        send(row + at_third, ((even << 16) | odd).to(gl.float32, bitcast=True), j // STAGES)
    base = sums + (split * G + g) * (M + 3)
    gl.store(base + m, bias, m < M)
    gl.store(base + M, gl.sum(gl.where(pre, scale, 0.0), 0))
    gl.store(base + M + 1, gl.sum(gl.where(post, scale, 0.0), 0))
    gl.store(base + M + 2, gl.sum(gl.where(res, scale, 0.0), 0))


@gluon.jit
def _store_terms(words, pointers, lap, left_s, coef_s, made, free, slot, phase):
    """The terms of a tile's dh_mix into a place of shared memory, and coef, once all words have come.

    Columns of the place: the first terms, where 24 to 31 are the first third ones; second terms, and the first first ones
    again; the rest of the first and of the third. What comes again is 0 where it is not finite.
    """
    v = complete_row(words, pointers, lap, READ, 4 * FOURS)
    h0 = _eight(_upper(v[0]), _upper(v[1]), _upper(v[2]), _upper(v[3]))
    h1 = _eight(_upper(v[4]), _upper(v[5]), _upper(v[6]), _upper(v[7]))
    h2 = _eight(_upper(v[8]), _upper(v[9]), _upper(v[10]), _upper(v[11]))
    m0 = _eight(_lower(v[0]), _lower(v[1]), _lower(v[2]), _lower(v[3]))
    m1 = _eight(_lower(v[4]), _lower(v[5]), _lower(v[6]), _lower(v[7]))
    m2 = _eight(_lower(v[8]), _lower(v[9]), _lower(v[10]), _lower(v[11]))
    l0 = _eight(_upper(v[12]), _lower(v[12]), _upper(v[13]), _lower(v[13]))
    l1 = _eight(_upper(v[14]), _lower(v[14]), _upper(v[15]), _lower(v[15]))
    l2 = _eight(_upper(v[16]), _lower(v[16]), _upper(v[17]), _lower(v[17]))
    side = gl.arange(0, 2, layout=gl.SliceLayout(0, v[18].type.layout))
    coef = gl.sum(gl.where((side == 0)[None, :], v[18].to(gl.float32, bitcast=True), 0.0), 1)
    mbarrier.wait(free.index(slot), phase)
    left_s.index(slot * 3).store(_side_by_side(h0, h1, h2, l0))
    left_s.index(slot * 3 + 1).store(_side_by_side(m0, m1, m2, _low(h0)))
    left_s.index(slot * 3 + 2).store(_side_by_side(_low(h1), _low(h2), l1, l2))
    coef_s.index(slot).store(coef)
    fence_async_shared()
    mbarrier.arrive(made.index(slot), count=1)


@gluon.jit
def sum_psi(
    rows,
    psi,
    x_s,
    left_s,
    coef_s,
    full,
    seen,
    made,
    free,
    count,
    split,
    splits,
    K,
    D,
    d0,
    n: gl.constexpr,
    BD: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of a warp group: terms of dh_mix into shared memory, and psi."""
    P: gl.constexpr = gl.BlockedLayout([1, 1], [16, 2], [4, 1], [1, 0])  # a thread has half of each eight words of a row
    flat: gl.constexpr = gl.NVMMASharedLayout(x_s.type.layout.swizzle_byte_width, 16, 2)
    half: gl.constexpr = gl.NVMMASharedLayout(64, 16, 2)
    side = gl.arange(0, 2, layout=gl.SliceLayout(0, P))
    at = rows + gl.arange(0, BT, layout=gl.SliceLayout(1, P))[:, None] * 8 + side[None, :] * 4
    FLOAT16: gl.constexpr = x_s.dtype == gl.float16
    xs = x_s._reinterpret(x_s.dtype, [STAGES, BT, COLS], flat)
    sums = no_psi(FLOAT16)
    slot = 0
    phase = 0
    if OVERLAP:
        gdc_wait()
    here = at
    words = request(here, READ, 4 * FOURS, 4)
    for j in range(count):
        place = j % 2
        _store_terms(words, here, j // STAGES, left_s, coef_s, made, free, place, j // 2 % 2 ^ 1)
        # the next tile's rows are on their way during psi; not before, since the fence in front would wait for them
        here = at + (j + 1) % STAGES * (BT * ROW)
        words = request(here, READ, 4 * FOURS, 4)
        mbarrier.wait(full.index(slot), phase)
        a0 = left_s.index(place * 3)._reinterpret(gl.bfloat16, [BT, 64], half)
        a1, a2 = left_s.index(place * 3 + 1), left_s.index(place * 3 + 2)
        sums, x0, x1 = start_psi(xs.index(slot), a0, a1, a2, sums, 16 if FLOAT16 else 32)
        sums = end_psi(sums, x0, x1, FLOAT16)
        mbarrier.arrive(seen.index(slot), count=1)
        slot, phase = advance(slot, phase, STAGES)
    store_psi(psi, sums, split, splits, K, D, 0, d0, n, BD, FLOAT16)


@gluon.jit
def make_dx(
    phi,
    gamma,
    h_pre,
    dx,
    x_s,
    g_s,
    left_s,
    coef_s,
    right_0,
    right_2,
    right_1,
    right_3,
    ready,
    full,
    seen,
    empty,
    made,
    free,
    N,
    K,
    D,
    count,
    tiles,
    split,
    splits,
    d0,
    WHO: gl.constexpr,
    n: gl.constexpr,
    HAS_GAMMA: gl.constexpr,
    NS: gl.constexpr,
    BD: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Partition of a warp group: dx of tiles WHO, WHO + 2, ..., out through the place of x."""
    acc: gl.constexpr = accumulators()
    flat: gl.constexpr = gl.NVMMASharedLayout(x_s.type.layout.swizzle_byte_width, 16, 2)
    half: gl.constexpr = gl.NVMMASharedLayout(64, 16, 2)
    make_rights(phi, gamma, right_0, right_2, right_1, right_3, ready, K, D, 0, d0, WHO, n, HAS_GAMMA, BD)
    slot = WHO
    phase = 0
    h = row_values(h_pre, (tiles - 1 - split - WHO * splits) * BT, N, 0, n, NS, BD)
    for j in range(WHO, count, 2):
        t0 = (tiles - 1 - split - j * splits) * BT
        mbarrier.wait(full.index(slot), phase)
        mbarrier.wait(made.index(WHO), j // 2 % 2)
        x3 = x_s.index(slot)
        x2 = x3._reinterpret(x_s.dtype, [BT, COLS], flat)
        a0 = left_s.index(WHO * 3)._reinterpret(gl.bfloat16, [BT, 64], half)
        a1 = left_s.index(WHO * 3 + 1)
        a2 = left_s.index(WHO * 3 + 2)
        c = coef_s.index(WHO).load(gl.SliceLayout(1, acc))
        out = start_dx(h, c, x2, g_s.index(slot), a0, a1, a2, right_0, right_2, right_1, right_3, NS, BD)
        out = warpgroup_mma_wait(0, deps=[out])
        mbarrier.arrive(free.index(WHO), count=1)
        mbarrier.wait(seen.index(slot), phase)  # psi reads x no more
        x2.store(out.to(x_s.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(dx, [0, t0, d0], x3)
        # the next tile's rows, while the place is read; not before, since the fence in front would wait for them
        h = row_values(h_pre, t0 - 2 * splits * BT, N, 0, n, NS, BD)
        tma.store_wait(0)
        mbarrier.arrive(empty.index(slot), count=1)
        slot += 2
        if slot >= STAGES:
            slot -= STAGES
            phase ^= 1


@gluon.jit
def resident_backward_kernel(
    x,
    dh_in,
    dx,
    phi,
    gamma,
    alpha,
    h_mix,
    h_pre,
    h_post,
    dh_post,
    dh_res,
    inv_rms,
    words,
    psi,
    sums,
    N,
    D,
    K,
    tiles,
    hc_eps,
    n: gl.constexpr,
    G: gl.constexpr,
    GROUPS: gl.constexpr,
    HAS_GAMMA: gl.constexpr,
    NS: gl.constexpr,
    BD: gl.constexpr,
    STAGES: gl.constexpr,
    DX_REGS: gl.constexpr,
    SMALL_REGS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """dx, psi [GROUPS, 3M, K] and sums [GROUPS * G, M + 3] for the tiles split, split + GROUPS, ... of each group.

    For float16 x psi has twice as many parts.
    x, dx: descriptors of [n, N, D], blocks [NS, 64, BD]; dh_in: of [N, D], blocks [64, BD]. words: what the programs
    send one another, per group STAGES tiles of [64, G, 4] and of 64 rows. OVERLAP: starts while words are being cleared.
    """
    split = gl.program_id(0) // G
    g = gl.program_id(0) % G
    d0 = g * BD
    count = (tiles - split + GROUPS - 1) // GROUPS
    words += split * (STAGES * BT * (G * 4 + ROW))
    rows = words + STAGES * BT * G * 4
    x_s = gl.allocate_shared_memory(x.dtype, [STAGES, NS, BT, BD], x.layout)
    g_s = gl.allocate_shared_memory(x.dtype, [STAGES, BT, BD], dh_in.layout)
    left_s = gl.allocate_shared_memory(gl.bfloat16, [2 * 3, BT, 32], gl.NVMMASharedLayout(64, 16, 2))
    coef_s = gl.allocate_shared_memory(gl.float32, [2, BT], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    right_0, right_2, right_1, right_3, ready = allocate_rights()
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    seen = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    made = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(seen.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    for s in gl.static_range(2):
        mbarrier.init(made.index(s), count=1)
        mbarrier.init(free.index(s), count=1)
    gl.warp_specialize(
        [
            (
                sum_psi,
                (
                    rows, psi, x_s, left_s, coef_s, full, seen, made, free,
                    count, split, GROUPS, K, D, d0, n, BD, STAGES, OVERLAP,
                ),
            ),
            (
                make_dx,
                (
                    phi, gamma, h_pre, dx, x_s, g_s, left_s, coef_s, right_0, right_2, right_1, right_3,
                    ready, full, seen, empty, made, free,
                    N, K, D, count, tiles, split, GROUPS, d0, gl.constexpr(0), n, HAS_GAMMA, NS, BD, STAGES,
                ),
            ),
            (
                make_dx,
                (
                    phi, gamma, h_pre, dx, x_s, g_s, left_s, coef_s, right_0, right_2, right_1, right_3,
                    ready, full, seen, empty, made, free,
                    N, K, D, count, tiles, split, GROUPS, d0, gl.constexpr(1), n, HAS_GAMMA, NS, BD, STAGES,
                ),
            ),
            (send_shares, (words, x_s, g_s, full, g, count, n, G, NS, BD, STAGES, OVERLAP)),
            (
                send_rows,
                (
                    words, rows, alpha, h_mix, h_pre, h_post, dh_post, dh_res, inv_rms, sums,
                    g, count, tiles, split, GROUPS, N, K, hc_eps, n, G, STAGES, OVERLAP,
                ),
            ),
            (load_tiles, (x, dh_in, x_s, g_s, full, empty, count, tiles, split, GROUPS, d0, STAGES)),
        ],
        [4, 4, 2, 1, 1],
        [DX_REGS, DX_REGS, SMALL_REGS, SMALL_REGS, SMALL_REGS],
    )  # fmt: skip
