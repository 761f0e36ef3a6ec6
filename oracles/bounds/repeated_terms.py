"""Equal terms in a sum, whose rounding errors do not average out.

Adding the same number again rounds it the same way again, as long as the sum stays between two powers of two: the errors of
its repeats add up like their number, not like its root. docs/tolerances.md, "Equal terms", derives the factor.
"""

import torch
from torch import Tensor

from oracles.bounds.rounding import LAMBDA

_CERTAIN = LAMBDA**2
"""Up to so many terms LAMBDA sqrt(L) is at least L."""
_ALIKE = 0.5
"""Of what is not 0 in one row of terms, the share that another must equal to repeat it."""
_FEW = 64
"""Up to so many repeats stay inside: 1,079 made 1.23 times LAMBDA sqrt(L), and it goes with their root."""


def longest(terms: Tensor, dim: int) -> Tensor | None:
    """The longest run of equal terms along `dim`, which is kept with size 1; None where no two neighbours are equal.

    Zeros make no run: adding them rounds nothing. Terms are to come as an implementation holds them: in float64,
    numbers that are meant to be equal may differ in their last digits.
    """
    terms = terms.movedim(dim, -1)
    if terms.shape[-1] < 2 or terms.numel() == 0:
        return None
    same = terms[..., 1:] == terms[..., :-1]
    if not same.any():  # the common case
        return None
    same &= terms[..., 1:] != 0
    if not same.any():
        return None
    place = torch.arange(1, terms.shape[-1], device=terms.device, dtype=torch.float64)
    broken = torch.where(same, 0.0, place).cummax(-1).values  # where the run that goes through a place began
    runs = (place - broken).max(-1, keepdim=True).values + 1
    return runs.movedim(-1, dim)


def repeated(terms: Tensor, dim: int) -> Tensor | None:
    """How often a term along `dim` comes in rows that repeat one of four, the first two and the middle two; None: seldom.

    A row is all terms at one place of `dim`. Whole rows repeat, in whatever order, where a tensor is expanded or its recipe
    has a period. Single values that come again are not looked for: among numbers of 8 bits some always do.
    """
    terms = terms.movedim(dim, -1)
    length = terms.shape[-1]
    if length <= _FEW or terms.numel() == 0:
        return None
    rows = terms.reshape(-1, length)
    times = None
    for place in (0, 1, length // 2, length // 2 + 1):
        row = rows[:, place : place + 1]
        there = row != 0
        same = (rows == row) & there
        alike = same.sum(0) > _ALIKE * there.sum()
        if alike.sum() > _FEW:
            found = (same & alike).sum(-1).double()
            times = found if times is None else torch.maximum(times, found)
    return None if times is None else times.clamp(min=1).reshape(*terms.shape[:-1], 1).movedim(-1, dim)


def _repeats(terms: Tensor, dim: int) -> Tensor | None:
    found = [one for one in (longest(terms, dim), repeated(terms, dim)) if one is not None]
    return torch.stack(found).amax(0) if found else None


def of_sum(terms: Tensor, dim: int, dtype: torch.dtype) -> float | Tensor:
    """Roundings of a sum over `dim`, relative to its magnitudes: LAMBDA sqrt(L R), at most L, where terms come R times."""
    length = terms.shape[dim]
    times = _repeats(terms.to(dtype), dim) if length > _CERTAIN else None
    return _roundings(length, None if times is None else times.squeeze(dim))


def of_products(a: Tensor, b: Tensor, dtype: torch.dtype) -> float | Tensor:
    """The same of the sums in a @ b: a product comes as often as the magnitude of that factor which comes less often.

    Two factors that alternate in sign together have equal products. Factors that change against one another, so that their
    products stay, are not seen.
    """
    length = a.shape[-1]
    rows = _repeats(a.abs().to(dtype), -1) if length > _CERTAIN else None
    columns = None if rows is None else _repeats(b.abs().to(dtype), -2)
    return _roundings(length, None if rows is None or columns is None else torch.minimum(rows, columns))


def _roundings(length: int, times: Tensor | None) -> float | Tensor:
    plain: float = LAMBDA * length**0.5
    if times is None:
        return plain
    return (LAMBDA * (length * times).sqrt()).clamp(max=length).clamp(min=plain)
