"""A whole TileLang backward for float32 x: whole float32 numbers in plain multiply-adds, on any GPU.

    psi = dh_mix^T x                                            [M, n, D]
    dx  = (dh_mix @ phi) * gamma - coef * x + h_pre * dh_in     [N, n, D]

after `gates`, which leave dh_mix as it is, and before `parameters`. Why no tensor cores: `fwd_fp32`.

In both products a warp takes eight rows of the result and a lane four of 128 columns, so that a load of the left factor
serves all lanes. Tiles come by cp.async into a ring of slots. A step of the contraction, 32 tokens or at most 32 rows of
phi, is added up by itself, then the steps, and of psi the parts: of 32 + N / (32 * parts) + parts additions in a row, and of
32 + M / 32, the bound 6 sqrt(L) u sum|a| holds in the worst case too.
"""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.fp32_schedule import WARP_ROWS as ROWS
from mhc.operators.mhc_pre.tilelang.fp32_schedule import depth_of_dx
from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import gates
from mhc.operators.mhc_pre.tilelang.kernels.bwd_parameters import parameters
from mhc.operators.mhc_pre.tilelang.kernels.fp32_lanes import COLUMNS, column_of, copy_row, store_4, take_4
from mhc.operators.mhc_pre.tilelang.kernels.signature import backward_parameters, function

TOKENS = 32  # that a step of psi adds up
TOGETHER = 2  # tokens whose x and dh_in a lane of dx loads before it uses the first


