"""Value recipes and layouts of one tensor, simplest first."""

import math

from hypothesis import strategies as st

from mhc.recipe import RECIPE_KINDS, Index, Layout, Recipe

Literal = tuple[Index, float]

SCALES = (0, -3, 3, -7, 7, -10, 10, -20, 20)
SPECIAL = (math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-40, 65504.0, 1e4)


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    """Where the elements lie; shrinks to contiguous."""
    order = tuple(draw(st.permutations(range(rank)))) if draw(st.booleans()) else ()
    expand = (draw(st.integers(0, rank - 1)),) if draw(st.integers(0, 3)) == 3 else ()
    return Layout(
        order=order,
        step=draw(st.integers(1, 3)),
        pad=draw(st.integers(0, 3)),
        offset=draw(st.integers(0, 3)),
        expand=expand,
    )


@st.composite
def special_values(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Literal, ...]:
    """One NaN, infinity or outlier somewhere in a tensor of `shape`; nothing where it has no elements."""
    if 0 in shape:
        return ()
    index = tuple(draw(st.integers(0, size - 1)) for size in shape)
    return ((index, draw(st.sampled_from(SPECIAL))),)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Kind, scale and seed; contiguous and without special values."""
    kind = draw(st.sampled_from(RECIPE_KINDS))
    scale = 2.0 ** draw(st.sampled_from(SCALES))
    return Recipe(kind=kind, scale=scale, seed=draw(st.integers(0, 2**16 - 1)))
