"""Draws operands of a Triton program: values of a dtype and a shape, made of ranges, memory, and whatever has a name."""

import functools
import math
from collections.abc import Callable, Iterator
from itertools import permutations

import numpy as np

from mhc.programs.grammar import INTEGERS, bits_of
from mhc.programs.triton.grammar import COMPARISONS, FLOATS
from mhc.programs.triton.values import NUMPY, Described, Pointed, Value
from mhc.strategies.programs.triton_begun import LARGEST
from mhc.strategies.programs.triton_updates import UpdatedBlocks

_DTYPES = ("int32", "int32", "bool", "bool", *INTEGERS, "float32", "float16", "float64")


class Operands(UpdatedBlocks):
    """A program that is being drawn, in which any value can be what an operation needs."""

    def chosen(self, holds: Callable[[Value], bool]) -> str | None:
        """Draw a value that fits: most often one of the pool, now and then a new one; None where there is none."""
        if not self.in_function and self.pick(True, True, True, False):
            return super().chosen(holds)
        return self._new(holds) or super().chosen(holds)

    def mask(self, index: str, shape: tuple[int, ...]) -> str:
        """Return a mask of indices: what they are compared with, or any bool of their shape, of a row or of a column."""
        mask = super().mask(index, shape)
        if self.in_function or self.pick(True, True, True, False):
            return mask
        shapes = [one for one in _beside(shape) if len(one) in {0, len(shape)}]
        other = self.made("bool", self.pick(*shapes))
        if other is None or self.pick(True, False):
            return other or mask
        return self.must(self.pick("and", "or"), mask, other)

    def _new(self, holds: Callable[[Value], bool]) -> str | None:
        """Make a value that fits, of a shape that goes together with those of the pool."""
        if self.in_function:
            return None
        shapes = dict.fromkeys(shape for one in reversed(self.pool[-8:]) for shape in _beside(self.value(one).shape))
        fitting = [(dtype, shape) for shape in shapes for dtype in _DTYPES if holds(_blank(dtype, shape))]
        return self.made(*self.pick(*fitting)) if fitting else None

    def made(self, dtype: str, shape: tuple[int, ...]) -> str | None:
        """Make a value of a dtype and a shape; None where what was drawn has no meaning."""
        kinds = [self.counted, self.counted, self._changed, self._changed, self._changed]
        if any(one.dtype == dtype for one in self.inputs_so_far()):
            kinds += [self._anywhere]
        name: str | None = self.pick(*kinds)(dtype, shape)
        if name is None or (self.value(name).dtype, self.value(name).shape) != (dtype, shape):
            return None
        if name not in self.pool:
            self.pool.append(name)
        return name

    # --- ranges

    def counted(self, dtype: str, shape: tuple[int, ...]) -> str | None:
        """Make a range, or what is computed of one: its lines may be alike, it may begin below 0, or be condensed."""
        if not shape and self.grid != (1,) and self.pick(True, True, False):
            return self._place(dtype)
        if not shape:
            return self.full(None, self.pick(1, 0) if dtype == "bool" else self.pick(1, 0, 2, 4, 7), dtype)
        line = self._line(shape)
        for _ in range(self.pick(1, 0, 2)):
            line = self._condensed(line, shape) or line
        if dtype == "bool":
            return self._truth(line)
        return self._in_dtype(line, dtype)

    def _place(self, dtype: str) -> str | None:
        op = self.pick("program_id", "num_programs")
        return self._in_dtype(self.must(op, axis=self.integer(0, len(self.grid) - 1)), dtype)

    def _line(self, shape: tuple[int, ...]) -> str:
        """Return a range in all elements, or along one axis."""
        begin = self.pick(0, 0, 0, 1, 4, 100)
        axis = self.pick(None, *range(len(shape))) if len(shape) > 1 else None
        if axis is None:
            size = math.prod(shape)
            line = self.must("arange", shape=(size,), value=begin)
            return line if shape == (size,) else self.must("reshape", line, shape=shape)
        line = self.must("arange", shape=(shape[axis],), value=begin)
        return self.must("broadcast_to", self._along(line, axis, len(shape)), shape=shape)

    def _along(self, line: str, axis: int, rank: int) -> str:
        """Return a line as a block of so many axes, all but one of length 1."""
        for at in range(rank):
            if at != axis:
                line = self.must("expand_dims", line, axis=at)
        return line

    def _condensed(self, line: str, shape: tuple[int, ...]) -> str | None:
        """Return what is computed of a range and a number, as indices are."""
        size = math.prod(shape)
        number = self.pick(2, 4, 1, 3, 8, size, max(1, size // 2))
        op, left = self.pick(
            *[("sub", 0)] * 3,
            *[("floordiv", 0)] * 2,
            *[("mod", 0)] * 2,
            ("mul", 0),
            ("sub", 1),
            ("add", 0),
            ("and", 0),
            ("xor", 0),
            ("shr", 0),
            ("shl", 0),
        )
        if op in {"shr", "shl"}:
            number = self.pick(1, 2, 4)
        elif op == "and" or (op == "mul" and self.pick(False, False, True)):
            number = -number
        if self.pick(True, False):
            return self.op(op, line, value=number, flag=True, axis=left, keep=False)
        full = self.full(self.value(line), number, shape=() if self.pick(True, False) else shape)
        return self.op(op, *((full, line) if left else (line, full)), keep=False)

    def _truth(self, name: str) -> str | None:
        """Return a bool of each element: how it compares with a number, most often with one that some of them are."""
        one = self.value(name)
        if one.dtype == "bool":
            return name
        near = one.data.reshape(-1)[self.integer(0, one.data.size - 1)].item()
        number = near if one.dtype not in FLOATS else float(near)
        return self.op(self.pick(*COMPARISONS), name, value=number, flag=True, keep=False)

    def _in_dtype(self, name: str, dtype: str) -> str | None:
        """Return a value in another dtype."""
        now = self.value(name).dtype
        if now == dtype:
            return name
        if dtype == "bool" and self.pick(True, True, False):
            return self._truth(name)
        alike = "bool" not in {now, dtype} and bits_of(now) == bits_of(dtype)
        if alike and not {now, dtype} & {*FLOATS} and self.pick(False, True):
            return self.op("bitcast", name, dtype=dtype, keep=False)
        return self.op("cast", name, dtype=dtype, keep=False)

    # --- what there is

    def _changed(self, dtype: str, shape: tuple[int, ...]) -> str | None:
        """Make it of anything that has a name, also of indices, masks and constants."""
        names = [name for name, one in self._machine.blocks[0].items() if self._reaches(one, shape)]
        if not names:
            return None
        name = str(self.pick(*reversed(names)))
        formed = self._in_shape(name, shape)
        return formed and self._in_dtype(formed, dtype)

    def _reaches(self, one: Value, shape: tuple[int, ...]) -> bool:
        if isinstance(one, (Described, Pointed)) or one.dtype == "bfloat16" or one.data.size > LARGEST:
            return False
        now = one.shape
        return not now or one.data.size == math.prod(shape) or now in {*_beside(shape)} or shape in {*_beside(now)}

    def _in_shape(self, name: str, shape: tuple[int, ...]) -> str | None:
        """Return a value in another shape: its elements in another order, repeated, or combined along axes."""
        now = self.value(name).shape
        if now == shape:
            return self._turned(name) if self.pick(False, False, True) else name
        if not now:
            return self.op("broadcast_to", name, shape=shape, keep=False)
        if not shape:
            return self._combined(name, -1)
        if math.prod(now) == math.prod(shape):
            orders = [axes for axes in permutations(range(len(now))) if tuple(now[at] for at in axes) == shape]
            if len(now) == len(shape) and orders and self.pick(True, True, False):
                return self.op("permute", name, axes=orders[-1], keep=False)
            return self.op("reshape", name, shape=shape, keep=False)
        if len(now) < len(shape):
            name = self._along(name, len(shape) - 1, len(shape)) if len(now) == 1 else self.must("expand_dims", name, axis=0)
            now = self.value(name).shape
        if len(now) == len(shape) and all(one in {1, two} for one, two in zip(now, shape, strict=True)):
            return self.op("broadcast_to", name, shape=shape, keep=False)
        axis = next((at for at, one in enumerate(now) if at >= len(shape) or one != shape[at]), 0)
        return self._combined(name, axis, keep_dims=len(now) == len(shape))

    def _turned(self, name: str) -> str | None:
        """Return a value whose elements are in another order."""
        one = self.value(name)
        if one.data.size == 1:
            return name
        turns = [axes for axes in permutations(range(len(one.shape))) if tuple(one.shape[at] for at in axes) == one.shape]
        if len(turns) > 1 and self.pick(True, False):
            return self.op("permute", name, axes=self.pick(*turns[1:]), keep=False)
        return self.op("flip", name, axis=self.integer(0, len(one.shape) - 1), keep=False)

    def _combined(self, name: str, axis: int, *, keep_dims: bool = False) -> str | None:
        ops = ("xor_sum", "reduce_or") if self.value(name).dtype == "bool" else ("sum", "max", "min")
        return self.op(self.pick(*ops), name, axis=axis, flag=keep_dims, keep=False)

    # --- memory

    def _anywhere(self, dtype: str, shape: tuple[int, ...]) -> str | None:
        """Load elements of an input at computed places, of which some may be outside where a mask leaves them out."""
        buffer = self.pick(*(one for one in self.inputs_so_far() if one.dtype == dtype))
        places = self._changed("int32", shape) if self.pick(True, False) else self.counted("int32", shape)
        if places is None:
            return None
        if self.pick(True, False):
            inside = self.must("and", places, value=(1 << buffer.size.bit_length() - 1) - 1, flag=True)
            return self.load(buffer.name, shape, inside, keep=False)
        below = self.must("lt", places, value=buffer.size, flag=True)
        mask = self.must("and", below, self.must("ge", places, value=0, flag=True))
        return self.load(buffer.name, shape, places, mask=mask, keep=False)


def _beside(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield a shape, those of a row, of a column and of one element of it."""
    yield shape
    if len(shape) > 1:
        yield (*(1 for _ in shape[1:]), shape[-1])
        yield shape[-1:]
        yield (*shape[:-1], 1)
    if shape:
        yield ()


@functools.cache
def _blank(dtype: str, shape: tuple[int, ...]) -> Value:
    return Value(dtype, np.zeros(shape, dtype=NUMPY[dtype]))
