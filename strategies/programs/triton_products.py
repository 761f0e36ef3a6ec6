"""Draws products of matrices into a Triton program, and loops that sum them up."""

import math

import numpy as np

from mhc.programs.triton.grammar import COMPARISONS, Carry, For, If, LoopFlag
from mhc.programs.triton.values import value
from mhc.strategies.programs.triton_begun import ITERATIONS
from mhc.strategies.programs.triton_descriptors import Descriptors

_LARGEST = 1 << 15
"""No input of factors has more elements."""


class Products(Descriptors):
    """Draws such products into a program."""

    _wide, _tf32 = "float32", False

    def _products(self) -> None:
        """Draw a product of matrices: alone, or summed up by a loop in which its factors may be used twice."""
        blocks = self._blocks
        dtype = blocks.pick("float16", "float32", "int8", *(["bfloat16"] if blocks.brain else []))
        m, n, k = blocks.pick(16, 32, 64), blocks.pick(16, 32), 32 if dtype == "int8" else blocks.pick(16, 32)
        size = math.prod(blocks.grid) * ITERATIONS
        if len(blocks.inputs_so_far()) > 2 or m * k * size > _LARGEST:
            return
        self._wide, self._tf32 = "int32" if dtype == "int8" else "float32", dtype == "float32" and blocks.pick(False, True)
        a = blocks.input(self._narrow(dtype), m * k * size, -4, 4)
        b = blocks.input(self._narrow(dtype), k * n * size, -4, 4)
        if blocks.pick(True, True, False):
            self._sum_of_products((a, (m, k)), (b, (k, n)), dtype)
        else:
            self._single(a, b, (m, n, k), dtype)

    def _narrow(self, dtype: str) -> str:
        """Return in which dtype factors lie in memory: now and then they are cast when they are loaded."""
        return str(self._blocks.pick(*[dtype] * 5, {"float16": "int8", "float32": "float16"}.get(dtype, dtype)))

    def _single(self, a: str, b: str, sizes: tuple[int, int, int], dtype: str) -> None:
        """Draw a product, of several pairs of matrices now and then, and what is done with it."""
        blocks, (m, n, k) = self._blocks, sizes
        first = blocks.full(None, 0)
        if m <= 32 and blocks.pick(True, True, False):
            pairs = blocks.pick(2, 4)
            one, two = (blocks.load(name, (pairs, *shape)) for name, shape in ((a, (m, k)), (b, (k, n))))
            assert one is not None
            assert two is not None
            one, two = self._in(one, dtype), self._in(two, dtype)
            made = self._product(one, two, blocks.full(None, 0, self._wide, (pairs, m, n)))
        else:
            one, two = self._in(self._tile(a, (m, k), first), dtype), self._in(self._tile(b, (k, n), first), dtype)
            made = self._product(one, two, self._start((m, n)))
        if made is None:
            return
        blocks.pool.append(made)
        if n == k and len(blocks.value(made).shape) == 2 and blocks.pick(False, True):  # a product of it
            small = blocks.full(blocks.value(made), -4), blocks.full(blocks.value(made), 4)
            inside = blocks.must("minimum", blocks.must("maximum", made, small[0]), small[1])
            factor = blocks.op("cast", inside, keep=False, dtype=dtype)
            again = factor and self._product(factor, two, blocks.pick(made, self._start((m, n))))
            if again is not None:
                blocks.pool.append(again)
        elif len(blocks.value(made).shape) == 2 and blocks.pick(False, False, True):  # the same once more, added to it
            again = self._product(one, two, made)
            if again is not None:
                blocks.pool.append(again)
        elif blocks.pick(True, False):
            op = blocks.pick("max", "min", "sum", "cumsum", "argmax")
            blocks.op(op, made, axis=blocks.integer(0, len(blocks.value(made).shape) - 1), flag=blocks.pick(True, False))

    def _in(self, name: str, dtype: str) -> str:
        return name if self._blocks.value(name).dtype == dtype else self._blocks.must("cast", name, dtype=dtype)

    def _start(self, shape: tuple[int, int]) -> str:
        """Return what a product is added to."""
        blocks, wide = self._blocks, self._wide
        held = blocks.chosen(lambda one: one.dtype == wide and one.shape == shape) if blocks.pick(False, True) else None
        held = held or (blocks.made(wide, shape) if blocks.pick(False, False, True) else None)
        return held or blocks.full(None, 0, wide, shape)

    def _product(self, one: str, two: str, total: str) -> str | None:
        """Add a product of two matrices that is added to a third one: in it, or after it."""
        blocks = self._blocks
        if blocks.pick(True, True, False):
            return blocks.op("dot", one, two, total, flag=self._tf32, keep=False)
        zero = blocks.full(blocks.value(total), 0)
        made = blocks.op("dot", one, two, zero, flag=self._tf32, keep=False)
        return made and blocks.op("add", *blocks.pick((total, made), (made, total)), keep=False)

    def _sum_of_products(self, a: tuple[str, tuple[int, int]], b: tuple[str, tuple[int, int]], dtype: str) -> None:
        """Draw a loop that adds up products."""
        blocks = self._blocks
        total = self._start((a[1][0], b[1][1]))
        iterations, kind = blocks.integer(1, ITERATIONS), blocks.pick("range", "tl.range")
        var, name, more = blocks.name(), blocks.name(), blocks.name()
        extra = blocks.full(None, 0, dtype, a[1])
        by_descriptor = self._tiles(*a), self._tiles(*b)
        kept = blocks.enter({var: value("int32", np.int32(0)), name: total, more: extra})
        one = self._in(self._tile(*a, var, by_descriptor[0]), dtype)
        two = self._in(self._tile(*b, var, by_descriptor[1]), dtype)
        if blocks.pick(False, False, True):  # a factor that is computed
            like = self._like(blocks.value(two), broadcast=False)
            two = blocks.op(blocks.pick("minimum", "maximum", "sub"), two, like, keep=False) or two
        after = self._product(one, two, self._before(name, var))
        if after is not None and blocks.pick(False, False, True):  # a product that is added to another one
            other = blocks.op(blocks.pick("maximum", "add", "minimum"), one, self._like(blocks.value(one), broadcast=False))
            after = self._product(other or one, two, after) or after
        if after is not None and blocks.pick(*[False] * 5, True):
            after = self._in_a_branch(name, var, after)
        twice = blocks.op(blocks.pick("add", "maximum"), more, one) if blocks.pick(True, False) else more
        body = blocks.leave(kept)
        if after is None or twice is None:
            return
        carried = (Carry(name, total, after), Carry(more, extra, twice))
        stages, flags = (blocks.pick(0, 2, 3, 4), self._flags()) if kind != "range" else (0, ())
        if blocks.add(For(var, iterations, body, carried=carried, kind=kind, stages=stages, flags=flags)):
            blocks.pool += [more, name]

    def _before(self, name: str, var: str) -> str:
        """Return what a product is added to in an iteration: what was summed up, or what is made of it."""
        blocks = self._blocks
        match blocks.pick(*[""] * 5, "reset", "reset", "changed", "read"):
            case "reset":
                holds = blocks.op(blocks.pick(*COMPARISONS), var, value=blocks.pick(0, 1, 2), flag=True, keep=False)
                if holds is not None:
                    return blocks.must("where", holds, name, value=0, flag=True, axis=blocks.pick(0, 1))
            case "changed":
                op = blocks.pick("maximum", "sub", "minimum")
                return blocks.op(op, name, self._like(blocks.value(name)), keep=False) or name
            case "read":
                blocks.op(blocks.pick("max", "min"), name, axis=blocks.pick(0, 1))
        return name

    def _in_a_branch(self, name: str, var: str, after: str) -> str:
        """Pass on the sum in some iterations only, and return its name."""
        blocks = self._blocks
        holds = blocks.must(blocks.pick(*COMPARISONS), var, value=blocks.pick(1, 0, 2), flag=True)
        chosen = blocks.name()
        kept = blocks.enter({chosen: after})
        other = blocks.op(blocks.pick("neg", "abs"), chosen, keep=False) if blocks.pick(True, False) else None
        other = other or blocks.full(blocks.value(name), 0)
        branch = If(holds, blocks.leave(kept), (Carry(chosen, after, other),))
        return chosen if blocks.add(branch) else after

    def _flags(self) -> tuple[LoopFlag, ...]:
        """Draw options of `tl.range` that change no result."""
        flags: tuple[LoopFlag, ...] = self._blocks.pick(
            *[()] * 6,
            ("flatten",),
            ("flatten",),
            ("disable_licm",),
            ("disallow_acc_multi_buffer",),
            ("flatten", "disable_licm"),
        )
        return flags

    def _tiles(self, buffer: str, shape: tuple[int, int]) -> tuple[str, tuple[int, ...], bool] | None:
        """Add a descriptor of the matrices of an input, now and then; return it, their shape, and if they are turned."""
        blocks = self._blocks
        if not blocks.has_descriptors() or not blocks.pick(False, False, True):
            return None
        turned = blocks.pick(False, True)
        block = shape[::-1] if turned else shape
        rows = block[0] * math.prod(blocks.grid) * ITERATIONS - blocks.pick(0, blocks.integer(0, block[0] - 1))
        name = blocks.described(buffer, (rows, block[1]), block, block[1])
        return None if name is None else (name, block, turned)

    def _tile(
        self, buffer: str, shape: tuple[int, int], var: str, described: tuple[str, tuple[int, ...], bool] | None = None
    ) -> str:
        """Load a matrix, sometimes as its transpose."""
        blocks = self._blocks
        if described is not None:
            name, block, turned_over = described
            number = blocks.beside("mul", var, math.prod(blocks.grid))
            place = blocks.block_number()
            number = number if place is None else blocks.must("add", number, place)
            loaded = blocks.load_block(name, (blocks.beside("mul", number, block[0]), blocks.full(None, 0)))
            assert loaded is not None
            return blocks.must("permute", loaded, axes=(1, 0)) if turned_over else loaded
        if blocks.pick(False, True):
            turned = self._tile_of(buffer, (shape[1], shape[0]), var)
            return blocks.must("permute", turned, axes=(1, 0))
        return self._tile_of(buffer, shape, var)

    def _tile_of(self, buffer: str, shape: tuple[int, int], var: str) -> str:
        blocks = self._blocks
        size = math.prod(shape)
        stride = blocks.beside("mul", var, size * math.prod(blocks.grid))
        loaded = blocks.load(buffer, shape, blocks.must("add", blocks.index(shape), stride))
        assert loaded is not None
        return loaded
