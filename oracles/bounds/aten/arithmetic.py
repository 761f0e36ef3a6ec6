"""Elementwise arithmetic and elementary functions, and conversions of dtype."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds import elementary
from mhc.oracles.bounds.aten.choices import logical
from mhc.oracles.bounds.aten.registry import (
    aten,
    elementwise,
    exactly,
    integers,
    narrowed,
    promoted,
    rule,
    scalar,
    wide,
    widened,
)
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.rounding import ELEMENTARY, nan_to_inf


def _of_integers(func: Any, a: Any, b: Any, error: Callable[..., Tensor], **named: Any) -> Any:
    """Return a result for integers and booleans, which may be off by `error` of each one's magnitude and error."""
    value = func(*(one.value if isinstance(one, Mask) else one for one in (a, b)), **named)
    if value.dtype == torch.bool:
        raise elementary.NoRule("arithmetic of comparisons that rounding may decide")
    found = []
    for one in (a, b):
        size = torch.as_tensor(one.value if isinstance(one, Mask) else one, device=value.device).double().abs()
        found += [size, one.error if isinstance(one, Mask) else torch.zeros_like(size)]
    return Mask.of_integers(value, nan_to_inf(error(*found)))


@rule(aten.add)
def _add(func: Any, a: Any, b: Any, *, alpha: float = 1) -> Any:
    if (isinstance(a, Mask) or isinstance(b, Mask)) and integers(a, b):
        return _of_integers(func, a, b, lambda _, of_a, __, of_b: of_a + abs(alpha) * of_b, alpha=alpha)
    if alpha == 1 and (filled := _filled(a, b)) is not None:
        return filled
    (first, second), dtype = promoted(a, b)
    total = narrowed(elementary.plus(first, second if alpha == 1 else second * alpha), dtype)
    return _but_zeros(total, a, b) if alpha == 1 else total


def _filled(a: Any, b: Any) -> ErrorNumber | None:
    """Return a sum in which one number fills zeros of the other, such as that of the gradients of two rows; else None."""
    if not isinstance(a, ErrorNumber) or type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return None
    for whole, one in ((a, b), (b, a)):
        if one.among_zeros is not None:
            number, part = one.among_zeros
            if not (bool(part(whole.value).any()) or bool(part(whole.error).any())):

                def put(tensors: Sequence[Tensor], part: Callable[[Tensor], Tensor] = part) -> Tensor:
                    result = tensors[0].clone()
                    part(result).copy_(tensors[1])
                    return result

                return type(whole).joined([whole, number], put)
    return None


def _but_zeros(total: ErrorNumber, a: Any, b: Any) -> ErrorNumber:
    """Return a sum that is as exact as one term where the other is 0: so is that of many gradients, each of one row."""
    alike = all(type(one) is type(total) and one.dtype == total.dtype for one in (a, b))
    if not (alike and total.elementary and a.shape == b.shape):
        return total
    if a.scaled and b.scaled and elementary.interpolates(a.scaled, b.scaled):  # neither is a row's gradient
        return total
    for zero, other in ((a, b), (b, a)):
        none = (zero.value == 0) & (zero.error == 0)
        if bool(none.any()):
            total.value = torch.where(none, other.value, total.value)
            total.error, total.errorless = torch.where(none, other.error, total.error), False
    return total


@rule(aten.sub)
def _sub(func: Any, a: Any, b: Any, *, alpha: float = 1) -> Any:
    if (isinstance(a, Mask) or isinstance(b, Mask)) and integers(a, b):
        return _of_integers(aten.sub, a, b, lambda _, of_a, __, of_b: of_a + abs(alpha) * of_b, alpha=alpha)
    (a, b), dtype = promoted(a, b)
    return narrowed(elementary.plus(a, -(b if alpha == 1 else b * alpha)), dtype)


@rule(aten.rsub)
def _rsub(func: Any, a: Any, b: Any, alpha: float = 1) -> Any:
    return _sub(func, b, a, alpha=alpha)


