"""Numbers that carry a bound on their own rounding error, so that an operator's formula yields its tolerance.

An `ErrorNumber` stands for a tensor that an implementation holds in some dtype: `value` is what it would be without any
rounding, `error` bounds |held - value| element by element. Every operation propagates the errors of its operands and adds
its own, with u the unit roundoff of the dtype:

    a + b, a - b      ea + eb                                  + u |a + b|
    a * b             |a| eb + |b| ea + ea eb                  + u |a b|         (no rounding for a power of two)
    a / b             as a * (1/b)                             + 2u |a / b|
    sum of L terms    sum e                                    + lambda sqrt(L) u sum |a|
    a @ b, L terms    |a| @ eb + ea @ |b| + ea @ eb            + lambda sqrt(L) u |a| @ |b|
    rsqrt(a)          rsqrt(a - ea) - rsqrt(a)                 + 9u rsqrt(a)
    sigmoid(a)        sigma'(a) (exp(ea + 2u|a|) - 1)          + 9u sigma(a), and the smallest normal number
    to(narrower)      ea                                       + u_narrow |a|
    to(wider)         ea

and half the smallest subnormal for each product or quotient that can be rounded at all (L of them in a @ b).
docs/tolerances.md derives each line.

An error of infinity means that nothing is promised: an intermediate leaves the range of the dtype, or comes within a factor
of `HEADROOM` of it, or infinity meets a number that rounding may have made 0; then even the class of the result is the
implementation's own affair.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# Probabilistic rounding-error analysis: sqrt(L) instead of L, with this many standard deviations (docs/tolerances.md).
LAMBDA = 6.0
# Roundings inside an elementary function, at most: a sigmoid is an exponential of 2 ulp = 4u, an addition and a division of
# 2 ulp; a reciprocal square root of 2 ulp needs less.
ELEMENTARY = 9.0
# Nothing is promised within this factor of overflow, inputs included, so that the order of a formula's constant factors is
# free: autograd, for one, doubles dh_post before the slope of the sigmoid brings it down; the formula takes h_post first.
HEADROOM = 4.0


def unit_roundoff(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


def overflow_threshold(dtype: torch.dtype) -> float:
    """The smallest magnitude that rounds to infinity; infinity itself for float64, whose threshold is no float64."""
    info = torch.finfo(dtype)
    return info.max + info.max / (2 - info.eps) * info.eps / 2


def half_subnormal(dtype: torch.dtype) -> float:
    """What rounding may cost below the normal range."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps / 2


def _magnitude(value: Tensor) -> Tensor:
    """|value|, and 0 where it is not finite: classes are propagated by the value itself, not by its error."""
    return value.abs().nan_to_num(nan=0.0, posinf=0.0)


def _poison(error: Tensor) -> Tensor:
    """0 * infinity is NaN; an error times an infinite error is infinite."""
    return error.nan_to_num(nan=torch.inf, posinf=torch.inf)


