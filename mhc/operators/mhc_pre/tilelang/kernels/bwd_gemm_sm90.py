"""A whole TileLang backward for many streams on sm_90: psi and dx, matrix products whose loads a warp of its own makes.

    psi = left[:, ...]^T x                              [parts, blocks * MP, n, DP], added up by `parameters`

Tiles come by TMA into a ring of slots, and the warp groups that compute take a slot as it fills. What is not bfloat16 x of
rows that 16-byte loads divide comes to psi as planes (as in `plain`). dx is in `bwd_dx_sm90`.
"""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels.bwd_dx_sm90 import Ring, dx_ring, mend, weights
from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import gates
from mhc.operators.mhc_pre.tilelang.kernels.bwd_parameters import parameters
from mhc.operators.mhc_pre.tilelang.kernels.signature import backward_parameters, function, product_scratch, scaled_scratch

PSI_TOKENS = 64
PSI_COLUMNS = 128


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


def ring(
    *,
    n: int,
    dtype: str,
    vector: int,
    columns: int,
    dx_depth: int,
    dx_steps: int,
    dx_slots: int,
    planes: int,
    unroll: int,
    stages: int,
    psi_rows_block: int,
    rows: int,
    width: int,
):
    """The whole backward. columns: of left (C); dx_depth, dx_steps, dx_slots: of `Ring`; planes: of x, 0 where psi reads x
    itself; rows, width: of `parameters`.
    """
    C, V, P = columns, vector, planes
    PADDED = V == 1
    columns_dx = 2 * dx_depth * dx_steps
    N, Dv, DPv, programs, parts, psi_rows = (T.dynamic(name) for name in ("N", "Dv", "DPv", "programs", "parts", "psi_rows"))
    scratch = {
        **product_scratch(N, n, C, V, P, DPv, programs, parts, psi_rows),
        **scaled_scratch(N, n, columns_dx, DPv),
        "upstream": T.Tensor((N, DPv * (8 // V), V), dtype),
    }
    parameters_of = backward_parameters(
        *(N, n, Dv, V, dtype, scratch),
        x_dx=T.Tensor((1, N, n, DPv * 8) if PADDED else (N, n, Dv * V), dtype),
        dh_in_dx=T.Tensor((N, DPv * 8 if PADDED else Dv * V), dtype),
    )

    @T.macro
    def stages_of(a):
        with T.Kernel(a.sums.shape[0], threads=128) as pid:
            # last tokens first: psi begins with the first ones, which the L2 still holds
            backwards = a.sums.shape[0] - 1 - pid
            blocks = 3 if P <= 1 else 5
            gates(backwards, a, n=n, V=V, U=unroll, C=C, P=P, BLOCKS=blocks, PADDED=PADDED, SCALED=True)
        weights(a.phi_flat, a.gamma_flat, a.right, a.right_back, a.right_marks, a.right_units.shape[2], a.has_gamma, n=n)
        psi_ring(a.planes_in, a.left, a.psi, a.terms, n=n, X_TERMS=max(P, 1), GROUPS=psi_rows_block // 64, STAGES=stages)
        dx_ring(a, n=n, ring=Ring(dx_depth, dx_steps, dx_slots), PADDED=PADDED, dtype=dtype)
        mend(a, n=n, V=V)
        parameters(a, n=n, V=V, X_TERMS=max(P, 1), ROWS=rows, COLUMNS=width)

    return function("backward", {**parameters_of, "terms": T.int32(), "dx_programs": T.int32()}, stages_of)
