"""Numbers that carry a bound on the change that underflow alone may cause, for relations exact except for underflow.

If inputs of a formula that is linear in them are multiplied by a power of two, no intermediate changes a digit, except where
a product is not a normal number. An `UnderflowNumber` bounds that change: a product that is certainly normal has no error,
any other has half a subnormal. Ordinary roundings are the same in both evaluations and add no error.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reassociation import Reassociated
from mhc.oracles.bounds.rounding import ceiling, half_subnormal, magnitude, nan_to_inf, scalar

MARGIN = 2.0**24
"""A product of at least this many times the smallest normal number counts as normal: implementations multiply in other
orders and split factors into terms of fewer digits."""


class UnderflowNumber(ErrorNumber):
    """A float64 value and a bound on the change that underflow may cause in it."""

    elementary = False
    constant = True
    reorders = False
    fixed: ClassVar[bool] = False
    """Whether what is computed is the same in both evaluations: the forward, which has no upstream gradient."""

    __slots__ = ()

    @classmethod
    @contextmanager
    def forward(cls) -> Iterator[None]:
        cls.fixed = True
        try:
            yield
        finally:
            cls.fixed = False

    @classmethod
    def exact(cls, value: Tensor, dtype: torch.dtype, *, with_quantum: bool = False) -> Self:
        """Return a given tensor, with an infinite error where its double may overflow."""
        del with_quantum
        if cls.fixed:
            return cls(value, torch.zeros_like(value), dtype)
        size = value.abs()
        if _within(size, dtype):
            return cls(value, torch.zeros_like(value), dtype, finite=True, errorless=True)
        return cls(value, torch.zeros_like(value).masked_fill(size > ceiling(dtype), torch.inf), dtype)

    @classmethod
    def _rounded(
        cls,
        value: Tensor,
        propagated: Tensor | None,
        dtype: torch.dtype,
        *,
        size: Tensor | None = None,
        underflows: float = 1,
        reassociated: Reassociated = None,
        finite: bool = False,
        **_: object,
    ) -> "UnderflowNumber":
        if cls.fixed:
            return cls(value, torch.zeros_like(value), dtype)
        if propagated is None:
            propagated = torch.zeros((), dtype=torch.float64, device=value.device)
        largest = magnitude(value) if size is None else size
        spread = largest + propagated
        zero, least = scalar(0.0), torch.finfo(dtype).smallest_normal
        products = scalar(MARGIN * underflows) if reassociated is None else MARGIN * reassociated()
        rounds = spread != zero
        if size is None:
            rounds = rounds & (largest - propagated < products * least)
        own = torch.where(rounds, zero + products * half_subnormal(dtype), zero)
        if finite and _within(spread, dtype):
            return cls(value, propagated + own, dtype, finite=True)
        error = nan_to_inf(propagated + own)
        return cls(value, torch.where(spread > ceiling(dtype), torch.inf, error), dtype)

    def _coerce(self, other: Any) -> ErrorNumber:
        """Return a constant without an error, since both evaluations round it alike."""
        if isinstance(other, ErrorNumber):
            return super()._coerce(other)
        value = torch.tensor(float(other), dtype=torch.float64)
        return type(self)(value, torch.zeros_like(value), self.dtype, finite=math.isfinite(other), errorless=True)

    def sigmoid(self) -> "UnderflowNumber":
        value = self.value.sigmoid()
        return type(self)(value, torch.where(self.error > 0, torch.inf, 0.0).double(), self.dtype)

    def _factor(self) -> "ErrorNumber":
        """Return the number as it is in TF32, whose roundings are the same in both evaluations."""
        return self if self.factors == "tf32" else super()._factor()

    def lost(self, amount: Tensor) -> "ErrorNumber":
        return self if self.fixed else super().lost(amount)

    def to(self, dtype: torch.dtype) -> "UnderflowNumber":
        """Return the number in `dtype`, with an error only where the result may not be normal."""
        if self.fixed:
            return type(self)(self.value, self.error, dtype)
        info = torch.finfo(dtype)
        size = self.size if self.finite else magnitude(self.value)
        normal = (size - self.error >= info.smallest_normal) | (size + self.error == 0)
        own = (~normal).double() * half_subnormal(dtype)
        if self.finite and _within(size, dtype):
            return type(self)(self.value, self.error + own, dtype, finite=True)
        return type(self)(self.value, torch.where(size > ceiling(dtype), torch.inf, self.error + own), dtype)


def _within(size: Tensor, dtype: torch.dtype) -> bool:
    """Return whether all magnitudes are finite and far enough from overflow."""
    return size.numel() == 0 or float(size.max()) <= ceiling(dtype)
