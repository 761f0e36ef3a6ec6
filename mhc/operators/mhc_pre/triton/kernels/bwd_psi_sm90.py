"""psi of the Triton backward with many streams, for Hopper: a loading warp, and two warp groups that multiply.

    psi[split, m, k] = sum over the split's tokens of dh_mix[t, m] * x[t, k]

dh_mix comes as `bwd_gemm` has it, [N, 3, MP], in terms of order 0, 1 and 2. A program multiplies 128 columns of x,
transposed, by CA + CB rows of psi, in two pieces, since the sides of a product are powers of two. float16 x is in two
terms, x1 of it one order below x0. Rows of x that are no multiple of 16 bytes are taken PACK at a time, as in
`fwd_hopper_sm90`: the tokens of a program are PACK apart, and begin SHIFT elements after an address that the tensor
memory accelerator takes.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.language.extra.cuda import gdc_wait

from mhc.operators.mhc_pre.triton.kernels.bf16_split import ORDER_1, ORDER_2, finite, two_bf16
from mhc.operators.mhc_pre.triton.kernels.ring_sm90 import advance, barriers

BT = gl.constexpr(64)
COLS = gl.constexpr(64)  # of x for a warp group


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
    column,
    left,
    first,
    last,
    MP: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """Partition of one warp: fills the ring."""
    slot = 0
    phase = 1
    for j in range(first, last):
        mbarrier.wait(empty.index(slot), phase)
        bar = full.index(slot)
        mbarrier.expect(bar, 2 * BT * (2 * COLS + 3 * CA + 3 * CB))
        for w in gl.static_range(2):
            tma.async_copy_global_to_shared(x_desc, [j * BT, column + w * COLS], bar, x_s.index(slot * 2 + w))
        if OVERLAP and j == first:
            gdc_wait()
        for q in gl.static_range(3):
            at = left + q * MP
            tma.async_copy_global_to_shared(a_desc, [j * BT, at], bar, a_s.index(slot * 3 + q))
            if CB > 0:
                tma.async_copy_global_to_shared(b_desc, [j * BT, at + CA], bar, b_s.index(slot * 3 + q))
        slot, phase = advance(slot, phase, STAGES)


@gluon.jit
def _store(psi, acc0, acc1, acc2, k0, m0, end, K, M: gl.constexpr):
    """Writes the sum of the orders, [64, C], to columns k0 .. of rows m0 .. of psi. The rows of order 0 decide the class."""
    layout: gl.constexpr = acc0.type.layout
    total = gl.where(finite(acc0), acc0 + (acc1 * ORDER_1 + acc2 * ORDER_2), acc0)
    k = k0 + gl.arange(0, acc0.shape[0], layout=gl.SliceLayout(1, layout))
    m = m0 + gl.arange(0, acc0.shape[1], layout=gl.SliceLayout(0, layout))
    keep = ((k >= 0) & (k < K))[:, None] & ((m < M) & (m < end))[None, :]
    gl.store(psi + m.to(gl.int64)[None, :] * K + k[:, None], total, mask=keep)


@gluon.jit
def _multiply(
    psi,
    x_s,
    a_s,
    b_s,
    full,
    empty,
    k0,
    block,
    first,
    last,
    K,
    WHO: gl.constexpr,
    M: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Partition of a warp group: half of the program's columns."""
    FLOAT16: gl.constexpr = x_s.dtype == gl.float16
    ACC_A: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CA, 16])
    X: gl.constexpr = gl.DotOperandLayout(0, ACC_A, 2)
    a0 = gl.zeros([COLS, CA], gl.float32, layout=ACC_A)
    a1 = gl.zeros([COLS, CA], gl.float32, layout=ACC_A)
    a2 = gl.zeros([COLS, CA], gl.float32, layout=ACC_A)
    if CB > 0:
        ACC_B: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CB, 16])
        b0 = gl.zeros([COLS, CB], gl.float32, layout=ACC_B)
        b1 = gl.zeros([COLS, CB], gl.float32, layout=ACC_B)
        b2 = gl.zeros([COLS, CB], gl.float32, layout=ACC_B)
    slot = 0
    phase = 0
    for _ in range(first, last):
        mbarrier.wait(full.index(slot), phase)
        x = x_s.index(slot * 2 + WHO).permute((1, 0)).load(X)  # [COLS, BT]
        if FLOAT16:
            x, x1 = two_bf16(x.to(gl.float32))
            a1 = warpgroup_mma(x1, a_s.index(slot * 3), a1, is_async=True)
            a2 = warpgroup_mma(x1, a_s.index(slot * 3 + 1), a2, is_async=True)
            if CB > 0:
                x1_b = gl.convert_layout(x1, gl.DotOperandLayout(0, ACC_B, 2))
                b1 = warpgroup_mma(x1_b, b_s.index(slot * 3), b1, is_async=True)
                b2 = warpgroup_mma(x1_b, b_s.index(slot * 3 + 1), b2, is_async=True)
        a0 = warpgroup_mma(x, a_s.index(slot * 3), a0, is_async=True)
        a1 = warpgroup_mma(x, a_s.index(slot * 3 + 1), a1, is_async=True)
        a2 = warpgroup_mma(x, a_s.index(slot * 3 + 2), a2, is_async=True)
        if CB > 0:
            x_b = gl.convert_layout(x, gl.DotOperandLayout(0, ACC_B, 2))
            b0 = warpgroup_mma(x_b, b_s.index(slot * 3), b0, is_async=True)
            b1 = warpgroup_mma(x_b, b_s.index(slot * 3 + 1), b1, is_async=True)
            b2 = warpgroup_mma(x_b, b_s.index(slot * 3 + 2), b2, is_async=True)
            a0, a1, a2, b0, b1, b2 = warpgroup_mma_wait(0, deps=[a0, a1, a2, b0, b1, b2])
        else:
            a0, a1, a2 = warpgroup_mma_wait(0, deps=[a0, a1, a2])
        mbarrier.arrive(empty.index(slot), count=1)
        slot, phase = advance(slot, phase, STAGES)
    m0 = block * (CA + CB)
    _store(psi, a0, a1, a2, k0 + WHO * COLS, m0, m0 + CA, K, M)
    if CB > 0:
        _store(psi, b0, b1, b2, k0 + WHO * COLS, m0 + CA, m0 + CA + CB, K, M)


