"""The error of one operation: what the errors of its operands cause, and its own rounding where overflow is possible."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from mhc.oracles.bounds.quantum import representable
from mhc.oracles.bounds.rounding import all_finite, ceiling, magnitude, nan_to_inf, underflow, unit_roundoff


class Operand(Protocol):
    """The part of an `ErrorNumber` on which the error of a product depends."""

    value: Tensor
    error: Tensor
    errorless: bool

    @property
    def size(self) -> Tensor: ...


def general_error(
    value: Tensor,
    propagated: Tensor | None,
    dtype: torch.dtype,
    units: float | Tensor,
    size: Tensor | None,
    products: float | Tensor,
    quantum: float,
) -> tuple[Tensor, float]:
    """Return the error of an operation's result, infinite where the dtype may overflow, and the quantum of that result.

    Args:
        propagated, units, size, quantum: as for `ErrorNumber._rounded`.
        products: that may fall below the normal range; each may lose half the smallest subnormal.
    """
    limit = ceiling(dtype)
    spread = magnitude(value) if size is None else size
    if propagated is None:
        error = units * unit_roundoff(dtype) * spread
    else:
        spread = spread + propagated
        error = propagated + units * unit_roundoff(dtype) * spread
    error = error + spread.sign() * (products * underflow(dtype))  # where spread is NaN, so is error
    if quantum:
        exact = representable(spread, quantum, dtype)
        error = torch.where(exact, 0.0, error)
        quantum = quantum if bool(exact.all()) else 0.0
    most = spread + error
    if error.numel() == 0 or (float(most.max()) <= limit and all_finite(value)):
        return error, quantum
    error = torch.where(most > limit, torch.inf, nan_to_inf(error))
    # A NaN or infinity that float64 finds is exact, unless an operand or a finite part is beyond promise.
    return torch.where(value.isfinite() | error.isinf(), error, 0.0), 0.0


def product_error(product: Callable[[Tensor, Tensor], Tensor], a: Operand, b: Operand) -> Tensor | None:
    """Return |a| eb + ea (|b| + eb), the error of a product from those of two finite factors; None where both are 0."""
    if a.errorless and b.errorless:
        return None
    if a.errorless:
        return product(a.size, b.error)
    if b.errorless:
        return product(a.error, b.size)
    return product(a.size, b.error) + product(a.error, b.size + b.error)


def nonfinite_product_error(value: Tensor, a: Operand, b: Operand) -> Tensor | None:
    """Return the error of a product where some element is not finite; None where both factors have none.

    It is infinite where infinity is multiplied by what may be 0.
    """
    if a.errorless and b.errorless:
        return None
    if a.errorless or b.errorless:
        exact, other = (a, b) if a.errorless else (b, a)
        propagated = nan_to_inf(magnitude(exact.value) * other.error)
    else:
        propagated = nan_to_inf(magnitude(a.value) * b.error + magnitude(b.value) * a.error + a.error * b.error)
    if all_finite(value):
        return propagated
    for one, other in ((a, b), (b, a)):
        if not other.errorless:
            propagated = torch.where(one.value.isinf() & _may_vanish(other), torch.inf, propagated)
    return propagated


def nonfinite_matmul_error(value: Tensor, a: Operand, b: Operand) -> Tensor:
    """Return the error of a matrix product where some element is not finite."""
    beyond = a.error.isinf().any(-1, keepdim=True) | b.error.isinf().any(-2, keepdim=True)
    ea, eb = magnitude(a.error), magnitude(b.error)
    if not all_finite(value):
        terms = a.value.isinf().double() @ _may_vanish(b).double()
        terms = terms + _may_vanish(a).double() @ b.value.isinf().double()
        beyond = beyond | (terms > 0)
    return torch.where(beyond, torch.inf, magnitude(a.value) @ eb + ea @ magnitude(b.value) + ea @ eb)


def _may_vanish(number: Operand) -> Tensor:
    """Return where the number held may be 0 or of either sign, but need not be: infinity times it has no certain class."""
    return (number.error > 0) & (number.error >= number.size)
