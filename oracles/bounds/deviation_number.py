"""Numbers that carry the standard deviation of their own rounding error, for the precision gate.

`error` and `shared` are two parts of it, for each element: `error` comes from roundings that no other element has, `shared`
from roundings that other elements have as well, such as that of a factor that a whole row is multiplied by. Their squares
add up. With u the unit roundoff, s(a) the whole standard deviation of a, T a sum's value, Q the sum of its terms' squares
and c the number of its nonzero terms:

    a + b             s(a) + s(b)                              and u/sqrt(3) sqrt(max((a + b)^2, a^2 + b^2)), per addition
    a * b             |a| s(b) + |b| s(a)                      and u/sqrt(3) |a b|      (no rounding for a power of two)
    a / c             s(a) / c                                 and 2u |a / c|
    sum               sqrt(sum of s^2)                         and u/sqrt(3) sqrt((c - 1) (Q/4 + T^2))
    a @ b             sqrt(s(a)^2 @ b^2 + a^2 @ s(b)^2)        and u/sqrt(3) sqrt((c - 1) (Q/4 + T^2) + Q)
    rsqrt(a)          s(a) rsqrt(a)^3 / 2                      and 9u rsqrt(a)
    sigmoid(a)        s(a) sigma'(a)                           and 9u sigma(a) + 2u |a| sigma'(a)
    to(narrower)      s(a)                                     and u_narrow/sqrt(3) |a|

"and" means the root of the sum of squares. Errors that the terms of a sum share add up linearly and are a further part:
|sum of shared sign(a)|, for a product |sum of s(a) sign(a) b|. docs/tolerances.md, "Precision",
derives each line. They are valid for values that the precision gate makes: finite, of mixed sign, in an order that does not
depend on them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mhc.oracles.bounds.error_number import ErrorNumber, _is_power_of_two
from mhc.oracles.bounds.rounding import ELEMENTARY, PARTIAL, half_subnormal, indicator, scalar, unit_roundoff

UNIFORM = 3**-0.5
"""The standard deviation of a rounding error, relative to its largest magnitude: it is distributed uniformly."""


class DeviationNumber(ErrorNumber):
    """A float64 value and the standard deviation of its error, in two parts.

    `terms`: the number of terms of which this is the elementwise sum. They may be added in another order.
    """

    elementary = False
    truncates = False
    """Whether sums may run on units that round toward zero."""

    __slots__ = ("shared", "terms")

    def __init__(
        self,
        value: Tensor,
        error: Tensor,
        dtype: torch.dtype,
        quantum: float = 0.0,
        *,
        finite: bool = False,
        errorless: bool = False,
        shared: Tensor | None = None,
        terms: int = 1,
    ) -> None:
        super().__init__(value, error, dtype, quantum, finite=finite, errorless=errorless)
        self.shared = torch.zeros((), dtype=torch.float64, device=value.device) if shared is None else shared
        self.terms = terms

    @classmethod
    def stored(cls, value: Tensor, dtype: torch.dtype, *, with_quantum: bool = False) -> "DeviationNumber":
        """Return the value rounded to `dtype` without an error, as it is given to the implementation."""
        del with_quantum
        rounded = value.to(dtype).double()
        return cls(rounded, torch.zeros_like(rounded), dtype)

    @property
    def deviation(self) -> Tensor:
        """Return the whole standard deviation."""
        return torch.hypot(self.error, self.shared)

    def __add__(self, other: Any) -> "DeviationNumber":
        term = self._coerce(other)
        value = self.value + term.value
        size = torch.maximum(value.square(), self.value.square() + term.value.square()).sqrt()
        terms = self.terms + term.terms
        own = UNIFORM * (terms - 1) ** 0.5 * unit_roundoff(self.dtype) * size
        return self._elementwise(value, own, (1.0, self), (1.0, term), terms=terms)

    __radd__ = __add__

    def __neg__(self) -> "DeviationNumber":
        return type(self)(-self.value, self.error, self.dtype, shared=self.shared, terms=self.terms)

    def __mul__(self, other: Any) -> "DeviationNumber":
        units = 0.0 if _is_power_of_two(other) else UNIFORM
        factor = self._coerce(other)
        value = self.value * factor.value
        own = units * unit_roundoff(self.dtype) * value.abs() + _underflow(value, self.dtype)
        return self._elementwise(value, own, (factor.size, self), (self.size, factor))

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> "DeviationNumber":
        if _is_power_of_two(other):
            return self * (1 / other)
        value = self.value / other
        own = 2 * unit_roundoff(self.dtype) * value.abs() + _underflow(value, self.dtype)
        return self._elementwise(value, own, (1 / abs(other), self))

    def _product(self, other: ErrorNumber) -> "DeviationNumber":
        b = self._coerce(other)
        value, squares = self.value @ b.value, self.value.square() @ b.value.square()
        count = (self.value != 0).double() @ (b.value != 0).double()
        moved = torch.zeros_like(value)
        for at, whole, product in ((self, b, torch.matmul), (b, self, lambda one, two: two @ one)):
            if at.error.any() or at.shared.any():
                deviation = at.deviation
                common = product(deviation * at.value.sign(), whole.value)
                moved = moved + product(deviation.square(), whole.value.square()) + common.square()
        own = self._of_sum(value, squares, count, products=squares)
        return type(self)(value, own, self.dtype, shared=moved.sqrt())

    def sum(self, dim: int) -> "DeviationNumber":
        value, squares = self.value.sum(dim), self.value.square().sum(dim)
        count = (self.value != 0).sum(dim).double()
        own = self._of_sum(value, squares, count, products=0.0)
        shared = self.shared.expand(self.shape)
        common = (shared * self.value.sign()).sum(dim)
        return type(self)(
            value,
            torch.hypot(self.error.square().sum(dim).sqrt(), own),
            self.dtype,
            shared=torch.hypot(shared.square().sum(dim).sqrt(), common),
        )

    def rsqrt(self) -> "DeviationNumber":
        value = self.value.rsqrt()
        return self._elementwise(value, ELEMENTARY * unit_roundoff(self.dtype) * value, (value**3 / 2, self))

    def sigmoid(self) -> "DeviationNumber":
        value = self.value.sigmoid()
        slope = value * (-self.value).sigmoid()
        own = unit_roundoff(self.dtype) * (ELEMENTARY * value + 2 * slope * self.size)
        return self._elementwise(value, own + torch.finfo(self.dtype).smallest_normal, (slope, self))

    def to(self, dtype: torch.dtype) -> "DeviationNumber":
        error = self.error
        if unit_roundoff(dtype) > unit_roundoff(self.dtype):
            error = torch.hypot(error, UNIFORM * unit_roundoff(dtype) * self.size + _underflow(self.value, dtype))
        return type(self)(self.value, error, dtype, shared=self.shared, terms=self.terms)

    def _of_sum(self, value: Tensor, squares: Tensor, count: Tensor, *, products: Tensor | float) -> Tensor:
        return deviation_of_sum(value, squares, count, self.dtype, products=products, truncates=self.truncates)

    def _elementwise(
        self, value: Tensor, own: Tensor, *parts: tuple[Tensor | float, "DeviationNumber"], terms: int = 1
    ) -> "DeviationNumber":
        """Return the result of an elementwise operation: its own rounding, and each operand's error times its slope.

        The operands' errors may be dependent, so they are added. Elements of a broadcast operand share their error.
        """
        error = torch.zeros_like(value)
        shared = torch.zeros_like(value)
        for slope, number in parts:
            if number.shape == value.shape:
                error = error + slope * number.error
                shared = shared + slope * number.shared
            else:
                shared = shared + slope * (number.error + number.shared)
        return type(self)(value, torch.hypot(error, own), self.dtype, shared=shared, terms=terms)

    def _coerce(self, other: Any) -> "DeviationNumber":
        number = super()._coerce(other)
        assert isinstance(number, DeviationNumber)
        return number

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        shared = move(self.shared.expand(self.shape))
        return type(self)(move(self.value), move(self.error), self.dtype, shared=shared, terms=self.terms)

    @classmethod
    def joined(cls, parts: Sequence[ErrorNumber], join: Callable[[list[Tensor]], Tensor]) -> "DeviationNumber":
        numbers = [part for part in parts if isinstance(part, DeviationNumber)]
        value, error = (join([getattr(one, name) for one in numbers]) for name in ("value", "error"))
        shared = join([one.shared.expand(one.shape) for one in numbers])
        return cls(value, error, parts[0].dtype, shared=shared, terms=max(one.terms for one in numbers))


class TruncatingDeviationNumber(DeviationNumber):
    """The same where tensor cores may compute a sum; their accumulators round toward zero."""

    truncates = True

    __slots__ = ()


def deviation_of_sum(
    value: Tensor, squares: Tensor, count: Tensor, dtype: torch.dtype, *, products: Tensor | float, truncates: bool
) -> Tensor:
    """Return the deviation due to the roundings of a sum in any order; `products` are rounded before the addition."""
    partial = squares / 4 + value.square()
    variance = UNIFORM**2 * ((count - 1).clamp(min=0) * partial + products)
    if truncates:
        variance = variance + (PARTIAL * count).square() * partial
    return unit_roundoff(dtype) * variance.sqrt() + PARTIAL * count * half_subnormal(dtype)


def _underflow(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return half a subnormal where `value` is not 0."""
    return indicator(value) * scalar(half_subnormal(dtype))
