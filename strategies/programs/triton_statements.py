"""Draws statements of a Triton program: operations, loops and branches."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from mhc.programs.triton.grammar import COMPARISONS, FLOATS, Buffer, Carry, For, If
from mhc.programs.triton.values import Value, value
from mhc.strategies.programs.triton_begun import ITERATIONS
from mhc.strategies.programs.triton_products import Products

_SHIFTS = (-1, -3, (1 << 31) - 2, 1 << 33, -(1 << 31) - 2)
"""What all indices of a loop are moved by, now and then."""
_INPUTS = 5
"""A loop whose bound is loaded adds an input, up to so many."""


class Statements(Products):
    """Draws statements into a program."""

    def statement(self, depth: int) -> None:
        """Draw a statement; where it has no one meaning, nothing is added.

        Args:
            depth: in how many bodies it lies.
        """
        kinds = self.kinds()
        if depth < 2:
            share = 4 * depth + 1  # where no loop is around, bodies are made of them anyway
            kinds += [*[lambda: self._loop(depth)] * 3 * share, *[lambda: self._branch(depth)] * 2 * share]
        if depth == 0:
            kinds += [self._products] * 2
        self._blocks.pick(*kinds)()

    def _carried(self) -> list[str]:
        """Draw what a loop or a branch starts with: values of different names."""
        blocks = self._blocks
        starts = [blocks.chosen(lambda one: True) for _ in range(blocks.pick(1, 2, 1, 2, 3))]
        found = list(dict.fromkeys(one for one in starts if one is not None))
        if found and blocks.pick(False, False, True):  # two that may be swapped, or that begin alike
            one = blocks.value(found[0])
            other = blocks.chosen(lambda other: _same(other, one) and not np.array_equal(other.data, one.data))
            found.append(other or blocks.chosen(lambda other: _same(other, one)) or found[0])
        return found

    def _loop(self, depth: int) -> None:
        blocks = self._blocks
        starts = self._carried()
        if not starts:
            return
        begin, end, step = self._range()
        shift = blocks.pick(*[0] * 9, *_SHIFTS)
        wide = abs(shift) > ITERATIONS or blocks.pick(*[False] * 11, True)
        dtype = "int64" if wide else "int32"
        kind = blocks.pick("range", "tl.range", "tl.range", "tl.static_range", "while")
        stages = blocks.pick(0, 2, 3, 4) if kind == "tl.range" else 0
        first, bound, by = self._ends(kind, dtype, begin + shift, end + shift, step)
        if first is not None:
            begin = int(blocks.value(first).data) - shift
        if bound is not None:
            end = int(blocks.value(bound).data) - shift
        unroll = blocks.pick(0, 0, 0, 2, 3, 4) if kind == "tl.range" else 0
        flags = self._flags() if kind == "tl.range" else ()
        described = self._descriptor() if blocks.has_descriptors() and blocks.pick(*[False] * 6, True) else None
        var, names = blocks.name(), [blocks.name() for _ in starts]
        pointer = self._walked_pointer(end - begin) if not blocks.in_function and blocks.pick(*[False] * 4, True) else None
        index = value(dtype, np.dtype(dtype).type(begin + shift))
        kept = blocks.enter({var: index, **dict(zip(names, starts, strict=True))})
        before = set(blocks.pool)
        number = self._number_of(var, shift, dtype)
        self._numbers.append(number)
        walked = self._walk_on(pointer) if pointer is not None else ()
        self._access_in_loop(number, depth)
        if described is not None:
            self._walked(described, number)
        for _ in range(blocks.pick(0, 1, 2, 1)):
            self.statement(depth + 1)
        self._store(depth, before, number, max(begin, *range(begin, end, step), 0) + 1)
        carried = tuple(self._pass_on(name, start, before, names) for name, start in zip(names, starts, strict=True))
        carried += walked
        self._numbers.pop()
        body = blocks.leave(kept)
        if not body:
            return
        loop = For(var, end + shift, body, begin + shift, step, carried, kind, stages, bound, wide, first, by, unroll, flags)
        if blocks.add(loop):
            blocks.pool += names
            self._apart(names)

    def _apart(self, names: Sequence[str]) -> None:
        """Draw, now and then, the difference of two values that a loop carried: which one is which."""
        blocks = self._blocks
        first, *others = ((name, blocks.value(name)) for name in names)
        alike = [name for name, one in others if _same(one, first[1]) and one.dtype != "bool"]
        if alike and blocks.pick(False, True):
            blocks.op("sub", first[0], blocks.pick(*alike))

    def _range(self) -> tuple[int, int, int]:
        """Return where a loop begins and ends, and its step; the step may not divide what lies in between."""
        blocks = self._blocks
        begin, step = blocks.pick((0, 1), (0, 1), (1, 1), (0, 2), (0, 3), (1, 2))
        if blocks.pick(*[False] * 6, True):
            return begin, blocks.integer(0, begin), step
        end = begin + step * blocks.integer(1, ITERATIONS) - blocks.integer(0, step - 1)
        if end > 1 and blocks.pick(False, False, False, True):
            return min(end - 1, ITERATIONS - 1), 0, -step
        return begin, end, step

    def _ends(self, kind: str, dtype: str, begin: int, end: int, step: int) -> tuple[str | None, str | None, str | None]:
        """Return the names of a loop's begin, end and step, where Triton does not know them when it compiles."""
        blocks = self._blocks
        found: list[str | None] = [None, None, None]
        if kind == "tl.static_range":
            return None, None, None
        inner = [one for one in self._numbers if dtype == "int32"]
        if inner and step > 0 and blocks.pick(False, True):  # as the loop around it goes on
            at, outer = blocks.pick(1, 1, 0), inner[-1]
            found[at] = outer if at == 0 or blocks.pick(False, True) else blocks.beside("add", outer, blocks.pick(1, 2))
        for at, (number, share) in enumerate(((begin, 9), (end, 2), (step, 11))):
            few = len(blocks.inputs_so_far()) < _INPUTS
            if found[at] is None and few and (at != 2 or step > 0) and blocks.pick(*[False] * share, True):
                found[at] = self._bound(number, dtype)
        return found[0], found[1], found[2]

    def _bound(self, end: int, dtype: str) -> str | None:
        """Return a number that Triton does not know when it compiles: it is loaded, an argument, or computed of one."""
        blocks = self._blocks
        if blocks.in_function or abs(end) > 1 << 20 or blocks.pick(True, False):
            return blocks.load_one(blocks.input(dtype, 1, end, end))
        block = blocks.pick(1, 4, 16)
        if block == 1 or end < 1:
            return blocks.must("full", dtype=dtype, value=end, flag=True)
        number = blocks.must("full", dtype=dtype, value=end * block - blocks.integer(0, block - 1), flag=True)
        return blocks.must("cdiv", number, value=block, flag=True)

    def _number_of(self, var: str, shift: int, dtype: str) -> str:
        """Return the index of a loop as an int32, without what moves all of them."""
        blocks = self._blocks
        if shift:
            var = blocks.must("sub", var, blocks.full(None, shift, dtype))
        return var if dtype == "int32" else blocks.must("cast", var, dtype="int32")

    def _walked_pointer(self, length: int) -> tuple[Buffer, str] | None:
        """Return an input, and pointers to a block of it that a loop moves on in every iteration."""
        blocks = self._blocks
        one = blocks.pick(*blocks.inputs_so_far())
        size = one.size // (math.prod(blocks.grid) * ITERATIONS)
        if size < 1 or size & (size - 1) or not 0 <= length <= ITERATIONS:
            return None
        return one, blocks.pointer(one.name, blocks.index((size,)))

    def _walk_on(self, pointer: tuple[Buffer, str]) -> tuple[Carry, ...]:
        """Load from pointers that a loop carries, move them on, and return how they are carried."""
        blocks, (one, start) = self._blocks, pointer
        name = blocks.name()
        blocks.carry(name, start)
        size = one.size // (math.prod(blocks.grid) * ITERATIONS)
        blocks.load(one.name, (size,), name)
        stride = size * math.prod(blocks.grid)
        index = blocks.full(None, stride, shape=blocks.pick((), (size,)))
        return (Carry(name, start, blocks.pointer(one.name, index, name)),)

    def _access_in_loop(self, var: str, depth: int) -> None:
        """Load another block of an input in every iteration, or change elements in place; or both, for a running total."""
        blocks = self._blocks
        match blocks.pick(*["load", "change", "both"] * 2, "branch"):
            case "load":
                self._in_loop(var)
            case "change":
                self._update()
            case "branch":
                self._branch(depth + 1)
            case "both":
                loaded = self._in_loop(var)
                if loaded is not None and blocks.may_update(blocks.value(loaded)):
                    blocks.update(loaded, var)

    def _in_loop(self, var: str) -> str | None:
        """Load a block of an input that is another one in every iteration, often without the same lanes; return its name."""
        blocks = self._blocks
        one = blocks.pick(*blocks.inputs_so_far())
        size = one.size // (math.prod(blocks.grid) * ITERATIONS)
        shape = self._factors(size) if size > 1 and blocks.pick(False, True) else (max(size, 1),)
        if one.size < ITERATIONS or size & (size - 1):
            return None
        index = blocks.index(shape)
        stride = blocks.beside("mul", var, size * math.prod(blocks.grid))
        mask = blocks.mask(index, shape) if blocks.pick(False, True) else None
        loaded = blocks.load(one.name, shape, blocks.must("add", index, stride), mask)
        if loaded is not None and blocks.pick(True, False):  # a second use
            like = blocks.chosen(lambda other: other.dtype == one.dtype and other.shape == shape)
            if like is not None:
                blocks.op(blocks.pick("add", "maximum"), loaded, like)
        return loaded

    def _pass_on(self, name: str, start: str, before: set[str], names: Sequence[str] = ()) -> Carry:
        """Return what is carried on: a value made in the body, or one made of it and of what was carried.

        Args:
            names: all that is carried; now and then one takes the place of another.
        """
        blocks = self._blocks
        one = blocks.value(start)
        others = [other for other in names if other != name and _same(blocks.value(other), one)]
        if others and blocks.pick(False, True):
            return Carry(name, start, str(blocks.pick(*others)))
        if blocks.pick(*[False] * 11, True):  # what is known before the loop
            outside = [other for other in before if _same(blocks.value(other), one)]
            return Carry(name, start, str(blocks.pick(*sorted(outside)))) if outside else Carry(name, start, start)
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

    def _store(self, depth: int, before: set[str], var: str | None = None, span: int = 1) -> None:
        """Store a value made in a body, now and then; not in a body within a loop, where it may differ in each iteration."""
        blocks = self._blocks
        made = [one for one in blocks.pool if one not in before]
        if made and depth == 0 and blocks.pick(False, True):
            blocks.store_inside(str(blocks.pick(*reversed(made[-3:]))), var, span)

    def _branch(self, depth: int) -> None:
        blocks = self._blocks
        starts, condition = self._carried(), self._decided()
        if not starts or condition is None:
            return
        names = [blocks.name() for _ in starts]
        kept = blocks.enter(dict(zip(names, starts, strict=True)))
        before = set(blocks.pool)
        if self._numbers and blocks.pick(False, True, True):
            self._update()
        for _ in range(blocks.integer(1, 2)):
            self.statement(depth + 1)
        self._store(depth, before)
        carried = tuple(self._pass_on(name, start, before, names) for name, start in zip(names, starts, strict=True))
        body = blocks.leave(kept)
        if not body:
            return
        branch = If(condition, body, carried)
        branch = self._or_else(branch, depth) if blocks.pick(False, True) else branch
        if not blocks.add(branch):
            return
        blocks.pool += names
        if blocks.pick(False, False, True):  # a choice by the same condition
            blocks.op("where", condition, *blocks.pick((names[0], starts[0]), (starts[0], names[0])))

    def _decided(self) -> str | None:
        """Return a condition of a branch: of a loop's index now and then, or made of two conditions."""
        blocks = self._blocks
        condition = self._one_condition()
        if self._numbers and blocks.pick(False, True):
            condition = blocks.op(blocks.pick(*COMPARISONS), self._numbers[-1], value=blocks.pick(0, 1, 2), flag=True)
        match blocks.pick(*[""] * 5, "not", "two"):
            case "not" if condition is not None:
                return blocks.op("invert", condition, keep=False)
            case "two" if condition is not None:
                other = self._one_condition()
                return other and blocks.op(blocks.pick("and", "or", "xor", "ne"), condition, other, keep=False)
        return condition

    def _or_else(self, branch: If, depth: int) -> If:
        """Draw what is done where the condition of a branch does not hold."""
        blocks = self._blocks
        kept = blocks.enter({one.name: one.start for one in branch.carried})
        before = set(blocks.pool)
        for _ in range(blocks.integer(1, 2)):
            self.statement(depth + 1)
        self._store(depth, before)
        ends = [self._pass_on(one.name, one.start, before).after for one in branch.carried]
        other = blocks.leave(kept)
        if not other:
            return branch
        carried = tuple(replace(one, otherwise=end) for one, end in zip(branch.carried, ends, strict=True))
        return replace(branch, carried=carried, otherwise=other)


def _same(a: Value, b: Value) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape
