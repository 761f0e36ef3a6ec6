"""dx of the Triton backward with many streams, for Hopper: two loading warps, and two warp groups that take turns.

    dx = dh_mix @ (phi * gamma) - coef * x + h_pre * dh_in        [N, n, D]

A program keeps the three terms of phi * gamma for its 128 columns of one stream in shared memory, and goes through the
tokens, 64 a tile. dh_mix and phi * gamma come as in `bwd_gemm`, whose `classes_kernel` mends what is not finite; M is the
sum of two powers of two, CA + CB. Places of x and dh_in are free once the sum begins, those of dh_mix when it ends.
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

BT = gl.constexpr(64)
COLS = gl.constexpr(128)


@gluon.constexpr_function
def accumulators():
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])


@gluon.jit
def _load_streams(x, dh_in, x_s, g_s, full, empty, count, split, splits, i, d0):
    """Partition of one warp: x and dh_in of each tile."""
    for j in range(count):
        t0 = (split + j * splits) * BT
        slot = j % 2
        mbarrier.wait(empty.index(slot), ((j // 2) & 1) ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, 2 * BT * COLS * 2)
        tma.async_copy_global_to_shared(x, [i, t0, d0], bar, x_s.index(slot))
        tma.async_copy_global_to_shared(dh_in, [t0, d0], bar, g_s.index(slot))


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
    split,
    splits,
    column,
    M: gl.constexpr,
    MP: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
):
    """Partition of one warp: phi * gamma once, and dh_mix of each tile."""
    mbarrier.expect(ready, 3 * (CA + CB) * COLS * 2)
    for q in gl.static_range(3):
        tma.async_copy_global_to_shared(w_a, [q * M, column], ready, wa_s.index(q))
        tma.async_copy_global_to_shared(w_b, [q * M + CA, column], ready, wb_s.index(q))
    for j in range(count):
        t0 = (split + j * splits) * BT
        slot = j % 2
        mbarrier.wait(empty.index(slot), ((j // 2) & 1) ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, 3 * (CA + CB) * BT * 2)
        for q in gl.static_range(3):
            tma.async_copy_global_to_shared(left_a, [t0, q * MP], bar, a_s.index(slot * 3 + q))
            tma.async_copy_global_to_shared(left_b, [t0, q * MP + CA], bar, b_s.index(slot * 3 + q))


@gluon.jit
def _rows(h_pre, coef, t0, N, i, n: gl.constexpr):
    """h_pre and coef of a tile's tokens, [64] each; zeros where there is no such token."""
    t = t0 + gl.arange(0, BT, layout=gl.SliceLayout(1, accumulators()))
    return gl.load(h_pre + t.to(gl.int64) * n + i, t < N, 0.0), gl.load(coef + t, t < N, 0.0)