@T.macro
def load_psi(x_s, left_s, slot, x, left, step, last, parts, i, m0, d0, n, V, BM):
    """The tiles of x and of left of a step of psi on their way; a group of copies in any case, which the ring counts."""
    warps, across = BM // ROWS, BM // 4
    N, D, MP = x.shape[0], x.shape[2], left.shape[1]
    if step < last:
        tid = T.get_thread_binding()
        t0 = T.alloc_var("int64")
        at = T.alloc_var("int64")
        t0 = T.cast(step, "int64") * TOKENS
        at = ((t0 + tid // 32) * n + i) * D + d0
        for p in T.unroll(-(-TOKENS // warps)):
            r = p * warps + tid // 32
            if r < TOKENS:
                copy_row(x_s, slot, r, x, T.cast(N, "int64") * n * D, at, tid % 32, D - d0, t0 + r < N, V)
            at = at + n * D * warps
        for p in T.unroll(TOKENS * across // (32 * warps)):
            q = p * 32 * warps + tid
            c = q % across * 4
            T.ptx_cp_async(
                T.access_ptr(left_s[slot, q // across, c], "w", 4),
                T.access_ptr(left[t0 + q // across, m0 + c], "r", 4),
                16,
                (t0 + q // across < N) and (m0 + c < MP),
            )
    T.ptx_commit_group()


@T.macro
def psi_whole(x, left, psi, *, n, V, BM, STAGES):
    """psi [parts, M, n, D]: part s over the steps s, s + parts, ... of TOKENS tokens; left [N, MP], x [N, n, D]."""
    M = n * n + 2 * n
    N, D, parts = x.shape[0], x.shape[2], psi.shape[0]
    with T.Kernel(n * T.ceildiv(D, COLUMNS), -(-M // BM), parts, threads=32 * (BM // ROWS)) as (bx, by, part):
        warp = T.get_thread_binding() // 32
        lane = T.get_thread_binding() % 32
        i = bx % n
        d0 = bx // n * COLUMNS
        m0 = by * BM
        x_s = T.alloc_shared((STAGES, TOKENS, COLUMNS), "float32")
        left_s = T.alloc_shared((STAGES, TOKENS, BM), "float32")
        total = T.alloc_local((ROWS * 4,), "float32")
        some = T.alloc_local((ROWS * 4,), "float32")
        x_l = T.alloc_local((4,), "float32")
        left_l = T.alloc_local((ROWS,), "float32")
        words = T.alloc_local((4,), "uint32")
        slot = T.alloc_var("int32")
        last = T.alloc_var("int32")
        at = T.alloc_var("int64")
        last = T.ceildiv(N, TOKENS)
        for e in T.unroll(ROWS * 4):
            total[e] = 0.0
        for ahead in T.serial(STAGES - 1):
            load_psi(x_s, left_s, ahead, x, left, part + ahead * parts, last, parts, i, m0, d0, n, V, BM)
        for r in T.serial(T.ceildiv(last - part, parts)):
            slot = r % STAGES
            T.ptx_wait_group(STAGES - 2)
            T.sync_threads()
            load_psi(
                *(x_s, left_s, (slot + STAGES - 1) % STAGES, x, left, part + (r + STAGES - 1) * parts, last, parts),
                *(i, m0, d0, n, V, BM),
            )
            for e in T.unroll(ROWS * 4):
                some[e] = 0.0
            for t in T.unroll(TOKENS, unroll_factor=4):
                for half in T.unroll(ROWS // 4):
                    for e in T.vectorized(4):
                        left_l[half * 4 + e] = left_s[slot, t, warp * ROWS + half * 4 + e]
                for v in T.unroll(4 // V):
                    for e in T.vectorized(V):
                        x_l[v * V + e] = x_s[slot, t, column_of(lane, v, V) + e]
                for a in T.unroll(ROWS):
                    for c in T.unroll(4):
                        some[a * 4 + c] = some[a * 4 + c] + left_l[a] * x_l[c]
            for e in T.unroll(ROWS * 4):
                total[e] = total[e] + some[e]
        at = T.cast((part * M + m0 + warp * ROWS) * n + i, "int64") * D + d0
        for a in T.unroll(ROWS):
            if m0 + warp * ROWS + a < M:
                store_4(psi, T.cast(parts * M * n, "int64") * D, at, lane, D - d0, total, a * 4, words, V)
            at = at + n * D


@T.macro
def load_dx(phi_s, left_s, slot, phi, left, step, t0, i, d0, n, V, WARPS, DEPTH):
    """The tiles of phi and of left of a step of dx on their way."""
    M = n * n + 2 * n
    N, D, MP = left.shape[0], phi.shape[2], left.shape[1]
    across = DEPTH // 4
    tid = T.get_thread_binding()
    at = T.alloc_var("int64")
    at = T.cast((step * DEPTH + tid // 32) * n + i, "int64") * D + d0
    for p in T.unroll(-(-DEPTH // WARPS)):
        r = p * WARPS + tid // 32
        if r < DEPTH:
            copy_row(phi_s, slot, r, phi, T.int64(M * n) * D, at, tid % 32, D - d0, step * DEPTH + r < M, V)
        at = at + n * D * WARPS
    for p in T.unroll(-(-ROWS * WARPS * across // (32 * WARPS))):
        q = p * 32 * WARPS + tid
        c = q % across * 4
        if q < ROWS * WARPS * across:
            T.ptx_cp_async(
                T.access_ptr(left_s[slot, q // across, c], "w", 4),
                T.access_ptr(left[t0 + q // across, step * DEPTH + c], "r", 4),
                16,
                (t0 + q // across < N) and (step * DEPTH + c < MP),
            )
    T.ptx_commit_group()


@T.macro
def multiply_dx(sums, phi_s, left_s, slot, left_l, phi_l, V, DEPTH):
    """sums [8 tokens, 4 columns] += left @ phi, of a warp's tokens and a lane's columns in a slot."""
    warp = T.get_thread_binding() // 32
    lane = T.get_thread_binding() % 32
    for four in T.serial(DEPTH // 4):
        for a in T.unroll(ROWS):
            for e in T.vectorized(4):
                left_l[a * 4 + e] = left_s[slot, warp * ROWS + a, four * 4 + e]
        for m in T.unroll(4):
            for v in T.unroll(4 // V):
                for e in T.vectorized(V):
                    phi_l[v * V + e] = phi_s[slot, four * 4 + m, column_of(lane, v, V) + e]
            for a in T.unroll(ROWS):
                for c in T.unroll(4):
                    sums[a * 4 + c] = sums[a * 4 + c] + left_l[a * 4 + m] * phi_l[c]


@T.macro
def dx_whole(x, dh_in, h_pre, coef, left, phi, gamma, dx, has_gamma, *, n, V):
    """dx [N, n, D] in tiles of 64 or 32 tokens and 128 columns of a stream; left [N, MP], phi [M, n, D], gamma [n, D]."""
    N, D = x.shape[0], x.shape[2]
    STEPS, DEPTH = depth_of_dx(n * n + 2 * n)
    WARPS = 8 if STEPS == 1 else 4  # the sums of a step by themselves take registers of which there are no more for eight
    BT = ROWS * WARPS
    SLOTS = min(2, STEPS)
    tiles = T.ceildiv(N, BT)
    # neighbours share columns of phi, then dh_in
    with T.Kernel(tiles * (n * T.ceildiv(D, COLUMNS)), threads=32 * WARPS) as program:
        warp = T.get_thread_binding() // 32
        lane = T.get_thread_binding() % 32
        i = T.alloc_var("int32")
        d0 = T.alloc_var("int32")
        row = T.alloc_var("int32")
        count = T.alloc_var("int32")
        t0 = T.alloc_var("int64")
        first = T.alloc_var("int64")
        i = program // tiles % n
        d0 = program // tiles // n * COLUMNS
        t0 = T.cast(program % tiles, "int64") * BT
        first = t0 + warp * ROWS
        count = T.cast(T.min(N - first, ROWS), "int32")  # of the warp's tokens
        phi_s = T.alloc_shared((SLOTS, DEPTH, COLUMNS), "float32")
        left_s = T.alloc_shared((SLOTS, BT, DEPTH), "float32")
        total = T.alloc_local((ROWS * 4,), "float32")
        some = T.alloc_local((ROWS * 4,), "float32")
        phi_l = T.alloc_local((4,), "float32")
        left_l = T.alloc_local((ROWS * 4,), "float32")
        x_l = T.alloc_local((TOGETHER * 4,), "float32")
        g_l = T.alloc_local((TOGETHER * 4,), "float32")
        h_l = T.alloc_local((TOGETHER,), "float32")
        c_l = T.alloc_local((TOGETHER,), "float32")
        norms = T.alloc_local((4,), "float32")
        out = T.alloc_local((4,), "float32")
        words = T.alloc_local((4,), "uint32")
        up = T.alloc_var("float32")
        own = T.alloc_var("float32")
        for e in T.unroll(ROWS * 4):
            total[e] = 0.0
        load_dx(phi_s, left_s, 0, phi, left, 0, t0, i, d0, n, V, WARPS, DEPTH)
        if STEPS == 1:
            T.ptx_wait_group(0)
            T.sync_threads()
            multiply_dx(total, phi_s, left_s, 0, left_l, phi_l, V, DEPTH)
        else:
            for step in T.serial(STEPS):
                T.ptx_wait_group(0)
                T.sync_threads()
                if step + 1 < STEPS:
                    load_dx(phi_s, left_s, (step + 1) % 2, phi, left, step + 1, t0, i, d0, n, V, WARPS, DEPTH)
                for e in T.unroll(ROWS * 4):
                    some[e] = 0.0
                multiply_dx(some, phi_s, left_s, step % 2, left_l, phi_l, V, DEPTH)
                for e in T.unroll(ROWS * 4):
                    total[e] = total[e] + some[e]
        for e in T.unroll(4):
            norms[e] = 1.0
        if has_gamma != 0:
            take_4(norms, 0, gamma, n * D, i * D + d0, lane, D - d0, V)
        # dx = dvec_mm * gamma - dinv_rms * inv_rms**3 / K * x + h_pre * dh_in
        if count > 0:
            for batch in T.unroll(ROWS // TOGETHER):
                for a in T.unroll(TOGETHER):
                    row = T.min(batch * TOGETHER + a, count - 1)  # past the last token the last again, which is not used
                    h_l[a] = h_pre[first + row, i]
                    c_l[a] = coef[first + row]
                    x_at = ((first + row) * n + i) * D + d0
                    g_at = (first + row) * D + d0
                    take_4(x_l, a * 4, x, T.cast(N, "int64") * n * D, x_at, lane, D - d0, V)
                    take_4(g_l, a * 4, dh_in, T.cast(N, "int64") * D, g_at, lane, D - d0, V)
                for a in T.unroll(TOGETHER):
                    for c in T.unroll(4):
                        up = h_l[a] * g_l[a * 4 + c]
                        own = c_l[a] * x_l[a * 4 + c]
                        out[c] = total[(batch * TOGETHER + a) * 4 + c] * norms[c] + (up - own)
                    if batch * TOGETHER + a < count:
                        to = ((first + batch * TOGETHER + a) * n + i) * D + d0
                        store_4(dx, T.cast(N, "int64") * n * D, to, lane, D - d0, out, 0, words, V)


def whole(*, n: int, vector: int, unroll: int, stages: int, psi_rows_block: int, rows: int, width: int):
    """The whole backward. vector: elements of x in a load; rows, width: of `parameters`."""
    M, V, F = n * n + 2 * n, vector, "float32"
    MP = -(-M // 8) * 8
    N, Dv, programs, parts = (T.dynamic(name) for name in ("N", "Dv", "programs", "parts"))

    scratch = {
        "left": T.Tensor((N, MP), F),
        "coef": T.Tensor((N,), F),
        "sums": T.Tensor((programs, M + 3), F),
        "psi": T.Tensor((parts, M, n, Dv * V), F),
    }

    @T.macro
    def stages_of(a):
        with T.Kernel(programs, threads=128) as pid:
            gates(pid, a, n=n, V=V, U=unroll, C=MP, P=0)
        psi_whole(a.x_flat, a.left, a.psi, n=n, V=V, BM=psi_rows_block, STAGES=stages)
        dx_whole(*(a.x_flat, a.dh_in_flat, a.h_pre, a.coef, a.left, a.phi_flat, a.gamma_flat, a.dx, a.has_gamma), n=n, V=V)
        parameters(a, n=n, V=V, X_TERMS=0, ROWS=rows, COLUMNS=width)

    return function("backward", backward_parameters(N, n, Dv, V, F, scratch, whole=True), stages_of)