@rule(aten.mul)
def _mul(func: Any, a: Any, b: Any) -> Any:
    if all(one.dtype == torch.bool for one in (a, b) if not isinstance(one, (int, float))):  # as isfinite does it
        return logical(aten.logical_and, a, b)
    if (isinstance(a, Mask) or isinstance(b, Mask)) and integers(a, b):
        return _of_integers(func, a, b, lambda one, of_a, two, of_b: one * of_b + of_a * two + of_a * of_b)
    (a, b), dtype = promoted(a, b)
    return narrowed(elementary.times(a, b), dtype)


@rule(aten.div)
def _div(func: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> ErrorNumber:
    if rounding_mode is not None:
        step = _step(torch.floor if rounding_mode == "floor" else torch.trunc)
        return step(_div(func, a, b))  # of the quotient in the dtype of the result, which may be rounded to another integer
    (a, b), dtype = promoted(a, b)
    if isinstance(b, ErrorNumber):
        a = a if isinstance(a, ErrorNumber) else type(b).exact(torch.full_like(b.value, a), b.dtype)
        return narrowed(elementary.quotient(a, b), dtype)
    return narrowed(a / b, dtype)


def _power(func: Any, a: Any, exponent: Any) -> ErrorNumber:
    exponent = scalar(exponent)
    if not isinstance(exponent, (int, float)):
        return _power_of(a, exponent)
    if exponent == 3 and a.dtype != wide(a.dtype):  # PyTorch rounds the square too
        return narrowed(widened(_power(func, a, 2)) * widened(a), a.dtype)
    return narrowed(elementary.power(widened(a), float(exponent)), a.dtype)


def _but_nan(a: ErrorNumber, b: ErrorNumber) -> tuple[ErrorNumber, ErrorNumber]:
    """Return both with the other's element in place of a NaN, so that of two the one is chosen that is not."""
    return elementary.chosen(b, a, a.value.isnan()), elementary.chosen(a, b, b.value.isnan())


def _numbers(function: Callable[..., ErrorNumber], *operations: Any) -> None:
    """Register a function of two numbers: a Python number is one without an error, or with that of its rounding."""

    def apply(a: Any, b: Any) -> ErrorNumber:
        if isinstance(a, ErrorNumber):
            return function(a, a._coerce(b))
        return function(b._coerce(a), b)

    elementwise(apply, *operations)


def _power_of(base: Any, exponent: ErrorNumber) -> ErrorNumber:
    """Return base**exponent for an exponent with an error, as exp(exponent log base)."""
    (base, exponent), dtype = promoted(base, exponent)
    if not isinstance(base, ErrorNumber) and base == 2 and exponent.elementary:
        power = elementary.exp2(exponent)
        if power.errorless:
            return narrowed(power, dtype)
    log = elementary.log(base) if isinstance(base, ErrorNumber) else math.log(base)
    return narrowed(elementary.exp(exponent * log), dtype)


rule(aten.pow)(_power)
exactly(lambda a: -a, aten.neg)
exactly(elementary.absolute, aten.abs)
elementwise(elementary.reciprocal, aten.reciprocal)
elementwise(lambda a: a.rsqrt(), aten.rsqrt)
elementwise(elementary.sqrt, aten.sqrt)
elementwise(elementary.exp, aten.exp)
elementwise(lambda a: elementary.monotone(a, torch.expm1, argument=2.0), aten.expm1)
elementwise(elementary.log, aten.log)
elementwise(lambda a: elementary.monotone(a, torch.log1p), aten.log1p)
elementwise(elementary.exp2, aten.exp2)
elementwise(lambda a: elementary.monotone(a, torch.log2, absolute=4.0), aten.log2)
elementwise(lambda a: elementary.monotone(a, torch.log10, absolute=4.0), aten.log10)
elementwise(lambda a: elementary.monotone(a, torch.atan), aten.atan)
elementwise(lambda a: elementary.monotone(a, torch.asin), aten.asin)
elementwise(lambda a: elementary.monotone(a, torch.acos, absolute=ELEMENTARY), aten.acos)
elementwise(elementary.tan, aten.tan)
_numbers(elementary.angle, aten.atan2)
elementwise(lambda a: elementary.monotone(a, torch.sinh, argument=2.0, absolute=ELEMENTARY), aten.sinh)
elementwise(lambda a: elementary.monotone(a, torch.cosh, argument=2.0), aten.cosh)
elementwise(lambda a: elementary.monotone(a, torch.asinh, absolute=ELEMENTARY), aten.asinh)
elementwise(lambda a: elementary.monotone(a, torch.acosh, absolute=ELEMENTARY), aten.acosh)
elementwise(lambda a: elementary.monotone(a, torch.atanh, absolute=ELEMENTARY), aten.atanh)
elementwise(elementary.tanh, aten.tanh)
elementwise(lambda a: elementary.monotone(a, torch.erf, argument=2.0, absolute=9.0), aten.erf)
elementwise(lambda a: elementary.monotone(a, torch.erfc, argument=2.0, absolute=9.0), aten.erfc)
elementwise(lambda a: elementary.monotone(a, torch.erfinv, argument=2.0), aten.erfinv)
elementwise(lambda a: a.sigmoid(), aten.sigmoid)
elementwise(lambda a: elementary.smooth(a, torch.sin, 1.0, 2.0), aten.sin)
elementwise(lambda a: elementary.smooth(a, torch.cos, 1.0, 2.0), aten.cos)
exactly(lambda a: elementary.bounded(a, 0.0, None), aten.relu)
exactly(elementary.larger, aten.maximum)
exactly(lambda a, b: elementary.larger(a, b, torch.minimum), aten.minimum)
exactly(lambda a, b: elementary.larger(*_but_nan(a, b), torch.fmax), aten.fmax)
exactly(lambda a, b: elementary.larger(*_but_nan(a, b), torch.fmin), aten.fmin)


_numbers(elementary.hypot, aten.hypot)
_numbers(elementary.copied_sign, aten.copysign)
_numbers(lambda a, b: elementary.modulo(a, b, torch.fmod), aten.fmod)
_numbers(lambda a, b: elementary.modulo(a, b, torch.remainder), aten.remainder)


@rule(aten.sigmoid_backward)
def _sigmoid_backward(func: Any, gradient: Any, y: Any) -> ErrorNumber:
    """Return dy (1 - y) y: in float16 PyTorch on the CPU rounds each step."""
    (dy, share), dtype = promoted(gradient, y)
    if dtype != torch.float16:
        return narrowed(dy * (share * (1.0 - share)), dtype)
    rest = widened(narrowed(1.0 - share, dtype))
    return narrowed(widened(narrowed(dy * rest, dtype)) * share, dtype)


@rule(aten.sign, aten.sgn)
def _sign(func: Any, a: ErrorNumber) -> ErrorNumber:
    unsure = (a.value.abs() <= a.error) & (a.error > 0)
    error = torch.where(a.error.isinf(), torch.inf, 2.0 * unsure)
    return type(a)(a.value.sign(), error, a.dtype)


@rule(aten.clamp, aten.clamp_min, aten.clamp_max)
def _clamp(func: Any, a: ErrorNumber, first: Any = None, second: Any = None, **named: Any) -> ErrorNumber:
    ends = {"min": first, "max": second}
    if func.overloadpacket is aten.clamp_max:
        ends = {"min": None, "max": first}
    ends |= named
    least, most = scalar(ends["min"]), scalar(ends["max"])
    if all(one is None or isinstance(one, (int, float)) for one in (least, most)):
        return elementary.bounded(a, least, most)
    given = [one for one in (least, most) if one is not None]
    (first_of, *limits), dtype = promoted(a, *given)
    found: ErrorNumber = first_of
    for end, choose in zip(limits, [torch.maximum] * (least is not None) + [torch.minimum], strict=False):
        limit = end if isinstance(end, ErrorNumber) else type(found).exact(torch.full_like(found.value, end), found.dtype)
        found = elementary.larger(found, limit, choose)
    return narrowed(found, dtype)


@rule(aten.signbit)
def _signbit(func: Any, a: ErrorNumber) -> Any:
    unsure = (a.error > 0) & (a.value.abs() <= a.error)
    return Mask(a.value.signbit(), unsure) if bool(unsure.any()) else a.value.signbit()


@rule(aten._local_scalar_dense)
def _item(func: Any, a: Any) -> Any:
    """Return an element as a Python number, if each implementation holds the same one."""
    if isinstance(a, Mask) and bool(a.unsure):
        raise elementary.NoRule("a branch, or an index, that rounding may decide")
    if isinstance(a, ErrorNumber) and bool(a.error > 0):
        raise elementary.NoRule("a Python number of what rounding changes: keep it a tensor")
    return a.value.item()


@rule(aten._to_copy)
def _to_copy(func: Any, a: Any, *, dtype: torch.dtype | None = None, **rest: Any) -> Any:
    if dtype is None or dtype == a.dtype:
        return a.mapped(torch.clone)
    if isinstance(a, Mask):
        if dtype.is_floating_point:
            return ErrorNumber(a.value.double(), a.error, dtype)
        value = a.value.to(dtype)
        return Mask(value, a.unsure, dtype) if dtype == torch.bool else Mask.of_integers(value, a.error)
    if not dtype.is_floating_point:
        return _truncated(a, dtype)
    return narrowed(a, dtype)


def _truncated(a: ErrorNumber, dtype: torch.dtype) -> Any:
    """Return integers, or booleans, of a number: unsure where its error reaches another one, or where it is no integer.

    An unsure integer is one of those that its error reaches, and any one where it reaches beyond the dtype. What NaN,
    infinity and numbers beyond the dtype become as integers is undefined in C, and differs from device to device.
    """
    value, error = a.value.to(dtype), torch.where(_held(a.value, dtype), 0.0, torch.inf).double()
    if not a.errorless and bool((a.error > 0).any()):
        step = torch.sign if dtype == torch.bool else torch.trunc
        apart = [(step(end) - step(a.value)).abs() for end in (a.value - a.error, a.value + a.error)]
        error += nan_to_inf(torch.where(a.error > 0, torch.maximum(*apart), 0.0))
    return Mask.of_integers(value, error)


def _held(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return where a number without its fraction is one that the dtype has; all numbers are booleans."""
    if dtype == torch.bool:
        return torch.ones_like(value, dtype=torch.bool)
    info, whole = torch.iinfo(dtype), value.trunc()
    return (whole >= info.min) & (whole < float(info.max + 1))


def _step(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[ErrorNumber], ErrorNumber]:
    """Return a function to integers as one of numbers: exact in any dtype that holds its argument.

    It is monotone, so its result lies between those of both ends, a - e and a + e.
    """

    def apply(a: ErrorNumber) -> ErrorNumber:
        if not (a.elementary or a.constant):
            raise elementary.NoRule(f"{function.__name__} of a {type(a).__name__}")
        value = function(a.value)
        if a.errorless or not bool((a.error > 0).any()):
            found = type(a)(value, torch.zeros_like(value), a.dtype, finite=a.finite, errorless=True)
        else:
            apart = [(function(end) - value).abs() for end in (a.value - a.error, a.value + a.error)]
            error = torch.where(a.error.isinf(), torch.inf, torch.maximum(*apart))
            found = type(a)(value, torch.where(a.error == 0, 0.0, nan_to_inf(error)), a.dtype)
        found.whole = True
        return found

    return apply


exactly(_step(torch.round), aten.round)
exactly(_step(torch.floor), aten.floor)
exactly(_step(torch.ceil), aten.ceil)
exactly(_step(torch.trunc), aten.trunc)
