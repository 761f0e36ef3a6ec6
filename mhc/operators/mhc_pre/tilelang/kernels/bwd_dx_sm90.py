"""dx of `ring` for sm_90, in three products of float16 terms, with phi * gamma in such terms before and a mend behind.

    dx = dh_mix @ (phi * gamma) - coef * x + h_pre * dh_in       [N, n, D]

Rows of dh_mix and columns of phi * gamma come scaled, as h and l of `fp16_split`: left [N, 2 * MQ], right [2 * MQ, n, DP],
MQ = M rounded up to steps of a product. The programs of dx stay on their SM and go through tiles: x and dh_in of the next
one are loaded during the products of this one, and dx leaves through the shared tensor in which x came. Where 16-byte loads
do not divide the rows, x and dh_in come with padded ones, and dx leaves by stores of two bytes side by side.
"""

import tilelang.language as T
from tilelang.layout import make_swizzled_layout

from mhc.operators.mhc_pre.tilelang.kernels import fp16_split
from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import LANES

TOKENS = 128  # of a tile of dx
COLUMNS = 128
STORING = 64  # threads that store dx
GROUPS = 8  # of threads that share the rows of a column of phi


@T.macro
def weights(phi, gamma, right, back, marks, DPv, has_gamma, *, n):
    """right [2 * MQ, n, DP], and back and marks [n, DP] of its columns: phi * gamma in float16 terms. phi is [M, n, D]."""
    M, D, MQ = n * n + 2 * n, phi.shape[2], right.shape[0] // 2
    ROWS = -(-MQ // GROUPS)
    with T.Kernel(n * T.ceildiv(DPv, LANES // 8), threads=GROUPS * LANES) as block:
        sizes = T.alloc_local((3,), "float32")
        all_sizes = T.alloc_local((3,), "float32")
        values = T.alloc_local((ROWS,), "float32")
        halves = T.alloc_local((2,), "float16")
        sizes_s = T.alloc_shared((GROUPS, 3, LANES), "float32")
        many_s = T.alloc_shared((GROUPS, LANES), "float32")
        weight = T.alloc_var("float32")
        many = T.alloc_var("float32")
        tx = T.get_thread_binding()
        lane = tx % LANES
        group = tx // LANES
        i = block % n
        d = block // n * LANES + lane
        weight = 1.0
        if has_gamma != 0 and d < D:
            weight = gamma[i, d]
        for r in T.unroll(ROWS):
            values[r] = 0.0
            if r * GROUPS + group < M and d < D:
                values[r] = phi[r * GROUPS + group, i, d] * weight
        fp16_split.nothing_measured(sizes)
        for r in T.unroll(ROWS):
            if r * GROUPS + group < M:
                fp16_split.measure(sizes, values[r])
        for k in T.unroll(3):
            sizes_s[group, k, lane] = sizes[k]
        T.sync_threads()
        fp16_split.nothing_measured(all_sizes)
        for g in T.unroll(GROUPS):
            fp16_split.combine(all_sizes, sizes_s[g, 0, lane], sizes_s[g, 1, lane], sizes_s[g, 2, lane])
        many = 0.0
        for r in T.unroll(ROWS):
            if r * GROUPS + group < M:
                large = fp16_split.size_of(values[r]) >= all_sizes[0] * fp16_split.LARGE
                many += T.if_then_else(large, 1.0, 0.0)
        many_s[group, lane] = many
        T.sync_threads()
        if d < DPv * 8:
            if group == 0:
                many = 0.0
                for g in T.unroll(GROUPS):
                    many += many_s[g, lane]
                back[i, d] = fp16_split.back_of(all_sizes[0])
                marks[i, d] = fp16_split.marks_of(all_sizes, 2.0 * many > T.float32(M))
            for r in T.unroll(ROWS):
                if r * GROUPS + group < MQ:
                    fp16_split.split(values[r] * fp16_split.factor_of(all_sizes[0]), halves)
                    right[r * GROUPS + group, i, d] = halves[0]
                    right[MQ + r * GROUPS + group, i, d] = halves[1]


class Ring:
    """Slots of the factors, a step of `depth` columns of dh_mix in each; `slots` divides `steps`: each step has its slot."""

    def __init__(self, depth, steps, slots):
        self.depth, self.steps, self.slots = depth, steps, slots

    def allocate(self):
        slots, depth = self.slots, self.depth
        self.left_h = T.alloc_shared((slots, TOKENS, depth), "float16")
        self.left_l = T.alloc_shared((slots, TOKENS, depth), "float16")
        self.right_h = T.alloc_shared((slots, depth, COLUMNS), "float16")
        self.right_l = T.alloc_shared((slots, depth, COLUMNS), "float16")

    def parity(self, k, s):
        """Of a step of tile k: how often its slot has been filled before, of two."""
        return (k * (self.steps // self.slots) + s // self.slots) % 2


@T.macro
def add_products(ring, k, out, low, full, empty):
    """out = h @ h and low = h @ l + l @ h of tile k of a program. A step's products run on while those of the next begin."""
    for s in T.serial(ring.steps):
        j = s % ring.slots
        T.barrier_wait(full[j], ring.parity(k, s))
        T.gemm(
            ring.left_h[j, :, :], ring.right_h[j, :, :], out, policy=T.GemmWarpPolicy.FullRow, clear_accum=s == 0, wg_wait=-1
        )
        T.gemm(
            ring.left_h[j, :, :], ring.right_l[j, :, :], low, policy=T.GemmWarpPolicy.FullRow, clear_accum=s == 0, wg_wait=-1
        )
        T.gemm(ring.left_l[j, :, :], ring.right_h[j, :, :], low, policy=T.GemmWarpPolicy.FullRow, wg_wait=-1)
        if s > 0:
            T.wait_wgmma(3)
            T.barrier_arrive(empty[(s + ring.slots - 1) % ring.slots])
    T.wait_wgmma(0)
    T.barrier_arrive(empty[ring.slots - 1])


@T.macro
def load_factors(ring, k, left, right, empty, full, t0, i, d0):
    """The steps of tile k of a program."""
    MQ = ring.depth * ring.steps
    for s in T.serial(ring.steps):
        j = s % ring.slots
        m = s * ring.depth
        T.barrier_wait(empty[j], (ring.parity(k, s) + 1) % 2)
        T.copy(left[t0 : t0 + TOKENS, m : m + ring.depth], ring.left_h[j, :, :])
        T.copy(left[t0 : t0 + TOKENS, MQ + m : MQ + m + ring.depth], ring.left_l[j, :, :])
        T.copy(right[m : m + ring.depth, i, d0 : d0 + COLUMNS], ring.right_h[j, :, :])
        T.copy(right[MQ + m : MQ + m + ring.depth, i, d0 : d0 + COLUMNS], ring.right_l[j, :, :])
        T.barrier_arrive(full[j])


@T.macro
def place(at, tile, rows, n):
    """at = token, stream and column at which a tile begins. Neighbours share columns of right, then of dh_in."""
    at[0] = tile % rows * TOKENS
    at[1] = tile // rows % n
    at[2] = tile // rows // n * COLUMNS


@T.macro
def load_tile(q, parity, t0, i, d0, x, dh_in, x_s, g_s, free, come, PADDED):
    """A tile of x and of dh_in into place q, once that is free."""
    T.barrier_wait(free[q], parity)
    if PADDED:
        T.copy(x[0, t0 : t0 + TOKENS, i, d0 : d0 + COLUMNS], x_s)
    else:
        T.copy(x[t0 : t0 + TOKENS, i, d0 : d0 + COLUMNS], x_s)
    T.copy(dh_in[t0 : t0 + TOKENS, d0 : d0 + COLUMNS], g_s)
    T.barrier_arrive(come[q])


@T.macro
def rows_of_tile(f, h, c, back_s, left_back, h_pre, coef, right_back, t0, i, d0):
    """What a tile's tokens and columns bring beside x: what takes back their factors, h_pre and coef."""
    for b in T.Parallel(COLUMNS):
        back_s[b] = T.if_then_else(d0 + b < right_back.shape[1], right_back[i, d0 + b], 0.0)
    for a in T.Parallel(TOKENS):
        f[a] = T.if_then_else(t0 + a < h_pre.shape[0], left_back[t0 + a], 0.0)
    for a in T.Parallel(TOKENS):
        h[a] = T.if_then_else(t0 + a < h_pre.shape[0], h_pre[t0 + a, i], 0.0)
    for a in T.Parallel(TOKENS):
        c[a] = T.if_then_else(t0 + a < h_pre.shape[0], coef[t0 + a], 0.0)


@T.macro
def finish(q, parity, out, low, x_s, g_s, back_s, f, h, c, come, done):
    """x_s = (out + low / 2**11) * f * back - c * x + h * dh_in, where x was, once it has come; then it may be stored."""
    T.warpgroup_fence_operand(out, num_regs=COLUMNS // 2)
    T.warpgroup_fence_operand(low, num_regs=COLUMNS // 2)
    T.barrier_wait(come[q], parity)
    for a, b in T.Parallel(TOKENS, COLUMNS):
        out[a, b] = (out[a, b] + low[a, b] * fp16_split.ORDER) * f[a] * back_s[b]
    for a, b in T.Parallel(TOKENS, COLUMNS):
        up = h[a] * T.cast(g_s[a, b], "float32")
        own = c[a] * T.cast(x_s[a, b], "float32")
        out[a, b] += up - own
    T.sync_warp()
    T.copy(out, x_s)
    T.fence_proxy_async()
    T.barrier_arrive(done[q])


@T.macro
def store_rows(q, parity, t0, i, d0, x_s, dx, held, done, free):
    """x_s to rows of dx that begin anywhere: a warp stores elements side by side, four rows' loads before their stores."""
    WARPS = STORING // LANES
    lane = T.get_thread_binding() % LANES
    warp = T.get_thread_binding() // LANES % WARPS
    row = T.alloc_var("int32")
    token = T.alloc_var("int64")
    T.barrier_wait(done[q], parity)
    for r in T.serial(TOKENS // (4 * WARPS)):
        for u in T.unroll(4):
            row = (r * 4 + u) * WARPS + warp
            for v in T.unroll(COLUMNS // LANES):
                held[u * (COLUMNS // LANES) + v] = x_s[row, v * LANES + lane]
        for u in T.unroll(4):
            row = (r * 4 + u) * WARPS + warp
            token = T.cast(t0, "int64") + T.cast(row, "int64")
            for v in T.unroll(COLUMNS // LANES):
                if token < dx.shape[0] and d0 + v * LANES + lane < dx.shape[2]:
                    dx[token, i, d0 + v * LANES + lane] = held[u * (COLUMNS // LANES) + v]
    T.barrier_arrive(free[q])


@T.macro
def store_tile(q, parity, t0, i, d0, x_s, dx, done, free):
    """x_s to dx by TMA."""
    T.barrier_wait(done[q], parity)
    T.copy(x_s, dx[t0 : t0 + TOKENS, i, d0 : d0 + COLUMNS])
    T.barrier_arrive(free[q])


@T.macro
def dx_ring(a, *, n, ring, PADDED, dtype):
    """dx [N, n, D] in tiles of 128 tokens and 128 columns of a stream, those of a program `dx_programs` apart, by twos.

    a: the parameters. PADDED: x_dx is [1, N, n, DP] and dh_in_dx [N, DP].
    """
    with T.Kernel(a.dx_programs, threads=384) as pid:
        ring.allocate()
        x_0 = T.alloc_shared((TOKENS, COLUMNS), dtype)
        x_1 = T.alloc_shared((TOKENS, COLUMNS), dtype)
        g_0 = T.alloc_shared((TOKENS, COLUMNS), dtype)
        g_1 = T.alloc_shared((TOKENS, COLUMNS), dtype)
        back_s = T.alloc_shared((COLUMNS,), "float32")
        out = T.alloc_fragment((TOKENS, COLUMNS), "float32")
        low = T.alloc_fragment((TOKENS, COLUMNS), "float32")
        f = T.alloc_fragment((TOKENS,), "float32")
        h = T.alloc_fragment((TOKENS,), "float32")
        c = T.alloc_fragment((TOKENS,), "float32")
        held = T.alloc_local((16,), dtype)
        full = T.alloc_barrier([32] * ring.slots)
        empty = T.alloc_barrier([256] * ring.slots)
        come = T.alloc_barrier([32, 32])  # tiles of x and dh_in
        done = T.alloc_barrier([256, 256])  # dx is where they were
        free = T.alloc_barrier([STORING, STORING])  # and has been read from there
        # rows of 128 bytes in which eight tokens are in different banks
        T.annotate_layout({one: make_swizzled_layout(one) for one in (x_0, x_1, g_0, g_1)})
        tx = T.get_thread_binding()
        # where two tiles begin; kept, or the divisions would be made again wherever they are used
        one = T.alloc_local((3,), "int32")
        two = T.alloc_local((3,), "int32")
        rows = T.ceildiv(a.h_pre.shape[0], TOKENS)
        # of an odd number the last one has a neighbour past all columns: it reads zeros, and nothing of it is stored
        tiles = rows * n * T.ceildiv(a.dx.shape[2], COLUMNS)
        pairs = T.ceildiv(T.ceildiv(tiles - pid, a.dx_programs), 2)
        # branches of one if: behind separate ones TileLang puts barriers of all threads, and the rings would stand still
        if tx >= 256:
            T.set_max_nreg(56, 0)
            if tx < 288:
                for k in T.serial(2 * pairs):
                    place(one, pid + k * a.dx_programs, rows, n)
                    load_factors(ring, k, a.left_dx, a.right, empty, full, one[0], one[1], one[2])
            elif tx < 320:
                for k in T.serial(pairs):
                    place(one, pid + 2 * k * a.dx_programs, rows, n)
                    place(two, pid + (2 * k + 1) * a.dx_programs, rows, n)
                    load_tile(0, (k + 1) % 2, one[0], one[1], one[2], a.x_dx, a.dh_in_dx, x_0, g_0, free, come, PADDED)
                    load_tile(1, (k + 1) % 2, two[0], two[1], two[2], a.x_dx, a.dh_in_dx, x_1, g_1, free, come, PADDED)
            else:
                for k in T.serial(pairs):
                    place(one, pid + 2 * k * a.dx_programs, rows, n)
                    place(two, pid + (2 * k + 1) * a.dx_programs, rows, n)
                    if PADDED:
                        store_rows(0, k % 2, one[0], one[1], one[2], x_0, a.dx, held, done, free)
                        store_rows(1, k % 2, two[0], two[1], two[2], x_1, a.dx, held, done, free)
                    else:
                        store_tile(0, k % 2, one[0], one[1], one[2], x_0, a.dx, done, free)
                        store_tile(1, k % 2, two[0], two[1], two[2], x_1, a.dx, done, free)
        else:
            T.set_max_nreg(224, 1)
            for k in T.serial(pairs):
                place(one, pid + 2 * k * a.dx_programs, rows, n)
                place(two, pid + (2 * k + 1) * a.dx_programs, rows, n)
                rows_of_tile(f, h, c, back_s, a.left_back, a.h_pre, a.coef, a.right_back, one[0], one[1], one[2])
                add_products(ring, 2 * k, out, low, full, empty)
                finish(0, k % 2, out, low, x_0, g_0, back_s, f, h, c, come, done)
                rows_of_tile(f, h, c, back_s, a.left_back, a.h_pre, a.coef, a.right_back, two[0], two[1], two[2])
                add_products(ring, 2 * k + 1, out, low, full, empty)
                finish(1, k % 2, out, low, x_1, g_1, back_s, f, h, c, come, done)


@T.macro
def either(v):
    """The bits that v has in any lane of a warp, in every lane."""
    bits = T.alloc_var("int32")
    bits = v
    for s in T.unroll(5):
        bits = bits | T.shfl_xor(bits, T.int32(1) << s)
    return bits


@T.macro
def mend(a, *, n, V):
    """dx again in float32, where `in_doubt` of the marks of token and column, 256 of each a program. a: the parameters."""
    M = n * n + 2 * n
    MP = -(-M // 8) * 8
    N, D = a.left.shape[0], a.dx.shape[2]
    with T.Kernel(n * T.ceildiv(D, 256), T.ceildiv(N, 256), threads=256) as (bx, by):
        any_s = T.alloc_shared((8,), "int32")
        mark = T.alloc_var("int32")
        every = T.alloc_var("int32")
        total = T.alloc_var("float32")
        weight = T.alloc_var("float32")
        t = T.alloc_var("int64")
        tx = T.get_thread_binding()
        i = bx % n
        d = bx // n * 256 + tx
        mark = 0
        if d < D:
            mark = a.right_marks[i, d]
        every = mark
        if by * 256 + tx < N:
            every = every | (a.left_marks[by * 256 + tx] << 4)
        every = either(every)
        if tx % LANES == 0:
            any_s[tx // LANES] = every
        T.sync_threads()
        every = 0
        for w in T.unroll(8):
            every = every | any_s[w]
        if fp16_split.in_doubt(every & 15, every >> 4):
            for r in T.serial(T.min(256, N - by * 256)):
                t = T.cast(by, "int64") * 256 + T.cast(r, "int64")
                if d < D and fp16_split.in_doubt(mark, a.left_marks[t]):
                    weight = 1.0
                    if a.has_gamma != 0:
                        weight = a.gamma_flat[i, d]
                    total = 0.0
                    for m in T.serial(M):
                        # the three terms are the float32 itself; of what is not finite the first alone
                        low = (
                            T.cast(a.left[t, MP + m], "float32") * 2.0**-8
                            + T.cast(a.left[t, 2 * MP + m], "float32") * 2.0**-16
                        )
                        total += (T.cast(a.left[t, m], "float32") + low) * (a.phi_flat[m, i, d] * weight)
                    up = a.h_pre[t, i] * T.cast(a.dh_in[t, d // V, d % V], "float32")
                    own = a.coef[t] * T.cast(a.x[t, i, d // V, d % V], "float32")
                    a.dx[t, i, d] = T.cast(total + (up - own), a.dx.dtype)
