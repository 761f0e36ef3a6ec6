"""dx and psi in one kernel for sm_90, bfloat16 x of few streams: a loading warp group and two that take tiles in turn.

    dx  = left @ right - coef * x + h_pre * dh_in     [N, n, D]
    psi = left[:, :psi_rows]^T x                      [parts, psi_rows, n, D], added up by `parameters`

A program keeps its columns of `right` in shared memory and goes through tiles of 64 tokens. Warp group 2 loads them by TMA
into a ring of slots; groups 0 and 1 take alternate slots, each with accumulators of psi of its own. dx leaves through the
slot of x. A slot's columns are panels of 64, each inside one stream, so that every copy fills a whole shared tensor:
TileLang 0.1.8 gets the address wrong where TMA copies into a part of a swizzled one.
"""

import tilelang.language as T
from tvm.script.ir_builder import IRBuilder

from mhc.pre.tilelang_backward_kernels import gates, parameters, weights

TOKENS = 64
PANEL = 64


def emit(*statements):
    """Makes statements of calls: TileLang sees those of a plain Python function only so."""
    for statement in statements:
        T.evaluate(statement)


def fragments(name, count, shape):
    """Register tensors with names: an element of a list has none, and the generated source would not compile."""
    made = []
    for k in range(count):
        fragment = T.alloc_fragment(shape, "float32")
        IRBuilder.name(f"{name}_{k}", fragment)
        made.append(fragment)
    return made


def cuts(columns, first):
    """(start, width) of the parts in which left comes: psi's rows first, the rest in powers of two that swizzle."""
    parts, at = [(0, first)], first
    while at < columns:
        width = next(width for width in (64, 32, 16) if columns - at >= width)
        parts.append((at, width))
        at += width
    return parts


def panels_of(n):
    """(stream, column) of each panel of a program, and streams and columns it spans."""
    if n == 1:
        return ((0, 0), (0, PANEL)), 1, 2 * PANEL
    streams = 3 if n == 3 else 2
    return tuple((i, 0) for i in range(streams)), streams, PANEL


