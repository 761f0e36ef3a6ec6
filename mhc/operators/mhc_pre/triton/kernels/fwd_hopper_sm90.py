"""The forward's projection for Hopper: a loading warp, and two warp groups that multiply.

    part[t, split, m] = sum over the split's share of K of x[t, k] * phi[m, k] * gamma[k]      columns 0 .. M
    part[t, split, M] = sum over it of x[t, k] ** 2

w = phi * gamma is in the three bfloat16 terms of `bf16_split`. A program multiplies BT tokens by CA + CB rows of phi, in
two pieces, since the sides of a product are powers of two: A with an accumulator for each term, B with its terms side
by side in one, CB rows each and a fourth of zeros. float16 x is in two terms, x1 of it one order below x0.

The tensor memory accelerator takes rows that are multiples of 16 bytes apart, and starts at multiples of 16 bytes.
Where a row of x is none, PACK rows together are: a tile's tokens are PACK apart, r + PACK, r + 2 PACK, ..., and begin
SHIFT = r K mod 8 elements after such an address. There is a copy of w for each r, its rows shifted by as much.

OVERLAP: the loads of x begin while w is still being split.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from mhc.operators.mhc_pre.triton.kernels.bf16_split import add_orders, split_bf16, two_bf16
from mhc.operators.mhc_pre.triton.kernels.ring_sm90 import advance, barriers

BK = gl.constexpr(64)


@triton.jit
def split_hopper_kernel(
    phi_ptr,
    gamma_ptr,
    a_ptr,
    b_ptr,
    K,
    pitch,
    M: tl.constexpr,
    CA: tl.constexpr,
    CB: tl.constexpr,
    PACK: tl.constexpr,
    HAS_GAMMA: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """The terms of a row of phi * gamma, shifted and with zeros around; zeros from row M on. Programs: (k, row, r)."""
    if OVERLAP:
        tl.extra.cuda.gdc_launch_dependents()
    m = tl.program_id(1)
    r = tl.program_id(2)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = column - (r * K) % 8
    inside = (k >= 0) & (k < K) & (m < M)
    w = tl.load(phi_ptr + m.to(tl.int64) * K + k, mask=inside, other=0.0)
    if HAS_GAMMA:
        w *= tl.load(gamma_ptr + k, mask=inside, other=0.0)
    w0, w1, w2 = split_bf16(w)
    block = r * (tl.num_programs(1) // (CA + CB)) + m // (CA + CB)
    c = m % (CA + CB)
    on = column < pitch
    if c < CA:
        to = a_ptr + (block * (3 * CA) + c).to(tl.int64) * pitch + column
        below = pitch.to(tl.int64) * CA
    else:
        to = b_ptr + (block * (4 * CB) + c - CA).to(tl.int64) * pitch + column
        below = pitch.to(tl.int64) * CB
        tl.store(to + 3 * below, tl.zeros([BLOCK], tl.bfloat16), mask=on)
    tl.store(to, w0, mask=on)
    tl.store(to + below, w1, mask=on)
    tl.store(to + 2 * below, w2, mask=on)


@gluon.jit
def _load(
    x_desc,
    a_desc,
    b_desc,
    x_s,
    a_s,
    b_s,
    full,
    empty,
    row,
    column,
    block,
    first,
    last,
    CA: gl.constexpr,
    CB: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of one warp: fills the ring."""
    nbytes: gl.constexpr = x_desc.block_type.nbytes + (3 * CA + 4 * CB) * (2 * BK)
    slot = 0
    phase = 1
    for j in range(first, last):
        mbarrier.wait(empty.index(slot), phase)
        bar = full.index(slot)
        mbarrier.expect(bar, nbytes)
        tma.async_copy_global_to_shared(x_desc, [row, column + j * BK], bar, x_s.index(slot))
        if OVERLAP and j == first:
            gdc_wait()
        for q in gl.static_range(3):
            tma.async_copy_global_to_shared(a_desc, [(block * 3 + q) * CA, j * BK], bar, a_s.index(slot * 3 + q))
        if CB > 0:
            tma.async_copy_global_to_shared(b_desc, [block * (4 * CB), j * BK], bar, b_s.index(slot))
        slot, phase = advance(slot, phase, STAGES)


