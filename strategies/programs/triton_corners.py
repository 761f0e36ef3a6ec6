"""Draws operations of a Triton program where a compiler may go wrong unseen: in few dtypes, shapes or numbers."""

import math
from collections.abc import Callable

import numpy as np

from mhc.programs.grammar import INTEGERS, bits_of
from mhc.programs.triton.grammar import COMPARISONS, FLOATS
from mhc.strategies.programs.triton_operations import Operations

_SQUARES = (4, 16, 64)


class Corners(Operations):
    """Draws such operations into a program."""

    def kinds(self) -> list[Callable[[], None]]:
        """Return what draws a statement without a body each."""
        corners = [self._sign, self._sign, self._sum_of_small, self._sum_of_small, self._truth, self._square, self._bins]
        return [*super().kinds(), *corners]

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
        match blocks.pick("shr", "sort", "compare", "minimum", "divide", "max", "min"):
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
            index = blocks.must(
                "reshape", blocks.must("mul", line, blocks.full(None, blocks.pick(3, 1, 7))), shape=(side, side)
            )
        inside = blocks.must("and", index, blocks.full(None, side - 1))
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
            small = blocks.must("and", flat, blocks.full(None, bins - 1))
            blocks.op("histogram", small, mask, value=bins)
