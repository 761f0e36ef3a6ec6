"""Runs of equal terms in a sum, whose rounding errors do not average out.

Adding the same number again and again rounds it the same way each time, as long as the sum stays between two powers of two:
the errors of a run add up like its length, not like its root. docs/tolerances.md, "Equal terms", derives the factor.
"""

import torch
from torch import Tensor

from oracles.rounding import LAMBDA

_CERTAIN = LAMBDA**2
"""Up to so many terms LAMBDA sqrt(L) is at least L."""


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


def of_sum(terms: Tensor, dim: int, dtype: torch.dtype) -> float | Tensor:
    """Roundings of a sum over `dim`, relative to its magnitudes: of L terms in runs of R, LAMBDA sqrt(L R), at most L."""
    length = terms.shape[dim]
    run = longest(terms.to(dtype), dim) if length > _CERTAIN else None
    return _roundings(length, None if run is None else run.squeeze(dim))


def of_products(a: Tensor, b: Tensor, dtype: torch.dtype) -> float | Tensor:
    """The same of the sums in a @ b: the run of a product is taken as the shorter one of its factors' magnitudes.

    Two factors that alternate in sign together have equal products. Factors that change against one another, so that their
    products stay, are not seen.
    """
    length = a.shape[-1]
    rows = longest(a.abs().to(dtype), -1) if length > _CERTAIN else None
    columns = None if rows is None else longest(b.abs().to(dtype), -2)
    return _roundings(length, None if rows is None or columns is None else torch.minimum(rows, columns))


def _roundings(length: int, run: Tensor | None) -> float | Tensor:
    plain: float = LAMBDA * length**0.5
    if run is None:
        return plain
    return (LAMBDA * (length * run).sqrt()).clamp(max=length).clamp(min=plain)
