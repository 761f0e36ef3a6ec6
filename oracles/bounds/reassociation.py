"""Products in another order, below the normal range: by how much an underflow in the middle of a product is multiplied.

(a b) c may be computed as a (b c): where b c underflows, it loses half a subnormal, and a multiplies that. So a b has
1 + max(|a|, |b|) for the next factor, a sum of such products the sum of theirs; None stands for 1, of what is no product.
docs/tolerances.md derives it. Hardly a case comes near enough to underflow for it to matter: each is a function that is
called when one does.

The same step of reordering exchanges two sums: sum_k x_k (a_k @ b) may be summed as (sum_k x_k a_k) @ b. Its partial sums
are as large as the terms without the cancellation inside a_k @ b: `distributed`, |x_k| (|a_k| @ |b|), a function as well.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from oracles.bounds.rounding import magnitude

_NEAR = 2.0**-60
"""A larger product loses nothing to underflow in another order, unless a factor beyond 2**66 is its last."""

Later = Callable[[], Tensor]
Reassociated = Later | None


def near(sizes: Tensor, least: float) -> bool:
    """Whether some product is so small, and not 0, that another order matters; `least` is the smallest of `sizes`."""
    if least >= _NEAR:
        return False
    return least > 0 or bool(((sizes > 0) & (sizes < _NEAR)).any())


def of_product(a: Tensor, b: Tensor) -> Reassociated:
    """Of a * b."""
    return lambda: 1 + torch.maximum(magnitude(a), magnitude(b))


def of_matrix_product(a: Tensor, b: Tensor) -> Reassociated:
    """Of a @ b; max(|a|, |b|) <= |a| + |b|."""
    return lambda: a.shape[-1] + magnitude(a).sum(-1, keepdim=True) + magnitude(b).sum(-2, keepdim=True)


def of_sum(a: Reassociated, b: Reassociated) -> Reassociated:
    """Of a + b: both are multiplied."""
    if a is None and b is None:
        return None
    return lambda: (1 if a is None else a()) + (torch.ones(()) if b is None else b())


def moved(a: Reassociated, move: Callable[[Tensor], Tensor]) -> Reassociated:
    """Of a number whose elements are moved or added up."""
    return None if a is None else lambda: move(a())


def joined(parts: Sequence[tuple[Reassociated, Tensor]], dim: int = 0) -> Reassociated:
    """Of numbers side by side, each with its value."""
    if all(part is None for part, _ in parts):
        return None
    return lambda: torch.cat([torch.ones_like(value) if part is None else part() for part, value in parts], dim)


def in_product(a: Reassociated, b: Reassociated) -> Reassociated:
    """What multiplies the underflow of the product of two such numbers."""
    if a is None or b is None:
        return b if a is None else a
    return lambda: a() * b()


def in_matrix_product(a: Reassociated, b: Reassociated, partial: int) -> Reassociated:
    """The same over the terms of a matrix product, each of `partial` products."""
    if a is not None and b is not None:
        return lambda: partial * (a() @ b())
    if a is not None:
        return lambda: partial * a().sum(-1, keepdim=True)
    return None if b is None else lambda: partial * b().sum(-2, keepdim=True)


def distributed(a: Later | None, b: Later | None, a_value: Tensor, b_value: Tensor) -> Later | None:
    """The magnitudes of a * b without the cancellation in a factor that is, or contains, a matrix product; else None."""
    if a is None and b is None:
        return None
    return lambda: (magnitude(a_value) if a is None else a()) * (magnitude(b_value) if b is None else b())
