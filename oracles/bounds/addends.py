"""Sums of three or more terms in another order: the excess of their partial sums over those of the formula.

a + b + c may be summed as a + (b + c), which rounds at |b + c| instead of |a + b|. In any order, a partial sum of L terms
is at most max(sum of positive terms, -sum of negative terms) in magnitude, and L - 2 partial sums are rounded before the
last. docs/tolerances.md derives it. Addends are a function, called when a third term is added; None where a number is no
sum.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Addends = Callable[[], tuple[Tensor, ...]] | None


def of_sum(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> Addends:
    """Return the addends of a + b."""
    return lambda: tuple(term.expand((a + b).shape) for term in _terms(a, b, in_a, in_b))


def moved(addends: Addends, move: Callable[[Tensor], Tensor]) -> Addends:
    """Return the addends of a sum that is indexed, reshaped or negated by `move`."""
    return None if addends is None else lambda: tuple(move(term) for term in addends())


def beyond(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> Tensor | None:
    """Return the excess of the partial sums of a + b over |a| and |b|, where these are sums; None for two terms."""
    if in_a is None and in_b is None:
        return None
    terms = [_finite(term) for term in _terms(a, b, in_a, in_b)]
    zero = torch.zeros((), dtype=torch.float64, device=terms[0].device)
    up = sum((term.clamp(min=0) for term in terms), zero)
    down = sum((term.clamp(max=0) for term in terms), zero)
    formula = sum((_finite(part).abs() for part, inside in ((a, in_a), (b, in_b)) if inside is not None), zero)
    return ((len(terms) - 2) * torch.maximum(up, -down) - formula).clamp(min=0)


def magnitudes(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> Tensor:
    """Return the sum of the magnitudes of all addends, an upper bound of every partial sum in any order."""
    first, *rest = [_finite(term).abs() for term in _terms(a, b, in_a, in_b)]
    return sum(rest, first)


def _terms(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> list[Tensor]:
    """Return all addends on one device; Python numbers are tensors on the CPU."""
    device = b.device if a.device.type == "cpu" else a.device
    both = [*((a,) if in_a is None else in_a()), *((b,) if in_b is None else in_b())]
    return [term.to(device) for term in both]


def _finite(value: Tensor) -> Tensor:
    return value.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
