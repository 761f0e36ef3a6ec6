"""Sums of three or more terms in another order: the excess of their partial sums over those of the formula.

a + b + c may be summed as a + (b + c), which rounds at |b + c| instead of |a + b|. In any order, a partial sum of L terms
is at most max(sum of positive terms, -sum of negative terms) in magnitude, and L - 2 partial sums are rounded before the
last. docs/tolerances.md derives it. Of the terms of a sum these two sums and their number are kept, and computed when a
third term is added; a number that is no sum has no `Addends`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mhc.oracles.bounds.later import Later


class Parts(NamedTuple):
    """The sum of the positive terms, the sum of the negative ones, and the number of terms. Infinite ones count as 0."""

    up: Tensor
    down: Tensor
    number: int


Addends = Callable[[], Parts]


def of_sum(a: Tensor, b: Tensor, in_a: Addends | None, in_b: Addends | None) -> Addends:
    """Return the addends of a + b, of which each may be a sum itself."""

    def make(of_a: Parts | None, of_b: Parts | None) -> Parts:
        first, second = _parts(a) if of_a is None else of_a, _parts(b) if of_b is None else of_b
        device = second.up.device if first.up.device.type == "cpu" else first.up.device  # a Python number is on the CPU
        first, second = (Parts(one.up.to(device), one.down.to(device), one.number) for one in (first, second))
        return Parts(first.up + second.up, first.down + second.down, first.number + second.number)

    return Later(make, in_a, in_b)


def moved(addends: Addends | None, move: Callable[[Tensor], Tensor]) -> Addends | None:
    """Return the addends of a sum that is indexed or reshaped by `move`."""
    return None if addends is None else Later(lambda parts: Parts(move(parts.up), move(parts.down), parts.number), addends)


def negated(addends: Addends | None) -> Addends | None:
    """Return the addends of a sum with the other sign."""
    return None if addends is None else Later(lambda parts: Parts(-parts.down, -parts.up, parts.number), addends)


def beyond(total: Addends, sums: Sequence[Tensor]) -> Tensor:
    """Return the excess of the partial sums of a total over `sums`, those of its two terms that are sums themselves."""
    up, down, number = total()
    formula = sum((_finite(one).abs() for one in sums), torch.zeros((), dtype=torch.float64, device=up.device))
    return ((number - 2) * torch.maximum(up, -down) - formula).clamp(min=0)


def magnitudes(total: Addends) -> Tensor:
    """Return the sum of the magnitudes of all addends, an upper bound of every partial sum in any order."""
    up, down, _ = total()
    return up - down


def _parts(value: Tensor) -> Parts:
    finite = _finite(value)
    return Parts(finite.clamp(min=0), finite.clamp(max=0), 1)


def _finite(value: Tensor) -> Tensor:
    return value.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
