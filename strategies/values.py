"""Values of one tensor, simplest first: kinds, scales and special elements."""

import math

from hypothesis import strategies as st

from mhc.operator import Operator
from mhc.recipe import INTEGER_KINDS, RECIPE_KINDS, Index
from mhc.strategies.choice import choice
from mhc.tensor_spec import TensorSpec

Literal = tuple[Index, float]

KINDS = (
    *(
        "constant",
        "zero",
        "sign",
        "exact",
    ),  # not zero first: it hides more bugs, and the first is drawn more often
    *("normal",) * 6,
    *("alternating", "row_scaled", "row_scaled", "column_scaled", "cancelling", "sparse", "zero_rows", "offset"),
)
"""Repeated by weight; most tensors have values as in a model, so that unusual ones do not hide each other's effects."""
LONG, OF_LONG = 128, ("offset",) * 4
"""Elements of an axis beyond which inputs of a declared operator have kinds of `OF_LONG` too. A product of more normal
numbers is 0 or infinite in a narrow dtype; one of numbers near 1 stays in range, and is rounded at each step."""
ONE_SIZE = ("constant", "sign", "alternating")
"""Kinds whose elements have one magnitude, the scale."""
BELOW_1 = 1 - 2.0**-24
"""The number right below 1 in float32. The logarithm of 2^k times it, to base 2, rounds to k for k > 2 and for k < -1."""
WHOLE_KINDS = (
    *("constant", "zero", "ascending", "row_constant", "sentinel", *("uniform",) * 5, *("repeated", "ends", "blocks") * 2),
    *("prefix", "suffix", "consecutive", "multiples"),
)
"""Kinds of integers and booleans, repeated by weight."""
EXPONENTS = (0, -1, 1, -4, 4, -10, 10, -20, 20)
SMALLEST, LARGEST = -130, 20
"""log2 of the smallest and the largest scale. The smallest is below the normal range of float32.

Above the largest, products in another order may overflow, which the bound does not cover (docs/tolerances.md).
"""
SPECIAL = (math.nan, math.inf, -math.inf, math.nan, math.inf, -math.inf, math.nan, 1e4, 65504.0, 1e-40, 3e38, -3e38)
"""NaN and infinities in more than half, since the contract defines their propagation."""

FURTHER = (0, 0, 0, 1, 2, 3)
"""How many special elements a tensor has beside the first, repeated by weight."""

MASKED = "masked"
"""A kind with infinities; it is drawn in place of a special element."""
assert {*KINDS, MASKED} == set(RECIPE_KINDS)
assert set(WHOLE_KINDS) == set(INTEGER_KINDS)


def maskable(table: Operator) -> tuple[TensorSpec, ...]:
    """Return the inputs that may have runs of -infinity: those of declared operators, since mHC pre has no masks."""
    return tuple(spec for spec in table.inputs if table.is_declared and MASKED in spec.kinds)


def kinds_of(table: Operator, spec: TensorSpec, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Return the kinds of values that a tensor of a shape may have, repeated by weight."""
    if not spec.floating:
        return tuple(kind for kind in WHOLE_KINDS if kind in spec.kinds)
    long = table.is_declared and spec in table.inputs and max(shape, default=0) > LONG
    return (*KINDS, *(OF_LONG if long else ()))


def filling(spec: TensorSpec) -> int:
    """Return log2 of a scale at which values reach both ends of a tensor's range; 0 without one, or where they do at 1."""
    ends = spec.within or (0.0, 0.0)
    farthest = max(map(abs, ends))
    return min(LARGEST, math.ceil(math.log2(farthest))) if 1.0 < farthest < math.inf else 0


@st.composite
def exponents(draw: st.DrawFn) -> int:
    """Draw log2 of a scale: a common one, or in one case of three any from SMALLEST to LARGEST."""
    usual = draw(st.integers(0, 2)) < 2
    exponent: int = draw(choice(EXPONENTS) if usual else st.integers(SMALLEST, LARGEST))
    return exponent


@st.composite
def special_values(draw: st.DrawFn, spec: TensorSpec, shape: tuple[int, ...]) -> tuple[Literal, ...]:
    """Draw NaN, infinities and outliers that `spec` may have at indices of `shape`; nothing for an empty tensor.

    A range without any of them has its ends in their place. There is one, or in half of all draws there are two to four. A
    further one is anywhere, or on an axis through the first, as an infinity and a NaN meet in a sum or a maximum.
    """
    if 0 in shape:
        return ()
    values = tuple(value for value in SPECIAL if spec.may_be(value)) or spec.within
    assert values, "all but finite values are in a range"
    first = draw(_index(shape))
    found = {first: draw(choice(values))}
    for _ in range(draw(choice(FURTHER)) if first else 0):
        index = draw(_index(shape))
        if draw(st.booleans()):
            axis = draw(st.integers(0, len(shape) - 1))
            index = (*first[:axis], index[axis], *first[axis + 1 :])
        found.setdefault(index, draw(choice(values)))
    return tuple(found.items())


def _index(shape: tuple[int, ...]) -> st.SearchStrategy[Index]:
    return st.tuples(*(st.integers(0, size - 1) for size in shape))


@st.composite
def one_hot(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Literal, ...]:
    """Draw one index of `shape` with the value 1, for a tensor of zeros."""
    if 0 in shape:
        return ()
    return ((draw(_index(shape)), 1.0),)
