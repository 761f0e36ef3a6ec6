"""Sums of three or more terms in another order: the excess of their partial sums over those of the formula.

a + b + c may be summed as a + (b + c), which rounds at |b + c| instead of |a + b|. In any order, a partial sum of L terms
is at most max(sum of positive terms, -sum of negative terms) in magnitude, and L - 2 partial sums are rounded before the
last. docs/tolerances.md derives it. Of the terms of a sum these two sums and their number are kept, and what its error
holds already, and computed when a third term is added; a number that is no sum has no `Addends`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mhc.oracles.bounds.later import Later
from mhc.oracles.bounds.rounding import LAMBDA, indicator, scalar


class Parts(NamedTuple):
    """The terms of a sum.

    Attributes:
        up: the sum of the positive ones; infinite ones are taken as 0, here and below.
        down: the sum of the negative ones.
        number: how many may not be 0.
        inside: the magnitudes of partial sums for whose rounding the error of the sum has room, beside its own.
        beyond: those of them that are not in the errors of its parts.
    """

    up: Tensor
    down: Tensor
    number: Tensor
    inside: Tensor
    beyond: Tensor


Addends = Callable[[], Parts]


Partial = Callable[[], Tensor]


Own = tuple[Tensor, Tensor | None, bool]
"""Of a term its value, its error, None for 0, and whether both are finite."""


class Number(Protocol):
    """A value, the error of it, and what is known of both."""

    value: Tensor
    error: Tensor
    finite: bool
    errorless: bool


class Term(Number, Protocol):
    """What is added, and the addends of what is a sum itself."""

    addends: Addends | None


def apart(one: Number) -> Own:
    """Return what a term needs of a number, which is not kept otherwise."""
    return one.value, None if one.errorless else one.error, one.finite


def of_sum(a: Term, b: Term) -> Addends:
    """Return the addends of a + b."""
    alone = [apart(one) if one.addends is None else None for one in (a, b)]

    def make(*inside: Parts | None) -> Parts:
        first, second = (single(*own) if own else part for own, part in zip(alone, inside, strict=True))
        assert first is not None
        assert second is not None
        up, down, number = first.up + second.up, first.down + second.down, first.number + second.number
        before = [
            part.inside + (part.up + part.down).abs() for own, part in zip(alone, (first, second), strict=True) if not own
        ]
        if not before:
            return Parts(up, down, number, scalar(0.0), scalar(0.0))
        already = before[0] + before[1] if len(before) > 1 else before[0]
        beyond = (roundings(number - scalar(2.0)) * torch.maximum(up, -down)).sub_(already).relu_()
        return Parts(up, down, number, already + beyond, beyond)

    return Later(make, a.addends, b.addends)


def partial(count: Callable[[], Tensor]) -> Partial:
    """Return the roundings of partial sums of so many terms: of all but the last, or `LAMBDA` times the root of that."""

    return Later(lambda: roundings(count() - 1))


def terms(first: Tensor, second: Tensor) -> Tensor:
    """Return how many terms of each element of a matrix product are not 0; a single number where none is 0."""
    there = first != 0, second != 0
    if all(bool(one.all()) for one in there):
        return torch.tensor(float(first.shape[-1]), dtype=torch.float64, device=first.device)
    return there[0].double() @ there[1].double()


def moved(addends: Addends | None, move: Callable[[Tensor], Tensor]) -> Addends | None:
    """Return the addends of a sum that is indexed or reshaped by `move`."""

    def each(parts: Parts) -> Parts:
        return Parts(*(moved_part(one, move, parts.up.shape) for one in parts))

    return None if addends is None else Later(each, addends)


def moved_part(part: Tensor, move: Callable[[Tensor], Tensor], shape: torch.Size) -> Tensor:
    """Return a part of what is known of a number, indexed or reshaped; a constant, which is on the CPU, stays as it is."""
    return move(part.expand(shape)) if part.dim() or not shape else part


def negated(addends: Addends | None) -> Addends | None:
    """Return the addends of a sum with the other sign."""
    return None if addends is None else Later(lambda parts: parts._replace(up=-parts.down, down=-parts.up), addends)


def unrounded(addends: Addends, kept: Tensor) -> Addends:
    """Return the addends of a sum that was not rounded where it is `kept`: its error has no room for another order."""

    def make(parts: Parts) -> Parts:
        own = (parts.up + parts.down).abs()
        return parts._replace(inside=torch.where(kept, -own, parts.inside), beyond=torch.where(kept, 0.0, parts.beyond))

    return Later(make, addends)


def magnitudes(total: Addends) -> Tensor:
    """Return the sum of the magnitudes of all addends, an upper bound of every partial sum in any order."""
    parts = total()
    return parts.up - parts.down


def roundings(number: Tensor) -> Tensor:
    """Return so many roundings, or `LAMBDA` times the root of that, where it is less."""
    number = number.clamp(min=0)
    if number.numel() and float(number.max()) <= LAMBDA**2:
        return number
    return torch.minimum(number, LAMBDA * number.sqrt())


def single(value: Tensor, error: Tensor | None, all_finite: bool) -> Parts:
    """Return a sum of one term."""
    none = scalar(0.0)
    if all_finite:
        up = value.relu()
        there = indicator(value if error is None else torch.maximum(value.abs(), error))
        return Parts(up, value - up, there, none, none)
    finite = finite_part(value)
    there = (value != 0 if error is None else (value != 0) | (error > 0)).double()
    return Parts(finite.clamp(min=0), finite.clamp(max=0), there, none, none)


def finite_part(value: Tensor) -> Tensor:
    """Return a value with 0 in place of what is not finite."""
    return value.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