@gluon.jit
def _consume(
    both,
    WHO: gl.constexpr,
    n: gl.constexpr,
    DP: gl.constexpr,
    GROUP: gl.constexpr,
):
    """Partition of a warp group: tiles WHO, WHO + 2, ..."""
    (
        h_pre,
        coef,
        dx,
        flags,
        x_s,
        g_s,
        wa_s,
        wb_s,
        a_s,
        b_s,
        out_s,
        ready,
        full,
        empty,
        full_mix,
        empty_mix,
        N,
        count,
        split,
        splits,
        i,
        d0,
    ) = both
    acc: gl.constexpr = accumulators()
    LEFT: gl.constexpr = (0, 1, 2, 0, 1, 0)  # hh mh lh hm mm hl
    RIGHT: gl.constexpr = (0, 0, 0, 1, 1, 2)
    columns: gl.constexpr = n * (DP // COLS)
    mbarrier.wait(ready, 0)
    h, c = _rows(h_pre, coef, (split + WHO * splits) * BT, N, i, n)
    for j in range(WHO, count, 2):
        tile = split + j * splits
        t0 = tile * BT
        phase = (j // 2) & 1
        mbarrier.wait(full.index(WHO), phase)
        g = g_s.index(WHO).load(acc).to(gl.float32)
        x = x_s.index(WHO)._reinterpret(gl.bfloat16, [BT, COLS], g_s.type.layout).load(acc).to(gl.float32)
        out = gl.expand_dims(h, 1) * g - gl.expand_dims(c, 1) * x
        mbarrier.arrive(empty.index(WHO), count=1)
        mbarrier.wait(full_mix.index(WHO), phase)
        for p in gl.static_range(6):
            out = warpgroup_mma(a_s.index(WHO * 3 + LEFT[p]), wa_s.index(RIGHT[p]), out, is_async=True)
            out = warpgroup_mma(b_s.index(WHO * 3 + LEFT[p]), wb_s.index(RIGHT[p]), out, is_async=True)
        # while the products run: the next tile's rows, and the place of the last dx, which has been read by now
        h, c = _rows(h_pre, coef, t0 + 2 * splits * BT, N, i, n)
        tma.store_wait(0)
        out = warpgroup_mma_wait(0, deps=[out])
        mbarrier.arrive(empty_mix.index(WHO), count=1)
        rounded = out.to(gl.bfloat16)
        out_s.index(WHO)._reinterpret(gl.bfloat16, [BT, COLS], g_s.type.layout).store(rounded)
        fence_async_shared()
        tma.async_copy_shared_to_global(dx, [i, t0, d0], out_s.index(WHO))
        # the place of the tile among those of `bwd_gemm`
        group = tile // GROUP
        width = gl.minimum((N + BT - 1) // BT - group * GROUP, GROUP)
        at = group * (GROUP * columns) + (i * (DP // COLS) + d0 // COLS) * width + tile % GROUP
        bad = gl.where(gl.abs(rounded.to(gl.float32)) < float("inf"), 0, 1)
        gl.store(flags + at, gl.max(gl.max(bad, 1), 0))
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
    flags,
    N,
    D,
    splits,
    n: gl.constexpr,
    MP: gl.constexpr,
    DP: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    GROUP: gl.constexpr,
):
    """dx, and flags: a tile has something infinite or NaN. Programs: (n * D / 128, splits of the tiles of tokens).

    x, dx: descriptors of [n, N, D], blocks [1, 64, 128]; dh_in: of [N, D], blocks [64, 128]; left_*: of [N, 5 MP], blocks
    [64, C]; w_*: of [3 M, n DP], blocks [C, 128].
    """
    M: gl.constexpr = n * n + 2 * n
    PER: gl.constexpr = DP // COLS
    i = gl.program_id(0) // PER
    d0 = gl.program_id(0) % PER * COLS
    split = gl.program_id(1)
    count = ((N + BT - 1) // BT - split + splits - 1) // splits
    x_s = gl.allocate_shared_memory(gl.bfloat16, [2, 1, BT, COLS], x.layout)
    g_s = gl.allocate_shared_memory(gl.bfloat16, [2, BT, COLS], dh_in.layout)
    out_s = gl.allocate_shared_memory(gl.bfloat16, [2, 1, BT, COLS], x.layout)
    wa_s = gl.allocate_shared_memory(gl.bfloat16, [3, CA, COLS], w_a.layout)
    wb_s = gl.allocate_shared_memory(gl.bfloat16, [3, CB, COLS], w_b.layout)
    a_s = gl.allocate_shared_memory(gl.bfloat16, [6, BT, CA], left_a.layout)
    b_s = gl.allocate_shared_memory(gl.bfloat16, [6, BT, CB], left_b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    full_mix = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty_mix = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    for s in gl.static_range(2):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
        mbarrier.init(full_mix.index(s), count=1)
        mbarrier.init(empty_mix.index(s), count=1)
    both = (
        h_pre,
        coef,
        dx,
        flags,
        x_s,
        g_s,
        wa_s,
        wb_s,
        a_s,
        b_s,
        out_s,
        ready,
        full,
        empty,
        full_mix,
        empty_mix,
        N,
        count,
        split,
        splits,
        i,
        d0,
    )
    gl.warp_specialize(
        [
            (_consume, (both, gl.constexpr(0), n, DP, GROUP)),
            (_consume, (both, gl.constexpr(1), n, DP, GROUP)),
            (_load_streams, (x, dh_in, x_s, g_s, full, empty, count, split, splits, i, d0)),
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
                    split,
                    splits,
                    i * DP + d0,
                    M,
                    MP,
                    CA,
                    CB,
                ),
            ),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )
