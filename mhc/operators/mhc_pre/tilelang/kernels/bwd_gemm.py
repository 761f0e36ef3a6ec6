"""A whole TileLang backward with pipelined matrix products: bfloat16 and float16, any shape, on any GPU that TileLang
compiles for.

psi = dh_mix^T x [blocks * MP, n, DP] and dx = left @ right - coef * x + h_pre * dh_in, after `gates` and `weights`.
What is not bfloat16 x of rows that 16-byte loads divide comes to psi as planes: bfloat16 terms, rows padded to DP.
"""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import gates_and_weights
from mhc.operators.mhc_pre.tilelang.kernels.bwd_parameters import parameters
from mhc.operators.mhc_pre.tilelang.kernels.signature import backward_parameters, function, product_scratch


@T.macro
def psi_tiles(xs, left, psi, terms, *, n, X_TERMS, BT, BM, BN, STAGES, THREADS):
    """psi [parts, blocks * MP, n, DP]: part s over the tiles of BT tokens s, s + parts, ...; xs is [X_TERMS, N, n, DP].

    Rows are v0 x0, v1 x0 (, v2 x0 of three terms), then of float16 f0 x1, f1 x1: for each term of x a range of columns of
    left.
    """
    MP = -(-(n * n + 2 * n) // 8) * 8
    N, DP, parts = xs.shape[1], xs.shape[3], psi.shape[0]
    first = T.ceildiv(terms * MP, BM)
    second = 0 if X_TERMS == 1 else -(-2 * MP // BM)
    with T.Kernel(n * T.ceildiv(DP, BN), first + second, parts, threads=THREADS) as (bx, by, part):
        left_s = T.alloc_shared((BT, BM), "bfloat16")
        x_s = T.alloc_shared((BT, BN), "bfloat16")
        acc = T.alloc_fragment((BM, BN), "float32")
        i = bx % n
        d0 = bx // n * BN
        # term of x; first column of left and first row of psi of its range; rows in it; this block's place in it
        p = T.if_then_else(by < first, 0, 1) if X_TERMS > 1 else 0
        column = T.if_then_else(by < first, 0, 3 * MP) if X_TERMS > 1 else 0
        base = T.if_then_else(by < first, 0, terms * MP)
        rows = T.if_then_else(by < first, terms * MP, 2 * MP)
        m0 = T.if_then_else(by < first, by, by - first) * BM
        T.clear(acc)
        for r in T.Pipelined(T.ceildiv(T.ceildiv(N, BT) - part, parts), num_stages=STAGES):
            t0 = (part + r * parts) * BT
            T.copy(left[t0 : t0 + BT, column + m0 : column + m0 + BM], left_s)
            T.copy(xs[p, t0 : t0 + BT, i, d0 : d0 + BN], x_s)
            T.gemm(left_s, x_s, acc, transpose_A=True)
        for a, b in T.Parallel(BM, BN):
            if m0 + a < rows and d0 + b < DP:
                psi[part, base + m0 + a, i, d0 + b] = acc[a, b]


@T.macro
def fetch(x_f, g_f, x, dh_in, t0, i, d0):
    """A tile of x and of dh_in, zeros beside them; loads without a branch around them, so that none waits for another."""
    for a, b in T.Parallel(x_f.shape[0], x_f.shape[1]):
        x_f[a, b] = T.if_then_else(t0 + a < x.shape[0] and d0 + b < x.shape[2], x[t0 + a, i, d0 + b], T.cast(0, x.dtype))
    for a, b in T.Parallel(x_f.shape[0], x_f.shape[1]):
        g_f[a, b] = T.if_then_else(t0 + a < x.shape[0] and d0 + b < x.shape[2], dh_in[t0 + a, d0 + b], T.cast(0, x.dtype))


@T.macro
def dx_tiles(x, dh_in, h_pre, coef, left, right, dx, *, n, C, EARLY, BT, BN, BK, STAGES, THREADS):
    """dx [N, n, D] in tiles of BT tokens and BN columns of a stream; left [N, C], right [C, n, DP].

    C is at least STAGES steps of BK: with fewer, TileLang 0.1.8 counts the arrivals at the barriers of another product of
    the same function wrong.
    """
    N, D = x.shape[0], x.shape[2]
    # neighbours share columns of right, which is the larger; and the grid's second side ends at 65535
    with T.Kernel(T.ceildiv(N, BT), n * T.ceildiv(D, BN), threads=THREADS) as (by, bx):
        left_s = T.alloc_shared((BT, BK), "bfloat16")
        right_s = T.alloc_shared((BK, BN), "bfloat16")
        out_s = T.alloc_shared((BT, BN), "float32")
        total = T.alloc_fragment((BT, BN), "float32")
        i = bx % n
        d0 = bx // n * BN
        t0 = by * BT
        x_f = T.alloc_fragment((BT, BN), x.dtype)
        g_f = T.alloc_fragment((BT, BN), x.dtype)
        h_f = T.alloc_fragment((BT,), "float32")
        c_f = T.alloc_fragment((BT,), "float32")
        if EARLY:  # on their way while the products run
            fetch(x_f, g_f, x, dh_in, t0, i, d0)
        for a in T.Parallel(BT):
            h_f[a] = T.if_then_else(t0 + a < N, h_pre[t0 + a, i], 0.0)
        for a in T.Parallel(BT):
            c_f[a] = T.if_then_else(t0 + a < N, coef[t0 + a], 0.0)
        T.clear(total)
        for c in T.Pipelined(T.ceildiv(C, BK), num_stages=STAGES):
            T.copy(left[t0 : t0 + BT, c * BK : c * BK + BK], left_s)
            T.copy(right[c * BK : c * BK + BK, i, d0 : d0 + BN], right_s)
            T.gemm(left_s, right_s, total)
        # through shared memory: there a thread's elements are neighbours, and its loads and stores are wide
        T.copy(total, out_s)
        if not EARLY:
            fetch(x_f, g_f, x, dh_in, t0, i, d0)
        # dx = dvec_mm * gamma - dinv_rms * inv_rms**3 / K * x + h_pre * dh_in
        for a, b in T.Parallel(BT, BN):
            if t0 + a < N and d0 + b < D:
                up = h_f[a] * T.cast(g_f[a, b], "float32")
                own = c_f[a] * T.cast(x_f[a, b], "float32")
                dx[t0 + a, i, d0 + b] = T.cast(out_s[a, b] + (up - own), x.dtype)


def plain(
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
    stages = min(stages, C // 16)
    N, Dv, DPv, programs, parts, psi_rows = (T.dynamic(name) for name in ("N", "Dv", "DPv", "programs", "parts", "psi_rows"))

    scratch = {
        **product_scratch(N, n, C, V, P, DPv, programs, parts, psi_rows),
        "left_psi": T.Tensor((N, C), "bfloat16"),  # again: TileLang would give both products one TMA descriptor
        "right": T.Tensor((C, n, DPv * (8 // V), V), "bfloat16"),
        "right_flat": T.Tensor((C, n, DPv * 8), "bfloat16"),
        "right_units": T.Tensor((C, n, DPv, 8), "bfloat16"),  # TileLang passes on what is a dimension by itself: DPv
    }
    parameters_of = backward_parameters(N, n, Dv, V, dtype, scratch)

    @T.macro
    def stages_of(a):
        gates_and_weights(a, n=n, V=V, U=unroll, C=C, P=P, MERGED=False)
        psi_tiles(
            *(a.planes_in, a.left_psi, a.psi, a.terms),
            **{"n": n, "X_TERMS": max(P, 1), "BT": 64, "BM": psi_rows_block, "BN": 128},
            **{"STAGES": stages, "THREADS": 2 * psi_rows_block},
        )
        dx_tiles(
            *(a.x_flat, a.dh_in_flat, a.h_pre, a.coef, a.left, a.right_flat, a.dx),
            n=n,
            C=C,
            EARLY=V == 8,  # else more registers than there are beside the sums
            BT=128,
            BN=128,
            BK=next(width for width in (64, 32, 16) if (stages - 1) * width < C),
            STAGES=stages,
            THREADS=256,
        )
        parameters(a, n=n, V=V, X_TERMS=max(P, 1), ROWS=rows, COLUMNS=width)

    return function("backward", {**parameters_of, "terms": T.int32()}, stages_of)
