"""What every TileLang backward on CUDA begins with: gates and weights.

gates       reads x and dh_in once: dh_pre, the gates' gradients, dh_mix [N, M] in bfloat16 terms, one coefficient a token
weights     phi * gamma in bfloat16 terms

Terms are those of `bf16_split`. A contraction over M is one over six blocks of MP = M rounded up to 8, side by side, and
padded to C columns:

    left, of dh_mix       v0   v1         v2          f0        f1          f0
    right, of phi*gamma   w0   g0 / 2**8  g0 / 2**16  w1 / 2**8 w1 / 2**16  w2 / 2**16

f0 and g0 are v0 and w0 with zeros for what is not finite: order 0 alone decides the class of a result. `ring`, whose dx is
of float16 terms (`bwd_dx_sm90`), has the first of these blocks of dh_mix alone, which psi takes.
The stages are macros, one `T.Kernel` each, so that a whole backward is one function. Each is called with buffers, which
bring the sizes.
"""

import tilelang.language as T

from mhc.operators.mhc_pre.tilelang.kernels import fp16_split

BF16_MAX = 3.3895313892515355e38
LANES = 32


# As in `bf16_split`, but plain functions: a macro would bind its argument, and the generated source would be another.
def finite(v):
    """Neither NaN nor infinite."""
    return T.abs(v) < T.infinity("float32")


def nearest(v):
    """float32 -> bfloat16; what rounding would take to infinity stays the largest bfloat16."""
    return T.cast(T.min(T.max(v, T.float32(-BF16_MAX)), T.float32(BF16_MAX)), "bfloat16")


@T.macro
def split(v, terms):
    """terms[0..3] = v0, v1, v2 and v0 again with zero for what is not finite; v1 scaled by 2**8, v2 by 2**16."""
    rest = T.alloc_var("float32")
    if finite(v):
        terms[0] = nearest(v)
        terms[3] = terms[0]
        rest = (v - T.cast(terms[0], "float32")) * 256.0
        terms[1] = nearest(rest)
        terms[2] = nearest((rest - T.cast(terms[1], "float32")) * 256.0)
    else:
        terms[0] = T.cast(v, "bfloat16")
        terms[1] = T.bfloat16(0)
        terms[2] = T.bfloat16(0)
        terms[3] = T.bfloat16(0)


@T.macro
def warp_sum(v):
    """The sum over a warp, in every lane, in a fixed order."""
    summed = T.alloc_var("float32")
    summed = v
    for s in T.unroll(5):
        summed += T.shfl_xor(summed, T.int32(1) << s)
    return summed


@T.macro
def warp_sizes(sizes):
    """`fp16_split.measure` of what the lanes of a warp have measured, in every lane."""
    for s in T.unroll(5):
        other = T.int32(1) << s
        fp16_split.combine(sizes, T.shfl_xor(sizes[0], other), T.shfl_xor(sizes[1], other), T.shfl_xor(sizes[2], other))


