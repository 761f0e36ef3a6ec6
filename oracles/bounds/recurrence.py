"""Linear recurrences h = a h + b, such as a selective scan: the bound for another order than one step after the other.

Kernels compute them in chunks or by an associative scan. What is added is then multiplied by products of the factors that
follow, and these terms are summed in some order: so partial sums are rounded that may be far above every h, and products of
factors may leave the range of the dtype. docs/tolerances.md derives the bound.

Not every product of a sum may be formed term by term: s - s s is no way to compute s (1 - s). So a product counts as a step
of a recurrence only where one of the sum's own terms was multiplied at the same place in the code.
"""

import math
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mhc.oracles.bounds import place
from mhc.oracles.bounds.addends import Own, apart, finite_part, moved_part, roundings, single
from mhc.oracles.bounds.later import Later
from mhc.oracles.bounds.rounding import magnitude, scalar, unit_roundoff


class Terms(NamedTuple):
    """The terms of a state h, each multiplied by the factors that follow it.

    Attributes:
        up: the sum of the positive ones.
        down: the sum of the negative ones.
        number: how many may matter beside the others.
        unscaled: the sum of their magnitudes, multiplied by the factors above 1 alone.
        least: the smallest product of factors below 1, other than 0.
        most: the largest product of factors above 1.
    """

    up: Tensor
    down: Tensor
    number: Tensor
    unscaled: Tensor
    least: Tensor
    most: Tensor


class State(NamedTuple):
    """What is kept of a sum or a product that may belong to a recurrence.

    Attributes:
        places: where the products among a sum's terms were formed; of a product, where it was formed.
        terms: of a sum, and of a product that is a step; None of any other product.
        repeats: a step is this product, or is among the terms of this sum.
        allowed: what the error has for another order, in units of the roundoff.
    """

    places: frozenset[Hashable]
    terms: Callable[[], Terms] | None
    repeats: bool
    allowed: Tensor


class Number(Protocol):
    """An `ErrorNumber`."""

    value: Tensor
    error: Tensor
    dtype: torch.dtype
    finite: bool
    errorless: bool
    state: State | None


def moved(state: State | None, move: Callable[[Tensor], Tensor], shape: torch.Size) -> State | None:
    """Return the state of a number of a shape that is indexed or reshaped by `move`."""
    if state is None or state.terms is None:
        return state

    def of_each(terms: Terms) -> Terms:
        return Terms(*(moved_part(one, move, shape) for one in terms))

    return state._replace(terms=Later(of_each, state.terms), allowed=moved_part(state.allowed, move, shape))


def of_product(a: Number, b: Number) -> State | None:
    """Return the state of a * b."""
    here = place.here()
    if here is None:
        return None
    alone = State(frozenset((here,)), None, False, scalar(0.0))
    steps = [(one.state, other.value) for one, other in ((a, b), (b, a)) if one.state and here in one.state.places]
    if len(steps) != 1 or steps[0][0].terms is None:
        return alone
    ((state, factor),) = steps
    digits = -math.log(unit_roundoff(a.dtype))

    def scaled(terms: Terms) -> Terms:
        size = magnitude(factor)
        low, high = (float(one) for one in factor.aminmax()) if factor.numel() else (0.0, 1.0)
        up, down, unscaled, most = terms.up * size, terms.down * size, terms.unscaled, terms.most
        if not low >= 0:
            negative = factor < 0
            up, down = torch.where(negative, -down, up), torch.where(negative, -up, down)
        below = size
        if not (low >= -1 and high <= 1):
            above, below = size.clamp(min=1), size.clamp(max=1)
            unscaled, most = unscaled * above, most * above
        number = terms.number * (1 + below.log() / digits).relu_()
        return Terms(up, down, number, unscaled, terms.least * torch.where(below == 0, 1.0, below), most)

    return State(alone.places, Later(scaled, state.terms), True, state.allowed * magnitude(factor))


def of_sum(a: Number, b: Number) -> State | None:
    """Return the state of a + b. There is none without a product, and none of h + a (b - h), whose terms would double."""
    states = [one.state for one in (a, b) if one.state is not None]
    if not states or (len(states) == 2 and all(one.repeats for one in states)):
        return None
    alone = [apart(one) if one.state is None or one.state.terms is None else None for one in (a, b)]

    def together(*inside: Terms | None) -> Terms:
        one, two = (_single(own) if own else part for own, part in zip(alone, inside, strict=True))
        assert one is not None
        assert two is not None
        least, most = torch.minimum(one.least, two.least), torch.maximum(one.most, two.most)
        return Terms(one.up + two.up, one.down + two.down, one.number + two.number, one.unscaled + two.unscaled, least, most)

    return State(
        frozenset().union(*(one.places for one in states)),
        Later(together, *(None if one.state is None else one.state.terms for one in (a, b))),
        any(one.repeats for one in states),
        sum((one.allowed for one in states), scalar(0.0)),
    )


def rounded(terms: Terms) -> Tensor:
    """Return the magnitudes of what is rounded in any order: products and partial sums."""
    return roundings(2 * (terms.number - 1)) * torch.maximum(terms.up, -terms.down)


def _single(own: Own) -> Terms:
    value, error, finite = own
    term, one = single(value if finite else finite_part(value), error, True), scalar(1.0)  # infinite terms do not count
    return Terms(term.up, term.down, term.number, term.up - term.down, one, one)
