"""Shapes: sizes at which kernels change their path, simplest first, within a limit of elements."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from hypothesis import strategies as st

from mhc import expression
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
FORMS = (*("any",) * 4, "equal", "most")
"""Usual sizes: any, two axes or more equal and above 1, or one axis at its most or one less."""
_EMPTY = 4
"""0 is drawn so many times as often as another size, of an axis that may have it."""
_ALL = (False, True)
_BELOW = (0, 0, 1)


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

    def most(self, sizes: Mapping[str, int], *axes: Axis) -> int:
        """Return the largest size of an axis that fits, or of several that are equal, by bisection; the largest of their
        present sizes where no larger one does.
        """
        names = [axis.name for axis in axes]
        low, high = max(sizes[name] for name in names), min(self.max_elements, *(axis.most for axis in axes))
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.fits({**sizes, **dict.fromkeys(names, middle)})
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def together(self, axes: Sequence[Axis]) -> list[tuple[Axis, Axis]]:
        """Return the pairs of axes that a tensor has, or on which its axes depend, once for each tensor."""
        given = [spec.symbols for name, spec in self.table.argument_specs.items() if name not in self.absent]
        found: list[tuple[Axis, Axis]] = []
        for symbols in (*given, *self.table.intermediates()):
            names = {*symbols, *chain.from_iterable(map(self._in_formula, symbols))}
            found += combinations([axis for axis in axes if axis.name in names], 2)
        return found

    def _in_formula(self, symbol: str) -> tuple[str, ...]:
        return expression.symbols(self.table.formulas[symbol]) if symbol in self.table.formulas else ()


@st.composite
def present_axes(draw: st.DrawFn, table: Operator) -> list[Axis]:
    """Draw the axes that the tensors of a case have: all but some of the leading ones."""
    leading = [axis for axis in table.axes if axis.leading]
    absent = leading[draw(choice(RANKS)) :] if leading else []
    return [axis for axis in table.axes if axis not in absent]


@st.composite
def equal_axes(
    draw: st.DrawFn, limit: Limit, sizes: Mapping[str, int], axes: Sequence[Axis], usual: Sequence[int]
) -> Mapping[str, int]:
    """Draw a size above 1 that two axes have, or all that can, and return their sizes; nothing where no two can be equal.

    Axes of one tensor are drawn more often.
    """
    pairs = tuple(pair for pair in (*limit.together(axes), *combinations(axes, 2)) if _may_be_equal(pair))
    if not pairs:
        return {}
    chosen: tuple[Axis, ...] = draw(choice(pairs))
    if draw(choice(_ALL)):
        for axis in axes:
            if axis not in chosen and _may_be_equal((*chosen, axis)):
                chosen = (*chosen, axis)
    most, names = limit.most(sizes, *chosen), [axis.name for axis in chosen]
    inside = [size for size in (*FEW, *usual) if 1 < size <= most and limit.fits({**sizes, **dict.fromkeys(names, size)})]
    return dict.fromkeys(names, draw(choice(tuple(inside)))) if inside else {}


def _may_be_equal(axes: Sequence[Axis]) -> bool:
    """Return whether axes can have one size above 1."""
    return max(2, *(axis.least for axis in axes)) <= min(axis.most for axis in axes)


@st.composite
def most_of_an_axis(draw: st.DrawFn, limit: Limit, sizes: Mapping[str, int], axes: Sequence[Axis]) -> Mapping[str, int]:
    """Draw an axis that has its most or one less, and return its size; nothing where no axis fits so."""
    able = tuple(axis for axis in axes if axis.least < axis.most and limit.fits({**sizes, axis.name: axis.most}))
    if not able:
        return {}
    axis = draw(choice(able))
    size = axis.most - draw(choice(_BELOW))
    return {axis.name: size if limit.fits({**sizes, axis.name: size}) else axis.most}


@st.composite
def plain_shapes(draw: st.DrawFn, limit: Limit, tiles: tuple[int, ...] = TILES) -> Mapping[str, int]:
    """Draw the sizes of all symbols of an operator from the ranges of its axes, within a limit.

    The axes are drawn in a random order, so that each is at times the one that is large. In half of the cases those that a
    tensor has twice, as scores have S, come ahead, and are seldom small: little room is left for them otherwise. In some
    cases two axes are equal, or one has its most (`FORMS`).
    """
    axes = draw(present_axes(limit.table))
    sizes = {axis.name: limit.table.smallest[axis.name] for axis in axes}
    usual = usual_sizes(tiles)
    form = draw(choice(FORMS))
    first: Mapping[str, int] = {}
    if form == "equal":
        first = draw(equal_axes(limit, sizes, axes, usual))
    elif form == "most":
        first = draw(most_of_an_axis(limit, sizes, axes))
    sizes |= first
    order = draw(st.permutations([axis for axis in axes if axis.name not in first]))
    twice = {name for made in limit.table.intermediates() for name in made if made.count(name) > 1}
    favoured = bool(twice) and draw(choice(_ALL))
    ahead = [axis for axis in order if favoured and axis.name in twice]
    for axis in (*ahead, *(axis for axis in order if axis not in ahead)):
        most = limit.most(sizes, axis)
        empty = [0] * _EMPTY if axis.least == 0 else []
        inside = [
            size
            for size in (*(() if axis in ahead else FEW), *usual, *empty)
            if axis.least <= size <= most and limit.table.problem({**sizes, axis.name: size}) is None
        ]
        sizes[axis.name] = draw(choice(tuple(inside) or (sizes[axis.name],)))
    return limit.table.sizes(sizes)
