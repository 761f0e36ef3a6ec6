"""Draws operations of a Triton program where a compiler may go wrong unseen: in few dtypes, shapes or numbers."""

import math
from collections.abc import Callable

import numpy as np

from mhc.programs.grammar import INTEGERS, bits_of, range_of
from mhc.programs.triton.grammar import COMPARISONS, FLOATS
from mhc.strategies.programs.triton_chains import Chains

_SQUARES = (4, 16, 64)


class Corners(Chains):
    """Draws such operations into a program."""

    def kinds(self) -> list[Callable[[], None]]:
        """Return what draws a statement without a body each."""
        corners = [self._sign, self._sign, self._sum_of_small, self._sum_of_small, self._truth, self._square]
        corners += [self._two_dtypes, self._two_dtypes, self._group, self._most, *[self._two_ranks] * 3]
        corners += [*[self._bins] * 3, self._two_dtypes, self._group]
        corners += [
            self._two_dtypes,
            self._pairs,
            self._twice,
            self._relaid,
            self._ladder,
            self._one_number,
            *[self._update] * 3,
        ]
        corners += [self._random, self._random, self._ceiling, self._pairs, self._sign]
        corners += [self._least, self._least, self._least, self._high]
        corners += [*[self._look_up] * 3, self._narrowed, self._narrowed, *[self._update] * 3]
        corners += [self._large, self._large, self._far, self._counted_truths]
        return [*super().kinds(), *corners]

    def _look_up(self) -> None:
        """Draw a load at places that were loaded or computed."""
        places = self._blocks.chosen(lambda one: one.dtype in INTEGERS)
        if places is not None:
            self._blocks.look_up(places)

    def _integers(self, *dtypes: str) -> str | None:
        """Return a block of integers of one of the dtypes, sometimes a cast one."""
        blocks = self._blocks
        found = blocks.chosen(lambda one: one.dtype in dtypes and len(one.shape) > 0)
        if found is not None and blocks.pick(True, False):
            return found
        a = blocks.chosen(lambda one: one.dtype in INTEGERS and len(one.shape) > 0)
        return a and blocks.op("cast", a, dtype=blocks.pick(*dtypes))

    def _sign(self) -> None:
        """Draw an operation for which unsigned integers must not be taken as signed ones."""
        blocks = self._blocks
        a = self._integers("uint32", "uint64", "uint32", "uint64", "uint8", "uint16")
        if a is None:
            return
        one = blocks.value(a)
        high = one.data >> (bits_of(one.dtype) - 1)
        if not high.any() or high.all():  # the last bit is also the first one
            a = blocks.must("xor", a, blocks.must("shl", a, blocks.full(one, bits_of(one.dtype) - 1, shape=())))
        match blocks.pick("shr", "sort", "compare", "minimum", "divide", "max", "min", "sort"):
            case "shr":
                blocks.op("shr", a, blocks.full(one, blocks.integer(1, bits_of(one.dtype) - 1), shape=()))
            case "sort":
                blocks.op("sort", a, flag=blocks.pick(False, True))
            case "compare":
                blocks.op(blocks.pick(*COMPARISONS[:4]), a, self._like(one))
            case "minimum":
                blocks.op(blocks.pick("minimum", "maximum"), a, self._like(one))
            case "divide":
                blocks.op(blocks.pick("floordiv", "mod"), a, blocks.full(one, blocks.pick(2, 3, 10, 7), shape=()))
            case op:
                blocks.op(op, a, axis=blocks.integer(0, len(one.shape) - 1))

    def _least(self) -> None:
        """Draw an operation of signed integers of which some are the least or the largest of their dtype."""
        blocks = self._blocks
        a = self._integers("int32", "int64", "int8", "int16")
        if a is None:
            return
        one = blocks.value(a)
        end = blocks.must("shl", a, blocks.full(one, bits_of(one.dtype) - 1, shape=()))  # the least of odd numbers, else 0
        if blocks.pick(True, True, False):
            a = blocks.must("minimum", a, end)
        else:
            a = blocks.must("maximum", a, blocks.must("invert", end))
        ops = ("neg", "abs", "min", "max", "argmin", "argmax", "minimum", "maximum", "sub", *COMPARISONS[:2])
        match blocks.pick(*["sort"] * 4, *ops):
            case "sort":
                blocks.op("sort", a, flag=blocks.pick(True, False))
            case "neg" | "abs" as op:
                blocks.op(op, a)
            case "min" | "max" | "argmin" | "argmax" as op:
                blocks.op(op, a, axis=blocks.integer(0, len(one.shape) - 1))
            case op:
                blocks.op(op, a, self._like(one))

    def _high(self) -> None:
        """Draw what the higher half of integers decides whose lower half is 0: whether they are 0, or a narrower number."""
        blocks = self._blocks
        a = self._integers("int64", "uint64", "int32", "uint32")
        if a is None:
            return
        one = blocks.value(a)
        bits = bits_of(one.dtype)
        moved = blocks.op("shl", a, value=blocks.pick(bits // 2, bits - 1, 8), flag=True)
        if moved is None:
            return
        match blocks.pick("bool", "ne", "narrower", "gt"):
            case "bool":
                blocks.op("cast", moved, dtype="bool")
            case "narrower":
                blocks.op("cast", moved, dtype=blocks.pick(*(one for one in INTEGERS if bits_of(one) < bits)))
            case "ne" | "gt" as op:
                blocks.op(op, moved, value=0, flag=True)

    def _sum_of_small(self) -> None:
        """Draw a sum of small integers that does not fit their dtype."""
        blocks = self._blocks
        a = self._integers("int16", "int8", "int16", "uint8", "uint16")
        if a is None:
            return
        one = blocks.value(a)
        if blocks.pick(True, False):
            a = blocks.must("or", a, blocks.full(one, 2 ** (bits_of(one.dtype) - 2), shape=()))
        blocks.op(blocks.pick("sum", "sum", "cumsum"), a, axis=int(np.argmax(one.shape)))

    def _truth(self) -> None:
        """Draw a cast to bool of floats of which some are near 0."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype in FLOATS)
        if a is None:
            a = blocks.chosen(lambda one: one.dtype in INTEGERS)
            a = a and blocks.op("cast", a, dtype=blocks.pick("float32", "float64", "float16"))
        if a is None:
            return
        small = blocks.op("mul", a, blocks.full(blocks.value(a), blocks.pick(0.5, -0.25, 0.25), shape=()))
        blocks.op("cast", small or a, dtype="bool")

    def _narrowed(self) -> None:
        """Draw a cast of floats of which some lie between two of a narrower dtype."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype in INTEGERS)
        if a is None:
            return
        dtype, least = blocks.pick(("float16", 256), ("bfloat16", 32), ("float16", -512), ("bfloat16", -64))
        small = blocks.op("cast", blocks.beside("and", a, 127), dtype=blocks.pick("float32", "float64"), keep=False)
        part = small and blocks.op("mul", small, value=blocks.pick(0.125, 0.0625, 0.25), flag=True, keep=False)
        near = part and blocks.op("add", part, value=float(least), flag=True)
        if near is not None and (blocks.brain or dtype != "bfloat16"):
            blocks.op("cast", near, dtype=dtype)

    def _large(self) -> None:
        """Draw a cast of floats that 31 bits do not hold."""
        blocks = self._blocks
        a = self._integers("uint32", "uint32", "int32")
        if a is None:
            return
        one = blocks.value(a)
        if one.dtype == "uint32":
            a = blocks.must("or", a, blocks.full(one, 1 << 31, shape=()))
        large = blocks.op("cast", a, dtype="float64", keep=False)
        if large is not None:
            blocks.op("cast", large, dtype=blocks.pick("uint32", "int64", "uint64"))

    def _far(self) -> None:
        """Draw a shift to the right of integers of 64 bits, often below 0, by about half of the bits or nearly all."""
        blocks = self._blocks
        a = self._integers("int64")
        if a is None:
            return
        if (blocks.value(a).data >= 0).all():
            a = blocks.must("invert", a)
        by = blocks.pick(33, 32, 40, 63, 31, 48)
        if blocks.pick(True, False):
            blocks.op("shr", a, value=by, flag=True)
        else:
            blocks.op("shr", a, blocks.full(blocks.value(a), by, shape=()))

    def _counted_truths(self) -> None:
        """Draw how many lanes of a condition hold, often more than one."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype == "bool" and one.data.sum() > 1)
        if a is None:
            b = blocks.chosen(lambda one: one.dtype != "bool" and len(one.shape) > 0)
            a = b and blocks.op(blocks.pick("ge", "eq", "ne"), b, self._like_or_near(b), keep=False)
        if a is not None:
            op, rank = blocks.pick("sum", "sum", "cumsum"), len(blocks.value(a).shape)
            blocks.op(op, a, axis=blocks.integer(0 if op == "cumsum" else -1, rank - 1))

    def _square(self) -> None:
        """Draw a gather along an axis of a square."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.data.size in _SQUARES and one.dtype != "bool" and len(one.shape) > 0)
        if a is None:
            return
        side = math.isqrt(blocks.value(a).data.size)
        if blocks.value(a).shape != (side, side):
            a = blocks.must("reshape", a, shape=(side, side))
        index = blocks.chosen(lambda one: one.dtype == "int32" and one.shape == (side, side))
        if index is None or blocks.pick(True, False):
            line = blocks.must("arange", shape=(side * side,))
            index = blocks.must("reshape", blocks.beside("mul", line, blocks.pick(3, 1, 7)), shape=(side, side))
        inside = blocks.beside("and", index, side - 1)
        blocks.op("gather", a, inside, axis=blocks.pick(0, 0, 1))

    def _bins(self) -> None:
        """Draw a histogram of the elements where a mask holds."""
        blocks = self._blocks
        flat = blocks.chosen(lambda one: one.dtype == "int32" and len(one.shape) == 1 and one.data.size <= 256)
        if flat is None:
            return
        shape, bins = blocks.value(flat).shape, blocks.pick(4, 8, 2, 16)
        mask = self._condition(shape) if blocks.pick(True, False) else blocks.mask(blocks.must("arange", shape=shape), shape)
        if mask is not None and blocks.value(mask).shape == shape:
            small = blocks.beside("and", flat, bins - 1)
            blocks.op("histogram", small, mask, value=bins)

    def _two_dtypes(self) -> None:
        """Draw an operation of integers of two dtypes, whose result shows in which dtype it was computed."""
        blocks = self._blocks
        a = self._integers("int32", "int64", "int16", "int8")
        if a is None:
            return
        one = blocks.value(a)
        if not (one.data < 0).any():
            a = blocks.must("invert", a)
        size = bits_of(one.dtype)
        dtype = blocks.pick(*[f"uint{size}"] * 6, *(dtype for dtype in INTEGERS if dtype != one.dtype))
        b = blocks.op("cast", self._like(one), keep=False, dtype=dtype)
        if b is None:
            return
        left, right = (b, a) if blocks.pick(False, True) else (a, b)
        result = blocks.op(blocks.pick(*COMPARISONS[:4], "minimum", "maximum", "add", "sub", "mul", "and"), left, right)
        if result is not None and blocks.value(result).dtype != "bool":
            blocks.op("cast", result, dtype=blocks.pick("int64", "uint64", "float64", "float32"))

    def _two_ranks(self) -> None:
        """Draw an operation of a block, often a square, and a line, which is the same for each row."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype != "bool" and len(one.shape) > 1)
        flat = blocks.chosen(lambda one: one.dtype != "bool" and len(one.shape) == 1 and one.data.size in _SQUARES)
        if flat is not None and (a is None or blocks.pick(True, False)):
            side = math.isqrt(blocks.value(flat).data.size)
            a = blocks.must("reshape", flat, shape=(side, side))
        if a is None:
            return
        one = blocks.value(a)
        b = blocks.chosen(lambda other: other.dtype == one.dtype and other.shape == one.shape[-1:])
        if b is None or blocks.pick(True, False):
            b = blocks.op("cast", blocks.must("arange", shape=one.shape[-1:]), keep=False, dtype=one.dtype)
        if b is not None:
            left, right = (a, b) if blocks.pick(True, True, False) else (b, a)
            blocks.op(blocks.pick("add", "sub", "maximum", *COMPARISONS[:2]), left, right)

    def _group(self) -> None:
        """Draw places of a matrix, counted by groups of rows of which the last has fewer."""
        blocks = self._blocks
        columns, size = blocks.pick(3, 2, 5, 1), blocks.pick(16, 8, 32)
        line, width = blocks.must("arange", shape=(size,)), blocks.full(None, columns)
        places = blocks.must("floordiv", line, width), blocks.must("mod", line, width)
        shape = -(-size // columns), columns, blocks.pick(2, 3, 4, 1)
        blocks.op("swizzle2d", *places, shape=shape, value=blocks.pick(0, 1))

    def _pairs(self) -> None:
        """Draw a reduction or a scan of pairs of elements, and take one of its results."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype != "bool" and len(one.shape) > 0 and one.data.size <= 64)
        if a is None:
            return
        one = blocks.value(a)
        axis = blocks.integer(0, len(one.shape) - 1)
        b = blocks.chosen(lambda other: other.dtype in INTEGERS and other.shape == one.shape)
        if b is None or blocks.pick(True, False):  # the elements' places
            b = blocks.must("arange", shape=(one.data.size,))
            b = b if len(one.shape) == 1 else blocks.must("reshape", b, shape=one.shape)
        combines = ("largest", "each", "linear", "linear") if one.dtype in INTEGERS else ("largest",)
        combine = blocks.pick(*combines)
        if combine == "linear" and blocks.value(b).dtype != one.dtype:
            b = blocks.must("cast", b, dtype=one.dtype)
        op = "associative_scan" if combine == "linear" else blocks.pick("reduce", "reduce", "associative_scan")
        blocks.op(op, a, b, axis=axis, flag=blocks.pick(False, True), combine=combine, value=blocks.pick(1, 0))

    def _twice(self) -> None:
        """Draw a reduction of a reduction."""
        blocks = self._blocks
        a = self._of_axes(3)
        for _ in range(2):
            if a is None or not blocks.value(a).shape:
                return
            axis = blocks.integer(0, len(blocks.value(a).shape) - 1)
            ops = ("sum", "max", "min") if blocks.value(a).dtype in FLOATS else ("sum", "max", "xor_sum", "min", "argmax")
            a = blocks.op(blocks.pick(*ops), a, axis=axis)

    def _of_axes(self, rank: int) -> str | None:
        """Return a block of two axes, or of three, of which two are often of one length."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype != "bool" and one.data.size > 1 and len(one.shape) > 0)
        if a is None:
            return None
        size = blocks.value(a).data.size
        side = 2 ** blocks.integer(1, max(1, int(math.log2(size)) // 2))
        if size % (side * side):
            shape: tuple[int, ...] = (2, size // 2)
        elif rank == 2:
            shape = (side, size // side)
        else:
            rest = size // side // side
            shape = blocks.pick((rest, side, side), (side, rest, side), (side, side, rest))
        return blocks.must("reshape", a, shape=shape)

    def _relaid(self) -> None:
        """Draw an operation of a block whose axes were put in another order."""
        blocks = self._blocks
        a = self._of_axes(blocks.pick(2, 3))
        if a is None:
            return
        axes = list(range(len(blocks.value(a).shape)))
        turned = blocks.must("permute", a, axes=blocks.pick(tuple(axes[::-1]), (*axes[1:], 0), (1, 0, *axes[2:])))
        shape = blocks.value(turned).shape
        match blocks.pick("reshape", "ravel", "flip", "cumsum", "interleave"):
            case "reshape":
                blocks.op("reshape", turned, shape=self._factors(math.prod(shape)))
            case "ravel":
                blocks.op("ravel", turned)
            case "interleave":
                blocks.op("interleave", turned, self._like(blocks.value(turned), broadcast=False))
            case op:
                blocks.op(op, turned, axis=blocks.integer(0, len(shape) - 1))

    def _ladder(self) -> None:
        """Draw a choice within a choice, where one value is chosen in two places."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: True)
        if a is None:
            return
        one = blocks.value(a)
        b = self._like(one, broadcast=False)
        conditions = [self._condition(one.shape) for _ in range(2)]
        if any(each is None or blocks.value(each).shape != one.shape for each in conditions):
            return
        first, second = (str(each) for each in conditions)
        inner = blocks.op("where", second, *blocks.pick((a, b), (b, a)))
        if inner is not None:
            blocks.op("where", first, *blocks.pick((inner, b), (b, inner), (inner, a)))

    def _one_number(self) -> None:
        """Draw a quotient, a remainder or a shift of one integer that is often below 0."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype in INTEGERS and not one.shape)
        if a is None or blocks.pick(True, False):
            a = blocks.chosen(lambda one: one.dtype in INTEGERS and len(one.shape) > 0)
            a = a and blocks.op(blocks.pick("sum", "min", "max"), a, axis=-1)
        if a is None:
            return
        if blocks.value(a).data >= 0:
            a = blocks.must("invert", a)
        by = blocks.full(blocks.value(a), blocks.pick(3, 2, 7, 10, 4))
        blocks.op(blocks.pick("mod", "floordiv", "shr"), a, by)

    def _update(self) -> None:
        """Draw a change of elements in place."""
        blocks = self._blocks
        var = self._numbers[-1] if self._numbers else None
        a = var if var is not None and blocks.pick(False, False, True) else blocks.chosen(blocks.may_update)
        if a is not None and blocks.may_update(blocks.value(a)):
            blocks.update(a, var)

    def _most(self) -> None:
        """Draw the largest elements of a block that has four times as many or more."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype != "bool" and len(one.shape) > 0 and 8 <= one.shape[-1] <= 64)
        if a is None:
            return
        halvings = blocks.integer(2, int(math.log2(blocks.value(a).shape[-1])) - 1)
        blocks.op("topk", a, value=blocks.value(a).shape[-1] >> halvings)

    def _random(self) -> None:
        """Draw random numbers, of which all bits are known."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype in INTEGERS and len(one.shape) > 0 and one.data.size <= 64)
        if a is None:
            return
        number, dtype = blocks.pick(
            (0, "int32"), (42, "int32"), (-1, "int32"), (1 << 40, "int64"), ((1 << 64) - 3, "uint64")
        )
        seed = blocks.chosen(lambda one: one.dtype in INTEGERS and not one.shape) if blocks.pick(False, True) else None
        seed = seed or blocks.full(None, number, dtype)
        rounds, which = blocks.pick(0, 0, 7, 1), blocks.integer(0, 3)
        match blocks.pick("randint", "randint4x", "philox"):
            case "philox":
                if bits_of(blocks.value(a).dtype) < 32:
                    a = blocks.must("cast", a, dtype=blocks.pick("uint64", "uint32", "int64", "int32"))
                rest = [self._like(blocks.value(a), broadcast=False) for _ in range(3)]
                blocks.op("philox", seed, a, *rest, value=which, axis=rounds)
            case op:
                blocks.op(op, seed, a, value=which if op == "randint4x" else 0, axis=rounds)

    def _ceiling(self) -> None:
        """Draw a quotient that is rounded up."""
        blocks = self._blocks
        a = self._integers(*INTEGERS)
        if a is None:
            return
        one = blocks.value(a)
        if (one.data < 0).any() or (one.data > range_of(one.dtype)[1] // 2).any():
            a = blocks.must("and", a, blocks.full(one, range_of(one.dtype)[1] >> 1, shape=()))
        if blocks.pick(True, False):
            blocks.op("cdiv", a, value=blocks.pick(4, 3, 7, 16, 1), flag=True)
        else:
            b = blocks.must(
                "or", blocks.must("and", self._like(one, broadcast=False), blocks.full(one, 31)), blocks.full(one, 1)
            )
            blocks.op("cdiv", *blocks.pick((a, b), (b, a)))
