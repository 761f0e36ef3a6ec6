"""The kinds of sizes of a case: usual, one size stretched to its limit, or as in a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

from mhc.operator import Axis, Operator, T
from mhc.strategies.choice import choice
from mhc.strategies.shapes import FEW, TILES, edges, fits, present_axes, usual_sizes

STEPS = 256
"""Steps of a log-uniform draw."""
FIRST = 257
"""The smallest size of a stretched axis: larger than most tiles."""
PERIOD = 61
"""Tokens after which inputs repeat at model sizes, so that the reference needs only these (`mhc.condense`).

It is prime, so that an offset that wraps at a power of two, or a tile read twice, gives other values.
"""
ACTIVE = 32
"""Nonzero rows of an upstream gradient at model sizes."""

WIDTHS = (1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 32_000, 50_257, 128_256)
"""Widths of models, and sizes of their vocabularies: for an axis that may be so long, beside axes of tokens, where the
operator names no sizes of its own."""

_BESIDE = (0, 0, 0, 1, -1)
_ODD = (0, 0, 0, 1, -1, 37, -64)
_WHOLE = (False, False, False, False, False, False, False, True)


class Reach(Enum):
    """The kind of sizes drawn; each has a share of a campaign's time (`mhc.fuzz.campaign.size_budget`)."""

    USUAL = "usual"  # small sizes and those at which kernels change their path: finds most bugs, and is quick
    STRETCHED = "stretched"  # one size log-uniform up to its limit, the others small: finds failures beyond a size
    MODEL = "model"  # sizes as in a model


@dataclass(frozen=True)
class _Draw:
    """Draws for `Operator.draw_sizes`."""

    draw: st.DrawFn

    def choice(self, options: tuple[T, ...]) -> T:
        drawn: T = self.draw(choice(options))
        return drawn

    def integer(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def log_uniform(self, least: int, most: int) -> int:
        return self.draw(log_uniform(least, most))


@st.composite
def own_sizes(
    draw: st.DrawFn,
    *,
    table: Operator,
    reach: Reach,
    max_elements: int,
    tiles: tuple[int, ...] = TILES,
    like: Mapping[str, int] | None = None,
) -> Mapping[str, int]:
    """Draw the sizes of all symbols of an operator that has `draw_sizes`."""
    assert table.draw_sizes is not None
    usual, beside = usual_sizes(tiles), edges(tiles)
    chosen = table.draw_sizes(_Draw(draw), reach.value, max_elements=max_elements, usual=usual, beside=beside, like=like)
    return table.sizes(chosen)


@st.composite
def stretched_sizes(draw: st.DrawFn, *, table: Operator, max_elements: int) -> Mapping[str, int]:
    """Draw the sizes of all symbols of a declared operator, one axis log-uniform up to its limit and the others small."""
    axes = draw(present_axes(table))
    sizes = draw(_small(table, {axis.name: axis.least for axis in axes}, axes, max_elements))
    axis = draw(choice(tuple(axis for axis in axes if axis.most > FIRST) or tuple(axes)))
    most = _most(table, sizes, axis, max_elements)
    return table.sizes({**sizes, axis.name: draw(log_uniform(min(FIRST, most), most))})


@st.composite
def model_sizes(draw: st.DrawFn, *, table: Operator, max_elements: int) -> Mapping[str, int]:
    """Draw the sizes of all symbols of a declared operator, those with sizes in models as there or close to it.

    Then, one after the other, the axes of tokens are log-uniform, or as large as they may be; without such axes all others.
    """
    axes = draw(present_axes(table))
    sizes: Mapping[str, int] = {axis.name: axis.least for axis in axes}
    others = []
    for axis in axes:
        named = table.model_sizes.get(axis.name, _widths(table, axis))
        if named:
            most = _most(table, sizes, axis, max_elements)
            made = tuple(one for one in named if one <= most) or (most,)
            sizes = {**sizes, axis.name: min(max(draw(choice(made)) + draw(choice(_ODD)), axis.least), most)}
        else:
            others.append(axis)
    sizes = draw(_small(table, sizes, others, max_elements))
    whole = draw(choice(_WHOLE))
    for axis in draw(st.permutations([axis for axis in others if axis.name in table.tokens] or others)):
        most = _most(table, sizes, axis, max_elements)
        sizes = {**sizes, axis.name: most if whole else draw(log_uniform(max(1, axis.least), most))}
    return table.sizes(sizes)


def _widths(table: Operator, axis: Axis) -> tuple[int, ...]:
    """Return the `WIDTHS` that an axis may have; none of an operator without tokens, or of an axis of tokens."""
    beside_tokens = bool(table.tokens) and axis.name not in table.tokens
    return tuple(one for one in WIDTHS if one <= axis.most) if beside_tokens else ()


@st.composite
def _small(
    draw: st.DrawFn, table: Operator, sizes: Mapping[str, int], axes: Sequence[Axis], max_elements: int
) -> Mapping[str, int]:
    """Draw small sizes of some axes, each where it fits; return all sizes."""
    found = dict(sizes)
    for axis in axes:
        size = min(max(draw(choice(FEW)), axis.least), axis.most)
        if fits(table, {**found, axis.name: size}, max_elements):
            found[axis.name] = size
    return found


def _most(table: Operator, sizes: Mapping[str, int], axis: Axis, max_elements: int) -> int:
    """Return the largest size of an axis that fits, by bisection; its present size where no larger one does."""
    low, high = sizes[axis.name], min(axis.most, max_elements)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(table, {**sizes, axis.name: middle}, max_elements) else (low, middle - 1)
    return low


@st.composite
def log_uniform(draw: st.DrawFn, least: int, most: int) -> int:
    """Draw a log-uniform size from `least` to `most`; half of the sizes are a power of 2 or next to one."""
    if most <= least:
        return max(1, most)
    step: int = draw(st.integers(0, STEPS))
    size = round(least * math.exp(math.log(most / least) * step / STEPS))
    if draw(st.booleans()):
        beside: int = draw(choice(_BESIDE))
        size = (1 << size.bit_length() - 1) + beside
    return min(max(size, least), most)
