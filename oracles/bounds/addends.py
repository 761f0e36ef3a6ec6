"""Sums of three or more terms in another order: the excess of their partial sums over those of the formula.

a + b + c may be summed as a + (b + c), which rounds at |b + c| instead of |a + b|. In any order, a partial sum of L terms
is at most max(sum of positive terms, -sum of negative terms) in magnitude, and L - 2 partial sums are rounded before the
last. docs/tolerances.md derives it. Of the terms of a sum these two sums and their number are kept, and computed when a
third term is added; a number that is no sum has no `Addends`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mhc.oracles.bounds.later import Later
from mhc.oracles.bounds.rounding import LAMBDA, indicator, scalar


class Parts(NamedTuple):
    """The sum of the positive terms and of the negative ones, infinite ones taken as 0, and how many terms may not be 0."""

    up: Tensor
    down: Tensor
    number: Tensor


Addends = Callable[[], Parts]


Partial = Callable[[], Tensor]


class Term(Protocol):
    """What is added: a value, the error of it, what is known of both, and the addends of what is a sum itself."""

    value: Tensor
    error: Tensor
    finite: bool
    errorless: bool
    addends: Addends | None


def of_sum(a: Term, b: Term) -> Addends:
    """Return the addends of a + b."""
    # keeps nothing else of a and b
    alone = [
        (one.value, None if one.errorless else one.error, one.finite) if one.addends is None else None for one in (a, b)
    ]

    def make(*inside: Parts | None) -> Parts:
        first, second = (_parts(*own) if own else part for own, part in zip(alone, inside, strict=True))
        assert first is not None
        assert second is not None
        return Parts(first.up + second.up, first.down + second.down, first.number + second.number)

    return Later(make, a.addends, b.addends)


def partial(count: Callable[[], Tensor]) -> Partial:
    """Return the roundings of partial sums of so many terms: of all but the last, or `LAMBDA` times the root of that."""

    def make() -> Tensor:
        before = (count() - 1).clamp(min=0)
        return torch.minimum(before, LAMBDA * before.sqrt())

    return Later(make)


def terms(first: Tensor, second: Tensor) -> Tensor:
    """Return how many terms of each element of a matrix product are not 0; a single number where none is 0."""
    there = first != 0, second != 0
    if all(bool(one.all()) for one in there):
        return torch.tensor(float(first.shape[-1]), dtype=torch.float64, device=first.device)
    return there[0].double() @ there[1].double()


def moved(addends: Addends | None, move: Callable[[Tensor], Tensor]) -> Addends | None:
    """Return the addends of a sum that is indexed or reshaped by `move`."""
    return None if addends is None else Later(lambda parts: Parts(*map(move, parts)), addends)


def negated(addends: Addends | None) -> Addends | None:
    """Return the addends of a sum with the other sign."""
    return None if addends is None else Later(lambda parts: Parts(-parts.down, -parts.up, parts.number), addends)


def beyond(total: Addends, sums: Sequence[Tensor]) -> Tensor:
    """Return the excess of the partial sums of a total over `sums`, the magnitudes of its terms that are sums themselves."""
    up, down, number = total()
    formula = sums[0] + sums[1] if len(sums) > 1 else sums[0]
    return (number - scalar(2.0)).relu_().mul_(torch.maximum(up, -down)).sub_(formula).relu_()


def magnitudes(total: Addends) -> Tensor:
    """Return the sum of the magnitudes of all addends, an upper bound of every partial sum in any order."""
    up, down, _ = total()
    return up - down


def _parts(value: Tensor, error: Tensor | None, all_finite: bool) -> Parts:
    if all_finite:
        up = value.relu()
        return Parts(up, value - up, indicator(value if error is None else torch.maximum(value.abs(), error)))
    finite = _finite(value)
    there = value != 0 if error is None else (value != 0) | (error > 0)
    return Parts(finite.clamp(min=0), finite.clamp(max=0), there.double())


def _finite(value: Tensor) -> Tensor:
    return value.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
