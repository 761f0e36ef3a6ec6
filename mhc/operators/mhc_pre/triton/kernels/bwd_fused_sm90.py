"""The streams pass of the Triton backward for Hopper: a producer warp and two warpgroups that take turns.

    dx  = dh_mix @ phi * gamma - coef * x + h_pre * dh_in        [N, n, D]
    psi = dh_mix^T x                                             [3M, K]: M rows for each term of dh_mix; added up later

float32 products are six bfloat16 ones, hh mh lh hm mm hl of the terms h + m + l. dh_mix comes as rows of LEFT columns

    0 H 24 l 32 m 56 h 80 l 96        (24 H, l[0:8], 24 m, 24 h, l[8:24])

m and l scaled by 2**8 and 2**16, where H is h with NaN and infinity kept, so that against the rows "H h l h" of phi all
of them make hh lh mh hl in one contraction, and columns 32 to 96 against "m m 0" make mm hm. psi takes H, l[0:8] and m
from the first 64 columns, and l[8:24] from the last 16; the second term of float16 x takes m and h, columns 32 to 80.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_wait

from mhc.operators.mhc_pre.triton.kernels.bf16_split import ORDER_1, ORDER_2, finite, split_bf16, two_bf16
from mhc.operators.mhc_pre.triton.kernels.ring_sm90 import advance

BT = gl.constexpr(64)
COLS = gl.constexpr(128)  # of x for one program: NS streams side by side
LEFT = gl.constexpr(96)


@gluon.constexpr_function
def accumulators():
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])


@gluon.constexpr_function
def by_stream(NS, BD):
    """The accumulators' layout of [64, NS * BD] seen as [64, NS, BD]."""
    regs = [[0, 0, 1], [8, 0, 0]]
    step = 8
    while step < BD:
        regs.append([0, 0, step])
        step *= 2
    step = 1
    while step < NS:
        regs.append([0, step, 0])
        step *= 2
    lanes = [[0, 0, 2], [0, 0, 4], [1, 0, 0], [2, 0, 0], [4, 0, 0]]
    return gl.DistributedLinearLayout(regs, lanes, [[16, 0, 0], [32, 0, 0]], [], [64, NS, BD])


@gluon.jit
def _phi_terms(
    phi,
    gamma,
    row,
    SECOND: gl.constexpr,
    i0,
    d0,
    K,
    D,
    n,
    M: gl.constexpr,
    HAS_GAMMA: gl.constexpr,
    BD: gl.constexpr,
    layout: gl.constexpr,
):
    """Rows of the right operand, [len(row), COLS]: the terms H h l h of phi * gamma, or m m 0 in the second."""
    col = gl.arange(0, COLS, layout=gl.SliceLayout(0, layout))
    i = i0 + col // BD
    d = d0 + col % BD
    on = (i < n) & (d < D)
    k = i * D + d
    j = gl.where(
        row < 24, row, gl.where(row < 32, row - 24, gl.where(row < 56, row - 32, gl.where(row < 80, row - 56, row - 72)))
    )
    v = gl.load(phi + j.to(gl.int64)[:, None] * K + k[None, :], (j < M)[:, None] & on[None, :], 0.0)
    if HAS_GAMMA:
        v = v * gl.load(gamma + k, on, 0.0)[None, :]
    h, m, l = split_bf16(v)
    low = gl.where(finite(v), h, gl.zeros_like(h)).to(gl.float32)
    m = m.to(gl.float32) * ORDER_1
    rows = row[:, None]
    # a left side of order 1 or 2 is scaled by 2**8 or 2**16: the right side takes the factor back
    if SECOND:
        return gl.where(rows < 56, m * ORDER_1, gl.where(rows < 80, m, 0.0)).to(gl.bfloat16)
    else:
        right = gl.where(rows < 24, h.to(gl.float32), low * ORDER_2)
        right = gl.where((rows >= 32) & (rows < 56), low * ORDER_1, right)
        return gl.where((rows >= 56) & (rows < 80), l.to(gl.float32) * ORDER_2, right).to(gl.bfloat16)


