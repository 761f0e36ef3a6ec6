"""Draws loads by descriptors into a Triton program, and exchanges of elements: memory by other means than plain indices."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from mhc.programs.grammar import INTEGERS, bits_of
from mhc.programs.known import is_before
from mhc.programs.triton.grammar import FLOATS, Atomic, BlockLoad, BlockStore, Buffer, Descriptor
from mhc.programs.triton.values import Described, Value
from mhc.strategies.programs.triton_blocks import ATOMIC
from mhc.strategies.programs.triton_corners import Corners
from mhc.strategies.programs.triton_operands import Operands

_INPUTS = 4
"""No more are added for descriptors."""
_MOST_INPUTS = 5
"""No more are added for their sizes."""
_LARGEST = 1024
_MOST_ROWS = 32


class DescribedBlocks(Operands):
    """A program that is being drawn, with descriptors of its buffers."""

    def has_descriptors(self) -> bool:
        """Return whether the release has them."""
        return not is_before(self.release, "3.4.0")

    def descriptors(self) -> dict[str, Described]:
        """Return the descriptors of inputs, by name."""
        return {name: one for name, one in self._machine.blocks[0].items() if isinstance(one, Described)}

    def described(self, buffer: str, sizes: Sequence[int], block: Sequence[int], stride: int) -> str | None:
        """Add a descriptor, and return its name."""
        name, numbers = self.name(), tuple(self._size(one) for one in sizes)
        return name if self.add(Descriptor(name, buffer, numbers, tuple(block), stride)) else None

    def _size(self, number: int) -> str:
        """Return a number, now and then one that Triton does not know when it compiles."""
        if len(self.inputs_so_far()) < _MOST_INPUTS and self.pick(False, False, False, True):
            return self.load_one(self.input("int32", 1, number, number))
        return self.full(None, number)

    def load_block(self, descriptor: str, offsets: Sequence[str]) -> str | None:
        """Load a block of a descriptor, and return its name."""
        name = self.name()
        return self._loaded(name) if self.add(BlockLoad(name, descriptor, tuple(offsets))) else None

    def matrix(self, dtype: str, size: int) -> Buffer:
        """Add an input of a descriptor."""
        name = next(one for one in "abcdeghk" if one not in {buffer.name for buffer in self._buffers})
        self._buffers.append(replace(self._input(name, dtype, size), offset=0))
        self._restart()
        return self._buffers[-1]

    def _fits_blocks(self, one: Value) -> bool:
        """Return whether a descriptor can have blocks of this dtype and shape."""
        if one.dtype == "bool" or len(one.shape) not in {1, 2} or not self.has_descriptors():
            return False
        return one.shape[-1] * bits_of(one.dtype) >= 128

    def _stored_otherwise(self, buffer: str, name: str, one: Value, var: str | None = None, span: int = 1) -> bool:
        """Store a value, now and then, by a descriptor of an output of its own, whose first and last block reach over it.

        Args:
            var: of a loop; each iteration has a block. span: how many there are.
        """
        if not self._fits_blocks(one) or not self.pick(*[False] * 5, True):
            return False
        unit, extent, count = 128 // bits_of(one.dtype), one.shape[0], math.prod(self.grid) * span
        step = unit if len(one.shape) == 1 else 1
        before = step * self.pick(0, self.integer(0, extent // step - 1))
        whole = unit if self.pick(*[True] * 3, False) else 1  # a GPU stores whole parts of 16 bytes
        part = whole if len(one.shape) == 1 else 1
        length = max(part, count * extent - before - part * self.pick(0, self.integer(0, (extent - 1) // part)))
        sizes, stride = [length], 0
        if len(one.shape) == 2:
            sizes.append(one.shape[1] - whole * self.pick(0, self.integer(0, (one.shape[1] - 1) // whole)))
            stride = unit * (-(-sizes[1] // unit) + self.pick(0, 0, 1))
        size = (length - 1) * max(stride, 1) + (sizes[1] if len(sizes) > 1 else 1)
        self._buffers.append(Buffer(buffer, size, one.dtype, written=True))
        self._restart()
        first = self.block_number() or self.full(None, 0)
        if var is not None:
            first = self.must("add", first, self.must("mul", var, self.full(None, math.prod(self.grid))))
        first = self.must("mul", first, self.full(None, extent))
        if before:
            first = self.must("sub", first, self.full(None, before))
        offsets = [first, *([self.full(None, 0)] if len(sizes) > 1 else [])]
        described = self.described(buffer, sizes, one.shape, stride)
        assert described is not None
        assert self.add(BlockStore(described, tuple(offsets), name)) or var is not None
        return True

    def exchange(self, name: str) -> None:
        """Draw a change of elements in place by an atomic operation, often with what was there before."""
        one = self.value(name)
        if one.dtype not in (*ATOMIC, "int16", "uint16") or not self._updated(one):
            return
        index = self.index(one.shape)
        others = ("add", "max", "min", "and", "or", "xor") if one.dtype in ATOMIC else ()
        kind: Any = self.pick("cas", "xchg", "cas", "xchg", *others) if one.dtype in ATOMIC else "cas"
        compare = self._compared(one, index) if kind == "cas" else None
        if self.pick(True, False):
            before = self.name()
            mask = self.mask(index, one.shape) if kind != "cas" and self.pick(False, False, True) else None
            order = self.pick("", "", "relaxed", "acquire", "release")
            if self.add(Atomic(kind, "u", self._narrow(index), name, mask, before, compare, order)):
                self.pool.append(before)
        else:
            mask = self.mask(index, one.shape) if kind != "cas" and self.pick(True, True, False) else None
            self.add(Atomic(kind, "u", self._narrow(index), name, mask, compare=compare))
        if self.pick(True, False):
            self.load("u", one.shape, index)


class Descriptors(Corners):
    """Draws such statements into a program."""

    _blocks: DescribedBlocks

    def __init__(self, blocks: DescribedBlocks) -> None:
        super().__init__(blocks)

    def kinds(self) -> list[Callable[[], None]]:
        """Return what draws a statement without a body each."""
        described = [self._described] if self._blocks.has_descriptors() else []
        return [*super().kinds(), *described, *[self._exchange] * 3, *[self._ranges] * 4]

    def _ranges(self) -> None:
        """Draw an operation of two ranges, or of what is computed of them, and now and then a load at such places."""
        blocks = self._blocks
        like = blocks.chosen(lambda one: len(one.shape) > 0 and 1 < one.data.size <= _LARGEST)
        if like is None:
            return
        shape = blocks.value(like).shape
        a, b = blocks.counted("int32", shape), blocks.counted("int32", shape)
        if a is None or b is None:
            return
        op = blocks.pick("where", "where", "floordiv", "mod", "minimum", "maximum", "add", "sub", "mul", "and")
        if op == "where":
            condition = self._condition(shape) if blocks.pick(True, False) else blocks.counted("bool", shape)
            made = condition and blocks.op("where", condition, a, b)
        elif op in {"floordiv", "mod"}:
            made = blocks.op(op, self._around_0(a), value=blocks.pick(4, 2, 8, 3, -4), flag=True)
        else:
            made = blocks.op(op, a, b)
        if made is not None and blocks.pick(False, False, True):
            blocks.look_up(made)

    def _exchange(self) -> None:
        """Draw an atomic operation that sets elements in place."""
        blocks = self._blocks
        a = blocks.chosen(lambda one: one.dtype in {"int32", "uint32", "int64", "uint64"})
        a = a or blocks.chosen(lambda one: one.dtype in INTEGERS)
        if a is not None:
            blocks.exchange(a)

    def _described(self) -> None:
        """Draw a load by a descriptor, often by one that is there, also from before a loop."""
        blocks = self._blocks
        if blocks.in_function:
            return
        held = list(blocks.descriptors())
        name = blocks.pick(*held) if held and blocks.pick(True, False) else self._descriptor()
        if name is not None:
            one = blocks.descriptors()[name]
            blocks.load_block(name, [self._begin(one, axis) for axis in range(len(one.block))])

    def _descriptor(self) -> str | None:
        """Add a descriptor of an input, most often one that is there, and return its name."""
        blocks = self._blocks
        inputs = blocks.inputs_so_far()
        fitting = [one for one in inputs if not one.offset and one.size * bits_of(one.dtype) >= 256]
        if fitting and (len(inputs) >= _INPUTS or blocks.pick(True, True, False)):
            buffer = blocks.pick(*fitting)
        elif len(inputs) < _INPUTS:
            buffer = blocks.matrix(blocks.pick("int32", *INTEGERS, *FLOATS), blocks.integer(20, 300))
        else:
            return None
        unit = 128 // bits_of(buffer.dtype)
        block = self._block(buffer.dtype, unit)
        if len(block) == 1:
            return blocks.described(buffer.name, [buffer.size - blocks.integer(0, min(block[0], buffer.size) - 1)], block, 0)
        stride = unit * blocks.integer(1, max(1, min(buffer.size // 2, 2 * block[1]) // unit))
        columns = min(stride, buffer.size) - blocks.pick(0, blocks.integer(0, min(stride, buffer.size) - 1))
        most = min(_MOST_ROWS, (buffer.size - columns) // stride + 1)
        rows = most - blocks.pick(0, blocks.integer(0, min(most, block[0]) - 1))
        return blocks.described(buffer.name, [rows, columns], block, stride)

    def _block(self, dtype: str, unit: int) -> tuple[int, ...]:
        """Return the shape of a block, often that of a value that is there."""
        blocks = self._blocks
        if blocks.pick(True, False):
            like = blocks.chosen(
                lambda one: one.dtype == dtype and len(one.shape) in {1, 2} and one.shape[-1] >= unit and one.data.size > 1
            )
            if like is not None:
                return blocks.value(like).shape
        columns = unit * blocks.pick(1, 2, 4)
        rows = blocks.pick(4, 1, 2, 8, 16)
        return (rows, columns) if blocks.pick(True, True, False) and rows * columns <= _LARGEST else (columns,)

    def _begin(self, one: Described, axis: int, number: str | None = None) -> str:
        """Return where a block begins on an axis: on the last, at a multiple of 16 bytes; it may reach over both ends.

        Args:
            number: of an iteration, each of which has a block of its own.
        """
        blocks = self._blocks
        extent, size = one.block[axis], int(one.data[axis])
        unit = 1
        if axis == len(one.block) - 1:
            unit = 128 // bits_of(next(buffer.dtype for buffer in blocks.inputs_so_far() if buffer.name == one.buffer))
        below = [-blocks.integer(1, extent // unit - 1)] * 2 if extent > unit else []
        first = unit * blocks.pick(0, *below, blocks.integer(max(0, size - extent) // unit, size // unit))
        if number is None:
            match blocks.pick("constant", "block", "value"):
                case "block":
                    number = blocks.block_number()
                case "value":
                    number = blocks.chosen(lambda one: one.dtype == "int32" and not one.shape)
                    number = number and blocks.beside("and", number, 3)
        if number is None:
            return blocks.full(None, first)
        begin = blocks.beside("mul", number, extent)
        return blocks.beside("add", begin, first) if first else begin

    def _walked(self, name: str, number: str) -> None:
        """Load a block of a descriptor that is another one in every iteration."""
        one = self._blocks.descriptors()[name]
        walked = self._blocks.integer(0, len(one.block) - 1)
        begins = [self._begin(one, axis, number if axis == walked else None) for axis in range(len(one.block))]
        self._blocks.load_block(name, begins)
