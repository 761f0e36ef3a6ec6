"""Shapes: sizes at which kernels change their path, simplest first, within a limit of elements."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from mhc.operator import Axis, Operator
from mhc.strategies.choice import choice

TILES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Tile sizes assumed for kernels that declare no schedule."""
PRIMES = (43, 61, 97, 131, 199, 251, 509, 1021)
EIGHT_MOD_SIXTEEN = (40, 56, 72, 88, 104, 136, 200, 264, 520)
MIDDLE = (16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384)
"""Sizes that models have of heads, groups and experts: multiples of 8 between tiles, and tiles."""


def edges(tiles: Iterable[int]) -> tuple[int, ...]:
    """Return each tile size, one less and one more, in order."""
    return tuple(sorted({size for tile in tiles for size in (tile - 1, tile, tile + 1)}))


def usual_sizes(tiles: Iterable[int]) -> list[int]:
    """Return all small sizes, those beside a tile, and some that are odd to kernels, in order."""
    return sorted({*range(1, 41), *edges(tiles), *PRIMES, *EIGHT_MOD_SIXTEEN, *MIDDLE})


FEW = (1, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9)
"""Small sizes, repeated by weight."""
RANKS = (1, 2, 2, 2, 3, 0)
"""Leading axes that a tensor with `*B` has."""


@dataclass(frozen=True)
class Limit:
    """The sizes that a case may have: at most `max_elements` in each tensor that it has or that the function makes, such as
    scores of S x S.

    `absent` names the optional tensors that the case has not.
    """

    table: Operator
    max_elements: int
    absent: frozenset[str] = frozenset()

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a case may have these sizes of its axes."""
        if self.table.problem(sizes) is not None:
            return False
        chosen = self.table.sizes(sizes)
        given = (spec.shape(chosen) for name, spec in self.table.argument_specs.items() if name not in self.absent)
        made = ([chosen.get(name, 1) for name in axes] for axes in self.table.intermediates())
        return all(math.prod(one) <= self.max_elements for one in (*given, *made))

    def most(self, sizes: Mapping[str, int], axis: Axis) -> int:
        """Return the largest size of an axis that fits, by bisection; its present size where no larger one does."""
        low, high = sizes[axis.name], min(axis.most, self.max_elements)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits({**sizes, axis.name: middle}) else (low, middle - 1)
        return low


@st.composite
def present_axes(draw: st.DrawFn, table: Operator) -> list[Axis]:
    """Draw the axes that the tensors of a case have: all but some of the leading ones."""
    leading = [axis for axis in table.axes if axis.leading]
    absent = leading[draw(choice(RANKS)) :] if leading else []
    return [axis for axis in table.axes if axis not in absent]


@st.composite
def plain_shapes(draw: st.DrawFn, limit: Limit, tiles: tuple[int, ...] = TILES) -> Mapping[str, int]:
    """Draw the sizes of all symbols of an operator from the ranges of its axes, within a limit.

    The axes are drawn in a random order, so that each is at times the one that is large.
    """
    axes = draw(present_axes(limit.table))
    sizes = {axis.name: axis.least for axis in axes}
    usual = usual_sizes(tiles)
    for axis in draw(st.permutations(axes)):
        most = limit.most(sizes, axis)
        inside = [
            size
            for size in (*FEW, *usual)
            if axis.least <= size <= most and limit.table.problem({**sizes, axis.name: size}) is None
        ]
        empty = [0] if axis.least == 0 else []
        sizes[axis.name] = draw(choice((*inside, *empty) or (axis.least,)))
    return limit.table.sizes(sizes)
