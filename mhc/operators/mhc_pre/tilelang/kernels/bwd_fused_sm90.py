"""dx and psi in one kernel for sm_90, bfloat16 x of few streams: a loading warp, a storing one, three groups that compute.

    dx  = left @ right - coef * x + h_pre * dh_in     [N, n, D]
    psi = left[:, :psi_rows]^T x                      [parts, psi_rows, n, D], added up by `parameters`

A program keeps its columns of `right` in shared memory and goes through tiles of 64 tokens. A warp loads them by TMA into a
ring of slots. Warp groups 0 and 1 take them in turn for dx, which they leave in a shared tensor that a second warp stores
by TMA. Warp group 2 takes all for psi: its sums and those of dx would not fit into one thread's registers. A slot's columns
are panels of 64, each inside one stream, so that every copy fills a whole shared tensor: TileLang 0.1.8 gets the address
wrong where TMA copies into a part of a swizzled one.
"""

import tilelang.language as T
from tvm.script.ir_builder import IRBuilder

from mhc.operators.mhc_pre.tilelang.kernels.bwd_gates import gates_and_weights
from mhc.operators.mhc_pre.tilelang.kernels.bwd_parameters import parameters
from mhc.operators.mhc_pre.tilelang.kernels.signature import backward_parameters, function

TOKENS = 64
PANEL = 64
STRIP = 16
REGISTERS = (152, 40)  # of a thread: of the three groups that compute, of the loading and storing one; 128 at the start


def emit(*statements):
    """Makes statements of calls: TileLang sees those of a plain Python function only so."""
    for statement in statements:
        T.evaluate(statement)


def fragment(name, shape):
    """A register tensor with a name: an element of a list has none, and the generated source would not compile."""
    made = T.alloc_fragment(shape, "float32")
    IRBuilder.name(name, made)
    return made