@gluon.jit
def hopper_psi_kernel(
    x_desc,
    a_desc,
    b_desc,
    psi,
    N,
    K,
    splits,
    M: gl.constexpr,
    MP: gl.constexpr,
    PACK: gl.constexpr,
    CA: gl.constexpr,
    CB: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """psi [PACK * splits, M, K]. Programs: (blocks of CA + CB rows * columns / 128, PACK * splits).

    x_desc: of [N / PACK, PACK * K], blocks [64, 64]; a_desc, b_desc: of [N / PACK, PACK * 3 * MP], blocks [64, C].
    """
    BLOCKS: gl.constexpr = (M + CA + CB - 1) // (CA + CB)
    # blocks of rows next to each other: they read the same x
    block = gl.program_id(0) % BLOCKS
    r = gl.program_id(1) % PACK
    split = gl.program_id(1) // PACK
    shift = (r * K) % 8
    k0 = gl.program_id(0) // BLOCKS * (2 * COLS) - shift
    total = (N // PACK + BT - 1) // BT
    first = total * split // splits
    last = total * (split + 1) // splits
    psi += gl.program_id(1).to(gl.int64) * M * K
    x_s = gl.allocate_shared_memory(x_desc.dtype, [STAGES * 2, BT, COLS], x_desc.layout)
    a_s = gl.allocate_shared_memory(gl.bfloat16, [STAGES * 3, BT, CA], a_desc.layout)
    if CB > 0:
        b_s = gl.allocate_shared_memory(gl.bfloat16, [STAGES * 3, BT, CB], b_desc.layout)
    else:
        b_s = a_s
    full, empty = barriers(STAGES)
    column = r * K + k0
    left = r * (3 * MP) + block * (CA + CB)
    gl.warp_specialize(
        [
            (
                _multiply,
                (psi, x_s, a_s, b_s, full, empty, k0, block, first, last, K, gl.constexpr(0), M, CA, CB, STAGES),
            ),
            (
                _multiply,
                (psi, x_s, a_s, b_s, full, empty, k0, block, first, last, K, gl.constexpr(1), M, CA, CB, STAGES),
            ),
            (
                _load,
                (x_desc, a_desc, b_desc, x_s, a_s, b_s, full, empty, column, left, first, last, MP, CA, CB, STAGES, OVERLAP),
            ),
        ],
        [4, 1],
        [240, 24],
    )
