"""Draws what a Triton program loads and stores at indices: its inputs, indices, masks, and outputs."""

import math
from collections.abc import Mapping
from itertools import permutations
from typing import Any, Literal

from msgspec.structs import replace

from mhc.programs.grammar import INTEGERS, UNSIGNED, bits_of, range_of
from mhc.programs.triton.accesses import atomic_dtypes
from mhc.programs.triton.grammar import (
    FLOATS,
    POLICIES,
    Atomic,
    Buffer,
    Load,
    Pointer,
    Store,
    uses,
    walk,
)
from mhc.programs.triton.values import Pointed, Value
from mhc.strategies.programs.triton_begun import ITERATIONS, Begun, fit

_SHAPES = ((4,), (1,), (2,), (8,), (16,), (32,), (64,), (2, 4), (4, 4), (8, 2), (1, 8), (16, 16), (2, 2, 4), (4, 1, 2))
_LARGE = ((128,), (256,), (32, 8), (4, 64), (128, 2), (8, 4, 8), (512,), (2, 128))
"""Most have more elements than there are threads."""
ATOMIC = ("int32", "uint32", "int64", "uint64")
"""Dtypes of atomic operations."""
_OPPOSITE: Mapping[str, Literal["max", "min"]] = {"max": "min", "min": "max"}
_OUTPUTS = ("y", "z", "m", "n", "s", "t")


