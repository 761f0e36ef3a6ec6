"""What every TileLang backward on CUDA ends with: the partial sums, added in a fixed order: dphi, dgamma, dbias, dalpha."""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import LANES, finite, warp_sum


@T.macro
def parameters(a, terms, *, n, X_TERMS, ROWS, COLUMNS, OVERLAP=False):
    """dphi = psi * gamma and dgamma = sum_M psi * phi, [M, n, D]; the last programs add up dbias and dalpha.

    a: the parameters of the function.
    psi [parts, blocks * MP, n, DP] has a block of rows for each product of terms: v0 x0, v1 x0, v2 x0 (of terms = 3), then
    of X_TERMS = 2 f0 x1, f1 x1, and of X_TERMS = 3 v2 x1, f0 x1, f1 x1, f0 x2, f1 x2. X_TERMS = 0: it is the
    whole sum, [parts, M, n, D], and terms is 0.
    A program takes COLUMNS of a stream, in ROWS groups of threads that share the rows. Where psi is small, it is scaled
    until the last operation: of products below the normal range each would be rounded to a multiple of 2**-149.
    """
    M = n * n + 2 * n
    MP = -(-M // 8) * 8
    D, parts, programs = a.phi_flat.shape[2], a.psi.shape[0], a.sums.shape[0]
    each = -(-M // ROWS)  # rows a thread takes, U at a time: as many loads on their way
    U = -(-each // -(-each // 4))
    with T.Kernel(n * T.ceildiv(D, COLUMNS) + T.ceildiv(M + 3, 4), threads=ROWS * COLUMNS) as pid:
        if OVERLAP:
            T.pdl_sync()
        tx = T.get_thread_binding()
        part_s = T.alloc_shared((ROWS, COLUMNS), "float32")
        small_s = T.alloc_shared((ROWS, COLUMNS), "float32")
        some = T.alloc_local((32,), "float32")
        sum_0 = T.alloc_local((U,), "float32")
        if X_TERMS > 0:
            sum_1 = T.alloc_local((U,), "float32")  # order 1, times 2**8
            sum_2 = T.alloc_local((U,), "float32")  # order 2, times 2**16
            sum_3 = T.alloc_local((U,), "float32")  # order 3, times 2**24
        phi_l = T.alloc_local((U,), "float32")
        total = T.alloc_var("float32")
        down = T.alloc_var("float32")
        weight = T.alloc_var("float32")
        dgam = T.alloc_var("float32")
        dgam_small = T.alloc_var("float32")  # times 2**64
        d = T.alloc_var("int32")
        j = T.alloc_var("int32")
        i = pid % n
        row = tx // COLUMNS
        if pid < n * T.ceildiv(D, COLUMNS):
            d = pid // n * COLUMNS + tx % COLUMNS
            dgam = 0.0
            dgam_small = 0.0
            if d < D:
                weight = 1.0
                if a.has_gamma != 0:
                    weight = a.gamma_flat[i, d]
                for m in T.serial(-(-each // U)):
                    # of rows past the last the last again, which is not used
                    for u in T.unroll(U):
                        j = T.min((m * U + u) * ROWS + row, M - 1)
                        phi_l[u] = a.phi_flat[j, i, d]
                        sum_0[u] = 0.0
                        if X_TERMS > 0:
                            sum_1[u] = 0.0
                            sum_2[u] = 0.0
                            sum_3[u] = 0.0
                    for s in T.serial(parts):
                        for u in T.unroll(U):
                            j = T.min((m * U + u) * ROWS + row, M - 1)
                            sum_0[u] += a.psi[s, j, i, d]
                            if X_TERMS > 0:
                                sum_1[u] += a.psi[s, MP + j, i, d]
                            if X_TERMS == 2:
                                sum_1[u] += a.psi[s, terms * MP + j, i, d]
                                sum_2[u] += a.psi[s, (terms + 1) * MP + j, i, d]
                            if X_TERMS == 3:
                                sum_3[u] += a.psi[s, terms * MP + j, i, d]
                                sum_1[u] += a.psi[s, (terms + 1) * MP + j, i, d]
                                sum_2[u] += a.psi[s, (terms + 2) * MP + j, i, d]
                                sum_2[u] += a.psi[s, (terms + 3) * MP + j, i, d]
                                sum_3[u] += a.psi[s, (terms + 4) * MP + j, i, d]
                        if terms == 3:
                            for u in T.unroll(U):
                                j = T.min((m * U + u) * ROWS + row, M - 1)
                                sum_2[u] += a.psi[s, 2 * MP + j, i, d]
                    for u in T.unroll(U):
                        j = (m * U + u) * ROWS + row
                        if X_TERMS == 0:
                            if j < M:
                                dgam += sum_0[u] * phi_l[u]
                                a.dphi[j, i, d] = sum_0[u] * weight
                        elif j < M:
                            total = sum_0[u]
                            down = 1.0
                            small = T.abs(sum_1[u]) < 2.0**-56 and T.abs(sum_2[u]) < 2.0**-48 and T.abs(sum_3[u]) < 2.0**-40
                            if T.abs(total) < 2.0**-64 and small:
                                down = 2.0**-64
                                total = total * 2.0**64 + (sum_1[u] * 2.0**56 + (sum_2[u] * 2.0**48 + sum_3[u] * 2.0**40))
                            elif finite(total):  # order 0 alone decides the class
                                total += sum_1[u] * 2.0**-8 + (sum_2[u] * 2.0**-16 + sum_3[u] * 2.0**-24)
                            # dgamma = sum_tokens x * dvec_mm = sum_M psi * phi
                            if down == 1.0:
                                dgam += total * phi_l[u]
                            else:
                                dgam_small += total * phi_l[u]
                            # dphi = sum_tokens dh_mix^T (x * gamma)
                            a.dphi[j, i, d] = total * weight * down
            part_s[row, tx % COLUMNS] = dgam
            small_s[row, tx % COLUMNS] = dgam_small
            T.sync_threads()
            if row == 0 and d < D and a.has_gamma != 0:
                dgam = 0.0
                dgam_small = 0.0
                for r in T.serial(ROWS):
                    dgam += part_s[r, tx % COLUMNS]
                    dgam_small += small_s[r, tx % COLUMNS]
                a.dgamma[i, d] = dgam + dgam_small * 2.0**-64
        else:
            # dbias = sum_tokens cat(dh_pre2, dh_post2, dh_res);  dalpha = sum_tokens of the same times t; a warp a column
            j = (pid - n * T.ceildiv(D, COLUMNS)) * 4 + tx // LANES
            if tx < 4 * LANES and j < M + 3:
                total = 0.0
                for r in T.serial(T.ceildiv(programs, 32 * LANES)):
                    for u in T.unroll(32):  # as many loads at a time
                        d = (r * 32 + u) * LANES + tx % LANES
                        some[u] = 0.0
                        if d < programs:
                            some[u] = a.sums[d, j]
                    for u in T.unroll(32):
                        total += some[u]
                total = warp_sum(total)
                if tx % LANES == 0:
                    if j < M:
                        a.dbias[j] = total
                    else:
                        a.dalpha[j - M] = total
