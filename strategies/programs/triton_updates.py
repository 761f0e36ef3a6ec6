"""Draws what a Triton program changes in place: elements that it loads, stores and loads again, also in each iteration."""

import math
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from mhc.programs.triton.grammar import COMPARISONS, FLOATS, Buffer, Store
from mhc.programs.triton.values import Pointed, Value
from mhc.strategies.programs.triton_blocks import Blocks


class _Place(NamedTuple):
    """Where elements are changed: at indices, which may be pointers. Within a function only its own places are known."""

    indices: str
    at: str
    in_function: bool


class UpdatedBlocks(Blocks):
    """A program that is being drawn, with elements that are changed in place: all of them are in the buffer `u`.

    There is a barrier before each access, so that an element may be had by another lane of the block than before. Each block
    has elements of its own, which the evaluator sees to.
    """

    _shape: tuple[int, ...] = ()
    _places: tuple[_Place, ...] = ()
    _masks: tuple[tuple[str, bool], ...] = ()  # and whether they are in a function

    def may_update(self, one: Value) -> bool:
        """Return whether elements that are changed in place can be changed by a value."""
        held = self._held()
        if held is None:
            return one.dtype != "bool" and (self.brain or one.dtype != "bfloat16")
        try:
            return np.broadcast_shapes(one.shape, self._shape) == self._shape and not isinstance(one, Pointed)
        except ValueError:
            return False

    def update(self, name: str, var: str | None = None) -> None:
        """Draw changes of elements in place: loads, stores under masks, and loads again, at few places.

        Args:
            name: of what they are changed by. var: of the loop around, by which places and masks may go on.
        """
        if self._held() is None:
            self._updated(self.value(name))
        held = self._held()
        if held is None or (held.dtype == "bfloat16" and not self.brain):
            return
        dtype = held.dtype
        new = name if self.value(name).dtype == dtype else self.op("cast", name, dtype=dtype, keep=False)
        for _ in range(self.pick(1, 1, 2)):
            place = self._where(var)
            if new is not None and self.pick(True, True, True, False):
                new = self._made_after(place, new, dtype, var)
            target = place if self.pick(True, True, var is None, False) else self._where(var, place)
            if new is None or not self._put(target, new, var):
                return

    def _made_after(self, place: _Place, by: str, dtype: str, var: str | None) -> str | None:
        """Load elements, and return what is made of them and of a value."""
        before = self._found(place, var)
        ops = ("add", "sub", "maximum", "minimum") if dtype in FLOATS else ("add", "sub", "xor", "mul", "maximum")
        return before and self.op(self.pick(ops[0], *ops), before, by)

    def _put(self, place: _Place, new: str, var: str | None) -> bool:
        """Store a value, under a mask more often than not, and load it again now and then; return whether it is stored."""
        mask = self._some_lanes(place, var) if self.pick(True, False, True) else None
        if not self.add(Store("u", place.at, new, mask, self._policy())):
            return False
        if self.pick(True, False):
            self._found(place, var, mask)
        return True

    def _found(self, place: _Place, var: str | None, mask: str | None = None) -> str | None:
        """Load elements, without a mask most often: else with that of a store before, or another one."""
        match self.pick("all", "all", "all", "same", "other"):
            case "all":
                mask = None
            case "other":
                mask = self._some_lanes(place, var)
        return self.load("u", self._shape, place.at, mask)

    def _where(self, var: str | None, but: _Place | None = None) -> _Place:
        """Return where elements are changed: most often where some were before, but not at one place."""
        env = self._machine.blocks[0]
        known = [one for one in self._places if one.in_function == self.in_function and one.at in env and one != but]
        if known and self.pick(True, True, True, False):
            place: _Place = self.pick(known[-1], known[-1], *reversed(known[-3:]))
            return place
        index, size = self.index(self._shape), math.prod(self._shape)
        match self.pick(*["plain"] * (3 if but is None else 1), "turned", "goes on", "goes on", "mixed"):
            case "turned" if size > 1:  # the same elements in another order
                index = self.beside("xor", index, self.pick(1, size - 1, size // 2))
            case "mixed" if size > 2:  # the same elements, of which the first stays where it is
                times = self.beside("mul", index, self.pick(3, 5, size // 2 + 1))
                apart = self.must("and", self.must("xor", times, index), value=size - 1, flag=True)
                index = self.must("xor", index, apart)
            case "goes on" if size > 1 and var is not None:
                number = self.must("and", var, value=size - 1, flag=True)
                index = self.must("xor", index, number)
        at = self._by_pointer("u", index) if self.pick(*[False] * 6, True) else index
        self._places += (_Place(index, at, self.in_function),)
        return self._places[-1]

    def _some_lanes(self, place: _Place, var: str | None) -> str:
        """Return a mask: one that was made before, what it leaves out, one that each iteration changes, or another one."""
        env = self._machine.blocks[0]
        known = [one for one, inside in self._masks if inside == self.in_function and one in env]
        match self.pick("new", "again", "again", "rest", "goes on"):
            case "again" if known:
                return known[-1]
            case "rest" if known:
                return self.must("invert", known[-1])
            case "goes on" if var is not None and self._shape:
                few = self.must("and", place.indices, value=3, flag=True)
                return self.must(self.pick(*COMPARISONS), few, var)
        mask = self.mask(place.indices, self._shape)
        self._masks += ((mask, self.in_function),)
        return mask

    def _held(self) -> Buffer | None:
        return next((one for one in self._buffers if one.updated), None)

    def _updated(self, one: Value) -> bool:
        """Return whether a block of this dtype and shape can be changed in place; add the buffer if there is none."""
        size, held = max(1, one.data.size) * math.prod(self.grid), self._held()
        if one.dtype == "bool" or (held is not None and (held.dtype, held.size) != (one.dtype, size)):
            return False
        if held is None:
            self._shape = one.shape
            self._buffers.append(replace(self._input("u", one.dtype, size), written=True, updated=True))
            self._restart()
        return True
