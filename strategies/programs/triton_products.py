"""Draws products of matrices into a Triton program, and loops that sum them up."""

import math

import numpy as np

from mhc.programs.triton.grammar import Carry, For
from mhc.programs.triton.values import value
from mhc.strategies.programs.triton_begun import ITERATIONS
from mhc.strategies.programs.triton_descriptors import Descriptors


class Products(Descriptors):
    """Draws such loops into a program."""

    def _products(self) -> None:
        """Draw a product of matrices, sometimes summed up by a loop in which its factors are used twice."""
        blocks = self._blocks
        dtype = blocks.pick("float16", "float32", "int8", *(["bfloat16"] if blocks.brain else []))
        m, n, k = blocks.pick(16, 32), blocks.pick(16, 32), 32 if dtype == "int8" else blocks.pick(16, 32)
        wide = "int32" if dtype == "int8" else "float32"
        tf32 = dtype == "float32" and blocks.pick(False, True)
        blocks_of = math.prod(blocks.grid)
        if len(blocks.inputs_so_far()) > 2:
            return
        a = blocks.input(dtype, m * k * blocks_of * ITERATIONS, -4, 4)
        b = blocks.input(dtype, k * n * blocks_of * ITERATIONS, -4, 4)
        held = blocks.chosen(lambda one: one.dtype == wide and one.shape == (m, n)) if blocks.pick(False, True) else None
        held = held or (blocks.made(wide, (m, n)) if blocks.pick(False, False, True) else None)
        total = held or blocks.full(None, 0, wide, (m, n))
        iterations, kind = blocks.integer(1, ITERATIONS), blocks.pick("range", "tl.range")
        var, name, more = blocks.name(), blocks.name(), blocks.name()
        extra = blocks.full(None, 0, dtype, (m, k))
        by_descriptor = self._tiles(a, (m, k)), self._tiles(b, (k, n))
        kept = blocks.enter({var: value("int32", np.int32(0)), name: total, more: extra})
        one = self._tile(a, (m, k), var, by_descriptor[0])
        two = self._tile(b, (k, n), var, by_descriptor[1])
        if blocks.pick(False, False, True):  # a factor that is computed
            like = self._like(blocks.value(two), broadcast=False)
            two = blocks.op(blocks.pick("minimum", "maximum", "sub"), two, like, keep=False) or two
        after = blocks.op("dot", one, two, name, flag=tf32)
        if after is not None and blocks.pick(False, False, True):  # a product that is added to another one
            other = blocks.op(blocks.pick("maximum", "add", "minimum"), one, self._like(blocks.value(one), broadcast=False))
            after = blocks.op("dot", other or one, two, after, flag=tf32) or after
        twice = blocks.op(blocks.pick("add", "maximum"), more, one) if blocks.pick(True, False) else more
        body = blocks.leave(kept)
        if after is None or twice is None:
            return
        carried = (Carry(name, total, after), Carry(more, extra, twice))
        if blocks.add(
            For(var, iterations, body, carried=carried, kind=kind, stages=blocks.pick(0, 2, 3) if kind != "range" else 0)
        ):
            blocks.pool += [more, name]

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
