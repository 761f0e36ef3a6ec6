"""What every TileLang backward on CUDA ends with: the partial sums, added in a fixed order: dphi, dgamma, dbias, dalpha."""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import LANES, finite, warp_sum


@T.macro
def parameters(a, *, n, V, X_TERMS, ROWS, COLUMNS, OVERLAP=False):
    """dphi = psi * gamma and dgamma = sum_M psi * phi, [M, n, D]; the last programs add up dbias and dalpha.

    a: the parameters of the function.
    psi [parts, blocks * MP, n, DP] has a block of rows for each product of terms: v0 x0, v1 x0, v2 x0, then of X_TERMS = 2
    f0 x1, f1 x1. X_TERMS = 0: it is the whole sum, [parts, M, n, D].
    A program takes COLUMNS of a stream, in ROWS groups of threads that share the rows. A thread has one column, or four
    where V > 1, and V elements of x are 16 bytes. Where psi is small, it is scaled until the last operation: of products
    below the normal range each would be rounded to a multiple of 2**-149.
    """
    M = n * n + 2 * n
    MP = -(-M // 8) * 8
    VECTOR = min(V, 4)
    D, parts, programs = a.phi_flat.shape[2], a.psi.shape[0], a.sums.shape[0]
    each = -(-M // ROWS)  # rows a thread takes, U at a time: as many loads on their way
    U = -(-each // -(-each // (4 if VECTOR == 1 else 2)))
    THREADS = ROWS * COLUMNS // VECTOR
    WARPS = min(4, THREADS // LANES)  # that add up dbias and dalpha
    with T.Kernel(n * T.ceildiv(D, COLUMNS) + T.ceildiv(M + 3, WARPS), threads=THREADS) as pid:
        if OVERLAP:
            T.pdl_sync()
        tx = T.get_thread_binding()
        part_s = T.alloc_shared((ROWS, COLUMNS), "float32")
        small_s = T.alloc_shared((ROWS, COLUMNS), "float32")
        some = T.alloc_local((32,), "float32")
        piece = T.alloc_local((5, U, VECTOR), "float32")
        sum_0 = T.alloc_local((U, VECTOR), "float32")
        if X_TERMS > 0:
            sum_1 = T.alloc_local((U, VECTOR), "float32")  # order 1, times 2**8
            sum_2 = T.alloc_local((U, VECTOR), "float32")  # order 2, times 2**16
        phi_l = T.alloc_local((U, VECTOR), "float32")
        weight = T.alloc_local((VECTOR,), "float32")
        out = T.alloc_local((VECTOR,), "float32")
        dgam = T.alloc_local((VECTOR,), "float32")
        dgam_small = T.alloc_local((VECTOR,), "float32")  # times 2**64
        total = T.alloc_var("float32")
        down = T.alloc_var("float32")
        d = T.alloc_var("int32")
        j = T.alloc_var("int32")
        i = pid % n
        row = tx // (COLUMNS // VECTOR)
        column = tx % (COLUMNS // VECTOR) * VECTOR
        if pid < n * T.ceildiv(D, COLUMNS):
            first = pid // n * COLUMNS + column  # no variable: of one TileLang does not see that VECTOR divides it
            for v in T.unroll(VECTOR):
                dgam[v] = 0.0
                dgam_small[v] = 0.0
                weight[v] = 1.0
            if first < D:
                if a.has_gamma != 0:
                    for v in T.vectorized(VECTOR):
                        weight[v] = a.gamma_flat[i, first + v]
                for m in T.serial(-(-each // U)):
                    # of rows past the last the last again, which is not used
                    for u in T.unroll(U):
                        j = T.min((m * U + u) * ROWS + row, M - 1)
                        for v in T.vectorized(VECTOR):
                            phi_l[u, v] = a.phi_flat[j, i, first + v]
                        for v in T.unroll(VECTOR):
                            sum_0[u, v] = 0.0
                            if X_TERMS > 0:
                                sum_1[u, v] = 0.0
                                sum_2[u, v] = 0.0
                    for s in T.serial(parts):
                        for u in T.unroll(U):
                            j = T.min((m * U + u) * ROWS + row, M - 1)
                            for v in T.vectorized(VECTOR):
                                piece[0, u, v] = a.psi[s, j, i, first + v]
                            if X_TERMS > 0:
                                for v in T.vectorized(VECTOR):
                                    piece[1, u, v] = a.psi[s, MP + j, i, first + v]
                                for v in T.vectorized(VECTOR):
                                    piece[2, u, v] = a.psi[s, 2 * MP + j, i, first + v]
                            if X_TERMS == 2:
                                for v in T.vectorized(VECTOR):
                                    piece[3, u, v] = a.psi[s, 3 * MP + j, i, first + v]
                                for v in T.vectorized(VECTOR):
                                    piece[4, u, v] = a.psi[s, 4 * MP + j, i, first + v]
                        for u in T.unroll(U):
                            for v in T.unroll(VECTOR):
                                sum_0[u, v] += piece[0, u, v]
                                if X_TERMS > 0:
                                    sum_1[u, v] += piece[1, u, v]
                                    sum_2[u, v] += piece[2, u, v]
                                if X_TERMS == 2:
                                    sum_1[u, v] += piece[3, u, v]
                                    sum_2[u, v] += piece[4, u, v]
                    for u in T.unroll(U):
                        j = (m * U + u) * ROWS + row
                        if j < M:
                            for v in T.unroll(VECTOR):
                                total = sum_0[u, v]
                                down = 1.0
                                if X_TERMS > 0:
                                    small = T.abs(sum_1[u, v]) < 2.0**-56 and T.abs(sum_2[u, v]) < 2.0**-48
                                    if T.abs(total) < 2.0**-64 and small:
                                        down = 2.0**-64
                                        total = total * 2.0**64 + (sum_1[u, v] * 2.0**56 + sum_2[u, v] * 2.0**48)
                                    elif finite(total):  # order 0 alone decides the class
                                        total += sum_1[u, v] * 2.0**-8 + sum_2[u, v] * 2.0**-16
                                # dgamma = sum_tokens x * dvec_mm = sum_M psi * phi
                                if down == 1.0:
                                    dgam[v] += total * phi_l[u, v]
                                else:
                                    dgam_small[v] += total * phi_l[u, v]
                                # dphi = sum_tokens dh_mix^T (x * gamma)
                                out[v] = total * weight[v] * down
                            for v in T.vectorized(VECTOR):
                                a.dphi[j, i, first + v] = out[v]
            for v in T.unroll(VECTOR):
                part_s[row, column + v] = dgam[v]
                small_s[row, column + v] = dgam_small[v]
            T.sync_threads()
            d = pid // n * COLUMNS + tx
            if tx < COLUMNS and d < D and a.has_gamma != 0:
                total = 0.0
                down = 0.0
                for r in T.serial(ROWS):
                    total += part_s[r, tx]
                    down += small_s[r, tx]
                a.dgamma[i, d] = total + down * 2.0**-64
        else:
            # dbias = sum_tokens cat(dh_pre2, dh_post2, dh_res);  dalpha = sum_tokens of the same times t; a warp a column
            j = (pid - n * T.ceildiv(D, COLUMNS)) * WARPS + tx // LANES
            if tx < WARPS * LANES and j < M + 3:
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