class Blocks(Begun):
    """A program that is being drawn, with what it loads and stores."""

    def inputs(self) -> None:
        """Draw the inputs, and load a block of each."""
        shapes = self.pick(_SHAPES, _SHAPES, _LARGE)
        shape = self.pick(*shapes)
        for name in ("x", "w")[: self.pick(1, 2)]:
            dtype = self.pick("int32", *INTEGERS, *FLOATS, *FLOATS)
            other = shape if name == "x" or self.pick(True, False) else self.pick(*shapes)
            self._buffers.append(self._input(name, dtype, math.prod(other) * math.prod(self.grid) * ITERATIONS))
            self._restart()
            loaded = self.load(name, other)
            if loaded is None or self.value(loaded).dtype != "bfloat16":
                continue
            if self.pick(True, False):  # which an interpreter does too
                self.op("cast", loaded, dtype="float32")
                self.pool.remove(loaded)

    def input(self, dtype: str, size: int, low: int, high: int) -> str:
        """Add an input with values from low to high, and return its name."""
        name = next(one for one in "abcdeghk" if one not in {buffer.name for buffer in self._buffers})
        self._buffers.append(Buffer(name, size, dtype, least=low, most=high))
        self._restart()
        return name

    def store_inside(self, name: str, var: str | None, span: int) -> None:
        """Store a value in an output of its own, from the body of a loop or a branch.

        Args:
            var: of the loop; each iteration has a block of elements. span: how many there are.
        """
        buffer = next((one for one in "opq" if one not in {buffer.name for buffer in self._buffers}), None)
        one = self.value(name)
        if buffer is None or one.dtype == "bool":
            return
        if self._stored_otherwise(buffer, name, one, var, span):
            return
        size = max(1, one.data.size) * math.prod(self.grid)
        self._buffers.append(Buffer(buffer, size * span, one.dtype, written=True))
        self._restart()
        index = self.index(one.shape)
        if var is not None:
            index = self.must("add", index, self.beside("mul", var, size))
        mask = self.mask(index, one.shape) if self.pick(False, False, True) else None
        self.add(Store(buffer, index, name, mask, self._policy()))

    def _compared(self, one: Value, index: str | None = None) -> str:
        """Return what elements are compared with before they are set: often what some of them are.

        Args:
            index: of the elements, where they are changed in place.
        """
        found = self.chosen(lambda other: other.dtype == one.dtype and other.shape == one.shape)
        if index is not None and self.pick(True, True, False):
            before = self.load("u", one.shape, index)
            if before is not None:
                op = self.pick("maximum", "minimum", "and", "xor", "xor")
                return self.must(op, before, self._one_bit(found or before) if op == "xor" else found or before)
        if self.pick(False, False, True):  # of an output, whose elements are 0
            return self._one_bit(found or self.full(one, 1))
        return found if found is not None and self.pick(True, False) else self.full(one, self.pick(0, 1))

    def _one_bit(self, name: str) -> str:
        """Return the lowest bit of integers, most often moved up to their higher half: it is what two may differ in."""
        one = self.value(name)
        bits = bits_of(one.dtype)
        by = self.full(one, self.pick(bits // 2, bits - 1, self.integer(0, bits - 1), bits - 2), shape=())
        return self.must("shl", self.must("and", name, self.full(one, 1, shape=())), by)

    def _input(self, name: str, dtype: str, size: int) -> Buffer:
        if dtype in FLOATS:
            low, high = -8, 8
        else:
            least, most = range_of(dtype)
            ranges = [(0, 9), (-20, 20), (1, 100), (least, most)]
            if dtype in UNSIGNED:  # what is negative where the sign is mistaken
                ranges += [(most - 99, most), (most // 2 - 20, most // 2 + 20), (most // 2 + 1, most)]
            else:  # of which the least has no opposite
                ranges += [*ranges[:3], (least, least + 3), (most - 3, most)]
            low, high = self.pick(*ranges)
            low, high = max(low, least), min(high, most)
        return Buffer(name, size, dtype, least=low, most=high, offset=self.pick(0, 0, 0, 1))

    def block_number(self) -> str | None:
        """Return the number of the block, where there are several; most often as it was made before."""
        if self.grid == (1,):
            return None
        if self._number not in self._machine.blocks[0] or self.pick(*[False] * 4, True):
            self._number = self._block_number()
        return self._number

    def _block_number(self) -> str:
        if len(self.grid) == 1:
            return self.must("program_id", axis=0)
        slowest, *faster = self.pick(*permutations(range(len(self.grid))))
        number = self.must("program_id", axis=slowest)
        for axis in faster:
            number = self.must("mul", number, self.must("num_programs", axis=axis))
            number = self.must("add", number, self.must("program_id", axis=axis))
        return number

    def index(self, shape: tuple[int, ...]) -> str:
        """Return indices of a block: 0, 1, ... in it, behind those of the blocks before; most often those made before."""
        made = self._indices.get(shape)
        if made in self._machine.blocks[0] and self.pick(True, True, True, False):
            return str(made)
        self._indices[shape] = self._index(shape)
        return self._indices[shape]

    def _index(self, shape: tuple[int, ...]) -> str:
        size = math.prod(shape)
        if len(shape) == len(self.grid) == 2 and self.pick(True, False):
            return self._tile_index(*shape)
        number = self.block_number()
        if not shape:
            return number or self.full(None, 0)
        if len(shape) == 2 and self.pick(True, False):
            rows = self.must("expand_dims", self.must("arange", shape=(shape[0],)), axis=1, flag=self.pick(True, False))
            columns = self.must("expand_dims", self.must("arange", shape=(shape[1],)), axis=0, flag=self.pick(True, False))
            if self.pick(False, False, True):  # by columns
                index = self.must("add", self.beside("mul", columns, shape[0]), rows)
            else:
                index = self.must("add", self.beside("mul", rows, shape[1]), columns)
        else:
            index = self.must("arange", shape=(size,))
            index = index if shape == (size,) else self.must("reshape", index, shape=shape)
        if number is not None:
            index = self.must("add", index, self.beside("mul", number, size))
        return index

    def _tile_index(self, height: int, width: int) -> str:
        """Return indices of a block in a matrix of blocks that is as the grid is."""
        places = []
        for axis, size in enumerate((height, width)):
            begin = self.beside("mul", self.must("program_id", axis=axis), size)
            line = self.must("add", begin, self.must("arange", shape=(size,)))
            places.append(self.must("expand_dims", line, axis=1 - axis, flag=self.pick(True, False)))
        row = self.beside("mul", self.must("num_programs", axis=1), width)
        return self.must("add", self.must("mul", places[0], row), places[1])

    def load(
        self, buffer: str, shape: tuple[int, ...], index: str | None = None, mask: str | None = None, *, keep: bool = True
    ) -> str | None:
        """Load a block, sometimes with a mask, and return its name.

        Args:
            mask: that it must have; without it, one may be drawn. keep: later statements may use it.
        """
        one = next(one for one in self._buffers if one.name == buffer)
        at = index or (self.index(shape) if self.in_function else self._apart(self.index(shape), one.size))
        name, other = self.name(), None
        if mask is None and self.pick(False, False, True):
            mask = self.mask(self.index(shape) if isinstance(self.value(at), Pointed) else at, shape)
        if mask is not None:
            other = self._other(one.dtype, at)
        late = mask is not None and self.pick(False, False, True)
        at = at if index else self._narrow(at)
        if not isinstance(self.value(at), Pointed) and self.pick(*[False] * 9, True):
            at = self._by_pointer(buffer, at)
        if not self.add(Load(name, buffer, at, mask, other, late, self._policy())):
            return None
        return self._loaded(name, keep=keep)

    def pointer(self, buffer: str, index: str, start: str | None = None) -> str:
        """Add a pointer that has a meaning, and return its name."""
        name = self.name()
        added = self.add(Pointer(name, buffer, index, start))
        assert added
        return name

    def _by_pointer(self, buffer: str, index: str) -> str:
        """Return pointers to elements at indices: now and then from others, which may be outside of the buffer."""
        if self.value(index).dtype not in {"int32", "int64"} or self.pick(False, False, True):
            return self.pointer(buffer, index)
        number = self.pick(1, 4, 16, -3, 100)
        start = self.pointer(buffer, self.must("sub", index, value=number, flag=True))
        dtype = self.value(index).dtype
        shape = self.pick((), self.value(index).shape)
        if self.pick(True, False):
            return self.pointer(buffer, self.full(None, number, dtype, shape), start)
        half = self.pointer(buffer, self.full(None, number - 1, dtype, shape), start)
        return self.pointer(buffer, self.full(None, 1, dtype, shape), half)

    def _policy(self) -> Any:
        """Draw how an access goes through the caches."""
        return self.pick(*[""] * 12, *POLICIES)

    def _apart(self, index: str, size: int) -> str:
        """Return indices, now and then those of every second, third or fourth element, or counted from the end.

        Args:
            size: of the buffer.
        """
        match self.pick(*[""] * 7, "steps", "steps", "back"):
            case "steps":
                step = self.pick(2, 3, 4)
                if max(int(env[index].data.max()) for env in self._machine.blocks) < size // step:
                    apart = self.beside("mul", index, step)
                    return self.beside("add", apart, step - 1) if self.pick(False, True) else apart
            case "back":
                return self.must("sub", index, value=size - 1, flag=True, axis=1)
        return index

    def _loaded(self, name: str, *, keep: bool = True) -> str:
        """Take up what was loaded, and return its name; a bfloat16 becomes a float32 where no bfloat16 is computed with."""
        if not self.brain and self.value(name).dtype == "bfloat16":
            name = self.must("cast", name, dtype="float32")
        if keep:
            self.pool.append(name)
        return name

    def _other(self, dtype: str, index: str) -> str:
        """Return what is loaded where a mask does not hold: a constant, or another value for each element."""
        shape = self.value(index).shape
        if dtype == "bfloat16" and not self.brain:
            return self.must("cast", self.full(None, self.pick(0, 1, 7, 60), "float32", shape), dtype=dtype)
        if self.pick(False, True):
            found = self.chosen(lambda one: one.dtype == dtype and one.shape == shape) if self.pick(True, False) else None
            found = found or self.op("cast", index, keep=False, dtype=dtype)
            if found is not None:
                return found
        return self.full(None, self.pick(0, 1, 7, 60 if dtype == "bfloat16" else 100), dtype, shape)

    def _narrow(self, index: str) -> str:
        """Return indices, now and then in another dtype that holds them in every block, most often a small one."""
        if self.pick(True, True, True, False):
            return index
        most = max(int(env[index].data.max()) for env in self._machine.blocks)
        dtypes = [one for one in ("int8", "uint8", "int16", "uint16", "int64", "uint32") if most <= range_of(one)[1]]
        return self.must("cast", index, dtype=self.pick(dtypes[0], *dtypes))

    def look_up(self, places: str) -> str | None:
        """Load elements of an input at computed places, and return its name; all of the places are inside."""
        buffer, most = self.pick(*self.inputs_so_far()), range_of(self.value(places).dtype)[1]
        inside = self.must("and", places, value=min(most, (1 << buffer.size.bit_length() - 1) - 1), flag=True)
        return self.load(buffer.name, self.value(places).shape, inside)

    def load_one(self, buffer: str) -> str:
        """Load the only element of an input, and return its name."""
        name = self.name()
        added = self.add(Load(name, buffer, self.full(None, 0)))
        assert added
        return name

    def mask(self, index: str, shape: tuple[int, ...]) -> str:
        """Return which of the indices lie below, or above, a number; or which rows and columns do."""
        if len(shape) == 2 and self.pick(False, True):
            lines = []
            for axis, extent in enumerate(shape):
                line = self.must("expand_dims", self.must("arange", shape=(extent,)), axis=1 - axis)
                op = "ge" if self.pick(False, False, False, True) else "lt"
                lines.append(self.beside(op, line, self.integer(0, extent)))
            return self.must("and", *lines)
        most = min(max(1, 2 * math.prod(shape) - 1), range_of(self.value(index).dtype)[1])
        return self.beside(self.pick("lt", "ge", "ne"), index, self.integer(0, most))

    def outputs(self) -> None:
        """Store values, each in an output of its own: first those that nothing uses, since the others show in them."""
        used = {name for one in walk(tuple(self.body)) for name in uses(one)}
        pool = [*(one for one in self.pool if one in used), *(one for one in self.pool if one not in used)]
        stored: list[str] = []
        for buffer in _OUTPUTS[: self.pick(1, 2, 3, 4, 6)]:
            wanted = [one for one in pool if one not in stored]
            if not wanted:
                return
            name = str(self.pick(*reversed(wanted[-3:])))
            stored.append(name)
            name = self._with_others(name, [one for one in wanted if one not in used], stored)
            result = name
            if self.value(name).dtype == "bool":
                result = self.must("cast", name, dtype="int32")
            if self.value(name).dtype == "float32" and self.pick(False, False, True):
                result = self.op("cast", name, keep=False, dtype="bfloat16") or name
            one = self.value(result)
            self._output(buffer, result, one)

    def _with_others(self, name: str, unused: list[str], stored: list[str]) -> str:
        """Combine a value with up to three that nothing uses, so that these show in the output too; return the result.

        Args:
            stored: takes up their names.
        """
        for other in unused[: -1 - self.pick(3, 0, 2, 6) : -1]:
            one, two = self.value(name), self.value(other)
            whole = not {one.dtype, two.dtype} & {*FLOATS}
            if other not in stored and fit(one, two) and (whole or {one.dtype, two.dtype} <= {*FLOATS}):
                after = self.op("xor" if whole else self.pick("add", "maximum"), name, other, keep=False)
                if after is not None:
                    stored.append(other)
                    name = after
        return name

    def _output(self, buffer: str, name: str, one: Value) -> None:
        size = max(1, one.data.size) * math.prod(self.grid)
        atomic = one.dtype in (*ATOMIC, "float32", "float64") and self.pick(False, False, False, True)
        if not atomic and self._stored_otherwise(buffer, name, one):
            return
        apart = not atomic and self.pick(*[False] * 7, True)
        self._buffers.append(Buffer(buffer, size * (2 if apart else 1), one.dtype, written=True, zeroed=atomic))
        self._restart()
        index = self._apart(self.index(one.shape), 2 * size) if apart else self.index(one.shape)
        mask = self.mask(index, one.shape) if self.pick(False, False, True) else None
        if atomic:
            lanes = self.pick("apart", "meet", "find what was there")
            if lanes == "meet":  # several in one element
                index = self.beside("and", index, size // 2)
            signs = ("max", "min") if one.dtype in UNSIGNED else ()
            kinds = ("add", "max", "min", "and", "or", "xor", *signs, *(("xchg", "cas") if lanes != "meet" else ()))
            kind = self.pick(*(each for each in kinds if one.dtype in atomic_dtypes(each)))
            compare = self._compared(one) if kind == "cas" else None
            if lanes == "find what was there" and "r" not in (other.name for other in self._buffers):
                kind = self.pick("add", kind) if compare is None else kind
                mask = mask if compare is None else None
                order = self.pick("", "", "relaxed", "acquire", "release")
                found = Atomic(kind, buffer, self._narrow(index), name, mask, self.name(), compare, order)
                self._output_before(found, index)
            else:
                mask = mask if compare is None else None
                at = self._narrow(index)
                if lanes == "apart" and kind in _OPPOSITE and self.pick(True, False):
                    twice = self.op("add", name, name, keep=False)
                    if twice is not None:  # so that what is there is below 0 as well
                        self.add(Atomic(_OPPOSITE[kind], buffer, at, twice, mask))
                atomic = self.add(Atomic(kind, buffer, at, name, mask, compare=compare))
                if not atomic:  # floats that may be rounded
                    self._buffers[-1] = replace(self._buffers[-1], zeroed=False)
                    self._restart()
                    assert self.add(Store(buffer, self.index(one.shape), name))
        else:
            assert self.add(Store(buffer, self._narrow(index), name, mask, self._policy()))

    def _stored_otherwise(self, buffer: str, name: str, one: Value, var: str | None = None, span: int = 1) -> bool:
        """Store a value by other means than indices, now and then, in an output of its own; return whether it was stored.

        Args:
            var: of a loop; each iteration has a block. span: how many there are.
        """
        return False

    def _output_before(self, atomic: Atomic, index: str) -> None:
        """Add an atomic operation that no other meets, and store what it finds in an output of its own."""
        one = self.value(atomic.value)
        size = max(1, one.data.size) * math.prod(self.grid)
        assert self.add(atomic)
        assert atomic.name is not None
        self._buffers.append(Buffer("r", size, one.dtype, written=True))
        self._restart()
        assert self.add(Store("r", index, atomic.name))
