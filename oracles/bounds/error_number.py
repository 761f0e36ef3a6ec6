"""Numbers that carry a bound on their own rounding error, so that an operator's formula yields its tolerance.

An `ErrorNumber` stands for a tensor that an implementation holds in some dtype: `value` is what it would be without any
rounding, `error` bounds |held - value| element by element. Every operation propagates the errors of its operands and adds
its own, with u the unit roundoff of the dtype:

    a + b, a - b      ea + eb                                  + u |a + b|       (a + b + c: in any order)
    a * b             |a| eb + |b| ea + ea eb                  + u |a b|         (no rounding for a power of two)
    a / b             as a * (1/b)                             + 2u |a / b|
    sum of L terms    sum e                                    + lambda sqrt(L) u sum |a|   (equal terms: `runs`;
                                                                 a product with b @ c in it: |a| (|b| @ |c|) for it)
    a @ b, L terms    |a| @ eb + ea @ |b| + ea @ eb            + lambda sqrt(L) u |a| @ |b|
    rsqrt(a)          rsqrt(a - ea) - rsqrt(a)                 + 9u rsqrt(a)
    sigmoid(a)        sigma'(a) (exp(ea + 2u|a|) - 1)          + 9u sigma(a), and the smallest normal number
    to(narrower)      ea                                       + u_narrow |a|
    to(wider)         ea

and half the smallest subnormal for each product or quotient that can be rounded at all (6 L of them in a @ b), times what
the factors' own factors make of it where (a b) c is computed as a (b c) (`regroup`), and for a sum of three what
another order makes of its partial sums (`addends`). docs/tolerances.md derives each line.

An error of infinity means that nothing is promised: an intermediate leaves the range of the dtype, or comes within a factor
of `HEADROOM` of it, or infinity meets a number that rounding may have made 0; then even the class of the result is the
implementation's own affair.

A number may also have a *grain*, a power of two of which every element is a multiple, without error. Sums and products of
such numbers whose terms together stay below 2**p grains, p the digits of the dtype, are exact in any order, and then have
no error of their own. Only `oracles.exact` asks for that.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor

from oracles.bounds import addends, regroup, runs
from oracles.bounds.grain import grain_of, holds, product_grain
from oracles.bounds.rounding import (
    ELEMENTARY,
    PARTIAL,
    all_finite,
    ceiling,
    half_subnormal,
    magnitude,
    poison,
    underflow,
    unit_roundoff,
)

LOST = 2.0**55
"""Where a float64 is at least so many times another, their sum is the first to the last bit."""


class ErrorNumber:
    """A float64 value, a bound on its error, the dtype that an implementation holds it in, and a grain (0: not known).

    `regrouped`: what multiplies an underflow where another factor is taken into the middle of this product. `distributed`:
    the magnitudes of this product without the cancellation in a factor that is a matrix product. `addends`: what this is the
    sum of.

    Two flags save work, and change nothing but that: `calm`, value and error are finite everywhere; `sure`, the error is 0
    everywhere. False means not known.
    """

    reorders = True
    """Whether sums may be taken in another order than the formula's."""

    __slots__ = ("_size", "addends", "calm", "distributed", "dtype", "error", "grain", "regrouped", "sure", "value")

    def __init__(
        self,
        value: Tensor,
        error: Tensor,
        dtype: torch.dtype,
        grain: float = 0.0,
        *,
        calm: bool = False,
        sure: bool = False,
    ) -> None:
        self.value = value
        self.error = error
        self.dtype = dtype
        self.grain = grain
        self.calm = calm
        self.sure = sure
        self.regrouped: regroup.Regrouped = None
        self.distributed: regroup.Regrouped = None
        self.addends: addends.Addends = None
        self._size: Tensor | None = None

    @classmethod
    def exact(cls, value: Tensor, dtype: torch.dtype, *, grained: bool = False) -> Self:
        """An input: the implementation holds the value itself."""
        calm = all_finite(value)
        return cls(value, torch.zeros_like(value), dtype, grain_of(value) if grained else 0.0, calm=calm, sure=True)

    @classmethod
    def stored(cls, value: Tensor, dtype: torch.dtype, *, grained: bool = False) -> "ErrorNumber":
        """A value rounded once on its way into `dtype`."""
        return cls._rounded(value, None, dtype, grain=grain_of(value) if grained else 0.0)

    @classmethod
    def _rounded(
        cls,
        value: Tensor,
        propagated: Tensor | None,
        dtype: torch.dtype,
        *,
        units: float | Tensor = 1.0,
        size: Tensor | None = None,
        underflows: float = 1,
        regrouped: regroup.Regrouped = None,
        grain: float = 0.0,
        calm: bool = True,
    ) -> "ErrorNumber":
        """The result of an operation.

        `propagated` is None where no operand has an error. Its own error is `units` roundings relative to `size` (default:
        the result's own magnitude), and half the smallest subnormal for each of `underflows` products that may fall below
        the normal range, or `regrouped` of them where some are near it. `calm`: the operands are.
        """
        limit = ceiling(dtype)
        if calm and not grain:  # the common case, and the quick one: the largest element tells whether all are in range
            own = value.abs() if size is None else size
            spread = own if propagated is None else own + propagated
            roundings = spread if isinstance(units, float) else spread * units
            alpha = unit_roundoff(dtype) * (units if isinstance(units, float) else 1.0)
            error = roundings * alpha if propagated is None else torch.add(propagated, roundings, alpha=alpha)
            result = cls(value, error, dtype, calm=True)
            result._size = own if size is None else None
            if error.numel() == 0:
                return result
            least, most = (float(end) for end in spread.aminmax())
            under = underflows * underflow(dtype)
            if regrouped is not None and regroup.near(spread, least):
                result.error = torch.add(error, spread.sign() * regrouped(), alpha=underflow(dtype))
            elif roundings is not spread or alpha * least <= LOST * under:
                result.error = torch.add(error, spread.sign(), alpha=under)
            if most + float(result.error.max()) <= limit:
                return result
        if propagated is None:
            propagated = torch.zeros((), dtype=torch.float64, device=value.device)
        spread = (magnitude(value) if size is None else size) + propagated
        error = propagated + units * unit_roundoff(dtype) * spread
        products = underflows if regrouped is None else regrouped()
        error = error + (spread != 0).double() * products * underflow(dtype)
        if grain:
            exact = holds(spread, grain, dtype)
            error = torch.where(exact, 0.0, error)
            grain = grain if bool(exact.all()) else 0.0
        if error.numel() == 0 or (float((spread + error).max()) <= limit and all_finite(value)):
            return cls(value, error, dtype, grain)
        error = poison(error)
        error = torch.where(spread + error > limit, torch.inf, error)
        # A NaN or infinity that float64 finds is exact, unless an operand or a finite part is beyond promise.
        error = torch.where(value.isfinite() | error.isinf(), error, 0.0)
        return cls(value, error, dtype)

    def _coerce(self, other: Any) -> "ErrorNumber":
        if isinstance(other, ErrorNumber):
            if other.dtype != self.dtype:
                raise TypeError(f"an operation on {self.dtype} and {other.dtype}; the formula must convert first")
            return other
        value, error, sure = _constant(float(other), self.dtype)
        grain = grain_of(value) if self.grain and sure else 0.0
        return type(self)(value, error, self.dtype, grain, calm=math.isfinite(other), sure=sure)

    @property
    def size(self) -> Tensor:
        """|value|."""
        if self._size is None:
            self._size = self.value.abs()
        return self._size

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    def __add__(self, other: Any) -> "ErrorNumber":
        term = self._coerce(other)
        grain = min(self.grain, term.grain)
        value, calm = self.value + term.value, self.calm and term.calm
        size = None
        if grain:
            size = addends.magnitudes(self.value, term.value, self.addends, term.addends)
        elif self.reorders and (more := addends.beyond(self.value, term.value, self.addends, term.addends)) is not None:
            size = magnitude(value) + more
        total = self._rounded(value, self.error + term.error, self.dtype, size=size, grain=grain, calm=calm)
        total.regrouped = regroup.of_sum(self.regrouped, term.regrouped)
        total.addends = addends.of_sum(self.value, term.value, self.addends, term.addends)
        return total

    __radd__ = __add__

    def __neg__(self) -> "ErrorNumber":
        negative = type(self)(-self.value, self.error, self.dtype, self.grain, calm=self.calm, sure=self.sure)
        negative.regrouped, negative.distributed = self.regrouped, self.distributed
        negative.addends = addends.moved(self.addends, torch.neg)
        return negative

    def __sub__(self, other: Any) -> "ErrorNumber":
        return self + -self._coerce(other)

    def __rsub__(self, other: Any) -> "ErrorNumber":
        return self._coerce(other) - self

    def __mul__(self, other: Any) -> "ErrorNumber":
        units = 0.0 if _is_power_of_two(other) else 1.0
        factor = self._coerce(other)
        grain = product_grain(self.grain, factor.grain)
        value, calm = self.value * factor.value, self.calm and factor.calm
        propagated = _moved(torch.mul, self, factor) if calm else _moved_wildly(value, self, factor)
        regrouped = regroup.in_product(self.regrouped, factor.regrouped)
        product = self._rounded(value, propagated, self.dtype, units=units, regrouped=regrouped, grain=grain, calm=calm)
        product.regrouped = regroup.of_product(self.value, factor.value)
        product.distributed = regroup.distributed(self.distributed, factor.distributed, self.value, factor.value)
        return product

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> "ErrorNumber":
        if _is_power_of_two(other):
            return self * (1 / other)
        return self._rounded(self.value / other, self.error / abs(other), self.dtype, units=2.0, calm=self.calm)

    def __pow__(self, exponent: int) -> "ErrorNumber":
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result

    def __matmul__(self, other: "ErrorNumber") -> "ErrorNumber":
        length, calm = self.shape[-1], self.calm and other.calm
        value = self.value @ other.value
        size = self.size @ other.size if calm else magnitude(self.value) @ magnitude(other.value)
        product = self._rounded(
            value,
            _moved(torch.matmul, self, other) if calm else _terms_moved_wildly(value, self, other),
            self.dtype,
            units=runs.of_products(self.value, other.value, self.dtype) if self.reorders else 0.0,
            size=size,
            underflows=PARTIAL * length,
            regrouped=regroup.in_matrix_product(self.regrouped, other.regrouped, PARTIAL),
            grain=product_grain(self.grain, other.grain),
            calm=calm,
        )
        product.regrouped, product.distributed = regroup.of_matrix_product(self.value, other.value), lambda: size
        return product

    def sum(self, dim: int) -> "ErrorNumber":
        terms = self.size if self.calm else magnitude(self.value)
        if self.reorders and self.distributed is not None:
            terms = self.distributed()
            units = runs.of_sum(terms, dim, self.dtype)
        else:
            units = runs.of_sum(self.value, dim, self.dtype) if self.reorders else 0.0
        size = terms.sum(dim)
        total, moved = self.value.sum(dim), self.error.sum(dim)
        result = self._rounded(total, moved, self.dtype, units=units, size=size, grain=self.grain, calm=self.calm)
        result.regrouped = regroup.moved(self.regrouped, lambda terms: terms.sum(dim))
        return result

    def mean(self, dim: int) -> "ErrorNumber":
        return self.sum(dim) / self.shape[dim]

    def square(self) -> "ErrorNumber":
        return self * self

    def rsqrt(self) -> "ErrorNumber":
        value = self.value.rsqrt()
        least = self.value - self.error
        # rsqrt(a - e) - rsqrt(a), without its cancellation
        moved = self.error / (self.value.sqrt() * least.sqrt() * (self.value.sqrt() + least.sqrt()))
        propagated = torch.where(self.error == 0, 0.0, torch.where(least > 0, moved, torch.inf))
        propagated = torch.where(self.value.isfinite() | self.error.isinf(), poison(propagated), 0.0)
        return self._rounded(value, propagated, self.dtype, units=ELEMENTARY, calm=self.calm)

    def sigmoid(self) -> "ErrorNumber":
        value = self.value.sigmoid()
        slope = value * (-self.value).sigmoid()
        argument = self.error + 2 * unit_roundoff(self.dtype) * magnitude(self.value)
        moved = torch.where(self.error.isinf(), torch.inf, (slope * argument.expm1()).nan_to_num(nan=0.0).clamp(max=1.0))
        flushed = torch.finfo(self.dtype).smallest_normal
        return self._rounded(value, moved + flushed, self.dtype, units=ELEMENTARY, calm=self.calm)

    def to(self, dtype: torch.dtype) -> "ErrorNumber":
        """A conversion: to a wider dtype exact, but beyond promise near its overflow like everything else."""
        spread = (self.size if self.calm else magnitude(self.value)) + self.error
        if unit_roundoff(dtype) <= unit_roundoff(self.dtype):
            limit = ceiling(dtype)
            if self.calm and (spread.numel() == 0 or float(spread.max()) <= limit):
                return type(self)(self.value, self.error, dtype, self.grain, calm=True, sure=self.sure)
            beyond = spread > limit
            return type(self)(self.value, torch.where(beyond, torch.inf, self.error), dtype, self.grain)
        rounding = unit_roundoff(dtype) * spread + half_subnormal(dtype)
        exact = (self.value == 0) & (self.error == 0) | ~self.value.isfinite()
        if self.grain:
            exact = exact | holds(spread, self.grain, dtype)
        return type(self)(self.value, self.error + torch.where(exact, 0.0, rounding), dtype, calm=self.calm)

    def _both(self, move: Callable[[Tensor], Tensor]) -> "ErrorNumber":
        moved = type(self)(move(self.value), move(self.error), self.dtype, self.grain, calm=self.calm, sure=self.sure)
        moved.regrouped = regroup.moved(self.regrouped, move)
        moved.distributed = regroup.moved(self.distributed, move)
        moved.addends = addends.moved(self.addends, move)
        return moved

    def __getitem__(self, index: Any) -> "ErrorNumber":
        return self._both(lambda tensor: tensor[index])

    def reshape(self, *shape: int) -> "ErrorNumber":
        return self._both(lambda tensor: tensor.reshape(*shape))

    def unsqueeze(self, dim: int) -> "ErrorNumber":
        return self._both(lambda tensor: tensor.unsqueeze(dim))

    @property
    def mT(self) -> "ErrorNumber":
        return self._both(lambda tensor: tensor.mT)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> "ErrorNumber":
        """Lets `torch.cat` join error-carrying numbers; nothing else of PyTorch takes them."""
        del types
        if function is not torch.cat:
            raise TypeError(f"{function.__name__} does not take error-carrying numbers")
        parts: Sequence[ErrorNumber] = args[0]
        rest = args[1:]
        joined = cls(
            torch.cat([part.value for part in parts], *rest, **(kwargs or {})),
            torch.cat([part.error for part in parts], *rest, **(kwargs or {})),
            parts[0].dtype,
            min(part.grain for part in parts),
            calm=all(part.calm for part in parts),
            sure=all(part.sure for part in parts),
        )
        joined.regrouped = regroup.joined([(part.regrouped, part.value) for part in parts], *rest, **(kwargs or {}))
        return joined


