"""Value recipes and layouts of one tensor, simplest first."""

import math

from hypothesis import strategies as st

from mhc.recipe import RECIPE_KINDS, Layout, Recipe

SCALES = (0, -3, 3, -7, 7, -10, 10, -20, 20)
SPECIAL = (math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-40, 65504.0, 1e4)


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    """Where the elements lie; shrinks to contiguous."""
    if not draw(st.booleans()):
        return Layout()
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
def recipes(draw: st.DrawFn, shape: tuple[int, ...], *, usual_scale: float = 1.0, special: bool = True) -> Recipe:
    """Values of a tensor of `shape`; `usual_scale` is what scale 0 means; `special` admits NaN, infinities and outliers."""
    exponent = draw(st.sampled_from(SCALES))
    literals: tuple[tuple[tuple[int, ...], float], ...] = ()
    if special and 0 not in shape and draw(st.integers(0, 7)) == 7:
        index = tuple(draw(st.integers(0, size - 1)) for size in shape)
        literals = ((index, draw(st.sampled_from(SPECIAL))),)
    return Recipe(
        kind=draw(st.sampled_from(RECIPE_KINDS)),
        seed=draw(st.integers(0, 2**32 - 1)),
        scale=usual_scale * 2.0**exponent,
        literals=literals,
        layout=draw(layouts(len(shape))),
    )
