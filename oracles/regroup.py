"""Products in another order, below the normal range: by how much an underflow in the middle of a product is multiplied.

(a b) c may be computed as a (b c): where b c underflows, it loses half a subnormal, and a multiplies that. So a b has
1 + max(|a|, |b|) for the next factor, a sum of such products the sum of theirs; None stands for 1, of what is no product.
docs/tolerances.md derives it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Regrouped = Tensor | None


def of_product(a: Tensor, b: Tensor) -> Tensor:
    """Of a * b, by magnitudes."""
    return 1 + torch.maximum(a, b)


def of_matrix_product(a: Tensor, b: Tensor) -> Tensor:
    """Of a @ b, by magnitudes; max(|a|, |b|) <= |a| + |b|."""
    return a.shape[-1] + a.sum(-1, keepdim=True) + b.sum(-2, keepdim=True)


def of_sum(a: Regrouped, b: Regrouped) -> Regrouped:
    """Of a + b: both are multiplied."""
    if a is None:
        return None if b is None else 1 + b
    return a + 1 if b is None else a + b


def in_product(a: Regrouped, b: Regrouped) -> float | Tensor:
    """What multiplies the underflow of the product of two such numbers."""
    if a is None:
        return 1.0 if b is None else b
    return a if b is None else a * b


def in_matrix_product(a: Regrouped, b: Regrouped, length: int) -> float | Tensor:
    """The same over the terms of a matrix product."""
    if a is None:
        return float(length) if b is None else b.sum(-2, keepdim=True)
    return a.sum(-1, keepdim=True) if b is None else a @ b


def joined(parts: Sequence[tuple[Regrouped, Tensor]], dim: int = 0) -> Regrouped:
    """Of numbers side by side, each with its value."""
    if all(part is None for part, _ in parts):
        return None
    return torch.cat([torch.ones_like(value) if part is None else part for part, value in parts], dim)
