"""A whole TileLang backward for many streams on sm_90: psi and dx, matrix products whose loads a warp of its own makes.

    psi = left[:, ...]^T x                              [parts, blocks * MP, n, DP], added up by `parameters`
    dx  = left @ right - coef * x + h_pre * dh_in       [N, n, D]

Tiles come by TMA into a ring of slots, and the warp groups that compute take a slot as it fills. The programs of dx stay on
their SM and go through tiles: x and dh_in of the next one are loaded during the products of this one, and dx leaves through
the shared tensor in which x came. What is not bfloat16 x of rows that 16-byte loads divide comes to psi as planes (as in
`plain`); where those loads do not divide the rows, x and dh_in come to dx with padded rows too, and dx leaves by stores of
two bytes side by side.
"""

import tilelang.language as T
from tilelang.layout import make_swizzled_layout

from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import gates_and_weights
from mhc.operators.mhc_pre.tilelang.kernels.bwd_parameters import parameters
from mhc.operators.mhc_pre.tilelang.kernels.signature import backward_parameters, function, product_scratch

TOKENS = 128  # of a tile of dx
HALF = 128  # columns of a tile of dx come in two halves
DEPTH = 32  # columns of left in a slot
SLOTS = 4
PSI_TOKENS = 64
PSI_COLUMNS = 128
STORING = 64  # threads that store dx


