"""Shapes: sizes at which kernels change their path, simplest first, within a limit of elements."""

import math
from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from mhc.operator import Axis, Operator
from strategies.choice import choice

BATCH = (*(1,) * 6, *(2,) * 5, *(3,) * 4, *(5,) * 3, 0)
STREAMS = (1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16)
TILES = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Tile sizes assumed for kernels that declare no schedule."""
WIDE = 256
"""Rows with a larger D need more than one block in most kernels' reductions; one case in twelve has one."""
PRIMES = (43, 61, 97, 131, 199, 251, 509, 1021)
EIGHT_MOD_SIXTEEN = (40, 56, 72, 88, 104, 136, 200, 264, 520)


def edges(tiles: Iterable[int]) -> tuple[int, ...]:
    """Return each tile size, one less and one more, in order."""
    return tuple(sorted({size for tile in tiles for size in (tile - 1, tile, tile + 1)}))


@st.composite
def shapes(
    draw: st.DrawFn,
    *,
    max_n: int,
    max_elements: int,
    tiles: tuple[int, ...] = TILES,
    like: tuple[int, int] | None = None,
) -> tuple[int, int, int, int]:
    """Draw (B, S, n, D) with at most `max_elements` per tensor, or what n = D = 1 needs; shrinks to (1, 1, 1, 1).

    With M = n*n + 2*n the largest tensors are x with B*S*n*D, phi with M*n*D, and gates with B*S*M elements.

    Args:
        tiles: tile sizes of kernels; D and S are drawn at these sizes and next to them.
        like: given n and D, so that only B and S are drawn.
    """
    beside = edges(tiles)
    if like is None:
        widths = [*range(1, 41), *sorted({*beside, *PRIMES, *EIGHT_MOD_SIXTEEN} - set(range(41)))]
        wide = next((size for size in widths if size > WIDE), max_elements)
        least = wide if 3 * wide <= max_elements and draw(st.integers(0, 11)) == 11 else 1
        n = draw(choice(tuple(n for n in STREAMS if n <= max_n and (n * n + 2 * n) * n * least <= max_elements) or (1,)))
        widest = max(1, max_elements // ((n * n + 2 * n) * n))
        # from one list, so that a wide D shrinks to a narrow one
        D = widths[draw(st.integers(widths.index(least), sum(size <= widest for size in widths) - 1))]
    else:
        n, D = like
    row = max(n * D, n * n + 2 * n)
    B = draw(choice(tuple(size for size in BATCH if size <= 1 or size * row <= max_elements)))
    most = max(1, max_elements // (max(B, 1) * row))
    few = (1, 1, 1, 2, 2, 2, 3, 3, 3, 0)  # if the limit allows no others, few shapes are empty
    lengths = [*few, *sorted({*range(4, 10), *beside} - {*few})]
    S = draw(choice(tuple(size for size in lengths if size <= most)))
    return B, S, n, D


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
    usual = sorted({*range(1, 41), *edges(tiles), *PRIMES, *EIGHT_MOD_SIXTEEN})
    for axis in draw(st.permutations(axes)):
        inside = [
            size
            for size in (*FEW, *usual)
            if axis.least <= size <= axis.most and fits(table, {**sizes, axis.name: size}, max_elements)
        ]
        empty = [0] if axis.least == 0 else []
        sizes[axis.name] = draw(choice((*inside, *empty) or (axis.least,)))
    return table.sizes(sizes)