@cache
def _constant(number: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, bool]:
    """A number of the formula in float64, the error that it has in `dtype`, and whether that is 0."""
    value = torch.tensor(number, dtype=torch.float64)
    error = (value.to(dtype).double() - value).abs()
    return value, error, not error


def _is_power_of_two(number: Any) -> bool:
    return isinstance(number, (int, float)) and number > 0 and math.frexp(number)[0] == 0.5


def _moved(product: Callable[[Tensor, Tensor], Tensor], a: ErrorNumber, b: ErrorNumber) -> Tensor | None:
    """|a| eb + ea (|b| + eb), without what is 0: how far the errors of two calm factors move their product; None: not."""
    if a.sure and b.sure:
        return None
    if a.sure:
        return product(a.size, b.error)
    if b.sure:
        return product(a.error, b.size)
    return product(a.size, b.error) + product(a.error, b.size + b.error)


def _moved_wildly(value: Tensor, a: ErrorNumber, b: ErrorNumber) -> Tensor:
    """The same where something is not finite; infinite where infinity meets what may have vanished."""
    propagated = poison(magnitude(a.value) * b.error + magnitude(b.value) * a.error + a.error * b.error)
    if all_finite(value):
        return propagated
    unsure = a.value.isinf() & _may_vanish(b) | b.value.isinf() & _may_vanish(a)
    return torch.where(unsure, torch.inf, propagated)


def _terms_moved_wildly(value: Tensor, a: ErrorNumber, b: ErrorNumber) -> Tensor:
    """The same over the terms of a matrix product."""
    beyond = a.error.isinf().any(-1, keepdim=True) | b.error.isinf().any(-2, keepdim=True)
    ea, eb = magnitude(a.error), magnitude(b.error)
    if not all_finite(value):
        terms = a.value.isinf().double() @ _may_vanish(b).double()
        terms = terms + _may_vanish(a).double() @ b.value.isinf().double()
        beyond = beyond | (terms > 0)
    return torch.where(beyond, torch.inf, magnitude(a.value) @ eb + ea @ magnitude(b.value) + ea @ eb)


def _may_vanish(number: ErrorNumber) -> Tensor:
    """Where the number held may be 0 or of either sign, and need not be: infinity times it is unsure."""
    return (number.error > 0) & (number.error >= number.value.abs())