@gluon.jit
def _terms(acc, C: gl.constexpr):
    """acc [T, 4 C], the products of three terms side by side: three tensors [T, C]."""
    even, odd = gl.split(gl.permute(gl.reshape(acc, (acc.shape[0], 2, 2, C)), (0, 1, 3, 2)))
    first, third = gl.split(gl.permute(even, (0, 2, 1)))
    second, _ = gl.split(gl.permute(odd, (0, 2, 1)))
    return first, second, third


@gluon.jit
def _store(
    part_ptr, h, row, m0, end, N, split, r, M: gl.constexpr, PACK: gl.constexpr, SPLITS: gl.constexpr, WIDTH: gl.constexpr
):
    """Writes h [T, C] to columns m0 .. of the partial sums, as far as they are below end and M."""
    layout: gl.constexpr = h.type.layout
    t = (row + gl.arange(0, h.shape[0], layout=gl.SliceLayout(1, layout))).to(gl.int64) * PACK + r
    m = m0 + gl.arange(0, h.shape[1], layout=gl.SliceLayout(0, layout))
    keep = (t < N)[:, None] & ((m < M) & (m < end))[None, :]
    gl.store(part_ptr + (t * SPLITS + split)[:, None] * WIDTH + m[None, :], h, mask=keep)


@gluon.jit
def _multiply(
    both,
    WHO: gl.constexpr,
    M: gl.constexpr,
    PACK: gl.constexpr,
    SPLITS: gl.constexpr,
    WIDTH: gl.constexpr,
    BT: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of a warp group: half of the tile's tokens."""
    part_ptr, x_s, a_s, b_s, full, empty, row, r, block, split, first, last, N, K = both
    FLOAT16: gl.constexpr = x_s.dtype == gl.float16
    ROWS: gl.constexpr = BT // 2
    ACC_A: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CA, 16])
    X: gl.constexpr = gl.DotOperandLayout(0, ACC_A, 2)
    a0 = gl.zeros([ROWS, CA], gl.float32, layout=ACC_A)
    a1 = gl.zeros([ROWS, CA], gl.float32, layout=ACC_A)
    a2 = gl.zeros([ROWS, CA], gl.float32, layout=ACC_A)
    if CB > 0:
        ACC_B: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 4 * CB, 16])
        b = gl.zeros([ROWS, 4 * CB], gl.float32, layout=ACC_B)
        below = b  # products of x1: those with w0 are of order 1, those with w1 of order 2
    squares = gl.zeros([ROWS], gl.float32, layout=gl.SliceLayout(1, X))
    k = gl.arange(0, BK, layout=gl.SliceLayout(0, X))[None, :] - (r * K) % 8
    slot = 0
    phase = 0
    for j in range(first, last):
        mbarrier.wait(full.index(slot), phase)
        x = x_s.index(slot).slice(WHO * ROWS, ROWS).load(X)
        if PACK > 1:  # the tokens before and behind are in the same row of the tensor that is loaded
            x = gl.where((j * BK + k >= 0) & (j * BK + k < K), x, gl.zeros_like(x))
        v = x.to(gl.float32)
        if FLOAT16:
            x, x1 = two_bf16(v)
        # h_mix += x @ w.T
        a0 = warpgroup_mma(x, a_s.index(slot * 3).permute((1, 0)), a0, is_async=True)
        a1 = warpgroup_mma(x, a_s.index(slot * 3 + 1).permute((1, 0)), a1, is_async=True)
        a2 = warpgroup_mma(x, a_s.index(slot * 3 + 2).permute((1, 0)), a2, is_async=True)
        if CB > 0:
            x_b = gl.convert_layout(x, gl.DotOperandLayout(0, ACC_B, 2))
            b = warpgroup_mma(x_b, b_s.index(slot).permute((1, 0)), b, is_async=True)
        if FLOAT16:
            a1 = warpgroup_mma(x1, a_s.index(slot * 3).permute((1, 0)), a1, is_async=True)
            a2 = warpgroup_mma(x1, a_s.index(slot * 3 + 1).permute((1, 0)), a2, is_async=True)
            if CB > 0:
                x1_b = gl.convert_layout(x1, gl.DotOperandLayout(0, ACC_B, 2))
                below = warpgroup_mma(x1_b, b_s.index(slot).permute((1, 0)), below, is_async=True)
        # squares += x * x
        squares += gl.sum(v * v, 1)
        if CB > 0 and FLOAT16:
            a0, a1, a2, b, below = warpgroup_mma_wait(0, deps=[a0, a1, a2, b, below])
        elif CB > 0:
            a0, a1, a2, b = warpgroup_mma_wait(0, deps=[a0, a1, a2, b])
        else:
            a0, a1, a2 = warpgroup_mma_wait(0, deps=[a0, a1, a2])
        mbarrier.arrive(empty.index(slot), count=1)
        slot, phase = advance(slot, phase, STAGES)
    if OVERLAP:
        gdc_launch_dependents()
    row += WHO * ROWS
    m0 = block * (CA + CB)
    _store(part_ptr, add_orders(a0, a1, a2), row, m0, m0 + CA, N, split, r, M, PACK, SPLITS, WIDTH)
    if CB > 0:
        b0, b1, b2 = _terms(b, CB)
        if FLOAT16:
            c0, c1, _ = _terms(below, CB)
            b1 += c0
            b2 += c1
        _store(part_ptr, add_orders(b0, b1, b2), row, m0 + CA, m0 + CA + CB, N, split, r, M, PACK, SPLITS, WIDTH)
    if block == 0:
        t = (row + gl.arange(0, ROWS, layout=squares.type.layout)).to(gl.int64) * PACK + r
        gl.store(part_ptr + (t * SPLITS + split) * WIDTH + M, squares, mask=t < N)


