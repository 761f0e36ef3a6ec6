"""Reassociated products below the normal range: the factor on an underflow in the middle of a product.

(a b) c may be computed as a (b c). Where b c underflows, it loses half a subnormal, which a then multiplies. So the factor
of a b is 1 + max(|a|, |b|) (-min of them where one is infinite, see `may_be_nan`), that of a sum of products the sum of
theirs, and None stands for 1, where there is no product. docs/tolerances.md derives it. Few cases come near underflow, so
each factor is a function, called when it is needed.

Distributivity exchanges two sums: sum_k x_k (a_k @ b) may be summed as (sum_k x_k a_k) @ b. Its partial sums are as large as
the terms without the cancellation inside a_k @ b: `distributed`, |x_k| (|a_k| @ |b|), also a function.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from mhc.oracles.bounds.later import Later
from mhc.oracles.bounds.rounding import magnitude

NEAR = 2.0**-60
"""Larger products lose nothing to underflow in another order, unless the last factor exceeds 2**66."""

Reassociated = Callable[[], Tensor] | None


class Operand(Protocol):
    """An `ErrorNumber`."""

    value: Tensor
    finite: bool
    reassociated: Reassociated


def near(sizes: Tensor, least: float) -> bool:
    """Return whether a nonzero product is small enough for the order to matter; `least` is the smallest of `sizes`."""
    if least >= NEAR:
        return False
    return least > 0 or float(torch.sub(sizes, sizes.sign(), alpha=NEAR).min()) < 0


def of_product(a: Tensor, b: Tensor, *, finite: bool = False) -> Reassociated:
    """Return the factor of a * b; where one is infinite, which has no error, -|other| for `may_be_nan`.

    Args:
        finite: both are finite everywhere; False: unknown.
    """

    def make() -> Tensor:
        if finite:
            return torch.maximum(a.abs(), b.abs()) + 1
        factor = 1 + torch.maximum(magnitude(a), magnitude(b))
        if not (bool(a.isinf().any()) or bool(b.isinf().any())):
            return factor
        one_infinite = a.isinf() & b.isfinite() & (b != 0) | b.isinf() & a.isfinite() & (a != 0)
        return torch.where(one_infinite, -torch.minimum(a.abs(), b.abs()), factor)

    return Later(make)


def may_be_nan(one: Operand, two: Operand, least: float) -> Iterator[Tensor]:
    """Yield where (a b) c is infinite, and a (b c) NaN: where b c is not 0, but at most `least`, and rounds to 0.

    Args:
        one, two: the factors; each may be the product.
    """
    for product, other in ((one, two), (two, one)):
        if product.reassociated is not None and not product.finite and bool((infinite := product.value.isinf()).any()):
            of = product.reassociated()
            yield infinite & (of < 0) & (other.value != 0) & (of.abs() * other.value.abs() <= least)


def matrix_may_be_nan(one: Operand, two: Operand, least: float) -> Iterator[Tensor]:
    """Yield the same of a matrix product."""
    if one.reassociated is not None and not one.finite and bool(one.value.isinf().any()):
        yield _rows_may_be_nan(one.value, one.reassociated(), two.value, least)
    if two.reassociated is not None and not two.finite and bool(two.value.isinf().any()):
        yield _rows_may_be_nan(two.value.mT, two.reassociated().mT, one.value.mT, least).mT


def _rows_may_be_nan(product: Tensor, of: Tensor, other: Tensor, least: float) -> Tensor:
    """Return it for each row of the product and column of `other`, by the smallest of their numbers that may meet."""
    here = product.isinf() & (of < 0)
    row = torch.where(here, of.abs(), torch.inf).amin(-1, keepdim=True)
    met = here.flatten(0, -2).any(0).unsqueeze(-1)
    column = torch.where(met & (other != 0), other.abs(), torch.inf).amin(-2, keepdim=True)
    return row.isfinite() & column.isfinite() & (row * column <= least)


def of_matrix_product(a: Tensor, b: Tensor, *, finite: bool = False) -> Reassociated:
    """Return the factor of a @ b, from max(|a|, |b|) <= |a| + |b|.

    Where a term may be infinite, it is minus the smallest other factor of such terms in its row or column: see `of_product`.

    Args:
        finite: both are finite everywhere; False: unknown.
    """

    def make() -> Tensor:
        size = torch.abs if finite else magnitude
        factor = a.shape[-1] + size(a).sum(-1, keepdim=True) + size(b).sum(-2, keepdim=True)
        if finite:
            return factor
        in_a, in_b = a.isinf(), b.isinf()
        if not (bool(in_a.any()) or bool(in_b.any())):
            return factor
        row = _smallest(a, in_b.any(-1).unsqueeze(-2)).amin(-1, keepdim=True)
        column = _smallest(b, in_a.any(-2).unsqueeze(-1)).amin(-2, keepdim=True)
        row = torch.where(in_b.any(-2, keepdim=True), row, torch.inf)
        least = torch.minimum(row, torch.where(in_a.any(-1, keepdim=True), column, torch.inf))
        return torch.where(least.isfinite(), -least, factor)

    return Later(make)


def _smallest(tensor: Tensor, where: Tensor) -> Tensor:
    """Return |tensor| where it is finite and not 0, at some places; infinity elsewhere."""
    return torch.where(where & tensor.isfinite() & (tensor != 0), tensor.abs(), torch.inf)


def of_sum(a: Reassociated, b: Reassociated) -> Reassociated:
    """Return the factor of a + b, the sum of both."""
    if a is None and b is None:
        return None

    def make(of_a: Tensor | None, of_b: Tensor | None) -> Tensor:
        ones = torch.ones(())
        return (ones if of_a is None else of_a.clamp(min=1)) + (ones if of_b is None else of_b.clamp(min=1))

    return Later(make, a, b)


def moved(a: Reassociated, move: Callable[[Tensor], Tensor]) -> Reassociated:
    """Return the factor of a number that is indexed, reshaped or summed by `move`."""
    return None if a is None else Later(move, a)


def joined(parts: Sequence[tuple[Reassociated, Tensor]], join: Callable[[list[Tensor]], Tensor]) -> Reassociated:
    """Return the factor of numbers put together by `join`, each given with its value."""
    if all(part is None for part, _ in parts):
        return None

    def make(*factors: Tensor | None) -> Tensor:
        ones = (torch.ones_like(value) if one is None else one for one, (_, value) in zip(factors, parts, strict=True))
        return join(list(ones))

    return Later(make, *(part for part, _ in parts))


def in_product(a: Reassociated, b: Reassociated) -> Reassociated:
    """Return the factor on the underflow of the product of two such numbers."""
    if a is None or b is None:
        return b if a is None else a
    return Later(torch.mul, a, b)


def in_matrix_product(a: Reassociated, b: Reassociated, partial: int) -> Reassociated:
    """Return the same for a matrix product, whose terms are `partial` products each."""
    if a is not None and b is not None:
        return Later(lambda of_a, of_b: partial * (of_a @ of_b), a, b)
    if a is not None:
        return Later(lambda of_a: partial * of_a.sum(-1, keepdim=True), a)
    return None if b is None else Later(lambda of_b: partial * of_b.sum(-2, keepdim=True), b)


def distributed(a: Reassociated, b: Reassociated, a_value: Tensor, b_value: Tensor, *, finite: bool = False) -> Reassociated:
    """Return |a * b| without the cancellation inside a factor that contains a matrix product; None without such a factor.

    finite: as for `of_product`.
    """
    if a is None and b is None:
        return None
    size = torch.abs if finite else magnitude
    return Later(
        lambda of_a, of_b: (size(a_value) if of_a is None else of_a) * (size(b_value) if of_b is None else of_b), a, b
    )
