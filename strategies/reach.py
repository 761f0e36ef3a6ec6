"""The kinds of sizes of a case: usual, one size stretched to its limit, or as in a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hypothesis import strategies as st

from mhc.operator import Axis, Operator, T
from mhc.strategies.choice import choice
from mhc.strategies.shapes import FEW, MIDDLE, TILES, Limit, edges, most_of_an_axis, present_axes, usual_sizes

STEPS = 256
"""Steps of a log-uniform draw."""
FIRST = 257
"""The smallest size of a stretched axis: larger than most tiles."""
FORMS = (*("one",) * 4, "most", "two")
"""Stretched sizes: one axis is long, or has its most or one less, or two axes of a tensor have more elements than a number
of `COUNTS` together."""
COUNTS = (1 << 15, 1 << 16)
"""Elements beyond which an index of 16 bits wraps, or a grid ends."""
PERIOD = 61
"""Tokens after which inputs repeat at model sizes, so that the reference needs only these (`mhc.condense`).

It is prime, so that an offset that wraps at a power of two, or a tile read twice, gives other values.
"""
ACTIVE = 32
"""Nonzero rows of an upstream gradient at model sizes."""

WIDTHS = (1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 32_000, 50_257, 128_256)
"""Widths of models, and sizes of their vocabularies: for an axis that may be so long, beside axes of tokens, where the
operator names no sizes of its own."""

_TRIES = 8
_BESIDE = (0, 0, 0, 1, -1)
_NEAR = ("as it comes", "as it comes", "power", "power", "multiple")
_GRAINS = (16, 64, 128)
_ROUNDED = (*(1,) * 6, 4, 8, 16, 32, 64, 128, 256)
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


def token_class(table: Operator, sizes: Mapping[str, int]) -> tuple[object, ...]:
    """Return what a program may depend on of the numbers of tokens, of each axis and of all.

    A compiler may know that a number is 1 or a multiple of 16; a kernel may choose its tiles by the next power of 2.
    """
    tokens = [sizes[axis] for axis in table.tokens if axis in sizes]
    return tuple((one == 0, (one - 1).bit_length(), one % 16 == 0) for one in (*tokens, math.prod(tokens)))


@st.composite
def alike_sizes(draw: st.DrawFn, limit: Limit, like: Mapping[str, int]) -> Mapping[str, int]:
    """Draw the sizes of all symbols like those of a case: numbers of tokens of the same class, and all others equal.

    Where there are more tokens than in that case, the limit holds.
    """
    table = limit.table
    kept = {axis.name: like[axis.name] for axis in table.axes if axis.name in like}
    tokens = [axis for axis in table.tokens if kept.get(axis, 0) > 1]
    for _ in range(_TRIES):
        high = {axis: 1 << (kept[axis] - 1).bit_length() for axis in tokens}
        sizes = {**kept, **{axis: draw(st.integers(high[axis] // 2 + 1, high[axis])) for axis in tokens}}
        fewer = math.prod(sizes[axis] for axis in tokens) <= math.prod(kept[axis] for axis in tokens)
        allowed = limit.fits(sizes) or (fewer and table.problem(sizes) is None)
        if allowed and token_class(table, sizes) == token_class(table, kept):
            return table.sizes(sizes)
    return table.sizes(kept)


@st.composite
def stretched_sizes(draw: st.DrawFn, limit: Limit) -> Mapping[str, int]:
    """Draw the sizes of all symbols of a declared operator, one axis log-uniform up to its limit and the others smaller.

    In some cases one axis has its most, or two are long together (`FORMS`).
    """
    axes = draw(present_axes(limit.table))
    least = {axis.name: limit.table.smallest[axis.name] for axis in axes}
    form = draw(choice(FORMS))
    first: Mapping[str, int] = {}
    if form == "most":
        first = draw(most_of_an_axis(limit, least, [axis for axis in axes if axis.most >= FIRST]))
    elif form == "two":
        first = draw(_two_long(limit, least, axes))
    if first:
        others = [axis for axis in axes if axis.name not in first]
        return limit.table.sizes(draw(_smaller(limit, {**least, **first}, others, _FEW_OR_MIDDLE)))
    sizes = draw(_smaller(limit, least, axes, _FEW_OR_MIDDLE))
    axis = draw(choice(tuple(axis for axis in axes if axis.most > MIDDLE[0]) or tuple(axes)))
    most = limit.most(sizes, axis)
    size = draw(log_uniform(max(1, least[axis.name], min(FIRST, most // 4)), most)) if most else 0
    return limit.table.sizes({**sizes, axis.name: size})


@st.composite
def _two_long(draw: st.DrawFn, limit: Limit, least: Mapping[str, int], axes: Sequence[Axis]) -> Mapping[str, int]:
    """Draw two axes of a tensor with a quarter more elements together than one of `COUNTS`, and return their sizes.

    Nothing where there is no room for so many.
    """
    count = draw(choice(COUNTS)) * 5 // 4
    able = []
    for one, other in limit.together(axes):
        fewest, most = max(1, one.least, -(-count // max(1, other.most))), min(one.most, -(-count // max(1, other.least)))
        if fewest <= most and limit.fits({**least, one.name: fewest, other.name: -(-count // fewest)}):
            able.append((one.name, other.name, fewest, most))
    if not able:
        return {}
    long, beside, fewest, most = draw(choice(tuple(able)))
    size = draw(log_uniform(fewest, most))
    found = {long: size, beside: max(least[beside], -(-count // size))}
    return found if limit.fits({**least, **found}) else {}


@st.composite
def model_sizes(draw: st.DrawFn, limit: Limit) -> Mapping[str, int]:
    """Draw the sizes of all symbols of a declared operator, those with sizes in models as there or close to it.

    Then, one after the other, the axes of tokens are log-uniform, or as large as they may be; without such axes all others.
    """
    table = limit.table
    axes = draw(present_axes(table))
    sizes: Mapping[str, int] = {axis.name: table.smallest[axis.name] for axis in axes}
    others = []
    for axis in axes:
        named = table.model_sizes.get(axis.name, _widths(table, axis))
        if named:
            most = limit.most(sizes, axis)
            made = tuple(one for one in named if one <= most) or (most,)
            sizes = {**sizes, axis.name: min(max(draw(choice(made)) + draw(choice(_ODD)), axis.least), most)}
        else:
            others.append(axis)
    sizes = draw(_smaller(limit, sizes, others, (*FEW, *MIDDLE)))
    whole = draw(choice(_WHOLE))
    for axis in draw(st.permutations([axis for axis in others if axis.name in table.tokens] or others)):
        most = limit.most(sizes, axis)
        sizes = {
            **sizes,
            axis.name: most if whole or not most else draw(log_uniform(max(1, table.smallest[axis.name]), most)),
        }
    return table.sizes(sizes)


def _widths(table: Operator, axis: Axis) -> tuple[int, ...]:
    """Return the `WIDTHS` that an axis may have; none of an operator without tokens, or of an axis of tokens."""
    beside_tokens = bool(table.tokens) and axis.name not in table.tokens
    return tuple(one for one in WIDTHS if one <= axis.most) if beside_tokens else ()


_FEW_OR_MIDDLE = (*FEW * 3, *MIDDLE)  # one in four is middle


@st.composite
def _smaller(
    draw: st.DrawFn, limit: Limit, sizes: Mapping[str, int], axes: Sequence[Axis], options: tuple[int, ...]
) -> Mapping[str, int]:
    """Draw sizes of some axes from `options`, each where it fits; return all sizes."""
    found = dict(sizes)
    for axis in axes:
        size = min(max(draw(choice(options)), axis.least), axis.most)
        if limit.fits({**found, axis.name: size}):
            found[axis.name] = size
    return found


@st.composite
def rounded_sizes(draw: st.DrawFn, limit: Limit, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Draw the sizes of all symbols from others, about half of the axes rounded to multiples of a power of two.

    An axis is rounded up, or down where the case would be too large.
    """
    table = limit.table

    def largest(some: Mapping[str, int]) -> int:
        return max(math.prod(spec.shape(table.sizes(some))) for spec in table.drawn)

    chosen = {axis.name: sizes[axis.name] for axis in table.axes if axis.name in sizes}
    most = max(limit.max_elements, largest(chosen))
    for axis in table.axes:
        grain: int = draw(choice(_ROUNDED))
        if axis.name in chosen and grain > 1:
            up = -(-chosen[axis.name] // grain) * grain
            for size in (up, up - grain):
                there = {**chosen, axis.name: size}
                if size >= 1 and table.problem(there) is None and largest(there) <= most:
                    chosen = there
                    break
    return table.sizes(chosen)


@st.composite
def log_uniform(draw: st.DrawFn, least: int, most: int) -> int:
    """Draw a log-uniform size from `least` to `most`: as it comes, a power of 2 or next to one, or a multiple of a tile."""
    if most <= least:
        return max(1, most)
    step: int = draw(st.integers(0, STEPS))
    size = round(least * math.exp(math.log(most / least) * step / STEPS))
    match draw(choice(_NEAR)):
        case "power":
            beside: int = draw(choice(_BESIDE))
            size = (1 << size.bit_length() - 1) + beside
        case "multiple":
            tile: int = draw(choice(_GRAINS))
            size = -(-size // tile) * tile
    return min(max(size, least), most)
