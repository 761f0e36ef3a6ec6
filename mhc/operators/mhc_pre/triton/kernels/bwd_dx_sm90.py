"""dx of the Triton backward with many streams, for Hopper: two loading warps, and a warp group for each of two streams.

    dx = dh_mix @ (phi * gamma) - coef * x + h_pre * dh_in        [N, n, D]

A program keeps the terms of phi * gamma for the same columns of two streams in shared memory, and goes through the
tokens, 64 a tile; a warp group has one of the streams. dh_mix and phi * gamma come scaled, as in `bwd_gemm`, whose
`mend_kernel` makes again what is in doubt. The rows of phi are taken in chunks of CA + CB, since the sides of a product are
powers of two; rows past M meet zeros of dh_mix. dx leaves from the place of x.
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

from mhc.operators.mhc_pre.triton.kernels.fp16_split import ORDER
from mhc.operators.mhc_pre.triton.kernels.ring_sm90 import advance, barriers

BT = gl.constexpr(64)


@gluon.constexpr_function
def accumulators(columns):
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])


@gluon.jit
def _load_streams(
    x,
    dh_in,
    x_s,
    g_s,
    full,
    empty,
    count,
    last,
    splits,
    i,
    d0,
    COLS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Partition of one warp: dh_in, and x of both streams, of each tile."""
    slot = 0
    phase = 1
    for j in range(count):
        t0 = (last - j * splits) * BT
        mbarrier.wait(empty.index(slot), phase)
        bar = full.index(slot)
        mbarrier.expect(bar, 3 * BT * COLS * 2)
        tma.async_copy_global_to_shared(dh_in, [t0, d0], bar, g_s.index(slot))
        for w in gl.static_range(2):
            tma.async_copy_global_to_shared(x, [i + w, t0, d0], bar, x_s.index(slot * 2 + w))
        slot, phase = advance(slot, phase, STAGES)