def cuts(columns, psi_rows):
    """(start, width) of the parts in which left comes, of 64 columns or smaller powers of two, which swizzle.

    A part ends where the columns end that psi takes, rounded up to 16, if they are more than 64.
    """
    parts, at = [], 0
    for end in (max(64, -(-psi_rows // 16) * 16), columns):
        while at < end:
            width = next(width for width in (64, 32, 16) if end - at >= width)
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
        self.parts = cuts(columns, psi_rows)
        self.psi_parts = [part for part in self.parts if part[0] < psi_rows]
        self.offsets = sorted({offset for _, offset in self.panels})
        self.slots = slots

    def allocate(self):
        slots = self.slots
        self.left = [T.alloc_shared((slots, TOKENS, width), "bfloat16") for _, width in self.parts]
        self.x = [T.alloc_shared((slots, TOKENS, PANEL), "bfloat16") for _ in self.panels]
        # no product swizzles it: in rows of 32 bytes, so that eight tokens are in different banks
        self.dh_in = [T.alloc_shared((slots, PANEL // STRIP, TOKENS, STRIP), "bfloat16") for _ in self.offsets]
        self.rows = T.alloc_shared((slots, TOKENS, 4), "float32")  # coef, and h_pre of the program's streams
        self.right = [[T.alloc_shared((width, PANEL), "bfloat16") for _, width in self.parts] for _ in self.panels]
        self.dx = [T.alloc_shared((TOKENS, PANEL), "bfloat16") for _ in self.panels]

    def psis(self):
        """Register tensors of the transpose of psi, by panels and parts of left."""
        return [
            [fragment(f"psi_{p}_{r}", (PANEL, width)) for r, (_, width) in enumerate(self.psi_parts)]
            for p in range(len(self.panels))
        ]

    def outs(self, who):
        """Register tensors of a warp group's dx."""
        return [fragment(f"out_{who}_{p}", (TOKENS, PANEL)) for p in range(self.together)]

    def load_right(self, right, i0, d0, ready):
        for p, (i, d) in enumerate(self.panels):
            for q, (c, width) in enumerate(self.parts):
                emit(T.copy(right[c : c + width, i0 + i, d0 + d : d0 + d + PANEL], self.right[p][q]))
        emit(T.barrier_arrive(ready))

    def load(self, slot, t0, group, x, dh_in, left, coef, i0, d0, full):
        emit(T.copy(coef[group, t0 : t0 + TOKENS, 0:4], self.rows[slot, :, :]))
        for q, (c, width) in enumerate(self.parts):
            emit(T.copy(left[t0 : t0 + TOKENS, c : c + width], self.left[q][slot, :, :]))
        for p, (i, d) in enumerate(self.panels):
            emit(T.copy(x[t0 : t0 + TOKENS, i0 + i, d0 + d : d0 + d + PANEL], self.x[p][slot, :, :]))
        for q, offset in enumerate(self.offsets):
            for strip in range(PANEL // STRIP):
                d = d0 + offset + strip * STRIP
                emit(T.copy(dh_in[t0 : t0 + TOKENS, d : d + STRIP], self.dh_in[q][slot, strip, :, :]))
        emit(T.barrier_arrive(full[slot]))

    @property
    def together(self):
        """Panels whose products run in one batch: two, or of three one at a time, whose sums fit in a thread's registers."""
        return 2 if len(self.panels) == 2 else 1

    def add_psi(self, slot, psis, empty):
        # one batch of products, of whose sums nothing is touched before all have ended
        last = len(self.panels) - 1, len(self.psi_parts) - 1
        for p in range(len(self.panels)):
            for r in range(len(self.psi_parts)):
                wait = 0 if (p, r) == last else -1
                emit(T.gemm(self.x[p][slot, :, :], self.left[r][slot, :, :], psis[p][r], transpose_A=True, wg_wait=wait))
        emit(T.barrier_arrive(empty[slot]))

    def compute(self, slot, panels, outs, empty):
        for p in panels:
            out = outs[p % self.together]
            start(out, self.x[p], self.dh_in[self.offsets.index(self.panels[p][1])], self.rows, slot, self.panels[p][0])
        for p in panels:
            for q in range(len(self.parts)):
                wait = 0 if p == panels[-1] and q == len(self.parts) - 1 else -1
                emit(T.gemm(self.left[q][slot, :, :], self.right[p][q], outs[p % self.together], wg_wait=wait))
        if panels[-1] == len(self.panels) - 1:
            emit(T.barrier_arrive(empty[slot]))

    def work(self, slot, outs, empty, free, parity, done):
        for first in range(0, len(self.panels), self.together):
            panels = range(first, first + self.together)
            self.compute(slot, panels, outs, empty)
            if first == 0:
                emit(T.barrier_wait(free, parity))
            for p in panels:
                emit(T.copy(outs[p % self.together], self.dx[p]))
        emit(T.fence_proxy_async(), T.barrier_arrive(done))

    def store(self, t0, dx, i0, d0, free):
        for p, (i, d) in enumerate(self.panels):
            emit(T.copy(self.dx[p], dx[t0 : t0 + TOKENS, i0 + i, d0 + d : d0 + d + PANEL]))
        emit(T.barrier_arrive(free))

    def store_psi(self, psis, psi, part, i0, d0):
        for p, (i, d) in enumerate(self.panels):
            for r, (c, width) in enumerate(self.psi_parts):
                store(psis[p][r], psi, part, c, width, i0 + i, d0 + d)


@T.macro
def start(out, x_s, g_s, rows, slot, i):
    """out = h_pre * dh_in - coef * x, to which the products are added.

    h_pre and coef go through tensors of their own: of two elements of one tensor, in a loop that also casts, TileLang 0.1.8
    reads one and uses it twice.
    """
    h = T.alloc_fragment((TOKENS,), "float32")
    c = T.alloc_fragment((TOKENS,), "float32")
    for a in T.Parallel(TOKENS):
        h[a] = rows[slot, a, 1 + i]
    for a in T.Parallel(TOKENS):
        c[a] = rows[slot, a, 0]
    for a, b in T.Parallel(TOKENS, PANEL):
        out[a, b] = h[a] * T.cast(g_s[slot, b // STRIP, a, b % STRIP], "float32") - c[a] * T.cast(x_s[slot, a, b], "float32")


@T.macro
def store(acc, psi, part, m0, rows, i, d0):
    for a, b in T.Parallel(PANEL, rows):
        if m0 + b < psi.shape[1] and d0 + a < psi.shape[3]:
            psi[part, m0 + b, i, d0 + a] = acc[a, b]


def clear(fragments):
    emit(*(T.clear(fragment) for parts in fragments for fragment in parts))


@T.macro
def take_dx(tiles, who, count, outs, ready, full, empty, done, free):
    """A warp group's tiles of dx: every other one of its program's."""
    T.barrier_wait(ready, 0)
    for j in T.serial(T.ceildiv(count - who, 2)):
        k = 2 * j + who
        T.barrier_wait(full[k % tiles.slots], k // tiles.slots % 2)
        # before it leaves dx, the other group's last tile has been read: each waits for every one, so parities suffice
        tiles.work(k % tiles.slots, outs, empty, free[1 - who], (j + 1 + who) % 2, done[who])


@T.macro
def take_psi(tiles, count, split, psis, psi, i0, d0, full, empty):
    """psi of all tiles of a program."""
    clear(psis)
    for k in T.serial(count):
        T.barrier_wait(full[k % tiles.slots], k // tiles.slots % 2)
        tiles.add_psi(k % tiles.slots, psis, empty)
    tiles.store_psi(psis, psi, split, i0, d0)


@T.macro
def streams_tiles(x, dh_in, coef, left, right, dx, psi, *, n, C, PSI_ROWS, SLOTS):
    """dx, and psi [parts, PSI_ROWS, n, D] with a part for each of the programs that share a block of columns."""
    tiles = Tiles(n, C, PSI_ROWS, SLOTS)
    splits = psi.shape[0]
    with T.Kernel(T.ceildiv(x.shape[2], tiles.span), n // tiles.streams, splits, threads=512) as (bx, by, split):
        tiles.allocate()
        psis = tiles.psis()
        outs_0, outs_1 = tiles.outs(0), tiles.outs(1)
        full = T.alloc_barrier([32] * SLOTS)
        empty = T.alloc_barrier([256] * SLOTS)  # psi and dx of a tile have been made
        ready = T.alloc_barrier(32)
        done = T.alloc_barrier([128, 128])  # a group's tile of dx is in shared memory
        free = T.alloc_barrier([96, 96])  # and has been read from there
        tx = T.get_thread_binding()
        i0 = by * tiles.streams
        d0 = bx * tiles.span
        count = T.ceildiv(T.ceildiv(x.shape[0], TOKENS) - split, splits)
        # branches of one if: behind separate ones TileLang puts barriers of all threads, and the ring would stand still
        if tx >= 384:
            T.set_max_nreg(REGISTERS[1], 0)
            if tx < 416:
                T.pdl_sync()  # until here this kernel runs beside the one in front; the rest waits for what is loaded
                tiles.load_right(right, i0, d0, ready)
                for k in T.serial(count):
                    T.barrier_wait(empty[k % SLOTS], (k // SLOTS + 1) % 2)
                    tiles.load(k % SLOTS, (split + k * splits) * TOKENS, by, x, dh_in, left, coef, i0, d0, full)
            else:
                for k in T.serial(count):
                    T.barrier_wait(done[k % 2], k // 2 % 2)
                    tiles.store((split + k * splits) * TOKENS, dx, i0, d0, free[k % 2])
        elif tx >= 256:
            T.set_max_nreg(REGISTERS[0], 1)
            take_psi(tiles, count, split, psis, psi, i0, d0, full, empty)
        elif tx >= 128:
            T.set_max_nreg(REGISTERS[0], 1)
            take_dx(tiles, 1, count, outs_1, ready, full, empty, done, free)
        else:
            T.set_max_nreg(REGISTERS[0], 1)
            take_dx(tiles, 0, count, outs_0, ready, full, empty, done, free)


def streams(*, n: int, columns: int, terms: int, unroll: int, slots: int, rows: int, width: int):
    """The whole backward for bfloat16 x, n at most 4, D a multiple of 8, on sm_90. columns: of left (C)."""
    M, C, V, F, dtype = n * n + 2 * n, columns, 8, "float32", "bfloat16"
    N, Dv, programs, parts = (T.dynamic(name) for name in ("N", "Dv", "programs", "parts"))
    PSI_ROWS = terms * (-(-M // 8) * 8)
    few = panels_of(n)[1]

    scratch = {
        "left": T.Tensor((N, C), "bfloat16"),
        "coef": T.Tensor((n // few, N, 4), F),
        "sums": T.Tensor((programs, M + 3), F),
        "right": T.Tensor((C, n, Dv, V), "bfloat16"),
        "right_flat": T.Tensor((C, n, Dv * V), "bfloat16"),
        "psi": T.Tensor((parts, PSI_ROWS, n, Dv * V), F),
    }

    @T.macro
    def stages_of(a):
        gates_and_weights(a, n=n, V=V, U=unroll, C=C, P=0, STREAMS=few)
        streams_tiles(
            *(a.x_flat, a.dh_in_flat, a.coef, a.left, a.right_flat, a.dx, a.psi),
            **{"n": n, "C": C, "PSI_ROWS": PSI_ROWS, "SLOTS": slots},
        )
        parameters(a, n=n, V=V, X_TERMS=1, OVERLAP=True, ROWS=rows, COLUMNS=width)

    return function("backward", backward_parameters(N, n, Dv, V, dtype, scratch), stages_of)