@gluon.jit
def hopper_partial_kernel(
    x_desc,
    a_desc,
    b_desc,
    part_ptr,
    N,
    K,
    M: gl.constexpr,
    PACK: gl.constexpr,
    SPLITS: gl.constexpr,
    WIDTH: gl.constexpr,
    BT: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """The partial sums of BT tokens. Programs: (tiles * SPLITS, blocks of CA + CB rows of phi).

    x_desc: of [N / PACK, PACK * K], blocks [BT, 64]; a_desc: of [blocks * 3 CA, pitch], blocks [CA, 64]; b_desc: of
    [blocks * 4 CB, pitch], blocks [4 CB, 64].
    """
    split = gl.program_id(0) % SPLITS
    tile = gl.program_id(0) // SPLITS
    block = gl.program_id(1)
    r = tile % PACK
    row = tile // PACK * BT
    shift = (r * K) % 8
    total = (K + shift + BK - 1) // BK
    first = total * split // SPLITS
    last = total * (split + 1) // SPLITS
    x_s = gl.allocate_shared_memory(x_desc.dtype, [STAGES, BT, BK], x_desc.layout)
    a_s = gl.allocate_shared_memory(gl.bfloat16, [STAGES * 3, CA, BK], a_desc.layout)
    if CB > 0:
        b_s = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 4 * CB, BK], b_desc.layout)
    else:
        b_s = a_s
    full, empty = barriers(STAGES)
    both = (part_ptr, x_s, a_s, b_s, full, empty, row, r, block, split, first, last, N, K)
    gl.warp_specialize(
        [
            (_multiply, (both, gl.constexpr(0), M, PACK, SPLITS, WIDTH, BT, CA, CB, STAGES, OVERLAP)),
            (_multiply, (both, gl.constexpr(1), M, PACK, SPLITS, WIDTH, BT, CA, CB, STAGES, OVERLAP)),
            (
                _load,
                (
                    x_desc,
                    a_desc,
                    b_desc,
                    x_s,
                    a_s,
                    b_s,
                    full,
                    empty,
                    row,
                    r * K - shift,
                    r * gl.num_programs(1) + block,
                    first,
                    last,
                    CA,
                    CB,
                    STAGES,
                    OVERLAP,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )
