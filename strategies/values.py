"""Values of one tensor, simplest first: kinds, scales, and single elements that are special."""

import math

from hypothesis import strategies as st

from mhc.recipe import RECIPE_KINDS, Index
from strategies.choice import choice

Literal = tuple[Index, float]

KINDS = (
    *("constant", "zero", "sign", "exact"),  # zero hides more than one, and the simplest is drawn more often than its share
    *("normal",) * 6,
    *("alternating", "row_scaled", "row_scaled", "column_scaled", "cancelling", "sparse", "zero_rows"),
)
"""Each as often as it is here; most tensors as a model has them, lest the odd ones hide one another's effects."""
EXPONENTS = (0, -1, 1, -4, 4, -10, 10, -20, 20)
SMALLEST, LARGEST = -130, 20
"""log2 of the least and the largest scale. The least is below the normal range of float32.

Above the largest the same products in another order may overflow, which the bound does not describe (docs/tolerances.md).
"""
SPECIAL = (math.nan, math.inf, -math.inf, math.nan, math.inf, -math.inf, math.nan, 1e4, 65504.0, 1e-40, 3e38, -3e38)
"""NaN and the infinities in more than half: what a kernel does with them is a contract of its own."""

assert set(KINDS) == set(RECIPE_KINDS)


@st.composite
def exponents(draw: st.DrawFn) -> int:
    """log2 of a scale: a usual one, or in one of three any from SMALLEST to LARGEST."""
    usual = draw(st.integers(0, 2)) < 2
    exponent: int = draw(choice(EXPONENTS) if usual else st.integers(SMALLEST, LARGEST))
    return exponent


@st.composite
def special_values(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Literal, ...]:
    """One NaN, infinity or outlier somewhere in a tensor of `shape`; nothing where it has no elements."""
    if 0 in shape:
        return ()
    index = tuple(draw(st.integers(0, size - 1)) for size in shape)
    return ((index, draw(choice(SPECIAL))),)


@st.composite
def one_hot(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Literal, ...]:
    """A 1 somewhere in a tensor of `shape`, for a tensor of zeros."""
    if 0 in shape:
        return ()
    return ((tuple(draw(st.integers(0, size - 1)) for size in shape), 1.0),)