@T.macro
def psi_ring(xs, left, psi, terms, *, n, X_TERMS, GROUPS, STAGES):
    """psi [parts, blocks * MP, n, DP]: part s over the tiles of tokens s, s + parts, ...; xs is [X_TERMS, N, n, DP].

    Rows are v0 x0, v1 x0 (, v2 x0 of three terms), then f0 x1, f1 x1: for each term of x a range of columns of left. A
    program takes 64 of them a warp group, GROUPS warp groups.
    """
    MP = -(-(n * n + 2 * n) // 8) * 8
    BM = 64 * GROUPS
    N, DP, parts = xs.shape[1], xs.shape[3], psi.shape[0]
    first = T.ceildiv(terms * MP, BM)
    with T.Kernel(
        n * T.ceildiv(DP, PSI_COLUMNS),
        first + (0 if X_TERMS == 1 else -(-2 * MP // BM)),
        parts,
        threads=128 * GROUPS + 128,
    ) as (bx, by, part):
        left_s = T.alloc_shared((STAGES, PSI_TOKENS, BM), "bfloat16")
        x_s = T.alloc_shared((STAGES, PSI_TOKENS, PSI_COLUMNS), "bfloat16")
        acc = T.alloc_fragment((BM, PSI_COLUMNS), "float32")
        full = T.alloc_barrier([32] * STAGES)
        empty = T.alloc_barrier([128 * GROUPS] * STAGES)
        tx = T.get_thread_binding()
        i = bx % n
        d0 = bx // n * PSI_COLUMNS
        # term of x; first column of left and first row of psi of its range; rows in it; this block's place in it
        p = T.if_then_else(by < first, 0, 1) if X_TERMS > 1 else 0
        column = T.if_then_else(by < first, 0, 3 * MP) if X_TERMS > 1 else 0
        base = T.if_then_else(by < first, 0, terms * MP)
        rows = T.if_then_else(by < first, terms * MP, 2 * MP)
        m0 = T.if_then_else(by < first, by, by - first) * BM
        count = T.ceildiv(T.ceildiv(N, PSI_TOKENS) - part, parts)
        if tx >= 128 * GROUPS:
            if tx < 128 * GROUPS + 32:
                for k in T.serial(count):
                    t0 = (part + k * parts) * PSI_TOKENS
                    T.barrier_wait(empty[k % STAGES], (k // STAGES + 1) % 2)
                    T.copy(left[t0 : t0 + PSI_TOKENS, column + m0 : column + m0 + BM], left_s[k % STAGES, :, :])
                    T.copy(xs[p, t0 : t0 + PSI_TOKENS, i, d0 : d0 + PSI_COLUMNS], x_s[k % STAGES, :, :])
                    T.barrier_arrive(full[k % STAGES])
        else:
            T.clear(acc)
            for k in T.serial(count):
                T.barrier_wait(full[k % STAGES], k // STAGES % 2)
                T.gemm(
                    left_s[k % STAGES, :, :],
                    x_s[k % STAGES, :, :],
                    acc,
                    transpose_A=True,
                    policy=T.GemmWarpPolicy.FullRow,
                    wg_wait=1,
                )
                if k > 0:  # the product in front has ended
                    T.barrier_arrive(empty[(k + STAGES - 1) % STAGES])
            T.wait_wgmma(0)
            T.warpgroup_fence_operand(acc, num_regs=PSI_COLUMNS // 2)
            for a, b in T.Parallel(BM, PSI_COLUMNS):
                if m0 + a < rows and d0 + b < DP:
                    psi[part, base + m0 + a, i, d0 + b] = acc[a, b]


@T.macro
def finish(q, out, x_s, g_s, h, c, come, parity, done):
    """x_s = out - c * x + h * dh_in, where x was, once it has come; then whoever stores it may."""
    T.barrier_wait(come[q], parity)
    for a, b in T.Parallel(TOKENS, HALF):
        up = h[a] * T.cast(g_s[a, b], "float32")
        own = c[a] * T.cast(x_s[a, b], "float32")
        out[a, b] += up - own
    T.sync_warp()
    T.copy(out, x_s)
    T.fence_proxy_async()
    T.barrier_arrive(done[q])


@T.macro
def store_rows(q, x_s, dx, held, t0, i, d0, done, parity, free):
    """x_s to rows of dx that begin anywhere: a warp stores elements side by side, four rows' loads before their stores."""
    tx = T.get_thread_binding()
    row = T.alloc_var("int32")
    token = T.alloc_var("int64")
    T.barrier_wait(done[q], parity)
    for r in T.serial(TOKENS // (4 * STORING // 32)):
        for u in T.unroll(4):
            row = (r * 4 + u) * (STORING // 32) + (tx - 256) // 32 % (STORING // 32)
            for v in T.unroll(HALF // 32):
                held[u * (HALF // 32) + v] = x_s[row, v * 32 + tx % 32]
        for u in T.unroll(4):
            row = (r * 4 + u) * (STORING // 32) + (tx - 256) // 32 % (STORING // 32)
            token = T.cast(t0, "int64") + T.cast(row, "int64")
            for v in T.unroll(HALF // 32):
                if token < dx.shape[0] and d0 + v * 32 + tx % 32 < dx.shape[2]:
                    dx[token, i, d0 + v * 32 + tx % 32] = held[u * (HALF // 32) + v]
    T.barrier_arrive(free[q])


@T.macro
def store_tile(q, x_s, dx, t0, i, d0, done, parity, free):
    """x_s to dx by TMA."""
    T.barrier_wait(done[q], parity)
    T.copy(x_s, dx[t0 : t0 + TOKENS, i, d0 : d0 + HALF])
    T.barrier_arrive(free[q])


@T.macro
def load_half(q, x, dh_in, x_s, g_s, t0, i, d0, free, parity, come, PADDED):
    """Half a tile of x and of dh_in, once the place is free."""
    T.barrier_wait(free[q], parity)
    if PADDED:
        T.copy(x[0, t0 : t0 + TOKENS, i, d0 : d0 + HALF], x_s)
    else:
        T.copy(x[t0 : t0 + TOKENS, i, d0 : d0 + HALF], x_s)
    T.copy(dh_in[t0 : t0 + TOKENS, d0 : d0 + HALF], g_s)
    T.barrier_arrive(come[q])


@T.macro
def dx_ring(x, dh_in, h_pre, coef, left, right, dx, dx_programs, *, n, C, PADDED, dtype):
    """dx [N, n, D] in tiles of 128 tokens and 256 columns of a stream, those of a program `dx_programs` apart.

    left [N, C], right [C, n, DP]. PADDED: x is [1, N, n, DP] and dh_in [N, DP].
    """
    N, D = h_pre.shape[0], dx.shape[2]
    STEPS = -(-C // DEPTH)
    with T.Kernel(dx_programs, threads=384) as pid:
        left_s = T.alloc_shared((SLOTS, TOKENS, DEPTH), "bfloat16")
        right_0 = T.alloc_shared((SLOTS, DEPTH, HALF), "bfloat16")
        right_1 = T.alloc_shared((SLOTS, DEPTH, HALF), "bfloat16")
        x_0 = T.alloc_shared((TOKENS, HALF), dtype)
        x_1 = T.alloc_shared((TOKENS, HALF), dtype)
        g_0 = T.alloc_shared((TOKENS, HALF), dtype)
        g_1 = T.alloc_shared((TOKENS, HALF), dtype)
        out_0 = T.alloc_fragment((TOKENS, HALF), "float32")
        out_1 = T.alloc_fragment((TOKENS, HALF), "float32")
        h = T.alloc_fragment((TOKENS,), "float32")
        c = T.alloc_fragment((TOKENS,), "float32")
        held = T.alloc_local((16,), dtype)
        full = T.alloc_barrier([32] * SLOTS)
        empty = T.alloc_barrier([256] * SLOTS)
        come = T.alloc_barrier([32, 32])  # halves of x and dh_in
        done = T.alloc_barrier([256, 256])  # dx is where they were
        free = T.alloc_barrier([STORING, STORING])  # and has been read from there
        # rows of 128 bytes in which eight tokens are in different banks
        T.annotate_layout({one: make_swizzled_layout(one) for one in (x_0, x_1, g_0, g_1)})
        tx = T.get_thread_binding()
        # of a tile; in variables, or the divisions would be made again wherever they are used
        t0 = T.alloc_var("int32")
        i = T.alloc_var("int32")
        d0 = T.alloc_var("int32")
        rows = T.ceildiv(N, TOKENS)
        count = T.ceildiv(rows * n * T.ceildiv(D, 2 * HALF) - pid, dx_programs)
        # branches of one if: behind separate ones TileLang puts barriers of all threads, and the rings would stand still
        if tx >= 256:
            T.set_max_nreg(56, 0)
            if tx < 288:
                for k in T.serial(count):
                    # neighbours share columns of right, which is the larger, then dh_in
                    t0 = (pid + k * dx_programs) % rows * TOKENS
                    i = (pid + k * dx_programs) // rows % n
                    d0 = (pid + k * dx_programs) // rows // n * (2 * HALF)
                    for s in T.serial(STEPS):
                        j = k * STEPS + s
                        T.barrier_wait(empty[j % SLOTS], (j // SLOTS + 1) % 2)
                        T.copy(left[t0 : t0 + TOKENS, s * DEPTH : s * DEPTH + DEPTH], left_s[j % SLOTS, :, :])
                        T.copy(right[s * DEPTH : s * DEPTH + DEPTH, i, d0 : d0 + HALF], right_0[j % SLOTS, :, :])
                        T.copy(right[s * DEPTH : s * DEPTH + DEPTH, i, d0 + HALF : d0 + 2 * HALF], right_1[j % SLOTS, :, :])
                        T.barrier_arrive(full[j % SLOTS])
            elif tx < 320:
                for k in T.serial(count):
                    t0 = (pid + k * dx_programs) % rows * TOKENS
                    i = (pid + k * dx_programs) // rows % n
                    d0 = (pid + k * dx_programs) // rows // n * (2 * HALF)
                    load_half(0, x, dh_in, x_0, g_0, t0, i, d0, free, (k + 1) % 2, come, PADDED)
                    load_half(1, x, dh_in, x_1, g_1, t0, i, d0 + HALF, free, (k + 1) % 2, come, PADDED)
            else:
                for k in T.serial(count):
                    t0 = (pid + k * dx_programs) % rows * TOKENS
                    i = (pid + k * dx_programs) // rows % n
                    d0 = (pid + k * dx_programs) // rows // n * (2 * HALF)
                    if PADDED:
                        store_rows(0, x_0, dx, held, t0, i, d0, done, k % 2, free)
                        store_rows(1, x_1, dx, held, t0, i, d0 + HALF, done, k % 2, free)
                    else:
                        store_tile(0, x_0, dx, t0, i, d0, done, k % 2, free)
                        store_tile(1, x_1, dx, t0, i, d0 + HALF, done, k % 2, free)
        else:
            T.set_max_nreg(224, 1)
            for k in T.serial(count):
                t0 = (pid + k * dx_programs) % rows * TOKENS
                i = (pid + k * dx_programs) // rows % n
                for a in T.Parallel(TOKENS):
                    h[a] = T.if_then_else(t0 + a < N, h_pre[t0 + a, i], 0.0)
                for a in T.Parallel(TOKENS):
                    c[a] = T.if_then_else(t0 + a < N, coef[t0 + a], 0.0)
                T.clear(out_0)
                T.clear(out_1)
                for s in T.serial(STEPS):
                    j = k * STEPS + s
                    T.barrier_wait(full[j % SLOTS], j // SLOTS % 2)
                    T.gemm(
                        left_s[j % SLOTS, :, :], right_0[j % SLOTS, :, :], out_0, policy=T.GemmWarpPolicy.FullRow, wg_wait=-1
                    )
                    T.gemm(
                        left_s[j % SLOTS, :, :], right_1[j % SLOTS, :, :], out_1, policy=T.GemmWarpPolicy.FullRow, wg_wait=0
                    )
                    T.barrier_arrive(empty[j % SLOTS])
                T.warpgroup_fence_operand(out_0, num_regs=HALF // 2)
                finish(0, out_0, x_0, g_0, h, c, come, k % 2, done)
                finish(1, out_1, x_1, g_1, h, c, come, k % 2, done)


def ring(
    *,
    n: int,
    dtype: str,
    vector: int,
    columns: int,
    planes: int,
    unroll: int,
    stages: int,
    psi_rows_block: int,
    rows: int,
    width: int,
):
    """The whole backward. columns: of left (C); planes: of x, 0 where psi reads x itself; rows, width: of `parameters`."""
    M, C, V, P, F = n * n + 2 * n, columns, vector, planes, "float32"
    PADDED = V == 1
    N, Dv, DPv, programs, parts, psi_rows = (T.dynamic(name) for name in ("N", "Dv", "DPv", "programs", "parts", "psi_rows"))
    scratch = product_scratch(N, n, C, V, P, DPv, programs, parts, psi_rows)
    scratch["upstream"] = T.Tensor((N, DPv * (8 // V), V), dtype)
    parameters_of = backward_parameters(
        *(N, n, Dv, V, dtype, scratch),
        x_dx=T.Tensor((1, N, n, DPv * 8) if PADDED else (N, n, Dv * V), dtype),
        dh_in_dx=T.Tensor((N, DPv * 8 if PADDED else Dv * V), dtype),
    )

    @T.macro
    def stages_of(a):
        gates_and_weights(
            a, a.planes_out, n=n, V=V, U=unroll, C=C, P=P, MERGED=False, upstream=a.upstream if PADDED else None
        )
        psi_ring(a.planes_in, a.left_psi, a.psi, a.terms, n=n, X_TERMS=max(P, 1), GROUPS=psi_rows_block // 64, STAGES=stages)
        dx_ring(
            *(a.x_dx, a.dh_in_dx, a.h_pre, a.coef, a.left, a.right_flat, a.dx, a.dx_programs),
            **{"n": n, "C": C, "PADDED": PADDED, "dtype": dtype},
        )
        parameters(a, a.terms, n=n, X_TERMS=max(P, 1), ROWS=rows, COLUMNS=width)

    return function("backward", {**parameters_of, "terms": T.int32(), "dx_programs": T.int32()}, stages_of)
