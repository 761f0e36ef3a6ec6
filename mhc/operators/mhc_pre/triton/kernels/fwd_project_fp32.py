"""The projection of float32 x on NVIDIA GPUs (sm_80 on): whole float32 numbers in plain multiply-adds.

    part[t, split, :] = shares of h_mix = x @ (phi * gamma).T and, in column M, of sum(x * x)

`project` in `fwd_project` has the same from `tl.dot`, of whose tiles a thread has 4 tokens and 4 rows of phi: 8
loads of shared memory for 16 multiply-adds. Here a warp takes 16 rows, a lane one token in 32. For four columns of K it
loads a vector of each row, the same for all lanes, and one of each of its tokens: with 128 tokens and 4 warps 20 loads for
256 multiply-adds where a tile has 64 rows, 18 for 128 where it has 32.

x comes by asynchronous copies into a ring of slots. w = phi * gamma, which the L2 holds, comes through registers: a thread
weights what it has loaded a block ahead.

Evaluation order: w is rounded to float32 first. A block of BK columns is a sum of its own, then the blocks, then the splits.

Symbols: BT tokens of a tile, K = n * D, M = n * n + 2 * n rows of phi, BM columns of a tile of M.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.language.extra.cuda import gdc_launch_dependents


@gluon.jit
def copy_x(x_ptr, rows, ring, slot, block, last, K, BK: gl.constexpr, COPY: gl.constexpr):
    """A block of x on its way into a slot, zeros from column K on; a group of copies in any case, which the ring counts."""
    k = block * BK + gl.arange(0, BK, layout=gl.SliceLayout(0, COPY)).to(gl.int64)  # [BK]
    inside = (k < K) & (block < last)
    async_copy.async_copy_global_to_shared(ring.index(slot), x_ptr + rows[:, None] + k[None, :], mask=inside[None, :])
    async_copy.commit_group()


@gluon.jit
def load_w(phi_ptr, gamma_ptr, m, block, last, K, M, HAS_GAMMA: gl.constexpr, BK: gl.constexpr, COPY: gl.constexpr):
    """phi * gamma [BM, BK], zeros beside it."""
    k = block * BK + gl.arange(0, BK, layout=gl.SliceLayout(0, COPY)).to(gl.int64)  # [BK]
    inside = (k < K) & (block < last)
    at = m.to(gl.int64)[:, None] * K + k[None, :]
    w = gl.load(phi_ptr + at, mask=(m < M)[:, None] & inside[None, :], other=0.0)
    if HAS_GAMMA:
        w = w * gl.load(gamma_ptr + k, mask=inside, other=0.0)[None, :]
    return w


@gluon.jit
def whole_kernel(
    x_ptr,
    phi_ptr,
    gamma_ptr,
    part_ptr,
    N,
    K,
    M,
    splits,
    m_tiles,
    HAS_GAMMA: gl.constexpr,
    BT: gl.constexpr,
    BM: gl.constexpr,
    BK: gl.constexpr,
    SLOTS: gl.constexpr,
    WARPS: gl.constexpr,
    OVERLAP: gl.constexpr,
):
    """part[t, split, :] = (h_mix over the split's share of K, in columns 0..M; sum(x * x) in column M).

    Programs are (tiles of tokens, splits, tiles of M), the last of which change first: they read the same x.
    """
    ACROSS: gl.constexpr = min(max(BM // 16, 2), WARPS)  # warps side by side in a tile
    SUMS: gl.constexpr = gl.BlockedLayout([1, BM // ACROSS], [32, 1], [WARPS // ACROSS, ACROSS], [1, 0])
    COPY: gl.constexpr = gl.BlockedLayout([1, 4], [128 // BK, BK // 4], [WARPS, 1], [1, 0])
    # rows that lanes read side by side are in different banks
    SLOT: gl.constexpr = gl.SwizzledSharedLayout(4, 32 // BK, BK // 4, [1, 0])
    X: gl.constexpr = gl.DotOperandLayout(0, SUMS, 0)
    W: gl.constexpr = gl.DotOperandLayout(1, SUMS, 0)
    pid = gl.program_id(0)
    m_tile = pid % m_tiles
    split = pid // m_tiles % splits
    tokens = (pid // (m_tiles * splits)).to(gl.int64) * BT
    blocks = gl.cdiv(K, BK)
    first = blocks * split // splits
    last = blocks * (split + 1) // splits
    rows = gl.minimum(tokens + gl.arange(0, BT, layout=gl.SliceLayout(1, COPY)), N - 1) * K  # [BT]
    m = m_tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, COPY))  # [BM]
    x_ring = gl.allocate_shared_memory(gl.float32, [SLOTS, BT, BK], SLOT)
    w_ring = gl.allocate_shared_memory(gl.float32, [2, BM, BK], SLOT)
    for ahead in gl.static_range(SLOTS - 1):
        copy_x(x_ptr, rows, x_ring, ahead, first + ahead, last, K, BK, COPY)
    w = load_w(phi_ptr, gamma_ptr, m, first, last, K, M, HAS_GAMMA, BK, COPY)
    h = gl.zeros([BT, BM], gl.float32, SUMS)
    squares = gl.sum(gl.reshape(gl.zeros([BT, BK], gl.float32, COPY), (BT, BK // 4, 4)), 2)  # [BT, BK // 4]
    for block in range(first, last):
        i = block - first
        slot = i % SLOTS
        async_copy.wait_group(SLOTS - 2)
        w_ring.index(i % 2).store(w)
        w = load_w(phi_ptr, gamma_ptr, m, block + 1, last, K, M, HAS_GAMMA, BK, COPY)
        # squares += x * x
        v = x_ring.index(slot).load(COPY)
        squares += gl.sum(gl.reshape(v * v, (BT, BK // 4, 4)), 2)
        # h_mix += x @ w.T, a block at a time: one product after another would drift
        x = x_ring.index(slot).load(X)
        w_block = w_ring.index(i % 2).permute((1, 0)).load(W)
        copy_x(x_ptr, rows, x_ring, (i + SLOTS - 1) % SLOTS, block + SLOTS - 1, last, K, BK, COPY)
        h -= gl.dot_fma(x, w_block, gl.zeros([BT, BM], gl.float32, SUMS))
    # Triton gives the ring's memory to what follows: the last copies, which bring zeros, must have arrived
    async_copy.wait_group(0)
    if OVERLAP:
        gdc_launch_dependents()
    s = gl.convert_layout(gl.sum(squares, 1), gl.SliceLayout(1, SUMS))
    t = tokens + gl.arange(0, BT, layout=gl.SliceLayout(1, SUMS))
    m = m_tile * BM + gl.arange(0, BM, layout=gl.SliceLayout(0, SUMS))
    h = gl.where((m == M)[None, :], s[:, None], -h)
    gl.store(part_ptr + (t[:, None] * splits + split) * (m_tiles * BM) + m[None, :], h, mask=(t < N)[:, None])
