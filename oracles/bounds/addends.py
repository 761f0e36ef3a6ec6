"""Sums of three and more terms in another order: by how much their partial sums may exceed those of the formula.

a + b + c may be summed as a + (b + c), with a rounding at |b + c| in place of one at |a + b|. Of L terms, a partial sum is
in any order at most max(sum of the positive ones, sum of the negative ones) in magnitude, and L - 2 of them are rounded
before the last. docs/tolerances.md derives it. Addends are kept as a function, called where a third term comes; None stands
for a number that is no sum.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Addends = Callable[[], tuple[Tensor, ...]] | None


def of_sum(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> Addends:
    """Of a + b."""
    return lambda: tuple(term.expand((a + b).shape) for term in _terms(a, b, in_a, in_b))


def moved(addends: Addends, move: Callable[[Tensor], Tensor]) -> Addends:
    """Of a sum whose elements are moved, or that is taken negative."""
    return None if addends is None else lambda: tuple(move(term) for term in addends())


def beyond(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> Tensor | None:
    """How much more than |a| and |b|, where these are sums, the partial sums of a + b may come to; None for two terms."""
    if in_a is None and in_b is None:
        return None
    terms = [_finite(term) for term in _terms(a, b, in_a, in_b)]
    zero = torch.zeros((), dtype=torch.float64, device=terms[0].device)
    up = sum((term.clamp(min=0) for term in terms), zero)
    down = sum((term.clamp(max=0) for term in terms), zero)
    formula = sum((_finite(part).abs() for part, inside in ((a, in_a), (b, in_b)) if inside is not None), zero)
    return ((len(terms) - 2) * torch.maximum(up, -down) - formula).clamp(min=0)


def magnitudes(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> Tensor:
    """The sum of the magnitudes of all addends: no partial sum is larger, in whatever order."""
    first, *rest = [_finite(term).abs() for term in _terms(a, b, in_a, in_b)]
    return sum(rest, first)


def _terms(a: Tensor, b: Tensor, in_a: Addends, in_b: Addends) -> list[Tensor]:
    """All addends, on one device: a Python number came as a tensor on the CPU."""
    device = b.device if a.device.type == "cpu" else a.device
    both = [*((a,) if in_a is None else in_a()), *((b,) if in_b is None else in_b())]
    return [term.to(device) for term in both]


def _finite(value: Tensor) -> Tensor:
    return value.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
