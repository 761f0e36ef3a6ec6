"""Equal terms in a sum, whose rounding errors do not average out.

Adding the same number again rounds the same way again while the sum stays between two powers of two. So the errors of R
repeats add up like R, not like sqrt(R). docs/tolerances.md, "Equal terms", derives the factor.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from mhc.oracles.bounds import together
from mhc.oracles.bounds.rounding import LAMBDA

_CERTAIN = LAMBDA**2
"""LAMBDA sqrt(L) >= L for up to this many terms."""
_ALIKE = 0.5
"""A row repeats another where it equals more than this share of its nonzero elements."""
_FEW = 64
"""Up to this many repeats need no factor: 1,079 repeats gave 1.23 LAMBDA sqrt(L), and the error grows with their root."""
_PART = 1 / 64
"""The part of a gathered sum's terms that are equal where their repeats count. Of normal numbers with 8 bits of mantissa the
most frequent is one in 250."""


def longest(terms: Tensor, dim: int) -> Tensor | None:
    """Return the length of the longest run of equal terms along `dim`, kept with size 1; None without a run.

    Zeros make no run, since adding 0 rounds nothing. Pass the terms in the implementation's dtype: in float64, terms that
    are meant to be equal may differ in their last digits.
    """
    terms = terms.movedim(dim, -1)
    if terms.shape[-1] < 2 or terms.numel() == 0:
        return None
    here, before = terms[..., 1:], terms[..., :-1]
    equal = torch.eq(here, before, out=torch.empty(here.shape, dtype=here.dtype, device=here.device)).mul_(here).aminmax()
    if float(equal.min) == 0.0 == float(equal.max):  # the common case: no neighbours are equal, or they are 0
        return None
    same = (here == before) & (here != 0)
    if not same.any():
        return None
    index = torch.arange(1, terms.shape[-1], device=terms.device, dtype=torch.float64)
    broken = torch.where(same, 0.0, index).cummax(-1).values  # the index at which the run through each index began
    lengths = (index - broken).max(-1, keepdim=True).values + 1
    return lengths.movedim(-1, dim)


def repeated(terms: Tensor, dim: int) -> Tensor | None:
    """Return how often terms along `dim` repeat, in rows equal to the first two or the middle two; None where they do not.

    A row is all terms at one index of `dim`. Whole rows repeat, in any order, where a tensor is expanded or its recipe has a
    period. Repeats of single values are not counted: with 8 bits of mantissa some values always repeat.
    """
    terms = terms.movedim(dim, -1)
    length = terms.shape[-1]
    if length <= _FEW or terms.numel() == 0:
        return None
    rows = terms.reshape(-1, 1, length)
    half = length // 2
    chosen = torch.cat([rows[..., :2], rows[..., half : half + 2]], -1).mT  # [..., 4, 1]
    there = chosen != 0
    # 1.0 or 0.0: a mask of all terms takes six times as long
    same = torch.empty((rows.shape[0], 4, length), dtype=torch.promote_types(rows.dtype, torch.float32), device=rows.device)
    torch.eq(rows, chosen.masked_fill(~there, torch.nan), out=same)  # zeros equal nothing
    alike = same.sum(0) > _ALIKE * there.sum(0)
    many = alike.sum(-1) > _FEW
    if not many.any():
        return None
    times = (same * alike)[:, many].sum(-1, dtype=torch.float64).amax(-1)
    return times.clamp(min=1).reshape(*terms.shape[:-1], 1).movedim(-1, dim)


@together.run_by_run
def _repeats(terms: Tensor, dim: int) -> Tensor | None:
    found = [one for one in (longest(terms, dim), repeated(terms, dim)) if one is not None]
    return torch.stack(found).amax(0) if found else None


def of_sum(terms: Tensor, dim: int, dtype: torch.dtype) -> float | Tensor:
    """Return the roundings of a sum over `dim`, in units of sum |a|: min(LAMBDA sqrt(L R), L) for R repeats."""
    length = terms.shape[dim]
    times = _repeats(terms.to(dtype), dim) if length > _CERTAIN else None
    return _roundings(length, None if times is None else times.squeeze(dim))


def of_gathered(terms: Tensor, count: Tensor, read: Callable[[Tensor], Tensor] | None, dtype: torch.dtype) -> Tensor:
    """Return the roundings of sums to which terms are added by an index, in units of sum |a|.

    Args:
        count: how many terms each sum has. read: returns for each term the element of such a tensor that it is added to;
            None: repeats are not looked for.

    A term repeats where more than `_FEW` and a `_PART` of the terms of its sum are equal to it, in any order.
    """
    roundings, times = LAMBDA * count.sqrt(), None
    if read is not None and count.numel() > 0 and float(count.max()) > _FEW:
        times = _most_frequent(terms.to(dtype), count, read)
    if times is not None:
        roundings = torch.where(times > torch.clamp(_PART * count, min=_FEW), roundings * times.sqrt(), roundings)
    return torch.minimum(count, roundings) * (count > 1)


def _most_frequent(terms: Tensor, count: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor | None:
    """Return how often the most frequent term of each sum is in it, zeros aside; None where no term is frequent."""
    values, number, often = torch.unique(terms, return_inverse=True, return_counts=True)
    if int(often.masked_fill(values == 0, 0).max()) <= _FEW:
        return None
    place = read(torch.arange(count.numel(), device=count.device).reshape(count.shape)).expand(terms.shape).flatten()
    pairs, times = torch.unique((place * len(values) + number.flatten())[terms.flatten() != 0], return_counts=True)
    most = torch.zeros(count.numel(), dtype=torch.float64, device=count.device)
    return most.scatter_reduce(0, pairs // len(values), times.double(), "amax").reshape(count.shape)


def of_products(a: Tensor, b: Tensor, dtype: torch.dtype) -> float | Tensor:
    """Return the same for the sums in a @ b: a product repeats as often as the magnitude of its less repeated factor.

    Factors that alternate in sign together have equal products. Factors that change inversely, so that their products are
    equal, are not detected.
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