@gluon.jit
def _produce(
    x,
    dh_in,
    left,
    x_s,
    g_s,
    left_s,
    full,
    empty,
    free,
    count,
    tiles,
    split,
    splits,
    i0,
    d0,
    NS: gl.constexpr,
    STAGES: gl.constexpr,
    LEFTS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    slot = 0
    phase = 1
    left_slot = 0
    left_phase = 1
    for j in range(count):
        t0 = (tiles - 1 - split - j * splits) * BT
        mbarrier.wait(empty.index(slot), phase)
        bar = full.index(slot)
        mbarrier.expect(bar, x.block_type.nbytes + dh_in.block_type.nbytes + 3 * left.block_type.nbytes)
        tma.async_copy_global_to_shared(x, [i0, t0, d0], bar, x_s.index(slot))
        tma.async_copy_global_to_shared(dh_in, [t0, d0], bar, g_s.index(slot))
        if OVERLAP and j == 0:
            gdc_wait()
        mbarrier.wait(free.index(left_slot), left_phase)
        for q in gl.static_range(3):
            tma.async_copy_global_to_shared(left, [t0, 32 * q], bar, left_s.index(left_slot * 3 + q))
        left_slot, left_phase = advance(left_slot, left_phase, LEFTS)
        slot, phase = advance(slot, phase, STAGES)


@gluon.jit
def allocate_rights():
    """Places of the right operands, and the barrier of the two groups that make them."""
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    right_0 = gl.allocate_shared_memory(gl.bfloat16, [64, COLS], layout)
    right_2 = gl.allocate_shared_memory(gl.bfloat16, [32, COLS], layout)
    right_1 = gl.allocate_shared_memory(gl.bfloat16, [32, COLS], layout)
    right_3 = gl.allocate_shared_memory(gl.bfloat16, [16, COLS], layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=2)
    return right_0, right_2, right_1, right_3, ready


@gluon.jit
def make_rights(
    phi,
    gamma,
    right_0,
    right_2,
    right_1,
    right_3,
    ready,
    K,
    D,
    i0,
    d0,
    WHO: gl.constexpr,
    n: gl.constexpr,
    HAS_GAMMA: gl.constexpr,
    BD: gl.constexpr,
):
    """Each of the two groups makes a part of the right operands, and waits for the other's."""
    M: gl.constexpr = n * n + 2 * n
    blocked: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    r32 = gl.arange(0, 32, layout=gl.SliceLayout(1, blocked))
    if WHO == 0:
        right_0.slice(0, 32).store(_phi_terms(phi, gamma, r32, False, i0, d0, K, D, n, M, HAS_GAMMA, BD, blocked))
        right_0.slice(32, 32).store(_phi_terms(phi, gamma, 32 + r32, False, i0, d0, K, D, n, M, HAS_GAMMA, BD, blocked))
    else:
        r16 = gl.arange(0, 16, layout=gl.SliceLayout(1, blocked))
        right_2.store(_phi_terms(phi, gamma, 64 + r32, False, i0, d0, K, D, n, M, HAS_GAMMA, BD, blocked))
        right_1.store(_phi_terms(phi, gamma, 32 + r32, True, i0, d0, K, D, n, M, HAS_GAMMA, BD, blocked))
        right_3.store(_phi_terms(phi, gamma, 64 + r16, True, i0, d0, K, D, n, M, HAS_GAMMA, BD, blocked))
    fence_async_shared()
    mbarrier.arrive(ready, count=1)
    mbarrier.wait(ready, 0)


@gluon.jit
def start_dx(h, c, x, g, a0, a1, a2, right_0, right_2, right_1, right_3, NS: gl.constexpr, BD: gl.constexpr):
    """h_pre * dh_in - coef * x of a tile, and on their way the products of the terms in a0, a1, a2 added to it."""
    acc: gl.constexpr = accumulators()
    d = g.load(gl.SliceLayout(1, by_stream(NS, BD))).to(gl.float32)
    out = gl.expand_dims(h, 2) * gl.expand_dims(d, 1)
    out = gl.convert_layout(out.reshape([BT, COLS]), acc) - gl.expand_dims(c, 1) * x.load(acc).to(gl.float32)
    out = warpgroup_mma(a0, right_0, out, is_async=True)
    out = warpgroup_mma(a2, right_2, out, is_async=True)
    out = warpgroup_mma(a1, right_1, out, is_async=True)
    return warpgroup_mma(a2.slice(0, 16, 1), right_3, out, is_async=True)


@gluon.jit
def row_values(h_pre, t0, N, i0, n: gl.constexpr, NS: gl.constexpr, BD: gl.constexpr):
    """h_pre [64, NS] of a tile; zeros where there is no such token, before the first one too."""
    rows: gl.constexpr = gl.SliceLayout(2, by_stream(NS, BD))
    t = t0 + gl.arange(0, BT, layout=gl.SliceLayout(1, rows))
    i = i0 + gl.arange(0, NS, layout=gl.SliceLayout(0, rows))
    return gl.load(h_pre + t.to(gl.int64)[:, None] * n + i[None, :], ((t >= 0) & (t < N))[:, None] & (i < n)[None, :], 0.0)


@gluon.jit
def _coefs(coef, t0, N):
    """coef [64] of a tile, in the same way."""
    t = t0 + gl.arange(0, BT, layout=gl.SliceLayout(1, accumulators()))
    return gl.load(coef + t, (t >= 0) & (t < N), 0.0)


@gluon.constexpr_function
def tall(columns):
    """The layout of accumulators of [COLS, columns]."""
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])