class ErrorNumber:
    """A float64 value, a bound on its error, and the dtype that an implementation holds it in."""

    __slots__ = ("dtype", "error", "value")

    def __init__(self, value: Tensor, error: Tensor, dtype: torch.dtype) -> None:
        self.value = value
        self.error = error
        self.dtype = dtype

    @classmethod
    def exact(cls, value: Tensor, dtype: torch.dtype) -> "ErrorNumber":
        """An input: the implementation holds the value itself."""
        return cls(value, torch.zeros_like(value), dtype)

    @classmethod
    def stored(cls, value: Tensor, dtype: torch.dtype) -> "ErrorNumber":
        """A value rounded once on its way into `dtype`."""
        return cls._rounded(value, torch.zeros_like(value), dtype)

    @classmethod
    def _rounded(
        cls,
        value: Tensor,
        propagated: Tensor,
        dtype: torch.dtype,
        *,
        units: float = 1.0,
        size: Tensor | None = None,
        underflows: int = 1,
    ) -> "ErrorNumber":
        """The result of an operation.

        Its own error is `units` roundings relative to `size` (default: the result's own magnitude), and half the smallest
        subnormal for each of `underflows` products that may fall below the normal range.
        """
        limit = torch.finfo(dtype).max / HEADROOM
        spread = (_magnitude(value) if size is None else size) + propagated
        error = propagated + units * unit_roundoff(dtype) * spread
        error = error + (spread != 0).double() * (underflows * half_subnormal(dtype))
        if error.numel() == 0 or (float((spread + error).max()) <= limit and bool(value.isfinite().all())):
            return cls(value, error, dtype)  # nothing out of range: the common case, and the quick one
        error = _poison(error)
        error = torch.where(spread + error > limit, torch.inf, error)
        # A NaN or infinity that float64 finds is exact, unless an operand or a finite part is beyond promise.
        error = torch.where(value.isfinite() | error.isinf(), error, 0.0)
        return cls(value, error, dtype)

    def _coerce(self, other: Any) -> "ErrorNumber":
        if isinstance(other, ErrorNumber):
            if other.dtype != self.dtype:
                raise TypeError(f"an operation on {self.dtype} and {other.dtype}; the formula must convert first")
            return other
        value = torch.tensor(float(other), dtype=torch.float64)
        return ErrorNumber(value, (value.to(self.dtype).double() - value).abs(), self.dtype)

    def _may_vanish(self) -> Tensor:
        """Where the number held may be 0 or of either sign, and need not be: infinity times it is unsure."""
        return (self.error > 0) & (self.error >= self.value.abs())

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    def __add__(self, other: Any) -> "ErrorNumber":
        term = self._coerce(other)
        return self._rounded(self.value + term.value, self.error + term.error, self.dtype)

    __radd__ = __add__

    def __neg__(self) -> "ErrorNumber":
        return ErrorNumber(-self.value, self.error, self.dtype)

    def __sub__(self, other: Any) -> "ErrorNumber":
        return self + -self._coerce(other)

    def __rsub__(self, other: Any) -> "ErrorNumber":
        return self._coerce(other) - self

    def __mul__(self, other: Any) -> "ErrorNumber":
        units = 0.0 if _is_power_of_two(other) else 1.0
        factor = self._coerce(other)
        a, b = _magnitude(self.value), _magnitude(factor.value)
        propagated = _poison(a * factor.error + b * self.error + self.error * factor.error)
        value = self.value * factor.value
        if not value.isfinite().all():
            unsure = self.value.isinf() & factor._may_vanish() | factor.value.isinf() & self._may_vanish()
            propagated = torch.where(unsure, torch.inf, propagated)
        return self._rounded(value, propagated, self.dtype, units=units)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> "ErrorNumber":
        if _is_power_of_two(other):
            return self * (1 / other)
        return self._rounded(self.value / other, self.error / abs(other), self.dtype, units=2.0)

    def __pow__(self, exponent: int) -> "ErrorNumber":
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result

    def __matmul__(self, other: "ErrorNumber") -> "ErrorNumber":
        a, b, ea, eb = _magnitude(self.value), _magnitude(other.value), self.error, other.error
        beyond = ea.isinf().any(-1, keepdim=True) | eb.isinf().any(-2, keepdim=True)
        fa, fb = _magnitude(ea), _magnitude(eb)
        value = self.value @ other.value
        if not value.isfinite().all():
            terms = self.value.isinf().double() @ other._may_vanish().double()
            terms = terms + self._may_vanish().double() @ other.value.isinf().double()
            beyond = beyond | (terms > 0)
        propagated = torch.where(beyond, torch.inf, a @ fb + fa @ b + fa @ fb)
        units = LAMBDA * self.shape[-1] ** 0.5
        return self._rounded(value, propagated, self.dtype, units=units, size=a @ b, underflows=self.shape[-1])

    def sum(self, dim: int) -> "ErrorNumber":
        units = LAMBDA * self.shape[dim] ** 0.5
        size = _magnitude(self.value).sum(dim)
        return self._rounded(self.value.sum(dim), self.error.sum(dim), self.dtype, units=units, size=size)

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
        propagated = torch.where(self.value.isfinite() | self.error.isinf(), _poison(propagated), 0.0)
        return self._rounded(value, propagated, self.dtype, units=ELEMENTARY)

    def sigmoid(self) -> "ErrorNumber":
        value = self.value.sigmoid()
        slope = value * (-self.value).sigmoid()
        argument = self.error + 2 * unit_roundoff(self.dtype) * _magnitude(self.value)
        moved = torch.where(self.error.isinf(), torch.inf, (slope * argument.expm1()).nan_to_num(nan=0.0).clamp(max=1.0))
        flushed = torch.finfo(self.dtype).smallest_normal
        return self._rounded(value, moved + flushed, self.dtype, units=ELEMENTARY)

    def to(self, dtype: torch.dtype) -> "ErrorNumber":
        """A conversion: to a wider dtype exact, but beyond promise near its overflow like everything else."""
        spread = _magnitude(self.value) + self.error
        if unit_roundoff(dtype) <= unit_roundoff(self.dtype):
            beyond = spread > torch.finfo(dtype).max / HEADROOM
            return ErrorNumber(self.value, torch.where(beyond, torch.inf, self.error), dtype)
        rounding = unit_roundoff(dtype) * spread + half_subnormal(dtype)
        exact = (self.value == 0) & (self.error == 0) | ~self.value.isfinite()
        return ErrorNumber(self.value, self.error + torch.where(exact, 0.0, rounding), dtype)

    def _both(self, move: Callable[[Tensor], Tensor]) -> "ErrorNumber":
        return ErrorNumber(move(self.value), move(self.error), self.dtype)

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
        return cls(
            torch.cat([part.value for part in parts], *rest, **(kwargs or {})),
            torch.cat([part.error for part in parts], *rest, **(kwargs or {})),
            parts[0].dtype,
        )


def _is_power_of_two(number: Any) -> bool:
    return isinstance(number, (int, float)) and number > 0 and math.frexp(number)[0] == 0.5