@T.macro
def scaled_terms(t, lane, d_l, sizes, left, back, marks, M):
    """Token t of left [N, 2 * MQ], back [N] and marks [N]: its row in float16 terms; a lane has every 32nd element."""
    MQ = left.shape[1] // 2
    many = T.alloc_var("float32")
    value = T.alloc_var("float32")
    halves = T.alloc_local((2,), "float16")
    fp16_split.nothing_measured(sizes)
    for q in T.unroll(-(-M // LANES)):
        if lane + q * LANES < M:
            fp16_split.measure(sizes, d_l[q])
    warp_sizes(sizes)
    many = 0.0
    for q in T.unroll(-(-M // LANES)):
        if lane + q * LANES < M:
            many += T.if_then_else(fp16_split.size_of(d_l[q]) >= sizes[0] * fp16_split.LARGE, 1.0, 0.0)
    many = warp_sum(many)
    if lane == 0:
        back[t] = fp16_split.back_of(sizes[0])
        marks[t] = fp16_split.marks_of(sizes, 2.0 * many > T.float32(M))
    for q in T.unroll(-(-MQ // LANES)):
        if lane + q * LANES < MQ:
            value = 0.0
            if lane + q * LANES < M:
                value = d_l[q] * fp16_split.factor_of(sizes[0])
            fp16_split.split(value, halves)
            left[t, lane + q * LANES] = halves[0]
            left[t, MQ + lane + q * LANES] = halves[1]


@T.macro
def gates(pid, a, *, n, V, U, C, P, STREAMS=0, BLOCKS=6, PADDED=False, SCALED=False):
    """A warp takes a token: left [N, C], coef = sum_M(dt * h_mix) * inv_rms**3 / K [N], and the sums of a program's tokens
    for dbias and dalpha, sums [programs, M + 3]. planes_out [P, N, n, DP / V, V]: x in P bfloat16 terms; P = 0 has none.
    A float32 left is dh_mix itself: C = MP. a: the parameters of a backward.

    x is [N, n, D / V, V]; U chunks of a warp's 32 * V columns are loaded before the first is used. STREAMS > 0: coef is
    [n / STREAMS, N, 4], each row followed by h_pre of a group's STREAMS streams, 16 bytes that TMA can fetch.
    BLOCKS: of dh_mix in left. PADDED: upstream [N, DP / V, V], dh_in with padded rows, too. SCALED: dh_mix in float16 terms
    too (`scaled_terms`).
    """
    M = n * n + 2 * n
    MP = -(-M // 8) * 8
    Q = -(-MP // LANES)
    WARPS = 4
    N, Dv, programs = a.x.shape[0], a.x.shape[2], a.sums.shape[0]
    lane = T.get_thread_binding() % LANES
    warp = T.get_thread_binding() // LANES
    acc = T.alloc_local((n,), "float32")
    x_l = T.alloc_local((U, n, V), a.x.dtype)
    g_l = T.alloc_local((U, V), a.x.dtype)
    s_bias = T.alloc_local((Q,), "float32")
    s_alpha = T.alloc_local((Q,), "float32")
    d_l = T.alloc_local((Q,), "float32")
    mix_l = T.alloc_local((Q,), "float32")
    if a.left.dtype == "bfloat16":
        terms = T.alloc_local((4,), "bfloat16")
    if SCALED:
        sizes = T.alloc_local((3,), "float32")
    if P > 0:
        x_terms = T.alloc_local((P, V), "bfloat16")
    shared = T.alloc_shared((WARPS, M + 3), "float32")
    t = T.alloc_var("int64")
    at = T.alloc_var("int32")
    total = T.alloc_var("float32")
    d = T.alloc_var("float32")
    scale = T.alloc_var("float32")
    inv = T.alloc_var("float32")
    dinv = T.alloc_var("float32")
    for q in T.unroll(Q):
        s_bias[q] = 0.0
        s_alpha[q] = 0.0
    for r in T.serial(T.ceildiv(N - (pid * WARPS + warp), programs * WARPS)):
        t = T.cast(pid * WARPS + warp, "int64") + T.cast(r, "int64") * (programs * WARPS)
        # what one gate's gradient needs beside dh_pre; of h_pre's gates, s = h_pre - hc_eps
        inv = a.inv_rms[t]
        for q in T.unroll(Q):
            at = lane + q * LANES
            d_l[q] = 0.0
            mix_l[q] = 0.0
            if at < M:
                mix_l[q] = a.h_mix[t, at]
            if at < n:
                d_l[q] = a.h_pre[t, at] - a.hc_eps
            elif at < 2 * n:
                # dh_post2 = dh_post * h_post * (1 - h_post / 2)
                total = a.h_post[t, at - n]
                d_l[q] = a.dh_post[t, at - n] * total * (1.0 - total / 2.0)
            elif at < M:
                d_l[q] = a.dh_res[t, at - 2 * n]
        # dh_pre = sum_D dh_in * x
        for i in T.unroll(n):
            acc[i] = 0.0
        for c in T.serial(T.ceildiv(Dv, U * LANES)):
            for u in T.unroll(U):
                at = (c * U + u) * LANES + lane
                if at < Dv:
                    for v in T.vectorized(V):
                        g_l[u, v] = a.dh_in[t, at, v]
                    for i in T.unroll(n):
                        for v in T.vectorized(V):
                            x_l[u, i, v] = a.x[t, i, at, v]
                else:
                    for v in T.unroll(V):
                        g_l[u, v] = T.cast(0, a.x.dtype)
                        for i in T.unroll(n):
                            x_l[u, i, v] = T.cast(0, a.x.dtype)
            for u in T.unroll(U):
                for i in T.unroll(n):
                    for v in T.unroll(V):
                        acc[i] += T.cast(x_l[u, i, v], "float32") * T.cast(g_l[u, v], "float32")
            if P > 0:
                for u in T.unroll(U):
                    at = (c * U + u) * LANES + lane
                    if at < Dv:
                        if PADDED:
                            for v in T.vectorized(V):
                                a.upstream[t, at, v] = g_l[u, v]
                        for i in T.unroll(n):
                            for v in T.unroll(V):
                                if P == 1:
                                    x_terms[0, v] = T.cast(x_l[u, i, v], "bfloat16")
                                else:
                                    split(T.cast(x_l[u, i, v], "float32"), terms)
                                    for p in T.unroll(P):
                                        x_terms[p, v] = terms[p]
                            for p in T.unroll(P):
                                for v in T.vectorized(V):
                                    a.planes_out[p, t, i, at, v] = x_terms[p, v]
        for i in T.unroll(n):
            acc[i] = warp_sum(acc[i])
        dinv = 0.0
        for q in T.unroll(Q):
            at = lane + q * LANES
            if at < MP:
                d = d_l[q]
                scale = T.if_then_else(at < n, a.alpha[0], T.if_then_else(at < 2 * n, a.alpha[1], a.alpha[2]))
                if at < n:
                    # dh_pre2 = dh_pre * s * (1 - s)
                    total = 0.0
                    for i in T.unroll(n):
                        if at == i:
                            total = acc[i]
                    d = total * d * (1.0 - d)
                # dbias, dalpha: this warp's share
                s_bias[q] += d
                s_alpha[q] += d * (mix_l[q] * inv)
                # dt = cat(alpha[0] * dh_pre2, alpha[1] * dh_post2, alpha[2] * dh_res);  dinv_rms = sum_M dt * h_mix
                d = T.if_then_else(at < M, d * scale, 0.0)  # not 0 times an infinite alpha
                dinv += d * mix_l[q]
                # dh_mix = dt * inv_rms
                d = T.if_then_else(at < M, d * inv, 0.0)
                if SCALED:
                    d_l[q] = d
                if a.left.dtype == "float32":
                    a.left[t, at] = d
                else:
                    split(d, terms)
                    a.left[t, at] = terms[0]
                    a.left[t, MP + at] = terms[1]
                    a.left[t, 2 * MP + at] = terms[2]
                    if BLOCKS > 3:
                        a.left[t, 3 * MP + at] = terms[3]
                        a.left[t, 4 * MP + at] = terms[1]
                    if BLOCKS > 5:
                        a.left[t, 5 * MP + at] = terms[3]
        if SCALED:
            scaled_terms(t, lane, d_l, sizes, a.left_dx, a.left_back, a.left_marks, M)
        if C > BLOCKS * MP:
            for q in T.unroll(-(-(C - BLOCKS * MP) // LANES)):
                at = BLOCKS * MP + q * LANES + lane
                if at < C:
                    a.left[t, at] = T.bfloat16(0)
        total = warp_sum(dinv)
        total = total * inv * inv / T.cast(n * Dv * V, "float32") * inv
        if STREAMS == 0:
            if lane == 0:
                a.coef[t] = total
        else:
            if lane < n // STREAMS:
                a.coef[lane, t, 0] = total
            if lane < n:
                a.coef[lane // STREAMS, t, 1 + lane % STREAMS] = a.h_pre[t, lane]
    # this program's share of dbias and dalpha: its warps in order
    for q in T.unroll(Q):
        at = lane + q * LANES
        if at < M:
            shared[warp, at] = s_bias[q]
    for k in T.unroll(3):
        total = 0.0
        for q in T.unroll(Q):
            at = lane + q * LANES
            if at < M and T.if_then_else(at < n, 0, T.if_then_else(at < 2 * n, 1, 2)) == k:
                total += s_alpha[q]
        total = warp_sum(total)
        if lane == 0:
            shared[warp, M + k] = total
    T.sync_threads()
    for q in T.unroll(-(-(M + 3) // (WARPS * LANES))):
        at = q * WARPS * LANES + T.get_thread_binding()
        if at < M + 3:
            a.sums[pid, at] = shared[0, at] + shared[1, at] + shared[2, at] + shared[3, at]


@T.macro
def _weights(block, phi, gamma, right, has_gamma, n, V, C):
    """right [C, n, DP / V, V]: phi * gamma in the six blocks of rows; phi is [M, n, D / V, V]. Zeros beside them."""
    M = n * n + 2 * n
    MP = -(-M // 8) * 8
    Dv, DPv = phi.shape[2], right.shape[2]
    j = block % MP
    i = block // MP % n
    bx = block // MP // n
    at = T.alloc_var("int32")
    value = T.alloc_var("float32")
    p_l = T.alloc_local((V,), "float32")
    g_l = T.alloc_local((V,), "float32")
    out = T.alloc_local((6, V), "bfloat16")
    terms = T.alloc_local((4,), "bfloat16")
    at = bx * 128 + T.get_thread_binding()
    if at < DPv:
        for v in T.unroll(V):
            p_l[v] = 0.0
            g_l[v] = 1.0
        if j < M and at < Dv:
            for v in T.vectorized(V):
                p_l[v] = phi[j, i, at, v]
            if has_gamma != 0:
                for v in T.vectorized(V):
                    g_l[v] = gamma[i, at, v]
        for v in T.unroll(V):
            value = p_l[v] * g_l[v]
            split(value, terms)
            # a left side of order 1 or 2 is scaled by 2**8 or 2**16: the right side takes the factor back
            out[0, v] = terms[0]
            out[1, v] = T.cast(T.cast(terms[3], "float32") * 2.0**-8, "bfloat16")
            out[2, v] = T.cast(T.cast(terms[3], "float32") * 2.0**-16, "bfloat16")
            out[3, v] = T.cast(T.cast(terms[1], "float32") * 2.0**-8, "bfloat16")
            out[4, v] = T.cast(T.cast(terms[1], "float32") * 2.0**-16, "bfloat16")
            out[5, v] = T.cast(T.cast(terms[2], "float32") * 2.0**-16, "bfloat16")
        for p in T.unroll(6):
            for v in T.vectorized(V):
                right[p * MP + j, i, at, v] = out[p, v]
        for p in T.unroll(-(-C // MP) - 6):
            if (6 + p) * MP + j < C:
                for v in T.vectorized(V):
                    right[(6 + p) * MP + j, i, at, v] = T.bfloat16(0)


@T.macro
def gates_and_weights(a, *, n, V, U, C, P, STREAMS=0, MERGED=True):
    """Programs of `gates` and of `_weights`, which need nothing of one another; MERGED: in one launch.

    a: the parameters of a backward.
    """
    blocks = T.ceildiv(a.right.shape[2], 128) * n * (-(-(n * n + 2 * n) // 8) * 8)
    if MERGED:
        with T.Kernel(a.sums.shape[0] + blocks, threads=128) as pid:
            if pid < a.sums.shape[0]:
                gates(pid, a, n=n, V=V, U=U, C=C, P=P, STREAMS=STREAMS)
            else:
                _weights(pid - a.sums.shape[0], a.phi, a.gamma, a.right, a.has_gamma, n, V, C)
    else:
        with T.Kernel(a.sums.shape[0], threads=128) as pid:
            gates(pid, a, n=n, V=V, U=U, C=C, P=P, STREAMS=STREAMS)
        with T.Kernel(blocks, threads=128) as block:
            _weights(block, a.phi, a.gamma, a.right, a.has_gamma, n, V, C)
