"""The most that may be held of a number whose error is infinite because it may overflow to -infinity.

The start of a running maximum, or a mask that is added, is near the end of the range: -1e38 - x has no bound, since
-infinity may be held for it. But what is held is certainly so small that its exponential is 0.
"""

from typing import Protocol

import torch
from torch import Tensor

from mhc.oracles.bounds.rounding import ceiling, unit_roundoff

GONE = 1000.0
"""exp(-1000) is 0 in every dtype."""


class Number(Protocol):
    """The part of an `ErrorNumber` that is needed here."""

    value: Tensor
    error: Tensor
    dtype: torch.dtype
    most: Tensor | None


def most(number: Number) -> Tensor:
    """Return what is held at most; infinity where that is not known, or NaN may be held."""
    known = (number.value + number.error).nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    known = torch.where(number.error.isinf(), torch.inf, known)
    return known if number.most is None else torch.minimum(known, number.most)


def of_sum(total: Number, a: Number, b: Number) -> Tensor | None:
    """Return what is held of a + b at most; None where its error is finite.

    No term may be positive and near the range, so that no partial sum is infinity, in any order.
    """
    if not bool((total.error.isinf() & (total.value < -GONE)).any()):
        return None
    first, second = most(a), most(b)
    u = unit_roundoff(total.dtype)
    small = torch.maximum(first, second) <= u * ceiling(total.dtype)
    size = (first.abs() + second.abs()).nan_to_num(posinf=0.0)  # -infinity stays so
    return torch.where(small, first + second + 4 * u * size, torch.inf)


def below(a: Number, b: Number) -> Tensor:
    """Return where a is certainly less than b."""
    return most(a) < b.value - b.error


def of_choice(a: Number, b: Number, condition: Tensor, unsure: Tensor | None) -> Tensor:
    """Return what is held at most of a where `condition`, else of b."""
    first, second = most(a), most(b)
    found = torch.where(condition, first, second)
    return found if unsure is None else torch.where(unsure, torch.maximum(first, second), found)


def converted(known: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is held at most after a rounding to `dtype`, in which a positive number may be infinity."""
    nearer = known * (1 - unit_roundoff(dtype))
    return torch.where(known > 0, torch.inf, nearer)
