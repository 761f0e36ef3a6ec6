"""Shapes: sizes at which kernels change their path, simplest first, within a limit of elements."""

import math
from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from mhc.operator import Axis, Operator
from mhc.strategies.choice import choice

TILES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Tile sizes assumed for kernels that declare no schedule."""
PRIMES = (43, 61, 97, 131, 199, 251, 509, 1021)
EIGHT_MOD_SIXTEEN = (40, 56, 72, 88, 104, 136, 200, 264, 520)


def edges(tiles: Iterable[int]) -> tuple[int, ...]:
    """Return each tile size, one less and one more, in order."""
    return tuple(sorted({size for tile in tiles for size in (tile - 1, tile, tile + 1)}))


def usual_sizes(tiles: Iterable[int]) -> list[int]:
    """Return all small sizes, those beside a tile, and some that are odd to kernels, in order."""
    return sorted({*range(1, 41), *edges(tiles), *PRIMES, *EIGHT_MOD_SIXTEEN})


FEW = (1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9)
"""Small sizes, repeated by weight."""
RANKS = (1, 2, 2, 2, 3, 0)
"""Leading axes that a tensor with `*B` has."""


def fits(table: Operator, sizes: Mapping[str, int], max_elements: int) -> bool:
    """Return whether a case may have these sizes of its axes, with at most `max_elements` per tensor."""
    if table.problem(sizes) is not None:
        return False
    chosen = table.sizes(sizes)
    return all(math.prod(spec.shape(chosen)) <= max_elements for spec in table.argument_specs.values())


@st.composite
def present_axes(draw: st.DrawFn, table: Operator) -> list[Axis]:
    """Draw the axes that the tensors of a case have: all but some of the leading ones."""
    leading = [axis for axis in table.axes if axis.leading]
    absent = leading[draw(choice(RANKS)) :] if leading else []
    return [axis for axis in table.axes if axis not in absent]


@st.composite
def plain_shapes(
    draw: st.DrawFn, *, table: Operator, max_elements: int, tiles: tuple[int, ...] = TILES
) -> Mapping[str, int]:
    """Draw the sizes of all symbols of an operator from the ranges of its axes, with at most `max_elements` per tensor.

    The axes are drawn in a random order, so that each is at times the one that is large.
    """
    axes = draw(present_axes(table))
    sizes = {axis.name: axis.least for axis in axes}
    usual = usual_sizes(tiles)
    for axis in draw(st.permutations(axes)):
        inside = [
            size
            for size in (*FEW, *usual)
            if axis.least <= size <= axis.most and fits(table, {**sizes, axis.name: size}, max_elements)
        ]
        empty = [0] if axis.least == 0 else []
        sizes[axis.name] = draw(choice((*inside, *empty) or (axis.least,)))
    return table.sizes(sizes)