@gluon.jit
def _load_mix(
    w_a,
    w_b,
    left_a,
    left_b,
    wa_s,
    wb_s,
    a_s,
    b_s,
    ready,
    full,
    empty,
    count,
    last,
    splits,
    column,
    M: gl.constexpr,
    MP: gl.constexpr,
    DP: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    COLS: gl.constexpr,
    RING: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of one warp: phi * gamma once, and dh_mix of each tile."""
    CHUNKS: gl.constexpr = MP // (CA + CB)
    if OVERLAP:
        gdc_wait()
    mbarrier.expect(ready, 4 * MP * COLS * 2)
    for c in gl.static_range(CHUNKS):
        for w in gl.static_range(2):
            for q in gl.static_range(2):
                row = q * M + c * (CA + CB)
                tma.async_copy_global_to_shared(w_a, [row, column + w * DP], ready, wa_s.index(c * 4 + w * 2 + q))
                tma.async_copy_global_to_shared(w_b, [row + CA, column + w * DP], ready, wb_s.index(c * 4 + w * 2 + q))
    slot = 0
    phase = 1
    for j in range(count):
        t0 = (last - j * splits) * BT
        for c in gl.static_range(CHUNKS):
            mbarrier.wait(empty.index(slot), phase)
            bar = full.index(slot)
            mbarrier.expect(bar, 2 * (CA + CB) * BT * 2)
            for q in gl.static_range(2):
                at = q * MP + c * (CA + CB)
                tma.async_copy_global_to_shared(left_a, [t0, at], bar, a_s.index(slot * 2 + q))
                tma.async_copy_global_to_shared(left_b, [t0, at + CA], bar, b_s.index(slot * 2 + q))
            slot, phase = advance(slot, phase, RING)


@gluon.jit
def _rows(h_pre, coef, left_scale, t0, N, i, n: gl.constexpr, COLS: gl.constexpr):
    """h_pre, coef and the scale of a tile's tokens, [64] each; zeros where there is no such token."""
    t = t0 + gl.arange(0, BT, layout=gl.SliceLayout(1, accumulators(COLS)))
    live = (t >= 0) & (t < N)
    return (
        gl.load(h_pre + t.to(gl.int64) * n + i, live, 0.0),
        gl.load(coef + t, live, 0.0),
        gl.load(left_scale + t, live, 0.0),
    )


@gluon.jit
def _consume(
    both,
    WHO: gl.constexpr,
    n: gl.constexpr,
    DP: gl.constexpr,
    CHUNKS: gl.constexpr,
    COLS: gl.constexpr,
    RING: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of a warp group: stream i + WHO."""
    if OVERLAP:
        gdc_wait()
    (
        h_pre,
        coef,
        left_scale,
        w_scale,
        dx,
        x_s,
        g_s,
        wa_s,
        wb_s,
        a_s,
        b_s,
        ready,
        full,
        empty,
        full_mix,
        empty_mix,
        N,
        count,
        last,
        splits,
        i,
        d0,
    ) = both
    tile: gl.constexpr = accumulators(COLS)
    column = (i + WHO) * DP + d0 + gl.arange(0, COLS, layout=gl.SliceLayout(0, tile))
    back = gl.load(w_scale + column)
    h, c, f = _rows(h_pre, coef, left_scale, last * BT, N, i + WHO, n, COLS)
    mbarrier.wait(ready, 0)
    slot = 0
    phase = 0
    mix = 0
    mix_phase = 0
    for j in range(count):
        t0 = (last - j * splits) * BT
        acc = gl.zeros([BT, COLS], gl.float32, layout=tile)
        low = gl.zeros([BT, COLS], gl.float32, layout=tile)
        for q in gl.static_range(CHUNKS):
            mbarrier.wait(full_mix.index(mix), mix_phase)
            acc = warpgroup_mma(a_s.index(mix * 2), wa_s.index(q * 4 + WHO * 2), acc, is_async=True)
            low = warpgroup_mma(a_s.index(mix * 2), wa_s.index(q * 4 + WHO * 2 + 1), low, is_async=True)
            low = warpgroup_mma(a_s.index(mix * 2 + 1), wa_s.index(q * 4 + WHO * 2), low, is_async=True)
            acc = warpgroup_mma(b_s.index(mix * 2), wb_s.index(q * 4 + WHO * 2), acc, is_async=True)
            low = warpgroup_mma(b_s.index(mix * 2), wb_s.index(q * 4 + WHO * 2 + 1), low, is_async=True)
            low = warpgroup_mma(b_s.index(mix * 2 + 1), wb_s.index(q * 4 + WHO * 2), low, is_async=True)
            if (
                q == 0
            ):  # while the products run: the next tile's rows, and the place of the last dx, which has been read by now
                h_next, c_next, f_next = _rows(h_pre, coef, left_scale, t0 - splits * BT, N, i + WHO, n, COLS)
                tma.store_wait(0)
                mbarrier.arrive(empty.index((slot + STAGES - 1) % STAGES), count=1, pred=j > 0)
            # with more than two places a chunk's products may run while the next one's begin
            if RING > 2 and q < CHUNKS - 1:
                acc, low = warpgroup_mma_wait(6, deps=[acc, low])
            else:
                acc, low = warpgroup_mma_wait(0, deps=[acc, low])
                mbarrier.arrive(empty_mix.index(mix), count=1)
            if RING > 2 and q > 0:
                mbarrier.arrive(empty_mix.index((mix + RING - 1) % RING), count=1)
            mix, mix_phase = advance(mix, mix_phase, RING)
        mbarrier.wait(full.index(slot), phase)
        acc = (acc + low * ORDER) * gl.expand_dims(f, 1) * gl.expand_dims(back, 0)
        acc += gl.expand_dims(h, 1) * g_s.index(slot).load(tile).to(gl.float32)
        place = x_s.index(slot * 2 + WHO)
        flat = place._reinterpret(x_s.dtype, [BT, COLS], g_s.type.layout)
        acc -= gl.expand_dims(c, 1) * flat.load(tile).to(gl.float32)
        flat.store(acc.to(x_s.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(dx, [i + WHO, t0, d0], place)
        h = h_next
        c = c_next
        f = f_next
        slot, phase = advance(slot, phase, STAGES)
    tma.store_wait(0)


@gluon.jit
def hopper_dx_kernel(
    x,
    dh_in,
    left_a,
    left_b,
    w_a,
    w_b,
    dx,
    h_pre,
    coef,
    left_scale,
    w_scale,
    N,
    D,
    splits,
    n: gl.constexpr,
    MP: gl.constexpr,
    DP: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    COLS: gl.constexpr,
    RING: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """dx, n even. Programs: (n / 2 * DP / COLS, splits of the tiles of tokens).

    x, dx: descriptors of [n, N, D], blocks [1, 64, COLS]; dh_in: of [N, D], blocks [64, COLS]; left_*: of [N, 2 MP], blocks
    [64, C], MP a multiple of CA + CB; w_*: of [2 M, n DP], blocks [C, COLS].
    """
    CHUNKS: gl.constexpr = MP // (CA + CB)
    M: gl.constexpr = n * n + 2 * n
    PER: gl.constexpr = DP // COLS
    i = gl.program_id(0) // PER * 2
    d0 = gl.program_id(0) % PER * COLS
    # last tokens first: the L2 still holds them from psi
    last = (N + BT - 1) // BT - 1 - gl.program_id(1)
    count = (last + splits) // splits
    x_s = gl.allocate_shared_memory(x.dtype, [2 * STAGES, 1, BT, COLS], x.layout)
    g_s = gl.allocate_shared_memory(x.dtype, [STAGES, BT, COLS], dh_in.layout)
    wa_s = gl.allocate_shared_memory(gl.float16, [4 * CHUNKS, CA, COLS], w_a.layout)
    wb_s = gl.allocate_shared_memory(gl.float16, [4 * CHUNKS, CB, COLS], w_b.layout)
    a_s = gl.allocate_shared_memory(gl.float16, [2 * RING, BT, CA], left_a.layout)
    b_s = gl.allocate_shared_memory(gl.float16, [2 * RING, BT, CB], left_b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    full, empty = barriers(STAGES)
    full_mix, empty_mix = barriers(RING)
    both = (
        h_pre,
        coef,
        left_scale,
        w_scale,
        dx,
        x_s,
        g_s,
        wa_s,
        wb_s,
        a_s,
        b_s,
        ready,
        full,
        empty,
        full_mix,
        empty_mix,
        N,
        count,
        last,
        splits,
        i,
        d0,
    )
    gl.warp_specialize(
        [
            (_consume, (both, gl.constexpr(0), n, DP, CHUNKS, COLS, RING, STAGES, OVERLAP)),
            (_consume, (both, gl.constexpr(1), n, DP, CHUNKS, COLS, RING, STAGES, OVERLAP)),
            (_load_streams, (x, dh_in, x_s, g_s, full, empty, count, last, splits, i, d0, COLS, STAGES)),
            (
                _load_mix,
                (
                    w_a,
                    w_b,
                    left_a,
                    left_b,
                    wa_s,
                    wb_s,
                    a_s,
                    b_s,
                    ready,
                    full_mix,
                    empty_mix,
                    count,
                    last,
                    splits,
                    i * DP + d0,
                    M,
                    MP,
                    DP,
                    CA,
                    CB,
                    COLS,
                    RING,
                    OVERLAP,
                ),
            ),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )
