"""Draws statements of a Triton program: operations on values that are there, loops and branches."""

import math

import numpy as np

from mhc.programs.grammar import INTEGERS, SIGNED, bits_of, range_of
from mhc.programs.known import is_before
from mhc.programs.triton.grammar import BINARY, COMBINES, COMPARISONS, FLOATS, Carry, For, If
from mhc.programs.triton.values import Value, value
from mhc.strategies.programs.triton_blocks import ITERATIONS, Blocks

_ANY = (*INTEGERS, *FLOATS)


class Operations:
    """Draws statements into a program."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks

    def statement(self, depth: int) -> None:
        """Draw a statement; where it has no one meaning, nothing is added."""
        kinds = [self._binary, self._unary, self._select, self._shape, self._reduction, self._scan, self._order, self._cast]
        kinds += [self._binary, self._shape, self._reduction]
        if depth < 2:
            kinds += [lambda: self._loop(depth), lambda: self._branch(depth)]
        if depth == 0 and self._blocks.pick(False, False, False, True):
            kinds += [self._products]
        self._blocks.pick(*kinds)()

    def _like(self, one: Value, *, broadcast: bool = True) -> str:
        """Return another value of the same dtype that goes together with one: a drawn one, or a constant."""
        blocks = self._blocks
        if blocks.pick(True, True, False):
            found = blocks.chosen(
                lambda other: other.dtype == one.dtype and (other.shape == one.shape or (broadcast and _fit(one, other)))
            )
            if found is not None:
                return found
        if blocks.pick(True, False):
            found = blocks.chosen(lambda other: other.shape == one.shape and other.dtype != one.dtype)
            if found is not None and one.dtype != "bool":
                cast = blocks.op("cast", found, dtype=one.dtype)
                if cast is not None:
                    return cast
        return blocks.full(one, self._number(one.dtype), shape=() if broadcast and blocks.pick(False, True) else one.shape)

    def _number(self, dtype: str) -> float:
        blocks = self._blocks
        if dtype == "bool":
            return int(blocks.pick(True, False))
        if dtype in FLOATS:
            return float(blocks.pick(1.0, 0.0, 2.0, 0.5, -1.0, -0.5, 3.0))
        least, most = range_of(dtype)
        return int(
            blocks.pick(1, 0, 2, 3, 7, 5, 8, *((-1, -3) if dtype in SIGNED else ()), most, least, blocks.integer(0, 127))
        )

    def _binary(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: True)
        if a is None:
            return
        one = blocks.value(a)
        ops: tuple[str, ...] = BINARY
        if one.dtype == "bool":
            ops = ("and", "or", "xor")
        elif one.dtype in FLOATS:
            ops = ("add", "sub", "mul", "minimum", "maximum")
        op = blocks.pick(*ops)
        b = self._like(one)
        if op in {"shl", "shr"} and blocks.pick(True, True, False):
            b = blocks.full(one, blocks.integer(0, bits_of(one.dtype) - 1))
        if op in {"floordiv", "mod"} and not blocks.value(b).data.all():
            b = blocks.must("or", b, blocks.full(blocks.value(b), 1))
        left, right = (b, a) if blocks.pick(False, False, True) else (a, b)
        blocks.op(op, left, right)

    def _unary(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype != "bool" or blocks.kind != "")
        if a is None:
            return
        dtype = blocks.value(a).dtype
        ops = ("neg", "abs", "floor", "ceil") if dtype in FLOATS else ("neg", "abs", "invert")
        blocks.op("invert" if dtype == "bool" else blocks.pick(*ops), a)

    def _cast(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: True)
        if a is None:
            return
        dtype = blocks.value(a).dtype
        alike = [one for one in _ANY if dtype not in {one, "bool"} and bits_of(one) == bits_of(dtype)]
        if alike and blocks.pick(False, True):
            blocks.op("bitcast", a, dtype=blocks.pick(*alike))
        else:
            blocks.op("cast", a, dtype=blocks.pick("int32", *(one for one in (*_ANY, "bool") if one != dtype)))

    def _condition(self, shape: tuple[int, ...]) -> str | None:
        """Return a bool of a shape."""
        blocks = self._blocks
        if blocks.pick(False, True):
            found = blocks.chosen(lambda one: one.dtype == "bool" and one.shape == shape)
            if found is not None:
                return found
        a = blocks.chosen(lambda one: one.dtype != "bool" and one.shape == shape)
        if a is None:
            return None
        return blocks.op(blocks.pick(*COMPARISONS), a, self._like(blocks.value(a)))

    def _one_condition(self) -> str | None:
        """Return a bool of one element."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype != "bool" and not one.shape)
        if a is None or blocks.pick(False, True):
            a = blocks.chosen(lambda one: one.dtype in INTEGERS and len(one.shape) > 0)
            a = a and blocks.op(blocks.pick("max", "min", "xor_sum"), a, axis=-1)
        if a is None:
            return None
        return blocks.op(blocks.pick(*COMPARISONS), a, blocks.full(blocks.value(a), self._number(blocks.value(a).dtype)))

    def _select(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: True)
        if a is None:
            return
        one = blocks.value(a)
        if one.dtype in {"float32", "float64"} and blocks.pick(False, True):
            blocks.op("fma", a, self._like(one, broadcast=False), self._like(one, broadcast=False))
            return
        if one.dtype in FLOATS and blocks.pick(False, True):
            low, high = sorted((self._number(one.dtype), self._number(one.dtype)))
            blocks.op("clamp", a, blocks.full(one, low), blocks.full(one, high))
            return
        condition = self._condition(one.shape)
        if condition is not None and blocks.value(condition).shape == one.shape:
            blocks.op("where", condition, a, self._like(one, broadcast=False))

    def _shape(self) -> None:
        blocks = self._blocks
        a = (
            blocks.chosen(lambda one: len(one.shape) > 0)
            if blocks.pick(True, True, False)
            else blocks.chosen(lambda one: True)
        )
        if a is None:
            return
        one = blocks.value(a)
        rank, size = len(one.shape), one.data.size
        axis = blocks.integer(0, max(0, rank - 1))
        options = ["expand_dims"] if rank < 3 else []
        if rank:
            options += ["reshape", "flip", "interleave", "ravel", "broadcast_to"]
        if rank and not is_before(blocks.release, "3.7.0"):
            options += ["cat"]
        if rank > 1:
            options += ["permute"] * 4
        if rank < 3 and size <= 128:
            options += ["join"]
        if rank and one.shape[-1] == 2:
            options += ["split", "split"]
        if not rank:
            options += ["broadcast_to"]
        match blocks.pick(*options):
            case "reshape":
                blocks.op("reshape", a, shape=self._factors(size))
            case "permute":
                axes = list(range(rank))
                order = tuple(reversed(axes)) if rank == 2 or blocks.pick(True, False) else (*axes[1:], 0)
                blocks.op("permute", a, axes=order)
            case "expand_dims":
                blocks.op("expand_dims", a, axis=blocks.integer(0, rank))
            case "broadcast_to":
                wide = (
                    tuple(blocks.pick(2, 4) if extent == 1 else extent for extent in one.shape) if rank else self._factors(8)
                )
                blocks.op("broadcast_to", a, shape=wide)
            case "split":
                blocks.op("split", a, value=blocks.pick(0, 1))
            case "cat":
                blocks.op("cat", a, self._like(one, broadcast=False), axis=axis)
            case "flip":
                blocks.op("flip", a, axis=axis)
            case "ravel":
                blocks.op("ravel", a)
            case op:
                blocks.op(op, a, self._like(one, broadcast=False))

    def _factors(self, size: int) -> tuple[int, ...]:
        """Draw a shape of so many elements, a power of two."""
        blocks = self._blocks
        first = 2 ** blocks.integer(0, int(math.log2(size)))
        rest = size // first
        if blocks.pick(True, False) or rest == 1:
            return (first, rest) if blocks.pick(True, False) else (size,)
        second = 2 ** blocks.integer(0, int(math.log2(rest)))
        return first, second, rest // second

    def _reduction(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: len(one.shape) > 0 and one.dtype != "bool")
        if a is None:
            return
        one = blocks.value(a)
        axis = blocks.integer(0, len(one.shape) - 1)
        op = blocks.pick("sum", "max", "min", "xor_sum", "reduce_or", "argmax", "argmin", "reduce")
        axis = -1 if op not in {"argmax", "argmin"} and blocks.pick(False, False, True) else axis
        combines = ("add", "min", "max") if one.dtype in FLOATS else COMBINES[:-2]
        combine = blocks.pick(*combines) if op == "reduce" else "add"
        blocks.op(op, a, axis=axis, flag=blocks.pick(False, True), combine=combine)

    def _scan(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: len(one.shape) > 0 and one.dtype != "bool")
        if a is None:
            return
        one = blocks.value(a)
        op = blocks.pick("cumsum", "cumprod", "associative_scan")
        combines = ("add", "min", "max", "left", "right") if one.dtype in FLOATS else COMBINES
        combine = blocks.pick(*combines) if op == "associative_scan" else "add"
        axis = blocks.integer(0, len(one.shape) - 1)
        blocks.op(op, a, axis=axis, flag=blocks.pick(False, True), combine=combine)

    def _order(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: len(one.shape) > 0 and one.dtype != "bool" and one.data.size <= 256)
        if a is None:
            return
        one = blocks.value(a)
        match blocks.pick("sort", "topk", "gather", "histogram"):
            case "sort":
                blocks.op("sort", a, flag=blocks.pick(False, True))
            case "topk":
                blocks.op("topk", a, value=2 ** blocks.integer(0, int(math.log2(one.shape[-1]))))
            case "gather":
                axis = blocks.integer(0, len(one.shape) - 1)
                self._gather(a, one, axis)
            case "histogram":
                flat = blocks.chosen(lambda other: other.dtype == "int32" and len(other.shape) == 1)
                if flat is not None:
                    bins = blocks.pick(4, 8, 2, 16)
                    small = blocks.must("and", flat, blocks.full(None, bins - 1))
                    blocks.op("histogram", small, value=bins)

    def _gather(self, a: str, one: Value, axis: int) -> None:
        blocks = self._blocks
        index = blocks.chosen(lambda other: other.dtype == "int32" and other.shape == one.shape)
        if index is None:
            return
        inside = blocks.must("and", index, blocks.full(None, one.shape[axis] - 1))
        blocks.op("gather", a, inside, axis=axis)

    # --- bodies

    def _carried(self) -> list[str]:
        """Draw what a loop or a branch starts with: values of different names."""
        blocks = self._blocks
        starts = [blocks.chosen(lambda one: True) for _ in range(blocks.pick(1, 2))]
        return list(dict.fromkeys(one for one in starts if one is not None))

    def _loop(self, depth: int) -> None:
        blocks = self._blocks
        starts = self._carried()
        if not starts:
            return
        begin, step = blocks.pick((0, 1), (0, 1), (1, 1), (0, 2))
        iterations = blocks.integer(1, ITERATIONS)
        kind = blocks.pick("range", "tl.range", "tl.static_range")
        stages = blocks.pick(0, 2, 3, 4) if kind == "tl.range" else 0
        bound = None
        end = begin + step * iterations
        if kind != "tl.static_range" and blocks.pick(False, False, True):
            bound = self._bound(end)
        var, names = blocks.name(), [blocks.name() for _ in starts]
        first = value("int32", np.int32(begin))
        kept = blocks.enter({var: first, **dict(zip(names, starts, strict=True))})
        before = set(blocks.pool)
        self._in_loop(var)
        for _ in range(blocks.integer(0, 3)):
            self.statement(depth + 1)
        carried = tuple(self._pass_on(name, start, before) for name, start in zip(names, starts, strict=True))
        body = blocks.leave(kept)
        if not body:
            return
        loop = For(var, end, body, begin=begin, step=step, carried=carried, kind=kind, stages=stages, bound=bound)
        if blocks.add(loop):
            blocks.pool += names

    def _bound(self, end: int) -> str | None:
        """Return a number that Triton does not know when it compiles."""
        blocks = self._blocks
        name = blocks.input("int32", 1, end, end)
        return blocks.load_one(name)

    def _in_loop(self, var: str) -> None:
        """Load a block of an input that is another one in every iteration."""
        blocks = self._blocks
        one = blocks.pick(*blocks.inputs_so_far())
        size = one.size // (math.prod(blocks.grid) * ITERATIONS)
        shape = self._factors(size) if size > 1 and blocks.pick(False, True) else (max(size, 1),)
        if one.size < ITERATIONS or size & (size - 1):
            return
        index = blocks.index(shape)
        stride = blocks.must("mul", var, blocks.full(None, size * math.prod(blocks.grid)))
        loaded = blocks.load(one.name, shape, blocks.must("add", index, stride))
        if loaded is not None and blocks.pick(True, False):  # a second use
            like = blocks.chosen(lambda other: other.dtype == one.dtype and other.shape == shape)
            if like is not None:
                blocks.op(blocks.pick("add", "maximum"), loaded, like)

    def _pass_on(self, name: str, start: str, before: set[str]) -> Carry:
        """Return what is carried on: a value made in the body, or one made of it and of what was carried."""
        blocks = self._blocks
        one = blocks.value(start)
        made = [other for other in blocks.pool if other not in before and _same(blocks.value(other), one)]
        if made and blocks.pick(True, False):
            return Carry(name, start, str(blocks.pick(*reversed(made))))
        ops = (
            ("xor", "and", "or")
            if one.dtype == "bool"
            else ("add", "maximum")
            if one.dtype in FLOATS
            else ("add", "xor", "mul")
        )
        other = str(blocks.pick(*reversed(made))) if made else self._like(one)
        after = blocks.op(blocks.pick(*ops), name, other)
        return Carry(name, start, after if after is not None and _same(blocks.value(after), one) else name)

    def _branch(self, depth: int) -> None:
        blocks = self._blocks
        starts, condition = self._carried(), self._one_condition()
        if not starts or condition is None:
            return
        names = [blocks.name() for _ in starts]
        kept = blocks.enter(dict(zip(names, starts, strict=True)))
        before = set(blocks.pool)
        for _ in range(blocks.integer(1, 2)):
            self.statement(depth + 1)
        carried = tuple(self._pass_on(name, start, before) for name, start in zip(names, starts, strict=True))
        body = blocks.leave(kept)
        if body and blocks.add(If(condition, body, carried)):
            blocks.pool += names

    def _products(self) -> None:
        """Draw a product of matrices, sometimes summed up by a loop in which its factors are used twice."""
        blocks = self._blocks
        dtype = blocks.pick("float16", "float32", "int8")
        m, n, k = blocks.pick(16, 32), blocks.pick(16, 32), 32 if dtype == "int8" else blocks.pick(16, 32)
        wide = "int32" if dtype == "int8" else "float32"
        tf32 = dtype == "float32" and blocks.pick(False, True)
        blocks_of = math.prod(blocks.grid)
        if len(blocks.inputs_so_far()) > 2:
            return
        a = blocks.input(dtype, m * k * blocks_of * ITERATIONS, -4, 4)
        b = blocks.input(dtype, k * n * blocks_of * ITERATIONS, -4, 4)
        total = blocks.full(None, 0, wide, (m, n))
        iterations, kind = blocks.integer(1, ITERATIONS), blocks.pick("range", "tl.range")
        var, name, more = blocks.name(), blocks.name(), blocks.name()
        extra = blocks.full(None, 0, dtype, (m, k))
        kept = blocks.enter({var: value("int32", np.int32(0)), name: total, more: extra})
        one = self._tile(a, (m, k), var)
        two = self._tile(b, (k, n), var)
        after = blocks.op("dot", one, two, name, flag=tf32)
        twice = blocks.op(blocks.pick("add", "maximum"), more, one) if blocks.pick(True, False) else more
        body = blocks.leave(kept)
        if after is None or twice is None:
            return
        carried = (Carry(name, total, after), Carry(more, extra, twice))
        if blocks.add(
            For(var, iterations, body, carried=carried, kind=kind, stages=blocks.pick(0, 2, 3) if kind != "range" else 0)
        ):
            blocks.pool += [more, name]

    def _tile(self, buffer: str, shape: tuple[int, int], var: str) -> str:
        blocks = self._blocks
        size = math.prod(shape)
        stride = blocks.must("mul", var, blocks.full(None, size * math.prod(blocks.grid)))
        loaded = blocks.load(buffer, shape, blocks.must("add", blocks.index(shape), stride))
        assert loaded is not None
        return loaded


def _same(a: Value, b: Value) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape


def _fit(a: Value, b: Value) -> bool:
    """Return whether two blocks broadcast to a block that is not too large."""
    try:
        return math.prod(np.broadcast_shapes(a.shape, b.shape)) <= 1024
    except ValueError:
        return False
