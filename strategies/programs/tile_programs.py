"""Draws programs of tile operations: parts are copied in, computed with by all threads of a block, and copied out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mhc.programs import grammar
from mhc.programs.grammar import (
    AtomicAdd,
    Binary,
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    Load,
    Program,
    Reduce,
    Scan,
    Select,
    Statement,
    Store,
    Unary,
    Var,
    range_of,
)
from mhc.programs.tiles import GEMM_DTYPES
from mhc.strategies.programs.expressions import Expressions
from mhc.strategies.programs.indices import Draw, Scope

_THREADS = (32, 128, 64, 96, 256)
_SIZES = (4, 1, 2, 3, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 48, 64, 65)
_MOST = 700  # elements of a tile, which the evaluator takes one by one
_LIMIT = {"float16": 100, "float32": 60_000, "float64": 60_000}
_DTYPES = ("float32", "int32", "float16", "int8", "uint8", "int16", "int64", "uint32", "float64")
_LETTERS = "ijkl"


@dataclass(frozen=True)
class _Tile:
    """A temporary buffer that is filled, and the interval of its values."""

    buffer: Buffer
    low: int
    high: int

    @property
    def most(self) -> int:
        return max(abs(self.low), abs(self.high))


@dataclass
class _Parts:
    """What is drawn so far."""

    buffers: list[Buffer] = field(default_factory=list)
    body: list[Statement] = field(default_factory=list)


def draw_tiles(draw: Draw, configs: Sequence[str]) -> Program:
    """Draw one program."""
    return _Tiles(draw).program(configs)


class _Tiles:
    """Draws one program of tile operations."""

    def __init__(self, draw: Draw) -> None:
        self._expressions = Expressions(draw, Scope(dtypes=_DTYPES))
        self._pick, self._integer = self._expressions.pick, self._expressions.integer
        self._parts = _Parts()
        self._grid = 1
        self._threads: tuple[int, ...] = _THREADS
        self._tile_size = 1  # of a block's part along the first axis

    def program(self, configs: Sequence[str]) -> Program:
        """Draw all of it."""
        if self._pick(False, False, True):
            self._product()
        else:
            self._grid = self._pick(1, 1, 2, 3)
            tile = self._load_part()
            for _ in range(self._pick(1, 0, 2, 3, 4)):
                tile = self._step(tile)
            self._store(tile)
        return Program(
            buffers=tuple(self._parts.buffers),
            body=tuple(self._parts.body),
            grid=(self._grid,),
            threads=self._pick(*self._threads),
            seed=self._integer(0, 999),
            configs={name: True for name in configs if self._pick(False, True)},
        )

    # --- in and out

    def _load_part(self) -> _Tile:
        dtype = self._pick(*_DTYPES)
        shape = self._shape()
        whole = (shape[0] * self._grid - self._tail(shape[0]), *shape[1:])
        least, most = range_of(dtype) if dtype in grammar.INTEGERS else (-_LIMIT[dtype], _LIMIT[dtype])
        widest = self._pick(9, 8, 1000)
        least, most = max(-widest, least), min(widest, most)
        x = self._buffer("x", whole, dtype, least=least, most=most)
        scope = self._pick("shared", "fragment")
        wider, begins = shape, (0,) * len(shape)
        if scope == "shared" and self._pick(False, False, True):  # the rest of the tile was set before
            wider = tuple(size + self._pick(0, 2, 1) for size in shape)
            begins = tuple(self._begin(one - size) for one, size in zip(wider, shape, strict=True))
        tile = self._new(wider, dtype, scope)
        if wider != shape:
            self._parts.body.append(Fill(tile.name, self._const(1, dtype)))
        self._tile_size = shape[0]
        self._copy(x, self._places(x), tile, begins, shape)
        return _Tile(tile, min(0, least), most)

    def _shape(self) -> tuple[int, ...]:
        rank = self._pick(2, 1, 2, 3)
        shape: tuple[int, ...] = ()
        for _ in range(rank):
            room = _MOST
            for one in shape:
                room //= one
            shape = (*shape, self._pick(*(one for one in _SIZES if one <= room)))
        return shape

    def _tail(self, size: int) -> int:
        """Draw by how much the last tile reaches over the end."""
        return self._pick(0, 0, self._integer(0, size - 1))  # type: ignore[no-any-return]

    def _places(self, buffer: Buffer) -> tuple[int | Expr, ...]:
        """Return where a block's part of a parameter begins."""
        rest = (0,) * (len(buffer.shape) - 1)
        size = self._tile_size
        return (Binary("*", Var("bx"), Const(size)) if self._grid > 1 else 0, *rest)

    def _store(self, tile: _Tile) -> None:
        one = tile.buffer
        self._tile_size = one.shape[0]
        whole = (one.shape[0] * self._grid - self._tail(one.shape[0]), *one.shape[1:])
        how = self._pick("copy", "copy", "loop", "atomic")
        if how == "copy":
            y = self._buffer("y", whole, one.dtype, written=True)
            self._copy(one, (0,) * len(one.shape), y, self._places(y), one.shape)
            return
        at = self._at(one.shape)
        if how == "loop":
            y = self._buffer("y", (one.shape[0] * self._grid, *one.shape[1:]), one.dtype, written=True)
            first: Expr = Binary("+", Binary("*", Var("bx"), Const(one.shape[0])), at[0]) if self._grid > 1 else at[0]
            self._parallel(one.shape, Store("y", (first, *at[1:]), Load(one.name, at)))
            return
        dtype = "int32" if one.dtype in grammar.INTEGERS else "float32"
        count = self._pick(1, 2, 3, 5, 8)
        self._buffer("y", (count,), dtype, written=True, zeroed=True)
        value: Expr = Load(one.name, at)
        value = value if one.dtype == dtype else Cast(dtype, value)
        self._parallel(one.shape, AtomicAdd("y", (Binary("%", at[-1], Const(count)),), value))

    def _copy(self, source: Buffer, at: Any, target: Buffer, to: Any, extents: tuple[int, ...]) -> None:
        copied = Copy(source=source.name, source_at=tuple(at), target=target.name, target_at=tuple(to), extents=extents)
        self._parts.body.append(copied)

    # --- steps

    def _step(self, tile: _Tile) -> _Tile:
        match self._pick("reduce", "loop", "copy", "scan", "part", "normalise"):
            case "reduce":
                return self._reduce(tile)
            case "loop":
                return self._loop(tile)
            case "scan":
                return self._scan(tile)
            case "part":
                return self._part(tile)
            case "normalise":
                return self._normalise(tile)
        one = tile.buffer
        fitting = [dtype for dtype in _DTYPES if self._holds(dtype, tile.low, tile.high)]
        other = self._new(one.shape, self._pick(one.dtype, *fitting), self._pick("fragment", "shared"))
        self._copy(one, (0,) * len(one.shape), other, (0,) * len(one.shape), one.shape)
        return _Tile(other, tile.low, tile.high)

    def _holds(self, dtype: str, low: int, high: int) -> bool:
        limit = _LIMIT.get(dtype)
        least, most = (-limit, limit) if limit is not None else range_of(dtype)
        return least <= low and high <= most

    def _reduce(self, tile: _Tile) -> _Tile:
        one, axis = tile.buffer, self._integer(0, len(tile.buffer.shape) - 1)
        count = one.shape[axis]
        ops = ["max", "min"]
        sums = self._holds(one.dtype, min(tile.low * count, -tile.most if tile.low < 0 else 0), tile.most * count)
        if sums:
            ops = ["sum", *ops, "sum"]
        if one.dtype not in grammar.UNSIGNED and self._holds(one.dtype, -tile.most, tile.most):
            ops += ["absmax", *(["abssum"] if sums else [])]
        op = self._pick(*ops)
        rest = (*one.shape[:axis], *one.shape[axis + 1 :]) or (1,)
        if self._pick(False, False, True):
            rest = (*one.shape[:axis], 1, *one.shape[axis + 1 :])
        into = self._new(rest, one.dtype, self._pick("fragment", "fragment", "shared"))
        low, high = {
            "sum": (min(0, tile.low * count), max(0, tile.high * count)),
            "abssum": (0, tile.most * count),
            "absmax": (0, tile.most),
        }.get(op, (tile.low, tile.high))
        clear = True
        if not op.startswith("abs") and self._pick(False, True):
            start = self._integer(-3, 3) if one.dtype not in grammar.UNSIGNED else self._integer(0, 3)
            if self._holds(one.dtype, low + min(0, start), high + max(0, start)):
                self._parts.body.append(Fill(into.name, self._const(start, one.dtype)))
                clear, low, high = False, low + min(0, start), high + max(0, start)
        self._parts.body.append(Reduce(op=op, source=one.name, target=into.name, axis=axis, clear=clear))
        return _Tile(into, low, high)

    def _scan(self, tile: _Tile) -> _Tile:
        one, axis = tile.buffer, self._integer(0, len(tile.buffer.shape) - 1)
        count = one.shape[axis]
        if not self._holds(one.dtype, min(0, tile.low * count), tile.most * count) or len(one.shape) > 2:
            return tile
        into = one if self._pick(False, True) else self._new(one.shape, one.dtype, one.scope)
        self._parts.body.append(Scan(source=one.name, target=into.name, axis=axis, reverse=self._pick(False, True)))
        return _Tile(into, min(0, tile.low * count), max(0, tile.high * count))

    def _loop(self, tile: _Tile) -> _Tile:
        """Draw a parallel loop over a tile that makes another one, or changes it."""
        one, at = tile.buffer, self._at(tile.buffer.shape)
        into = one if self._pick(False, True) else self._new(one.shape, one.dtype, self._pick("fragment", "shared"))
        value, low, high = self._changed(Load(one.name, at), tile, at)
        if into is not one and one.scope == "shared" and self._pick(False, True):  # from elsewhere in shared memory
            moved = tuple(self._moved(index, size) for index, size in zip(at, one.shape, strict=True))
            value, low, high = Load(one.name, moved), tile.low, tile.high
        self._parallel(one.shape, Store(into.name, at, value))
        return _Tile(into, low, high)

    def _moved(self, index: Expr, size: int) -> Expr:
        match self._pick("same", "reversed", "rotated", "scaled"):
            case "reversed":
                return Binary("-", Const(size - 1), index)
            case "rotated":
                return Binary("%", Binary("+", index, Const(self._integer(1, 9))), Const(size))
            case "scaled":
                return Binary("%", Binary("*", index, Const(self._pick(2, 3, 5))), Const(size))
        return index

    def _changed(self, load: Expr, tile: _Tile, at: Sequence[Expr]) -> tuple[Expr, int, int]:
        """Return a load with an operation, and the interval of its values."""
        dtype, c = tile.buffer.dtype, self._integer(1, 3)
        const = self._const(c, dtype)
        signed = dtype not in grammar.UNSIGNED
        options: list[tuple[Expr, int, int]] = [
            (Binary("max", load, const), max(tile.low, c), max(tile.high, c)),
            (Binary("min", load, const), min(tile.low, c), min(tile.high, c)),
        ]
        grown = (
            (Binary("+", load, const), tile.low + c, tile.high + c),
            (Binary("*", load, const), tile.low * c, tile.high * c),
        )
        options += [
            one
            for one in grown
            if self._holds(dtype, one[1], one[2]) and self._holds(dtype, -one[2], one[2] if signed else 0)
        ]
        if signed and self._holds(dtype, -tile.high, -tile.low):
            options += [(Unary("abs", load), 0, tile.most), (Unary("-", load), -tile.high, -tile.low)]
        even = Binary("==", Binary("%", at[-1], Const(self._pick(2, 3))), Const(0))
        options.append((Select(even, load, self._const(0, dtype)), min(0, tile.low), max(0, tile.high)))
        return self._pick(*options)  # type: ignore[no-any-return]

    def _part(self, tile: _Tile) -> _Tile:
        """Copy a part of shared memory to a smaller tile, or change a part of it in place."""
        one = tile.buffer
        if one.scope != "shared":
            return self._loop(tile)
        extents = tuple(self._integer(1, size) for size in one.shape)
        begins = tuple(self._begin(size - extent) for size, extent in zip(one.shape, extents, strict=True))
        other = self._new(extents, one.dtype, self._pick("shared", "fragment"))
        self._copy(one, begins, other, (0,) * len(extents), extents)
        if self._pick(False, True):
            return _Tile(other, tile.low, tile.high)
        at = self._at(extents)
        value, low, high = self._changed(Load(other.name, at), tile, at)
        self._parallel(extents, Store(other.name, at, value))
        self._copy(other, (0,) * len(extents), one, begins, extents)
        return _Tile(one, min(low, tile.low), max(high, tile.high))

    def _begin(self, last: int) -> int:
        """Draw where a part begins: at 0, where it ends at the end, or anywhere."""
        return self._pick(0, last, self._integer(0, last))  # type: ignore[no-any-return]

    def _normalise(self, tile: _Tile) -> _Tile:
        """Reduce the last axis, and combine the result with every element of its line, as a softmax does."""
        one = tile.buffer
        if len(one.shape) < 2 or not self._holds(one.dtype, -tile.most, 2 * tile.most):
            return self._reduce(tile)
        if one.dtype in grammar.UNSIGNED:
            return self._reduce(tile)
        axis = self._pick(len(one.shape) - 1, *range(len(one.shape)))
        line = self._new((*one.shape[:axis], *one.shape[axis + 1 :]), one.dtype, "fragment")
        self._parts.body.append(Reduce(op="max", source=one.name, target=line.name, axis=axis))
        at = self._at(one.shape)
        into = self._new(one.shape, one.dtype, self._pick("fragment", "shared"))
        value = Binary("-", Load(line.name, (*at[:axis], *at[axis + 1 :])), Load(one.name, at))
        self._parallel(one.shape, Store(into.name, at, value))
        return _Tile(into, 0, 2 * tile.most)

    # --- products

    def _product(self) -> None:
        """Draw c = a @ b, over the tiles of k, with sizes that are no multiples of the tiles'."""
        m, n, k = self._pick(16, 32, 64, 48, 80, 128), self._pick(16, 8, 24, 32, 40, 48), self._pick(16, 32, 48)
        dtype, wide = self._pick(*GEMM_DTYPES)
        k = 64 if dtype == "int8" and k == 48 else max(k, 32) if dtype == "int8" else k
        self._threads = tuple(one for one in _THREADS if _is_divisible(m, n, one // 32))
        count = self._pick(1, 2, 3)
        flip_a, flip_b = self._pick(False, True), self._pick(False, True)
        short = [self._tail(size) for size in (m, n, k)]
        a_whole, b_whole = (m - short[0], k * count - short[2]), (k * count - short[2], n - short[1])
        most, other = (2 if wide == "float16" else 4), 1
        if dtype == "int8":
            most, other = self._pick((4, 1), (127, 127))
        self._buffer("x", a_whole[:: -1 if flip_a else 1], dtype, least=-most, most=most)
        self._buffer("w", b_whole[:: -1 if flip_b else 1], dtype, least=-other, most=other)
        a = self._new((k, m) if flip_a else (m, k), dtype, "shared")
        b = self._new((n, k) if flip_b else (k, n), dtype, "shared")
        c = self._new((m, n), wide, "fragment")
        clear = self._pick(False, False, False, True)
        if not clear or self._pick(False, True):
            self._parts.body.append(Fill(c.name, self._const(0, wide)))
        step: Expr = Binary("*", Var("k"), Const(k))
        copies = (
            Copy(source="x", source_at=(step, 0) if flip_a else (0, step), target=a.name, target_at=(0, 0), extents=a.shape),
            Copy(source="w", source_at=(0, step) if flip_b else (step, 0), target=b.name, target_at=(0, 0), extents=b.shape),
        )
        product = Gemm(a=a.name, b=b.name, c=c.name, transpose_a=flip_a, transpose_b=flip_b, clear=clear)
        kind = self._pick("Pipelined", "serial")
        stages = self._pick(0, 1, 2, 3) if kind == "Pipelined" else 0
        loop = For(kind=kind, var="k", extent=count, body=(*copies, product), stages=stages)
        self._parts.body.append(loop)
        tile = _Tile(c, -most * other * k * count, most * other * k * count)
        self._store(self._step(tile) if self._pick(False, True) and self._holds(wide, tile.low, tile.high) else tile)

    # --- helpers

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: str, **more: Any) -> Buffer:
        one = Buffer(name, shape, dtype, **more)
        self._parts.buffers.append(one)
        return one

    def _new(self, shape: tuple[int, ...], dtype: str, scope: str) -> Buffer:
        return self._buffer(f"{scope[0]}{len(self._parts.buffers)}", shape, dtype, scope=scope)

    def _at(self, shape: Sequence[int]) -> tuple[Expr, ...]:
        return tuple(Var(one) for one in _LETTERS[: len(shape)])

    def _parallel(self, shape: Sequence[int], statement: Statement) -> None:
        for name, size in reversed(list(zip(_LETTERS, shape, strict=False))):
            statement = For(kind="Parallel", var=name, extent=size, body=(statement,))
        self._parts.body.append(statement)

    def _const(self, value: int, dtype: str) -> Const:
        return Const(float(value) if dtype in grammar.FLOATS else value, dtype)


def _is_divisible(m: int, n: int, warps: int) -> bool:
    """Return whether warps can share a product: each takes a multiple of 16 rows and of 8 columns."""
    return any(warps % rows == 0 and m % (16 * rows) == 0 and n % (8 * warps // rows) == 0 for rows in range(1, warps + 1))
