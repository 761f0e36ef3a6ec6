"""Draws operations of a Triton program on values that are there."""

import math
from collections.abc import Callable

from mhc.programs.grammar import INTEGERS, SIGNED, bits_of, range_of
from mhc.programs.known import is_before
from mhc.programs.triton.grammar import BINARY, COMPARISONS, FLOATS
from mhc.programs.triton.values import Value
from mhc.strategies.programs.triton_begun import fit
from mhc.strategies.programs.triton_updates import UpdatedBlocks

_ANY = (*INTEGERS, *FLOATS)
_BITS = ("and", "or", "xor")
_IN_ANY_ORDER = ("add", "mul", "and", "or", "xor", "min", "max")


class Operations:
    """Draws operations into a program."""

    def __init__(self, blocks: UpdatedBlocks) -> None:
        self._blocks = blocks
        self._numbers: list[str] = []  # the indices of the loops around

    def kinds(self) -> list[Callable[[], None]]:
        """Return what draws a statement without a body each; where it has no one meaning, it adds nothing."""
        kinds = [self._binary, self._unary, self._select, self._shape, self._reduction, self._scan, self._order, self._cast]
        kinds += [*kinds, *kinds, *[self._binary] * 4, self._shape, self._reduction, self._shape]
        return kinds if self._blocks.grid == (1,) else [*kinds, self._place]

    def _like(self, one: Value, *, broadcast: bool = True) -> str:
        """Return another value of the same dtype that goes together with one: a drawn one, or a constant."""
        blocks = self._blocks
        if blocks.pick(True, True, False):
            found = blocks.chosen(
                lambda other: other.dtype == one.dtype and (other.shape == one.shape or (broadcast and fit(one, other)))
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

    def _like_or_near(self, a: str, *, broadcast: bool = True) -> str:
        """Return what goes together with a value: now and then itself, or what differs little from it."""
        blocks, one = self._blocks, self._blocks.value(a)
        match blocks.pick(*["like"] * 10, "near", "near", "same"):
            case "same":
                return a
            case "near" if one.dtype != "bool":
                ops = ("add", "sub") if one.dtype in FLOATS else ("add", "sub", "xor")
                high = () if one.dtype in FLOATS else (1 << bits_of(one.dtype) // 2, 1 << bits_of(one.dtype) - 2)
                near = blocks.op(blocks.pick(*ops), a, value=blocks.pick(1, 4, 2, 8, *high), flag=True, keep=False)
                return near or a
        return self._like(one, broadcast=broadcast)

    def _number(self, dtype: str) -> float:
        blocks = self._blocks
        if dtype == "bool":
            return int(blocks.pick(True, False))
        if dtype in FLOATS:
            return float(blocks.pick(1.0, 0.0, 2.0, 0.5, -1.0, -0.5, 3.0))
        least, most = range_of(dtype)
        signs = (-1, -3, -4, least + 1) if dtype in SIGNED else (most // 2 + 1, most - 9)
        return int(blocks.pick(1, 0, 2, 3, 7, 4, 8, 16, 5, *signs, most, most - 1, least, blocks.integer(0, 127)))

    def _number_for(self, op: str, dtype: str) -> float:
        """Return a number that an operation most often allows as its second operand."""
        if op in {"shl", "shr"} and dtype in INTEGERS:
            return self._blocks.integer(0, bits_of(dtype) - 1)
        if op in {"floordiv", "mod"} and dtype in INTEGERS:
            return int(self._blocks.pick(4, 2, 8, 3, 7, 16, self._number(dtype) or 1))
        return self._number(dtype)

    def _around_0(self, a: str) -> str:
        """Return an integer block of which some elements are below 0, now and then, where it had none."""
        blocks, one = self._blocks, self._blocks.value(a)
        if one.dtype not in SIGNED or (one.data < 0).any() or blocks.pick(False, True):
            return a
        middle = int(one.data.reshape(-1)[one.data.size // 2])
        most = range_of(one.dtype)[1]
        return blocks.op("sub", a, value=min(most, blocks.pick(4, 8, middle, 100)), flag=True, keep=False) or a

    def _binary(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: True)
        if a is None:
            return
        one = blocks.value(a)
        ops: tuple[str, ...] = (*BINARY, *COMPARISONS)
        if one.dtype == "bool":
            ops = ("and", "or", "xor", *COMPARISONS)
        elif one.dtype in FLOATS:
            ops = ("add", "sub", "mul", "minimum", "maximum", *COMPARISONS)
        op = blocks.pick(*ops)
        if op in {"floordiv", "mod", "shr"}:
            a = self._around_0(a)
        beside = (False, True) if op in {"floordiv", "mod", "shl", "shr"} else (False, False, True)
        if one.dtype != "bool" and op not in {"minimum", "maximum", "umulhi"} and blocks.pick(*beside):
            blocks.op(op, a, value=self._number_for(op, one.dtype), flag=True, axis=blocks.pick(0, 0, 1))
            return
        b = self._like_or_near(a)
        if blocks.pick(*[False] * 4, True):  # operands of two dtypes
            b = blocks.chosen(lambda other: other.dtype != one.dtype and fit(one, other)) or b
            op = blocks.pick("add", "mul", "sub", op) if one.dtype == "bool" else op
        if op in {"shl", "shr"}:
            b = self._shift_of(one, b)
        if op in {"floordiv", "mod"} and not blocks.value(b).data.all():
            b = blocks.op("or", b, blocks.full(blocks.value(b), 1)) or b
        left, right = (b, a) if blocks.pick(False, False, True) else (a, b)
        blocks.op(op, left, right)

    def _shift_of(self, one: Value, b: str) -> str:
        """Return by how much is shifted: a number, or a value that is cut to what the dtype allows."""
        blocks, most = self._blocks, bits_of(one.dtype) - 1
        if blocks.value(b).dtype not in INTEGERS or blocks.pick(True, True, False):
            return blocks.full(one, blocks.integer(0, most), shape=blocks.pick(one.shape, ()))
        return blocks.must("and", b, blocks.full(blocks.value(b), most))

    def _place(self) -> None:
        """Draw a number of the block or of the grid, which is a value like others."""
        blocks = self._blocks
        blocks.op(blocks.pick("num_programs", "program_id"), axis=blocks.integer(0, len(blocks.grid) - 1))

    def _unary(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: True)
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
        dtypes = [one for one in _ANY if one != dtype and (blocks.brain or one != "bfloat16")]
        alike = [one for one in dtypes if dtype != "bool" and bits_of(one) == bits_of(dtype)]
        if alike and blocks.pick(False, True):
            blocks.op("bitcast", a, dtype=blocks.pick(*alike))
        else:
            blocks.op("cast", a, dtype=blocks.pick("int32", *dtypes, *(["bool"] if dtype != "bool" else [])))

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
        held = blocks.chosen(lambda one: one.dtype == "bool" and not one.shape) if blocks.pick(False, False, True) else None
        if held is not None:
            return held
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
        if blocks.pick(False, False, True):  # of a row, say
            condition = blocks.chosen(lambda other: other.dtype == "bool" and fit(one, other)) or condition
        if condition is None:
            return
        if one.dtype != "bool" and blocks.pick(False, False, True):
            blocks.op("where", condition, a, value=self._number(one.dtype), flag=True, axis=blocks.pick(0, 0, 1))
            return
        b = self._like_or_near(a, broadcast=blocks.pick(False, False, True))
        if blocks.pick(*[False] * 7, True):  # operands of two dtypes
            b = blocks.chosen(lambda other: other.dtype != one.dtype and fit(one, other)) or b
        blocks.op("where", condition, *blocks.pick((a, b), (b, a)))

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
                blocks.op("expand_dims", a, axis=blocks.integer(0, rank), flag=rank > 0 and blocks.pick(False, True))
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
        a = blocks.chosen(lambda one: len(one.shape) > 0)
        if a is None:
            return
        one = blocks.value(a)
        axis = blocks.integer(0, len(one.shape) - 1)
        op = blocks.pick("sum", "max", "min", "xor_sum", "reduce_or", "argmax", "argmin", "reduce")
        axis = -1 if op not in {"argmax", "argmin"} and blocks.pick(False, False, True) else axis
        combines = ("add", "min", "max") if one.dtype in FLOATS else _BITS if one.dtype == "bool" else _IN_ANY_ORDER
        combine = blocks.pick(*combines) if op == "reduce" else "add"
        blocks.op(op, a, axis=axis, flag=blocks.pick(False, True), combine=combine)

    def _scan(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: len(one.shape) > 0)
        if a is None:
            return
        one = blocks.value(a)
        op = blocks.pick("cumsum", "associative_scan" if one.dtype == "bool" else "cumprod", "associative_scan")
        combines = ("add", "min", "max") if one.dtype in FLOATS else _BITS if one.dtype == "bool" else _IN_ANY_ORDER
        combines = (*combines, "left", "right")
        combine = blocks.pick(*combines) if op == "associative_scan" else "add"
        axis = blocks.integer(0, len(one.shape) - 1)
        blocks.op(op, a, axis=axis, flag=blocks.pick(False, True), combine=combine)

    def _order(self) -> None:
        blocks = self._blocks
        a = blocks.chosen(lambda one: len(one.shape) > 0 and one.data.size <= 256)
        if a is None:
            return
        one = blocks.value(a)
        match blocks.pick("gather") if one.dtype == "bool" else blocks.pick("sort", "topk", "gather", "histogram"):
            case "sort":
                blocks.op("sort", a, flag=blocks.pick(False, True))
            case "topk":
                blocks.op("topk", a, value=2 ** blocks.integer(0, int(math.log2(one.shape[-1]))))
            case "gather":
                axis = blocks.integer(0, len(one.shape) - 1)
                self._gather(a, one, axis)
            case "histogram":
                flat = blocks.chosen(lambda other: other.dtype in {"int32", "uint32"} and len(other.shape) == 1)
                if flat is not None:
                    bins = blocks.pick(4, 8, 2, 16)
                    small = blocks.must("and", flat, value=bins - 1, flag=True)
                    blocks.op("histogram", small, value=bins)

    def _gather(self, a: str, one: Value, axis: int) -> None:
        blocks = self._blocks
        last = one.shape[axis] - 1
        index = blocks.chosen(
            lambda other: other.dtype in INTEGERS and other.shape == one.shape and range_of(other.dtype)[1] >= last
        )
        if index is None:
            return
        inside = blocks.must("and", index, blocks.full(blocks.value(index), last, shape=()))
        blocks.op("gather", a, inside, axis=axis)
