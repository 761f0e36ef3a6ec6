"""What every TileLang backward on CUDA ends with: the partial sums, added in a fixed order: dphi, dgamma, dbias, dalpha."""

import tilelang.language as T

from mhc.pre.tilelang_backward_kernels import LANES, finite, warp_sum


@T.macro
def parameters(
    phi, gamma, psi, sums, dphi, dgamma, dalpha, dbias, has_gamma, terms, *, n, X_TERMS, ROWS, COLUMNS, OVERLAP=False
):
    """dphi = psi * gamma and dgamma = sum_M psi * phi, [M, n, D]; the last programs add up dbias and dalpha.

    psi [parts, blocks * MP, n, DP] has a block of rows for each product of terms: v0 x0, v1 x0, v2 x0 (of terms = 3), then
    f0 x1, f1 x1 and f0 x2 (of X_TERMS = 2 and 3).
    A program takes COLUMNS of a stream, in ROWS groups of threads that share the rows.
    """
    M = n * n + 2 * n
    MP = -(-M // 8) * 8
    D, parts, programs = phi.shape[2], psi.shape[0], sums.shape[0]
    MORE = (0, 0, 2, 3)[X_TERMS]
    with T.Kernel(n * T.ceildiv(D, COLUMNS) + T.ceildiv(M + 3, 4), threads=ROWS * COLUMNS) as pid:
        if OVERLAP:
            T.pdl_sync()
        tx = T.get_thread_binding()
        part_s = T.alloc_shared((ROWS, COLUMNS), "float32")
        some = T.alloc_local((8,), "float32")
        total = T.alloc_var("float32")
        rest = T.alloc_var("float32")
        dgam = T.alloc_var("float32")
        d = T.alloc_var("int32")
        j = T.alloc_var("int32")
        i = pid % n
        row = tx // COLUMNS
        if pid < n * T.ceildiv(D, COLUMNS):
            d = pid // n * COLUMNS + tx % COLUMNS
            dgam = 0.0
            if d < D:
                for m in T.serial(T.ceildiv(M - row, ROWS)):
                    j = m * ROWS + row
                    total = 0.0
                    rest = 0.0
                    for s in T.serial(parts):
                        total += psi[s, j, i, d]
                        for b in T.unroll(1, 3 + MORE):
                            first = T.Or(b == 1, b == terms)
                            if b < terms + MORE:
                                rest += psi[s, b * MP + j, i, d] * T.if_then_else(
                                    first, T.float32(2.0**-8), T.float32(2.0**-16)
                                )
                    # the first block alone decides the class
                    if finite(total):
                        total += rest
                    if has_gamma != 0:
                        # dgamma = sum_tokens x * dvec_mm = sum_M psi * phi
                        dgam += total * phi[j, i, d]
                        total = total * gamma[i, d]
                    # dphi = sum_tokens dh_mix^T (x * gamma)
                    dphi[j, i, d] = total
            part_s[row, tx % COLUMNS] = dgam
            T.sync_threads()
            if row == 0 and d < D and has_gamma != 0:
                dgam = 0.0
                for r in T.serial(ROWS):
                    dgam += part_s[r, tx % COLUMNS]
                dgamma[i, d] = dgam
        else:
            # dbias = sum_tokens cat(dh_pre2, dh_post2, dh_res);  dalpha = sum_tokens of the same times t; a warp a column
            j = (pid - n * T.ceildiv(D, COLUMNS)) * 4 + tx // LANES
            if tx < 4 * LANES and j < M + 3:
                total = 0.0
                for r in T.serial(T.ceildiv(programs, 8 * LANES)):
                    for u in T.unroll(8):  # eight loads at a time
                        d = (r * 8 + u) * LANES + tx % LANES
                        some[u] = 0.0
                        if d < programs:
                            some[u] = sums[d, j]
                    for u in T.unroll(8):
                        total += some[u]
                total = warp_sum(total)
                if tx % LANES == 0:
                    if j < M:
                        dbias[j] = total
                    else:
                        dalpha[j - M] = total