@gluon.constexpr_function
def operand(columns):
    """The layout of a left operand in registers whose accumulators are `tall`."""
    return gl.DotOperandLayout(0, tall(columns), 2)


@gluon.jit
def no_psi(FLOAT16: gl.constexpr):
    """Sums of psi before the first tile, for `start_psi`."""
    wide = gl.zeros([COLS, 64], gl.float32, tall(64))
    narrow = gl.zeros([COLS, 16], gl.float32, tall(16))
    if FLOAT16:
        return wide, narrow, gl.zeros([COLS, 32], gl.float32, tall(32)), narrow
    else:
        return wide, narrow, 0, 0


@gluon.jit
def start_psi(x, a0, a1, a2, sums, STEP: gl.constexpr):
    """The sums with a tile's products, which are on their way, and what they still need: `end_psi` waits for them.

    psi is summed transposed, COLS of x by terms of dh_mix: 24 H, l[0:8], 24 m, and 8 that are not used; l[8:24]. x is in
    registers, STEP tokens at once, float16 as x0 + x1 / 2**8. x1 has sums of its own, for m and h of dh_mix; of an
    infinity it is NaN, which spoils only columns of psi that order 0 takes to NaN or infinity anyway.
    """
    FLOAT16: gl.constexpr = x.dtype == gl.float16
    first, second, third, fourth = sums
    across = x.permute((1, 0))
    x1 = 0
    for t in gl.static_range(0, BT, STEP):
        if t > 0:
            before_0, before_1 = x0, x1
        x0 = across.slice(t, STEP, 1).load(operand(64))
        if FLOAT16:
            x0, x1 = two_bf16(x0.to(gl.float32))
            x1 = gl.convert_layout(x1, operand(32), assert_trivial=True)
        h, l = a2.slice(t, STEP).slice(0, 16, 1), a2.slice(t, STEP).slice(16, 16, 1)
        first = warpgroup_mma(x0, a0.slice(t, STEP), first, is_async=True)
        second = warpgroup_mma(gl.convert_layout(x0, operand(16), assert_trivial=True), l, second, is_async=True)
        if FLOAT16:
            third = warpgroup_mma(x1, a1.slice(t, STEP), third, is_async=True)
            fourth = warpgroup_mma(gl.convert_layout(x1, operand(16), assert_trivial=True), h, fourth, is_async=True)
        if t > 0:
            sums = (first, second, third, fourth)
            sums, before_0, before_1 = _wait_psi(sums, before_0, before_1, 4 if FLOAT16 else 2, FLOAT16)
            first, second, third, fourth = sums
    return (first, second, third, fourth), x0, x1


@gluon.jit
def _wait_psi(sums, x0, x1, LEFT_OVER: gl.constexpr, FLOAT16: gl.constexpr):
    """Waits until at most LEFT_OVER products still run; x0, x1: left operands of those that must have ended."""
    first, second, third, fourth = sums
    if FLOAT16:
        first, second, third, fourth, x0, x1 = warpgroup_mma_wait(LEFT_OVER, deps=[first, second, third, fourth, x0, x1])
    else:
        first, second, x0 = warpgroup_mma_wait(LEFT_OVER, deps=[first, second, x0])
    return (first, second, third, fourth), x0, x1


@gluon.jit
def end_psi(sums, x0, x1, FLOAT16: gl.constexpr):
    """The sums, once all products are done."""
    sums, x0, x1 = _wait_psi(sums, x0, x1, 0, FLOAT16)
    return sums


