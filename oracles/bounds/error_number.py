"""Numbers that carry a bound on their own rounding error, so that an operator's formula yields its tolerance.

An `ErrorNumber` stands for a tensor that an implementation holds in some dtype: `value` is what it would be without any
rounding, `error` bounds |held - value| element by element. Every operation propagates the errors of its operands and adds
its own, with u the unit roundoff of the dtype:

    a + b, a - b      ea + eb                                  + u |a + b|       (a + b + c: in any order)
    a * b             |a| eb + |b| ea + ea eb                  + u |a b|         (no rounding for powers of two)
    a / b             as a * (1/b)                             + 2u |a / b|
    sum of L terms    sum e                                    + lambda sqrt(L) u sum |a|   (equal terms: `repeated_terms`;
                                                                 a product with b @ c in it: |a| (|b| @ |c|) for it)
    a @ b, L terms    |a| @ eb + ea @ |b| + ea @ eb            + lambda sqrt(L) u |a| @ |b|
    rsqrt(a)          rsqrt(a - ea) - rsqrt(a)                 + 9u rsqrt(a)
    sigmoid(a)        sigma'(a) (exp(ea + 2u|a|) - 1)          + 9u sigma(a), and the smallest normal number
    to(narrower)      ea                                       + u_narrow |a|
    to(wider)         ea

and half the smallest subnormal for each product or quotient that can be rounded at all (6 L of them in a @ b); a number
without an error that is multiplied by a power of two has none, where the result is certainly normal. Two more
terms allow for another order of evaluation: (a b) c computed as a (b c) (`reassociation`), and a sum of three or more terms
(`addends`). docs/tolerances.md derives each line.

An infinite error means that nothing is promised, not even the class of the result: an intermediate leaves the range of the
dtype, or comes within a factor of `HEADROOM` of its limit, or infinity is multiplied by a number that rounding may make 0.

A number may also have a *quantum*, a power of two of which every element is a multiple, without error. Sums and products of
such numbers whose terms together stay below 2**p quanta, p the digits of the dtype, are exact in any order, and then have
no error of their own. Only `mhc.oracles.exact` asks for that.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor

from mhc.oracles.bounds import addends, derived_scalars, reassociation, recurrence, repeated_terms
from mhc.oracles.bounds import most as most_
from mhc.oracles.bounds.addends import Addends, Partial
from mhc.oracles.bounds.later import Later
from mhc.oracles.bounds.operation_error import general_error, nonfinite_matmul_error, nonfinite_product_error, product_error
from mhc.oracles.bounds.quantum import product_quantum, quantum_of, representable
from mhc.oracles.bounds.rounding import (
    ELEMENTARY,
    HEADROOM,
    PARTIAL,
    all_finite,
    ceiling,
    half_subnormal,
    magnitude,
    nan_to_inf,
    of_quotient,
    scalar,
    underflow,
    unit_roundoff,
)

TF32 = 2.0**-10
"""The relative error of a factor in TF32, which a tensor core cuts off after 11 digits."""
LOST = 2.0**55
"""A float64 that is this many times another absorbs it: their sum is the first, bit for bit."""
_FLAT = 700.0
"""Beyond it the slope of a sigmoid is no normal number of float64."""


class ErrorNumber:
    """A float64 value, a bound on its error, the dtype in which an implementation holds it, and a quantum (0: unknown).

    Attributes:
        finite: value and error are finite everywhere; False: unknown. The flag saves work and changes no result.
        errorless: the error is 0 everywhere; False: unknown. The flag saves work and changes no result.
        reassociated: the factor on an underflow inside this product when another factor is multiplied in first.
        distributed: the magnitudes of this product without the cancellation in a factor that is a matrix product.
        addends: the terms whose sum this is.
        partial: the roundings of partial sums inside a sum or a matrix product, in units of a partial sum.
        state: what is known of it as a part of a linear recurrence.
        among_zeros: a number and a view of a tensor: this is the number there, and 0 without an error elsewhere.
        cancelled: where it is 0 as a sum of terms that are not; tracked where a quantum is.
        whole: each implementation holds integers, as floor returns them, or what is not finite; False: unknown.
        powers: each finite element without an error is 0, a power of two, or minus one; False: unknown.
        scaled: a number and a Python number whose product this is.
        terms: of a sum, how many elements were added up, unless they are products; tracked where a quantum is.
        product: it is a product of two numbers.
        most: what an implementation holds at most, -infinity included and NaN excluded; infinity and None: unknown.
    """

    elementary = True
    """Whether `mhc.oracles.bounds.elementary` has rules for such numbers."""
    constant = False
    """Whether a number without an error is the same in both of two evaluations, and with it every function of it."""
    factors = "float32"
    """To what the factors of float32 matrix products may be rounded (`mhc.declared`)."""
    reorders = True
    """Whether sums may be taken in another order than the formula's."""

    @classmethod
    def forward(cls) -> AbstractContextManager[None]:
        """Return a context for the evaluation of a forward; the backward of it is evaluated after that."""
        return nullcontext()

    reassociated: reassociation.Reassociated = None
    distributed: reassociation.Reassociated = None
    addends: Addends | None = None
    partial: Partial | None = None
    state: recurrence.State | None = None
    among_zeros: tuple[Self, Callable[[Tensor], Tensor]] | None = None
    cancelled: Tensor | None = None
    whole = False
    powers = False
    scaled: "tuple[ErrorNumber, float] | None" = None
    terms = 0
    product = False
    most: Tensor | None = None
    _size: Tensor | None = None

    def __init__(
        self,
        value: Tensor,
        error: Tensor,
        dtype: torch.dtype,
        quantum: float = 0.0,
        *,
        finite: bool = False,
        errorless: bool = False,
    ) -> None:
        self.value = value
        self.error = error
        self.dtype = dtype
        self.quantum = quantum
        self.finite = finite
        self.errorless = errorless

    @classmethod
    def exact(cls, value: Tensor, dtype: torch.dtype, *, with_quantum: bool = False) -> Self:
        """Return an input, which the implementation holds without an error."""
        quantum, finite = quantum_of(value) if with_quantum else 0.0, all_finite(value)
        return cls(value, torch.zeros_like(value), dtype, quantum, finite=finite, errorless=True)

    @classmethod
    def stored(cls, value: Tensor, dtype: torch.dtype, *, with_quantum: bool = False) -> "ErrorNumber":
        """Return a value that was rounded once, to `dtype`."""
        return cls._rounded(value, None, dtype, quantum=quantum_of(value) if with_quantum else 0.0)

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
        reassociated: reassociation.Reassociated = None,
        quantum: float = 0.0,
        finite: bool = True,
    ) -> "ErrorNumber":
        """Return the result of an operation with its error: what is propagated, and the operation's own rounding.

        Args:
            propagated: the error that the operands' errors cause; None where no operand has an error.
            units: roundings, each relative to `size`.
            size: the magnitude that is rounded; None for |value|.
            underflows: products that may fall below the normal range; each may lose half the smallest subnormal.
            reassociated: gives the number of such products where some are near the normal range, for any order.
            finite: all operands are finite.
        """
        limit = ceiling(dtype)
        if finite and not quantum:  # the common case, and quick: the largest element shows whether all are in range
            own = value.abs() if size is None else size
            spread = own if propagated is None else own + propagated
            roundings = spread if isinstance(units, float) else spread * units
            alpha = unit_roundoff(dtype) * (units if isinstance(units, float) else 1.0)
            if propagated is None:
                error = roundings * scalar(alpha)
            else:
                error = torch.add(propagated, roundings, alpha=alpha) if alpha else propagated
            result = cls(value, error, dtype, finite=True)
            result._size = own if size is None else None
            if error.numel() == 0:
                return result
            low, high = spread.aminmax()
            least, most = float(low), float(high)
            under = underflows * underflow(dtype)
            if reassociated is not None and reassociation.near(spread, least):
                result.error = torch.add(error, spread.sign() * reassociated(), alpha=underflow(dtype))
            else:
                smallest = reassociation.NEAR if reassociated is not None and least == 0 else least  # that is not 0
                if roundings is not spread or alpha * smallest <= LOST * under:
                    if least > 0:
                        lost = scalar(under)
                        result.error = error.add_(lost) if alpha else error + lost  # without alpha it is `propagated`
                    else:
                        result.error = torch.add(error, spread.sign(), alpha=under)
                if roundings is spread and alpha < 1 and most < limit / 4 and under < limit / 4:
                    return result  # the error is at most 2 * most + under
            if most + float(result.error.max()) <= limit:
                return result
        products = underflows if reassociated is None else reassociated()
        error, left = general_error(value, propagated, dtype, units, size, products, quantum)
        result = cls(value, error, dtype, left)
        if quantum and size is not None and bool((none := (value == 0) & (size > 0)).any()):
            result.cancelled = none
        return result

    def _coerce(self, other: Any) -> "ErrorNumber":
        if isinstance(other, ErrorNumber):
            if other.dtype != self.dtype:
                raise TypeError(f"an operation on {self.dtype} and {other.dtype}; the formula must convert first")
            return other
        value, error, size, errorless, powers = _constant(float(other), self.dtype)
        if derived_scalars.errors and (derived := derived_scalars.error_of(other, self.dtype)):
            error, errorless = error + derived, False  # it is no power of two, of which none is kept
        quantum = quantum_of(value) if self.quantum and errorless else 0.0
        number = type(self)(value, error, self.dtype, quantum, finite=math.isfinite(other), errorless=errorless)
        number._size, number.whole = size, errorless and float(other).is_integer()
        number.powers = powers
        return number

    def divisor(self) -> "ErrorNumber":
        """Return the number before something is divided by it."""
        return self

    @property
    def size(self) -> Tensor:
        """Return |value|, computed once."""
        if self._size is None:
            self._size = self.value.abs()
        return self._size

    @property
    def shape(self) -> torch.Size:
        return self.value.shape

    def __add__(self, other: Any) -> "ErrorNumber":
        term = self._coerce(other)
        quantum = min(self.quantum, term.quantum)
        value, finite = self.value + term.value, self.finite and term.finite
        together = addends.of_sum(self, term)
        size = None
        if quantum:
            size = addends.magnitudes(together)
        elif self.reorders and (self.addends is not None or term.addends is not None):
            size = (value.abs() if finite else magnitude(value)) + together().beyond
        propagated = None if self.errorless and term.errorless else self.error + term.error
        total = self._rounded(value, propagated, self.dtype, size=size, quantum=quantum, finite=finite)
        total.reassociated = reassociation.of_sum(self.reassociated, term.reassociated)
        total.addends = together
        if not total.finite and self.elementary:
            total.most = most_.of_sum(total, self, term)
        if self.whole and term.whole:
            kept = total._unrounded(value, addends.magnitudes(together), propagated)
            total.addends = addends.unrounded(together, kept) if self.reorders else together
        return total

    def _unrounded(self, value: Tensor, size: Tensor, propagated: Tensor | None) -> Tensor:
        """Take the rounding from a result in integers, where the dtype holds those up to `size`; return where that is."""
        moved = scalar(0.0) if propagated is None else propagated
        kept = value.isfinite() & representable(size + moved, 1.0, self.dtype)
        self.value, self.error = torch.where(kept, value, self.value), torch.where(kept, moved, self.error)
        self.whole = True
        return kept

    __radd__ = __add__

    def __neg__(self) -> "ErrorNumber":
        negative = self.mapped(lambda tensor: tensor)
        negative.value, negative.addends, negative.most = -self.value, addends.negated(self.addends), None
        return negative

    def __sub__(self, other: Any) -> "ErrorNumber":
        return self + -self._coerce(other)

    def __rsub__(self, other: Any) -> "ErrorNumber":
        return self._coerce(other) - self

    def __mul__(self, other: Any) -> "ErrorNumber":
        factor = self._coerce(other)
        scales = [one for one in (self, factor) if one.powers]
        units = 0.0 if any(one.errorless for one in scales) or _is_power_of_two(other) else 1.0
        quantum = product_quantum(self.quantum, factor.quantum)
        value, finite = self.value * factor.value, self.finite and factor.finite
        propagated = product_error(torch.mul, self, factor) if finite else nonfinite_product_error(value, self, factor)
        for unsure in () if finite else reassociation.may_be_nan(self, factor, half_subnormal(self.dtype)):
            propagated = torch.where(unsure, torch.inf, scalar(0.0) if propagated is None else propagated)
        reassociated = reassociation.in_product(self.reassociated, factor.reassociated)
        product = self._rounded(
            value, propagated, self.dtype, units=units, reassociated=reassociated, quantum=quantum, finite=finite
        )
        if self.whole and factor.whole:
            product._unrounded(value, value.abs(), propagated)
        if scales and self.elementary and not quantum:
            product.take_scaling(value, *((self, factor) if factor.powers else (factor, self)))
            product.powers = len(scales) == 2
        product = after_cancellation(product, self, factor)
        product.scaled = (self, float(other)) if isinstance(other, (int, float)) else None
        product.product = isinstance(other, ErrorNumber) or self.product
        if self.quantum and isinstance(other, (int, float)) and math.isclose(abs(other * self.terms), 1.0):
            product = product._not_exact()
        product.reassociated = reassociation.of_product(self.value, factor.value, finite=finite)
        product.distributed = reassociation.distributed(
            self.distributed, factor.distributed, self.value, factor.value, finite=finite
        )
        return product

    __rmul__ = __mul__

    def take_scaling(self, value: Tensor, a: "ErrorNumber", scale: "ErrorNumber") -> None:
        """Take the error from a product of a number without one and a power of two, where no order of factors underflows.

        Not from that of a sum, whose terms may be multiplied first, unless they are integers.
        """
        if not a.whole and (a.addends is not None or a.partial is not None):
            return
        least = HEADROOM * torch.finfo(self.dtype).smallest_normal
        size = scale.size
        exact = (a.error == 0) & (scale.error == 0) & (a.size >= least) & (size >= least) & (size <= ceiling(self.dtype))
        exact &= self.error.isfinite()
        if not bool(exact.any()):
            return
        inside = reassociation.in_product(a.reassociated, scale.reassociated)
        smallest = least if inside is None else least * inside().clamp(min=1)
        self.make_exact(value, exact & (value.abs() >= smallest) & value.isfinite())

    def make_exact(self, value: Tensor, where: Tensor) -> None:
        """Let the number be `value` without an error at some places."""
        self.value, self.error = torch.where(where, value, self.value), torch.where(where, 0.0, self.error)
        self.errorless = not bool((self.error != 0).any())

    def __truediv__(self, other: float) -> "ErrorNumber":
        if _is_power_of_two(other):
            return self * (1 / other)
        value, propagated = self.value / other, self.error / abs(other)
        if derived_scalars.errors and (derived := derived_scalars.error_of(other, self.dtype)):
            propagated = propagated + (magnitude(value) + propagated) * (derived / abs(other))
        result = self._rounded(
            value,
            propagated,
            self.dtype,
            units=of_quotient(self.dtype),
            reassociated=self.reassociated,
            finite=self.finite,
        )
        result.cancelled = self.cancelled
        return result._not_exact() if self.quantum and abs(other) == self.terms else result

    def _not_exact(self) -> "ErrorNumber":
        """Return a mean, which is not exact where it is updated with each of more than two terms, as by Welford."""
        return self.lost(torch.full_like(self.value, half_subnormal(self.dtype)))

    def __pow__(self, exponent: int) -> "ErrorNumber":
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result

    def __matmul__(self, other: "ErrorNumber") -> Any:
        return self._factor()._product(other._factor())

    def _factor(self) -> "ErrorNumber":
        """Return the number as a matrix product reads it, with the precision that is declared of factors."""
        if self.factors == "float32" or self.dtype != torch.float32:
            return self
        if self.factors == "tf32":
            exact = (self.error == 0) & ((self.value.float().view(torch.int32) & (1 << 13) - 1) == 0)
            size = (magnitude(self.value) + self.error).clamp(min=torch.finfo(torch.float32).tiny)  # fewer digits below it
            return self.lost(torch.where(exact, 0.0, TF32 * size))
        narrow = getattr(torch, self.factors)
        held = self.to(narrow)
        if self.quantum and torch.equal(held.error, self.error):  # each element is kept as it is
            return self
        beyond = magnitude(self.value) + held.error > ceiling(narrow)
        return (held.lost(torch.where(beyond, torch.inf, 0.0)) if bool(beyond.any()) else held).to(self.dtype)

    def _product(self, other: "ErrorNumber") -> "ErrorNumber":
        length, finite = self.shape[-1], self.finite and other.finite
        value = self.value @ other.value
        size = _magnitude(self) @ _magnitude(other)
        propagated = product_error(torch.matmul, self, other) if finite else nonfinite_matmul_error(value, self, other)
        for unsure in () if finite else reassociation.matrix_may_be_nan(self, other, half_subnormal(self.dtype)):
            propagated = torch.where(unsure, torch.inf, propagated)  # type: ignore[arg-type]  # a tensor
        product = self._rounded(
            value,
            propagated,
            self.dtype,
            units=repeated_terms.of_products(self.value, other.value, self.dtype) if self.reorders else 0.0,
            size=size,
            underflows=PARTIAL * length,
            reassociated=reassociation.in_matrix_product(self.reassociated, other.reassociated, PARTIAL),
            quantum=product_quantum(self.quantum, other.quantum),
            finite=finite,
        )
        for one, factor, many in ((self, other, torch.matmul), (other, self, lambda a, b: b @ a)):
            if one.cancelled is not None:  # a term that is 0 in this order need not be in another
                unsure = many(one.cancelled.double(), (factor.error > 0).double()) > 0
                product = product.lost(torch.where(unsure, torch.inf, 0.0))
        product.reassociated = reassociation.of_matrix_product(self.value, other.value, finite=finite)
        product.distributed = lambda: size
        first, second, shape = self.value, other.value, value.shape
        product.partial = addends.partial(lambda: addends.terms(first, second).expand(shape))
        return product

    def sum(self, dim: int) -> "ErrorNumber":
        terms = _magnitude(self)
        if self.reorders and self.distributed is not None:
            terms = self.distributed()
            units = repeated_terms.of_sum(terms, dim, self.dtype)
        else:
            units = repeated_terms.of_sum(self.value, dim, self.dtype) if self.reorders else 0.0
        size = terms.sum(dim)
        total, moved = self.value.sum(dim), None if self.errorless else self.error.sum(dim)
        result = self._rounded(total, moved, self.dtype, units=units, size=size, quantum=self.quantum, finite=self.finite)
        result.reassociated = reassociation.moved(self.reassociated, lambda terms: terms.clamp(min=1).sum(dim))
        value = self.value
        result.partial = addends.partial(lambda: (value != 0).sum(dim).double())
        count = self.shape[dim] * max(1, self.terms)
        result.terms = count if self.quantum and not self.product and count > 2 else 0
        return result

    def other_logsumexp(self, own: Tensor) -> Tensor | None:
        """Return the logsumexp with which another evaluation normalises where this one has `own`; None: with the same."""
        del own
        return None

    def mean(self, dim: int) -> "ErrorNumber":
        return self.sum(dim) / self.shape[dim]

    def square(self) -> "ErrorNumber":
        return self * self

    def rsqrt(self) -> "ErrorNumber":
        value = self.value.rsqrt()
        least = self.value - self.error
        root, lowest = self.value.sqrt(), least.sqrt()
        moved = self.error / (root * lowest * (root + lowest))  # rsqrt(a - e) - rsqrt(a), without its cancellation
        zero, infinite = scalar(0.0), scalar(torch.inf)
        propagated = torch.where(self.error == zero, zero, torch.where(least > zero, moved, infinite))
        if not self.finite:
            propagated = torch.where(self.value.isfinite() | self.error.isinf(), nan_to_inf(propagated), 0.0)
        return self._rounded(value, propagated, self.dtype, units=ELEMENTARY, finite=self.finite)

    def sigmoid(self) -> "ErrorNumber":
        value = self.value.sigmoid()
        slope = value * (-self.value).sigmoid()
        size = _magnitude(self)
        argument = self.error + scalar(2 * unit_roundoff(self.dtype)) * size
        moved = (slope * argument.expm1()).nan_to_num(nan=0.0).clamp(max=1.0)
        if size.numel() and float(size.max()) > _FLAT:  # where float64 has 0 for the slope
            moved = torch.where(size > _FLAT, (argument - size).sigmoid(), moved)
        if not self.finite:
            moved = torch.where(self.error.isinf(), torch.inf, moved)
        flushed = torch.finfo(self.dtype).smallest_normal
        return self._rounded(value, moved + scalar(flushed), self.dtype, units=ELEMENTARY, finite=self.finite)

    def to(self, dtype: torch.dtype) -> "ErrorNumber":
        """Return the number converted to `dtype`: exact for a wider one, and without a bound near its overflow."""
        result = self._converted(dtype)
        result.cancelled, result.whole, result.powers = self.cancelled, self.whole, self.powers
        result.terms, result.product = self.terms, self.product
        if self.most is not None:
            result.most = most_.converted(self.most, dtype)
        return result

    def _converted(self, dtype: torch.dtype) -> "ErrorNumber":
        size = _magnitude(self)
        spread = size if self.errorless else size + self.error
        if unit_roundoff(dtype) <= unit_roundoff(self.dtype):
            limit = ceiling(dtype)
            if self.finite and (spread.numel() == 0 or float(spread.max()) <= limit):
                result = type(self)(self.value, self.error, dtype, self.quantum, finite=True, errorless=self.errorless)
                result._size = size
                return result
            beyond = spread > limit
            return type(self)(self.value, torch.where(beyond, torch.inf, self.error), dtype, self.quantum)
        zero, rounding = scalar(0.0), scalar(unit_roundoff(dtype)) * spread + scalar(half_subnormal(dtype))
        exact = (self.value == zero) & (self.error == zero)
        if not self.finite:
            exact |= ~self.value.isfinite()
        if self.quantum:
            exact = exact | representable(spread, self.quantum, dtype)
        if self.whole:
            exact = exact | representable(spread, 1.0, dtype)
        return type(self)(self.value, self.error + torch.where(exact, zero, rounding), dtype, finite=self.finite)

    def lost(self, amount: Tensor) -> "ErrorNumber":
        """Return the number after a unit may have lost `amount` of it, at most."""
        result = self.mapped(lambda tensor: tensor)
        result.error, result.errorless = self.error + amount, False
        result.finite = self.finite and all_finite(amount)
        if (self.quantum or self.whole) and bool(amount.any()):
            result.quantum, result.whole = 0.0, False
        if result.most is not None:
            result.most = nan_to_inf(result.most + amount)
        return result

    def accumulated(self, partial: Tensor, size: Tensor | float) -> "ErrorNumber":
        """Return a sum of which so many partial sums may hold something of `size` beside their own terms."""
        amount = nan_to_inf(unit_roundoff(self.dtype) * partial * size)
        return self.lost(amount) if bool((amount > 0).any()) else self

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Return the number with `move` applied to its value and its error, such as an index or a reshape."""
        value, error = move(self.value), move(self.error)
        moved = type(self)(value, error, self.dtype, self.quantum, finite=self.finite, errorless=self.errorless)
        if self.reassociated is not None:
            moved.reassociated = Later(move, self.reassociated)
        if self.distributed is not None:
            moved.distributed = Later(move, self.distributed)
        if self.addends is not None:
            moved.addends = addends.moved(self.addends, move)
        if self.partial is not None:
            moved.partial = Later(move, self.partial)
        if self.state is not None:
            moved.state = recurrence.moved(self.state, move, self.shape)
        if self.cancelled is not None:
            moved.cancelled = move(self.cancelled)
        moved.whole, moved.powers, moved.terms, moved.product = self.whole, self.powers, self.terms, self.product
        if self.most is not None:
            moved.most = move(self.most.expand(self.shape))
        return moved

    def __getitem__(self, index: Any) -> "ErrorNumber":
        return self.mapped(lambda tensor: tensor[index])

    def reshape(self, *shape: int) -> "ErrorNumber":
        return self.mapped(lambda tensor: tensor.reshape(*shape))

    def unsqueeze(self, dim: int) -> "ErrorNumber":
        return self.mapped(lambda tensor: tensor.unsqueeze(dim))

    @property
    def mT(self) -> "ErrorNumber":
        return self.mapped(lambda tensor: tensor.mT)

    @classmethod
    def joined(cls, parts: "Sequence[ErrorNumber]", join: Callable[[list[Tensor]], Tensor]) -> "ErrorNumber":
        """Return numbers put together by `join`, such as a concatenation."""
        whole = cls(
            join([part.value for part in parts]),
            join([part.error for part in parts]),
            parts[0].dtype,
            min(part.quantum for part in parts),
            finite=all(part.finite for part in parts),
            errorless=all(part.errorless for part in parts),
        )
        whole.whole, whole.powers = (all(getattr(part, name) for part in parts) for name in ("whole", "powers"))
        if any(part.most is not None for part in parts):
            whole.most = join([most_.most(part) for part in parts])
        whole.reassociated = reassociation.joined([(part.reassociated, part.value) for part in parts], join)
        return whole

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> "ErrorNumber":
        """Join error-carrying numbers for `torch.cat`; no other function of PyTorch accepts them."""
        del types
        if function is not torch.cat:
            raise TypeError(f"{function.__name__} does not take error-carrying numbers")
        return cls.joined(args[0], lambda tensors: torch.cat(tensors, *args[1:], **(kwargs or {})))


@cache
def _constant(number: float, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, bool, bool]:
    """Return a constant of the formula in float64, its error in `dtype`, its magnitude, whether the error is 0, and whether
    it is a power of two then.
    """
    value = torch.tensor(number, dtype=torch.float64)
    error = (value.to(dtype).double() - value).abs() if math.isfinite(number) else torch.zeros((), dtype=torch.float64)
    return value, error, value.abs(), not error, not error and _is_power_of_two(number)


def _magnitude(number: ErrorNumber) -> Tensor:
    """Return |value|, and 0 where it is not finite."""
    return number.size if number.finite else magnitude(number.value)


def _is_power_of_two(number: Any) -> bool:
    """Return whether it is a Python number, and a power of two or minus one."""
    number = abs(number) if isinstance(number, (int, float)) else number
    return isinstance(number, (int, float)) and number > 0 and math.frexp(number)[0] == 0.5


def after_cancellation(product: ErrorNumber, a: ErrorNumber, b: ErrorNumber) -> ErrorNumber:
    """Return a * b or a / b where nothing is promised of a sum that cancels, times what is not exact.

    It is 0 in this order; in another one each term is multiplied and rounded first.
    """
    if a.cancelled is None and b.cancelled is None:
        return product
    none = torch.zeros((), dtype=torch.bool, device=product.value.device)
    first, second = (none if one.cancelled is None else one.cancelled for one in (a, b))
    unsure = first & (b.error > 0) | second & (a.error > 0)
    result = product.lost(torch.where(unsure, torch.inf, 0.0)) if bool(unsure.any()) else product
    result.cancelled = (first | second) & (result.value == 0) & ~unsure
    return result