class Tiles:
    """Shared tensors of a program, each with `slots` tiles, and what happens to one slot."""

    def __init__(self, n, columns, psi_rows, slots):
        self.panels, self.streams, self.span = panels_of(n)
        self.first = -(-psi_rows // 64) * 64
        self.parts = cuts(max(columns, self.first), self.first)
        self.offsets = sorted({offset for _, offset in self.panels})
        self.slots = slots

    def allocate(self):
        slots = self.slots
        self.left = [T.alloc_shared((slots, TOKENS, width), "bfloat16") for _, width in self.parts]
        self.x = [T.alloc_shared((slots, TOKENS, PANEL), "bfloat16") for _ in self.panels]
        self.dh_in = [T.alloc_shared((slots, TOKENS, PANEL), "bfloat16") for _ in self.offsets]
        self.right = [[T.alloc_shared((width, PANEL), "bfloat16") for _, width in self.parts] for _ in self.panels]

    def load_right(self, right, i0, d0, ready):
        for p, (i, d) in enumerate(self.panels):
            for q, (c, width) in enumerate(self.parts):
                emit(T.copy(right[c : c + width, i0 + i, d0 + d : d0 + d + PANEL], self.right[p][q]))
        emit(T.barrier_arrive(ready))

    def load(self, slot, t0, x, dh_in, left, i0, d0, full):
        for q, (c, width) in enumerate(self.parts):
            emit(T.copy(left[t0 : t0 + TOKENS, c : c + width], self.left[q][slot, :, :]))
        for p, (i, d) in enumerate(self.panels):
            emit(T.copy(x[t0 : t0 + TOKENS, i0 + i, d0 + d : d0 + d + PANEL], self.x[p][slot, :, :]))
        for q, d in enumerate(self.offsets):
            emit(T.copy(dh_in[t0 : t0 + TOKENS, d0 + d : d0 + d + PANEL], self.dh_in[q][slot, :, :]))
        emit(T.barrier_arrive(full[slot]))

    def work(self, slot, t0, psis, out, dx_s, h_pre, coef, dx, i0, d0, empty):
        for p, (i, d) in enumerate(self.panels):
            start(out, self.x[p], self.dh_in[self.offsets.index(d)], slot, h_pre, coef, t0, i0 + i)
            # one batch of products, of whose sums nothing is touched before all have ended
            emit(T.gemm(self.left[0][slot, :, :], self.x[p][slot, :, :], psis[p], transpose_A=True, wg_wait=-1))
            for q in range(len(self.parts)):
                wait = 0 if q == len(self.parts) - 1 else -1
                emit(T.gemm(self.left[q][slot, :, :], self.right[p][q], out, wg_wait=wait))
            if p == len(self.panels) - 1:
                emit(T.barrier_arrive(empty[slot]))
            emit(T.copy(out, dx_s))
            emit(T.copy(dx_s, dx[t0 : t0 + TOKENS, i0 + i, d0 + d : d0 + d + PANEL]))

    def store_psi(self, psis, psi, part, i0, d0):
        for p, (i, d) in enumerate(self.panels):
            store(psis[p], psi, part, i0 + i, d0 + d)


@T.macro
def start(out, x_s, g_s, slot, h_pre, coef, t0, i):
    """out = h_pre * dh_in - coef * x, to which the products are added; zeros past the last token."""
    for a, b in T.Parallel(TOKENS, PANEL):
        h = T.if_then_else(t0 + a < coef.shape[0], h_pre[t0 + a, i], 0.0)
        c = T.if_then_else(t0 + a < coef.shape[0], coef[t0 + a], 0.0)
        out[a, b] = h * T.cast(g_s[slot, a, b], "float32") - c * T.cast(x_s[slot, a, b], "float32")


@T.macro
def store(acc, psi, part, i, d0):
    for a, b in T.Parallel(acc.shape[0], PANEL):
        if a < psi.shape[1] and d0 + b < psi.shape[3]:
            psi[part, a, i, d0 + b] = acc[a, b]


def clear(fragments):
    emit(*(T.clear(fragment) for fragment in fragments))


@T.macro
def take(tiles, who, count, split, splits, psis, out, dx_s, h_pre, coef, dx, psi, i0, d0, ready, full, empty):
    """A warp group's tiles: every other one of its program's."""
    clear(psis)
    T.barrier_wait(ready, 0)
    for j in T.serial(T.ceildiv(count - who, 2)):
        k = 2 * j + who
        T.barrier_wait(full[k % tiles.slots], k // tiles.slots % 2)
        tiles.work(k % tiles.slots, (split + k * splits) * TOKENS, psis, out, dx_s, h_pre, coef, dx, i0, d0, empty)
    tiles.store_psi(psis, psi, 2 * split + who, i0, d0)


@T.macro
def streams_tiles(x, dh_in, h_pre, coef, left, right, dx, psi, *, n, C, PSI_ROWS, SLOTS):
    """dx, and psi [parts, PSI_ROWS, n, D] with two parts for each of the programs that share a block of columns."""
    tiles = Tiles(n, C, PSI_ROWS, SLOTS)
    with T.Kernel(T.ceildiv(x.shape[2], tiles.span), n // tiles.streams, psi.shape[0] // 2, threads=384) as (bx, by, split):
        tiles.allocate()
        psis_0 = fragments("psi_0", len(tiles.panels), (tiles.first, PANEL))
        psis_1 = fragments("psi_1", len(tiles.panels), (tiles.first, PANEL))
        out_0 = T.alloc_fragment((TOKENS, PANEL), "float32")
        out_1 = T.alloc_fragment((TOKENS, PANEL), "float32")
        dx_0 = T.alloc_shared((TOKENS, PANEL), "bfloat16")
        dx_1 = T.alloc_shared((TOKENS, PANEL), "bfloat16")
        full = T.alloc_barrier([128] * SLOTS)
        empty = T.alloc_barrier([128] * SLOTS)
        ready = T.alloc_barrier(128)
        tx = T.get_thread_binding()
        splits = psi.shape[0] // 2
        i0 = by * tiles.streams
        d0 = bx * tiles.span
        count = T.ceildiv(T.ceildiv(x.shape[0], TOKENS) - split, splits)
        # one if with two else: behind separate ones TileLang puts barriers of all threads, and the ring would stand still
        if tx >= 256:
            T.set_max_nreg(40, 0)
            tiles.load_right(right, i0, d0, ready)
            for k in T.serial(count):
                T.barrier_wait(empty[k % SLOTS], (k // SLOTS + 1) % 2)
                tiles.load(k % SLOTS, (split + k * splits) * TOKENS, x, dh_in, left, i0, d0, full)
        else:
            T.set_max_nreg(232, 1)
            if tx < 128:
                take(tiles, 0, count, split, splits, psis_0, out_0, dx_0, h_pre, coef, dx, psi, i0, d0, ready, full, empty)
            else:
                take(tiles, 1, count, split, splits, psis_1, out_1, dx_1, h_pre, coef, dx, psi, i0, d0, ready, full, empty)


def streams(*, n: int, columns: int, terms: int, unroll: int, slots: int, rows: int, width: int):
    """The whole backward for bfloat16 x, n at most 4, D a multiple of 8, on sm_90. columns: of left (C)."""
    M, C, V, F, dtype = n * n + 2 * n, columns, 8, "float32", "bfloat16"
    N, Dv, programs, parts = (T.dynamic(name) for name in ("N", "Dv", "programs", "parts"))
    PSI_ROWS = terms * (-(-M // 8) * 8)

    @T.prim_func
    def backward(
        x: T.Tensor((N, n, Dv, V), dtype),
        x_flat: T.Tensor((N, n, Dv * V), dtype),
        dh_in: T.Tensor((N, Dv, V), dtype),
        dh_in_flat: T.Tensor((N, Dv * V), dtype),
        h_mix: T.Tensor((N, M), F),
        h_pre: T.Tensor((N, n), F),
        h_post: T.Tensor((N, n), F),
        dh_post: T.Tensor((N, n), F),
        dh_res: T.Tensor((N, n * n), F),
        inv_rms: T.Tensor((N,), F),
        alpha: T.Tensor((3,), F),
        phi: T.Tensor((M, n, Dv, V), F),
        phi_flat: T.Tensor((M, n, Dv * V), F),
        gamma: T.Tensor((n, Dv, V), F),
        gamma_flat: T.Tensor((n, Dv * V), F),
        left: T.Tensor((N, C), "bfloat16"),
        coef: T.Tensor((N,), F),
        sums: T.Tensor((programs, M + 3), F),
        right: T.Tensor((C, n, Dv, V), "bfloat16"),
        right_flat: T.Tensor((C, n, Dv * V), "bfloat16"),
        psi: T.Tensor((parts, PSI_ROWS, n, Dv * V), F),
        dx: T.Tensor((N, n, Dv * V), dtype),
        dphi: T.Tensor((M, n, Dv * V), F),
        dgamma: T.Tensor((n, Dv * V), F),
        dalpha: T.Tensor((3,), F),
        dbias: T.Tensor((M,), F),
        hc_eps: T.float32,
        has_gamma: T.int32,
    ):
        gates(
            *(x, dh_in, h_mix, h_pre, h_post, dh_post, dh_res, inv_rms, alpha, left, coef, sums, right, hc_eps),
            n=n,
            V=V,
            U=unroll,
            C=C,
            P=0,
        )
        weights(phi, gamma, right, has_gamma, n=n, V=V, C=C)
        streams_tiles(x_flat, dh_in_flat, h_pre, coef, left, right_flat, dx, psi, n=n, C=C, PSI_ROWS=PSI_ROWS, SLOTS=slots)
        parameters(
            *(phi_flat, gamma_flat, psi, sums, dphi, dgamma, dalpha, dbias, has_gamma),
            n=n,
            TERMS=terms,
            X_TERMS=1,
            ROWS=rows,
            COLUMNS=width,
        )

    return backward