@gluon.jit
def _store_columns(
    psi,
    sums,
    first,
    count,
    row,
    K,
    D,
    i0,
    d0,
    n: gl.constexpr,
    BD: gl.constexpr,
):
    """Writes columns first .. first + count of the sums, [COLS, C], to rows row .. of psi."""
    layout: gl.constexpr = sums.type.layout
    k = gl.arange(0, COLS, layout=gl.SliceLayout(1, layout))
    i = i0 + k // BD
    d = d0 + k % BD
    c = gl.arange(0, sums.shape[1], layout=gl.SliceLayout(0, layout)) - first
    on = ((i < n) & (d < D))[:, None] & ((c >= 0) & (c < count))[None, :]
    gl.store(psi + row * K.to(gl.int64) + (c.to(gl.int64)[None, :] * K + (i * D + d)[:, None]), sums, on)


@gluon.jit
def store_psi(psi, sums, part, parts, K, D, i0, d0, n: gl.constexpr, BD: gl.constexpr, FLOAT16: gl.constexpr):
    """Writes psi[part]. For float16 x also psi[parts + part], of x1: h in the rows of order 1, m in those of order 2, zeros
    in those of order 0."""
    M: gl.constexpr = n * n + 2 * n
    L: gl.constexpr = min(M, 8)
    first, second, third, fourth = sums
    to = psi + part.to(gl.int64) * 3 * M * K
    _store_columns(to, first, 0, M, 0, K, D, i0, d0, n, BD)
    _store_columns(to, first, 32, M, M, K, D, i0, d0, n, BD)
    _store_columns(to, first, 24, L, 2 * M, K, D, i0, d0, n, BD)
    _store_columns(to, second, 0, M - 8, 2 * M + 8, K, D, i0, d0, n, BD)
    if FLOAT16:
        to = psi + (parts + part).to(gl.int64) * 3 * M * K
        _store_columns(to, gl.zeros_like(third), 0, M, 0, K, D, i0, d0, n, BD)
        _store_columns(to, third, 24, L, M, K, D, i0, d0, n, BD)
        _store_columns(to, fourth, 0, M - 8, M + 8, K, D, i0, d0, n, BD)
        _store_columns(to, third, 0, M, 2 * M, K, D, i0, d0, n, BD)


@gluon.jit
def _consume(
    phi,
    gamma,
    h_pre,
    coef,
    dx,
    psi,
    x_s,
    g_s,
    left_s,
    right_0,
    right_2,
    right_1,
    right_3,
    ready,
    full,
    empty,
    free,
    N,
    K,
    D,
    count,
    tiles,
    split,
    splits,
    i0,
    d0,
    WHO: gl.constexpr,
    n: gl.constexpr,
    HAS_GAMMA: gl.constexpr,
    NS: gl.constexpr,
    BD: gl.constexpr,
    STAGES: gl.constexpr,
    LEFTS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Tiles WHO, WHO + 2, ...: dx goes out through the slot of x."""
    FLOAT16: gl.constexpr = x_s.dtype == gl.float16
    swizzle: gl.constexpr = x_s.type.layout.swizzle_byte_width
    flat: gl.constexpr = gl.NVMMASharedLayout(swizzle, 16, 2)
    half: gl.constexpr = gl.NVMMASharedLayout(64, 16, 2)
    # while the first tiles are on their way
    make_rights(phi, gamma, right_0, right_2, right_1, right_3, ready, K, D, i0, d0, WHO, n, HAS_GAMMA, BD)
    sums = no_psi(FLOAT16)
    slot = WHO
    left_slot = WHO
    phase = 0
    last = 0
    if OVERLAP:
        gdc_wait()
    t0 = (tiles - 1 - split - WHO * splits) * BT
    h, c = row_values(h_pre, t0, N, i0, n, NS, BD), _coefs(coef, t0, N)
    for j in range(WHO, count, 2):
        t0 = (tiles - 1 - split - j * splits) * BT
        mbarrier.wait(full.index(slot), phase)
        x3 = x_s.index(slot)
        x2 = x3._reinterpret(x_s.dtype, [BT, COLS], flat)
        a0 = left_s.index(left_slot * 3)._reinterpret(gl.bfloat16, [BT, 64], half)
        a1 = left_s.index(left_slot * 3 + 1)
        a2 = left_s.index(left_slot * 3 + 2)
        sums, x0, x1 = start_psi(x2, a0, a1, a2, sums, 32)
        if FLOAT16:  # registers do not hold its terms beside dx
            sums = end_psi(sums, x0, x1, FLOAT16)
        out = start_dx(h, c, x2, g_s.index(slot), a0, a1, a2, right_0, right_2, right_1, right_3, NS, BD)
        # while the products run: the next tile's rows, and the slot of the last one, whose dx has been read by now
        h = row_values(h_pre, t0 - 2 * splits * BT, N, i0, n, NS, BD)
        c = _coefs(coef, t0 - 2 * splits * BT, N)
        if j > WHO:
            tma.store_wait(0)
            mbarrier.arrive(empty.index(last))
        if not FLOAT16:
            sums = end_psi(sums, x0, x1, FLOAT16)
        out = warpgroup_mma_wait(0, deps=[out])
        mbarrier.arrive(free.index(left_slot))
        left_slot += 2
        if left_slot >= LEFTS:
            left_slot -= LEFTS
        x2.store(out.to(x_s.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(dx, [i0, t0, d0], x3)
        last = slot
        slot += 2
        if slot >= STAGES:
            slot -= STAGES
            phase ^= 1
    tma.store_wait(0)
    store_psi(psi, sums, split * 2 + WHO, splits * 2, K, D, i0, d0, n, BD, FLOAT16)


@gluon.jit
def hopper_streams_kernel(
    x,
    dh_in,
    left,
    dx,
    phi,
    gamma,
    h_pre,
    coef,
    psi,
    N,
    D,
    K,
    tiles,
    splits,
    n: gl.constexpr,
    HAS_GAMMA: gl.constexpr,
    NS: gl.constexpr,
    BD: gl.constexpr,
    STAGES: gl.constexpr,
    LEFTS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """dx, and psi [2 * splits, 3M, K] over this program's tokens, for float16 x twice as many parts.

    x, dx: descriptors of [n, N, D], blocks [NS, 64, BD]; dh_in: of [N, D], blocks [64, BD]; left: of [N, 96], blocks
    [64, 32]. Programs are (columns, streams, splits). OVERLAP: starts before the gates have ended.
    """
    d0 = gl.program_id(0) * BD
    i0 = gl.program_id(1) * NS
    split = gl.program_id(2)
    count = (tiles - split + splits - 1) // splits
    x_s = gl.allocate_shared_memory(x.dtype, [STAGES, NS, BT, BD], x.layout)
    g_s = gl.allocate_shared_memory(x.dtype, [STAGES, BT, BD], dh_in.layout)
    left_s = gl.allocate_shared_memory(gl.bfloat16, [LEFTS * 3, BT, 32], left.layout)
    right_0, right_2, right_1, right_3, ready = allocate_rights()
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [LEFTS, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    for s in gl.static_range(LEFTS):
        mbarrier.init(free.index(s), count=1)

    gl.warp_specialize(
        [
            (
                _consume,
                (
                    phi,
                    gamma,
                    h_pre,
                    coef,
                    dx,
                    psi,
                    x_s,
                    g_s,
                    left_s,
                    right_0,
                    right_2,
                    right_1,
                    right_3,
                    ready,
                    full,
                    empty,
                    free,
                    N,
                    K,
                    D,
                    count,
                    tiles,
                    split,
                    splits,
                    i0,
                    d0,
                    gl.constexpr(0),
                    n,
                    HAS_GAMMA,
                    NS,
                    BD,
                    STAGES,
                    LEFTS,
                    OVERLAP,
                ),
            ),
            (
                _consume,
                (
                    phi,
                    gamma,
                    h_pre,
                    coef,
                    dx,
                    psi,
                    x_s,
                    g_s,
                    left_s,
                    right_0,
                    right_2,
                    right_1,
                    right_3,
                    ready,
                    full,
                    empty,
                    free,
                    N,
                    K,
                    D,
                    count,
                    tiles,
                    split,
                    splits,
                    i0,
                    d0,
                    gl.constexpr(1),
                    n,
                    HAS_GAMMA,
                    NS,
                    BD,
                    STAGES,
                    LEFTS,
                    OVERLAP,
                ),
            ),
            (
                _produce,
                (
                    x,
                    dh_in,
                    left,
                    x_s,
                    g_s,
                    left_s,
                    full,
                    empty,
                    free,
                    count,
                    tiles,
                    split,
                    splits,
                    i0,
                    d0,
                    NS,
                    STAGES,
                    LEFTS,
                    OVERLAP,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )
