"""Error bounds of functions of one or two error-carrying numbers, beyond the methods of `ErrorNumber`.

With u the unit roundoff of the dtype, |a~ - a| <= e for a number a~ that is held instead of a, and 9u for the roundings
inside an elementary function (`rounding.ELEMENTARY`):

    f(a), f monotone      max(|f(a + e) - f(a)|, |f(a - e) - f(a)|)                         + 9u |f(a)|
    f(a), |f'| <= c       c e                                                               + 9u |f(a)|
    a / b                 (ea + |a / b| eb) / (|b| - eb), infinite where |b| <= eb > 0      + 2u |a / b|
    max over a dim        the largest e among elements that may be the largest
    softmax(a)_i          y_i max(E_i / (1 - D) - 1, 1 - 1 / (E_i (1 + U)))                 + (15 + lambda sqrt(L)) u y_i
    log_softmax(a)_i      e_i + max(-log(1 - D), log(1 + U))                                + roundings of its three steps
    cumsum(a)             cumsum(e)                                                         + lambda sqrt(L) u cumsum(|a|)

E_i = exp(e_i), D = sum_j y_j (1 - exp(-e_j)), U = sum_j y_j (exp(e_j) - 1). docs/tolerances.md derives each line.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from mhc.oracles.bounds import most, reassociation, recurrence, repeated_terms
from mhc.oracles.bounds.addends import partial
from mhc.oracles.bounds.error_number import ErrorNumber, after_cancellation
from mhc.oracles.bounds.later import Later
from mhc.oracles.bounds.rounding import (
    ELEMENTARY,
    LAMBDA,
    ceiling,
    half_subnormal,
    magnitude,
    nan_to_inf,
    of_quotient,
    scalar,
    unit_roundoff,
)


class NoRule(Exception):
    """There is no rule for an operation on numbers of a class."""


_SHARES = 2.0**-40  # two scalars whose sum is this near to 1 are t and 1 - t
_FLOAT64 = 2.0**-51  # relative error of an elementary function in float64, and of the difference of two
_UNDERFLOWN = 600.0
"""A share of 0 is exp of less than -745; an argument that is off by this much still makes no number of float32."""
_SMALL = 0.1
"""Eight times as much is no small exponent: of two evaluations of a logsumexp that differ by more, nothing is promised."""
_UNNORMALISED = 8.0
"""An argument off by more may make exp(a - logsumexp(a)) large, which is 1 at most if both have the same roundings. It is so
where logits are; below 0, as of a row that is masked by -1e9, a share is taken as at most 1."""
_LOG2_APPROX = 4.0
"""Units of absolute error of a logarithm near 1: 2^-22 in PTX's lg2.approx, on which DSLs build theirs."""
_TANH_APPROX = 2 * ELEMENTARY
"""Units of absolute error of tanh(x) as 2 sigmoid(2x) - 1."""


Scaled = tuple[ErrorNumber, float]
Function = TypeVar("Function", bound=Callable[..., ErrorNumber])


def _bounding(function: Function) -> Function:
    """Let a function refuse numbers that carry something else than a bound on their error.

    Of numbers that bound a change between two evaluations, it is constant where its operands are.
    """

    @wraps(function)
    def checked(a: ErrorNumber, *args: Any, **kwargs: Any) -> ErrorNumber:
        if a.constant:
            given = (a, *args)
            exact = [ErrorNumber.exact(one.value, one.dtype) if isinstance(one, ErrorNumber) else one for one in given]
            changes = any(bool(one.error.any()) for one in given if isinstance(one, ErrorNumber))
            found = function(*exact, **kwargs)
            return type(a)(found.value, torch.full_like(found.value, torch.inf if changes else 0.0), a.dtype)
        if not a.elementary:
            raise NoRule(f"{function.__name__} of a {type(a).__name__}")
        return function(a, *args, **kwargs)

    return cast("Function", checked)


def _changing(function: Function) -> Function:
    """Let a function refuse numbers that carry something else than a bound on their error, or on a change of it."""

    @wraps(function)
    def checked(a: ErrorNumber, *args: Any, **kwargs: Any) -> ErrorNumber:
        if not (a.elementary or a.constant):
            raise NoRule(f"{function.__name__} of a {type(a).__name__}")
        return function(a, *args, **kwargs)

    return cast("Function", checked)


@_bounding
def monotone(
    a: ErrorNumber,
    function: Callable[[Tensor], Tensor],
    *,
    argument: float = 0.0,
    absolute: float = 0.0,
    flushes: bool = False,
) -> ErrorNumber:
    """Return f(a) of a monotone function.

    Args:
        argument: units of rounding of the argument inside the function, relative to it: exp(a) is 2^(a log2 e).
        absolute: units of rounding of the result that are not relative to it.
        flushes: a result below the normal range may be 0.
    """
    if not function(torch.zeros(())).isfinite():
        a = a.divisor()
    u = unit_roundoff(a.dtype)
    value = function(a.value)
    spread = a.error + argument * u * magnitude(a.value)
    up, down = (function(end) - value for end in (a.value + spread, a.value - spread))
    moved = torch.maximum(up.abs(), down.abs()) + _FLOAT64 * magnitude(value)
    moved = torch.where(spread == 0, 0.0, moved) + absolute * u
    return _elementary(a, value, moved + _flushed(value, a.dtype) if flushes else moved)


@_bounding
def smooth(a: ErrorNumber, function: Callable[[Tensor], Tensor], slope: float, width: float = math.inf) -> ErrorNumber:
    """Return f(a) of a function whose derivative is at most `slope` and whose values differ by at most `width`."""
    spread = a.error + 2 * unit_roundoff(a.dtype) * magnitude(a.value)
    return _elementary(a, function(a.value), (slope * spread).clamp(max=width))


def _elementary(a: ErrorNumber, value: Tensor, moved: Tensor) -> ErrorNumber:
    """Return f(a) with `moved`, what the error of a changes; a value that is not finite is certain where a is."""
    sure = ~value.isfinite() & (a.error == 0)
    judged = value.isfinite() & a.error.isfinite()  # also a bounded function of NaN is NaN
    moved = torch.where(sure, 0.0, torch.where(judged, nan_to_inf(moved), torch.inf))
    return a._rounded(value, moved, a.dtype, units=ELEMENTARY, finite=a.finite)


def exp(a: ErrorNumber) -> ErrorNumber:
    """Return the exponential."""
    found = monotone(a, torch.exp, argument=2.0, flushes=True)
    if a.most is None:
        return found
    return type(a)(found.value, torch.where(a.most <= -most.GONE, 0.0, found.error), a.dtype)


def exp2(a: ErrorNumber) -> ErrorNumber:
    """Return 2^a, which is exact for an integer without an error where the result is normal."""
    found = monotone(a, torch.exp2, argument=1.0, flushes=True)
    if a.elementary:
        value = torch.exp2(a.value)
        sure = (a.error == 0) & (a.value == a.value.round()) & (value >= torch.finfo(a.dtype).smallest_normal)
        sure &= value <= ceiling(a.dtype)
        if bool(sure.any()):
            found.make_exact(value, sure)
            found.powers = bool((sure | (found.error > 0)).all())
    return found


def _flushed(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the smallest normal number where a value is not 0: implementations may flush what is below it."""
    return torch.where(value != 0, float(torch.finfo(dtype).smallest_normal), 0.0)


def log(a: ErrorNumber) -> ErrorNumber:
    """Return the natural logarithm."""
    return monotone(a, torch.log, absolute=_LOG2_APPROX)


def tanh(a: ErrorNumber) -> ErrorNumber:
    """Return the hyperbolic tangent."""
    return monotone(a, torch.tanh, argument=2.0, absolute=_TANH_APPROX)


@_bounding
def tan(a: ErrorNumber) -> ErrorNumber:
    """Return the tangent, of which nothing is promised where a may reach a pole."""
    u = unit_roundoff(a.dtype)
    value = a.value.tan()
    spread = a.error + 2 * u * magnitude(a.value)
    ends = [a.value - spread, a.value + spread]
    moved = torch.maximum(*[(end.tan() - value).abs() for end in ends])
    branches = [(end / math.pi + 0.5).floor() for end in ends]
    moved = torch.where(branches[0] == branches[1], moved, torch.inf)
    return _elementary(a, value, moved + _FLOAT64 * magnitude(value))


@_bounding
def angle(y: ErrorNumber, x: ErrorNumber) -> ErrorNumber:
    """Return atan2(y, x): a point that is off by e < r is seen from 0 at an angle that is off by at most asin(e / r)."""
    off, radius = torch.hypot(y.error, x.error), torch.hypot(y.value, x.value)
    moved = torch.where(off < radius, (off / radius).clamp(max=1.0).asin(), math.pi)
    crosses = (x.value - x.error < 0) & (y.value.abs() <= y.error) & (off > 0)
    return _of_two(y, x, torch.atan2(y.value, x.value), torch.where(crosses, 2 * math.pi, torch.where(off == 0, 0.0, moved)))


@_bounding
def hypot(a: ErrorNumber, b: ErrorNumber) -> ErrorNumber:
    """Return sqrt(a^2 + b^2) without an overflow between; it changes by no more than the point (a, b) moves."""
    return _of_two(a, b, torch.hypot(a.value, b.value), torch.hypot(a.error, b.error))


def _of_two(a: ErrorNumber, b: ErrorNumber, value: Tensor, moved: Tensor) -> ErrorNumber:
    """Return an elementary function of two numbers with `moved`, what their errors change."""
    beyond = (a.error + b.error).isinf() | ~value.isfinite() & (a.error + b.error > 0)
    return a._rounded(value, torch.where(beyond, torch.inf, moved), a.dtype, units=ELEMENTARY, finite=a.finite and b.finite)


@_bounding
def modulo(a: ErrorNumber, b: ErrorNumber, function: Callable[[Tensor, Tensor], Tensor]) -> ErrorNumber:
    """Return the rest of a / b, with `function` torch.fmod or torch.remainder.

    Where rounding may decide the whole quotient n, the rest may be off by ea + |b|. Elsewhere it is a - n b.
    """
    value, ratio = function(a.value, b.value), a.value / b.value
    whole = torch.trunc if function is torch.fmod else torch.floor
    least = b.value.abs() - b.error
    spread = torch.where(least > 0, (a.error + ratio.abs() * b.error) / least, torch.inf)
    spread = spread + of_quotient(a.dtype) * unit_roundoff(a.dtype) * ratio.abs()
    sure = whole(ratio - spread) == whole(ratio + spread)
    moved = a.error + whole(ratio).abs() * b.error
    moved = torch.where(sure, moved, a.error + b.value.abs() + b.error)
    moved = torch.where((b.error > 0) & (least <= 0), torch.inf, moved)
    exact = (a.error == 0) & (b.error == 0) & (whole(ratio) == 0) & (value == a.value)
    size = torch.where(exact, 0.0, a.value.abs() + value.abs())
    return a._rounded(value, nan_to_inf(moved), a.dtype, units=2.0, size=size, finite=a.finite and b.finite)


@_changing
def copied_sign(a: ErrorNumber, b: ErrorNumber) -> ErrorNumber:
    """Return |a| with the sign of b: where an error may change that, either sign."""
    unsure = (b.error > 0) & (b.value.abs() <= b.error)
    error = torch.where(unsure, 2 * a.value.abs() + a.error, a.error)
    return type(a)(a.value.copysign(b.value), torch.where(b.error.isinf(), torch.inf, error), a.dtype)


@_bounding
def product(a: ErrorNumber, of: Callable[[Tensor], Tensor], length: int) -> ErrorNumber:
    """Return products of elements of a, of up to `length` each, which `of` multiplies, in any order.

    Each of the at most L - 1 multiplications rounds, relative to the result: u times L - 1, or lambda sqrt(L). The smallest
    partial product in any order is that of the magnitudes below 1, the largest that of those above: where the first is not
    a normal number, L underflows are multiplied by the second, and where that is beyond the range nothing is promised.
    Nor is anything where the product is infinite: infinity times what was rounded to 0 is NaN.
    """
    size = magnitude(a.value)
    below = size - a.error if a.finite else torch.where(a.value.isfinite(), size - a.error, 1.0)
    most, least = of((size + a.error).clamp(min=1.0)), of(below.clamp(min=0.0, max=1.0))
    value = of(a.value)
    moved = of(size + a.error) - of(size) + length * _FLOAT64 * of(size)
    under = least < torch.finfo(a.dtype).smallest_normal
    moved = moved + torch.where(under, length * half_subnormal(a.dtype) * most, 0.0)
    moved = torch.where(nan_to_inf(most) > ceiling(a.dtype), torch.inf, nan_to_inf(moved))
    found = a._rounded(value, moved, a.dtype, units=min(length - 1.0, LAMBDA * math.sqrt(length)), finite=False)
    return found if a.finite else found.lost(torch.where(value.isinf() & under, torch.inf, 0.0))


def power(a: ErrorNumber, exponent: float) -> ErrorNumber:
    """Return a**exponent."""
    if exponent == int(exponent) and 1 <= exponent <= 4:
        return a ** int(exponent)
    if exponent == -0.5:
        return a.rsqrt()
    if exponent in {0.5, -1.0}:
        return sqrt(a) if exponent == 0.5 else reciprocal(a)
    if exponent == 0.0:
        return type(a).exact(torch.ones_like(a.value), a.dtype)
    logarithms = magnitude(magnitude(a.value).log())
    # exp(exponent log a): each of the three steps rounds, the product relative to itself
    steps = (2 * abs(exponent) * float(logarithms.amax()) + 2) / abs(exponent) if a.value.numel() else 0.0
    found = monotone(a, lambda value: value**exponent, argument=steps)
    pole = (a.error > 0) & (a.error >= a.value.abs()) & (exponent < 0)
    return found.lost(torch.where(pole, torch.inf, 0.0)) if bool(pole.any()) else found


@_bounding
def sqrt(a: ErrorNumber) -> ErrorNumber:
    """Return the square root of a."""
    least = (a.value - a.error).clamp(min=0.0).sqrt()
    value = a.value.sqrt()
    return _elementary(a, value, torch.where(a.error == 0, 0.0, a.error / (value + least)))


def reciprocal(a: ErrorNumber) -> ErrorNumber:
    """Return 1 / a."""
    one = type(a).exact(torch.ones_like(a.value), a.dtype)
    one.powers = a.powers
    return quotient(one, a)


@_changing
def quotient(a: ErrorNumber, b: ErrorNumber) -> ErrorNumber:
    """Return a / b."""
    found = _quotient(a, b.divisor())
    return _scaled(found, a, b) if b.powers and b.elementary else found


def _quotient(a: ErrorNumber, b: ErrorNumber) -> ErrorNumber:
    value = a.value / b.value
    units, finite, reassociated = of_quotient(a.dtype), a.finite and b.finite, a.reassociated
    if a.errorless and b.errorless:
        return a._rounded(value, None, a.dtype, units=units, reassociated=reassociated, finite=finite)
    least = b.value.abs() - b.error
    moved = nan_to_inf((a.error + magnitude(value) * b.error) / least)
    moved = torch.where((a.error == 0) & (b.error == 0), 0.0, torch.where(least > 0, moved, torch.inf))
    certain = ~value.isfinite() & (a.error == 0) & (b.error == 0)
    moved = torch.where(certain, 0.0, torch.where(value.isfinite(), moved, torch.inf))
    result = a._rounded(value, moved, a.dtype, units=units, reassociated=reassociated, finite=finite)
    return after_cancellation(result, a, b)


def _scaled(quotient: ErrorNumber, a: ErrorNumber, b: ErrorNumber) -> ErrorNumber:
    """Return a / b, without an error where that is a product of what has none and a power of two."""
    inverse = type(b)(1 / b.value, b.error, b.dtype)
    quotient.take_scaling(a.value / b.value, a, inverse)
    quotient.powers = a.powers
    quotient.reassociated = reassociation.of_product(a.value, inverse.value)
    return quotient


@_changing
def absolute(a: ErrorNumber) -> ErrorNumber:
    """Return |a|, whose error is that of a."""
    size = type(a)(a.value.abs(), a.error, a.dtype, a.quantum, finite=a.finite, errorless=a.errorless)
    size.whole, size.powers = a.whole, a.powers
    return size


@_changing
def bounded(a: ErrorNumber, least: float | None, most: float | None) -> ErrorNumber:
    """Return a limited to a range of constants; its error is that of a, or where it may be at an end, that end's if larger.

    Where a is certainly beyond an end, it is the end's alone. An end that the dtype does not hold is rounded:
    |clamp(a', c') - clamp(a, c)| <= max(|a' - a|, |c' - c|).
    """
    value, error = a.value.clamp(least, most), a.error
    for end, sign in ((least, -1.0), (most, 1.0)):
        if end is None:
            continue
        own = scalar(0.0) if a.constant else a._coerce(end).error
        if float(own) > 0:
            reached = (value - end).abs() <= a.error + own
            error = torch.where(reached, torch.maximum(error, own), error)
        if not a.errorless:
            error = torch.where((a.value - end) * sign > a.error + own, own, error)
    result = type(a)(value, error, a.dtype)
    result.whole = a.whole and all(end is None or float(end).is_integer() for end in (least, most))
    return result


@_changing
def larger(a: ErrorNumber, b: ErrorNumber, choose: Callable[[Tensor, Tensor], Tensor] = torch.maximum) -> ErrorNumber:
    """Return the elementwise maximum, or with `choose` the minimum: of the errors, the larger one that may be chosen."""
    value = choose(a.value, b.value)
    near = ((a.value - b.value).abs() <= a.error + b.error) | a.error.isinf() | b.error.isinf()
    known = not (a.most is None and b.most is None)
    if known:
        near &= ~(most.below(a, b) | most.below(b, a))
    error = torch.where(near, torch.maximum(a.error, b.error), torch.where(value == a.value, a.error, b.error))
    result = type(a)(value, error, a.dtype)
    result.whole, result.powers = a.whole and b.whole, a.powers and b.powers
    if known and choose is torch.maximum:
        result.most = torch.maximum(most.most(a), most.most(b))
    return result


@_changing
def largest(a: ErrorNumber, dim: int) -> ErrorNumber:
    """Return the maximum over a dimension."""
    least = torch.where(a.error.isinf(), -torch.inf, a.value - a.error)  # infinity with an infinite error may be NaN
    certain = least.amax(dim, keepdim=True)
    reaches = a.value + a.error if a.most is None else most.most(a)
    error = torch.where(reaches >= certain, a.error, 0.0).amax(dim)
    result = type(a)(a.value.amax(dim), nan_to_inf(error), a.dtype)
    if a.most is not None:
        result.most = reaches.amax(dim)
    return result


def _without(a: ErrorNumber, dim: int) -> ErrorNumber:
    """Return a with -infinity in place of what is certainly so far below the maximum that its share is 0."""
    assert a.most is not None
    least = (a.value - a.error).nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).amax(dim, keepdim=True)
    gone = a.error.isinf() & (a.most <= least - most.GONE) & least.isfinite()
    return type(a)(a.value.masked_fill(gone, -torch.inf), a.error.masked_fill(gone, 0.0), a.dtype)


@_changing
def chosen(a: ErrorNumber, b: ErrorNumber, condition: Tensor, unsure: Tensor | None = None) -> ErrorNumber:
    """Return a where `condition`, else b; where the condition is `unsure`, either may be held."""
    value, error = torch.where(condition, a.value, b.value), torch.where(condition, a.error, b.error)
    if unsure is not None:
        apart = nan_to_inf((a.value - b.value).abs() + torch.maximum(a.error, b.error))
        error = torch.where(unsure, apart, error)
    result = type(a)(value, error, a.dtype)
    result.whole, result.powers = a.whole and b.whole, a.powers and b.powers
    if not (a.most is None and b.most is None):
        result.most = most.of_choice(a, b, condition, unsure)
    return result


@_bounding
def softmax(a: ErrorNumber, dim: int) -> ErrorNumber:
    """Return the softmax over a dimension, as exp(a - max) / sum, or as exp(a - logsumexp(a)) with that rounded once."""
    if not a.value.numel():
        return type(a)(a.value, a.error, a.dtype)
    a = a if a.most is None else _without(a, dim)
    value, spread, down, up = _shares(a, dim)
    own = a.value.logsumexp(dim, keepdim=True)
    spread = spread + unit_roundoff(a.dtype) * magnitude(own)
    if (other := a.other_logsumexp(own)) is not None:
        value, spread = (a.value - other).exp(), torch.where(magnitude(own - other) > _SMALL, torch.inf, spread)
    over = (spread.expm1() + down) / (1 - down)
    under = 1 - 1 / (spread.exp() * (1 + up))
    moved = torch.where(down < 1, value * torch.maximum(over, under), torch.inf)
    limit = torch.where(spread.isinf(), torch.inf, 1.0)
    if spread.numel() and float(spread.max()) > _UNNORMALISED:
        off = torch.where((own > 0) & (spread > _UNNORMALISED).any(dim, keepdim=True), spread, 0.0)
        limit = torch.maximum(limit, nan_to_inf((off + off.amax(dim, keepdim=True)).exp()))
    moved = torch.where(moved > 1, limit, moved)
    moved = torch.where(value == 0, torch.where(spread > _UNDERFLOWN, limit, 0.0), moved)
    units = 2 * ELEMENTARY + _roundings(value, dim, a.dtype)
    return _certain(a, value, moved + _flushed(value, a.dtype), units, value, _holds_nan(a, dim))


@_bounding
def log_softmax(a: ErrorNumber, dim: int) -> ErrorNumber:
    """Return its logarithm, as (a - max) - log(sum of exp(a - max)), or as a - logsumexp(a) with that rounded once."""
    if not a.value.numel():
        return type(a)(a.value, a.error, a.dtype)
    shares, spread, down, up = _shares(a, dim)
    value = a.value.log_softmax(dim)
    most = a.value.amax(dim, keepdim=True)
    rest = (a.value - most).exp().sum(dim, keepdim=True).log()
    moved = spread + torch.maximum(torch.where(down < 1, -(-down).log1p(), torch.inf), _grown(up, spread, dim))
    units = ELEMENTARY + _roundings(shares, dim, a.dtype) + _LOG2_APPROX
    own = units + ELEMENTARY * magnitude(rest) + magnitude(most + rest)
    return _certain(a, value, moved + unit_roundoff(a.dtype) * own, 2.0, magnitude(value), _holds_nan(a, dim))


@_bounding
def logsumexp(a: ErrorNumber, dim: int, step: float = 0.0) -> ErrorNumber:
    """Return log(sum(exp(a))) over a dimension, kept with size 1.

    Args:
        step: the unit roundoff of a dtype to which the difference, the exponentials, the sum and the logarithm are rounded.
    """
    if not a.value.numel():
        value = a.value.logsumexp(dim, keepdim=True)
        return type(a)(value, torch.zeros_like(value), a.dtype)
    a = a if a.most is None else _without(a, dim)
    shares, spread, down, up = _shares(a, dim, step)
    value = a.value.logsumexp(dim, keepdim=True)
    moved = torch.maximum(torch.where(down < 1, -(-down).log1p(), torch.inf), _grown(up, spread, dim))
    rest = magnitude(value - a.value.amax(dim, keepdim=True))
    units = ELEMENTARY + _roundings(shares, dim, a.dtype) + _LOG2_APPROX
    own = units + ELEMENTARY * rest
    if step:
        moved = moved - 2 * math.log1p(-step)  # of the exponentials and of the sum
        moved = moved + step * (rest + moved)
    finite, sure = value.isfinite(), None
    if not bool(finite.all()):  # -infinity is sure of a row that is; infinity is not: exp(inf - inf) is NaN
        doubt = (a.error > 0) | (value > 0)
        sure = value.isinf() & ~doubt.any(dim, keepdim=True)
    infinite = (a.error > 0).any() | (value == torch.inf)
    error = type(a)(value, torch.where(finite, moved, infinite.double()), a.dtype)
    return _certain(error, value, moved + unit_roundoff(a.dtype) * own, 2.0, magnitude(value), _holds_nan(a, dim), sure)


def _shares(a: ErrorNumber, dim: int, step: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return softmax(a), the error of each argument of exp, and how far the sum of the shares moves down and up.

    step: a further rounding of a - max.
    One argument that may be infinite or NaN may make the whole row NaN, also where its own share is 0.
    """
    value = a.value.softmax(dim)
    distance = magnitude(a.value - a.value.amax(dim, keepdim=True))
    spread = a.error + (3 * unit_roundoff(a.dtype) + step) * distance  # the subtraction, and 2u inside of exp
    spread = torch.where(a.error.isinf().any(dim, keepdim=True), torch.inf, spread)
    down = (value * -(-spread).expm1()).nan_to_num(nan=0.0).sum(dim, keepdim=True)
    up = (value * spread.expm1()).nan_to_num(nan=0.0)
    up = torch.where((value == 0) & (spread > _UNDERFLOWN), torch.inf, up).sum(dim, keepdim=True)
    return value, spread, down, up


def _grown(up: Tensor, spread: Tensor, dim: int) -> Tensor:
    """Return how far the logarithm of a sum of exponentials grows: no further than the argument that moves most."""
    return torch.where(up.isinf(), spread.amax(dim, keepdim=True), up.log1p())


def _roundings(terms: Tensor, dim: int, dtype: torch.dtype) -> Tensor | float:
    """Return the roundings of a sum of positive terms, in units of the sum."""
    if terms.dim() == 0:
        return 1.0
    units = repeated_terms.of_sum(terms, dim, dtype)
    return units.unsqueeze(dim) if isinstance(units, Tensor) else units


def _holds_nan(a: ErrorNumber, dim: int) -> Tensor:
    """Return where a has a NaN for certain along a dimension, which makes NaN of all that depends on the row."""
    return (a.value.isnan() & (a.error == 0)).any(dim, keepdim=True)


def _certain(
    a: ErrorNumber,
    value: Tensor,
    moved: Tensor,
    units: float | Tensor,
    size: Tensor,
    nan: Tensor,
    sure: Tensor | None = None,
) -> ErrorNumber:
    """Return a result whose class is certain where it is finite, must be NaN, is `sure`, or if nothing is in doubt."""
    doubt = bool((a.error > 0).any())
    certain = nan & value.isnan() if sure is None else nan & value.isnan() | sure
    other = torch.where(certain, 0.0, torch.inf if doubt else 0.0)
    moved = torch.where(value.isfinite(), nan_to_inf(moved), other)
    return a._rounded(value, moved, a.dtype, units=units, size=magnitude(size), finite=False)


@_changing
def cumulative(a: ErrorNumber, dim: int) -> ErrorNumber:
    """Return the running sums along a dimension."""
    length = a.value.shape[dim] if a.value.dim() else 1
    return a._rounded(
        a.value.cumsum(dim),
        nan_to_inf(a.error.cumsum(dim)),
        a.dtype,
        units=min(float(length), LAMBDA * math.sqrt(length)),
        size=magnitude(a.value).cumsum(dim),
        finite=a.finite,
    )


def plus(a: Any, b: Any) -> ErrorNumber:
    """Return a + b. Where one of them is a sum itself, its terms may be added to the other, one after the other.

    Its partial sums are then rounded at the magnitude of the other, too. Steps of a recurrence may be taken in any order.
    """
    total: ErrorNumber = a + b
    if total.quantum or not total.reorders:
        return total
    scaled = isinstance(a, ErrorNumber) and a.scaled
    if scaled and isinstance(b, ErrorNumber) and b.scaled and interpolates(scaled, b.scaled):
        total = _interpolated(total, scaled, b.scaled)
    shape = total.shape
    if sums := [(one.partial, other) for one, other in ((a, b), (b, a)) if isinstance(one, ErrorNumber) and one.partial]:
        for count, other in sums:
            size = magnitude(other.value) + other.error if isinstance(other, ErrorNumber) else abs(other)
            total = total.accumulated(count(), size)
        total.partial = Later(lambda *counts: sum(counts).expand(shape), *[count for count, _ in sums])
    if total.elementary and isinstance(a, ErrorNumber) and isinstance(b, ErrorNumber):
        total = _in_any_order(total, recurrence.of_sum(a, b))
    return total


def interpolates(one: Scaled, other: Scaled) -> bool:
    """Return whether two products with scalars are t a and (1 - t) b."""
    return abs(one[1] + other[1] - 1) <= _SHARES


def _interpolated(total: ErrorNumber, one: Scaled, other: Scaled) -> ErrorNumber:
    """Return t a + (1 - t) b, which may be computed as b + t (a - b), with roundings at the magnitude of t (a - b)."""
    (a, t), (b, rest) = one, other
    apart = (a.value - b.value).abs() + a.error + b.error
    moved = 3 * unit_roundoff(total.dtype) * max(abs(t), abs(rest)) * apart
    moved = torch.where(apart > ceiling(total.dtype), torch.inf, moved)  # inf - inf, as soon as one of both is infinite
    return total.lost(torch.where(a.value.isnan() | b.value.isnan(), 0.0, nan_to_inf(moved)))


def _in_any_order(total: ErrorNumber, state: recurrence.State | None) -> ErrorNumber:
    """Return a sum whose terms may be multiplied by products of factors, and added in another order, if it has a step."""
    if state is None or not state.repeats or state.terms is None:
        total.state = state
        return total
    terms, dtype, count = state.terms(), total.dtype, total.partial
    needed = recurrence.rounded(terms)
    lost = terms.number * terms.unscaled * scalar(half_subnormal(dtype) / unit_roundoff(dtype))
    if not total.finite:
        lost = torch.where(total.value.isinf() & (terms.least <= half_subnormal(dtype)), torch.inf, lost)
    if terms.most.numel() and float(terms.most.max()) > ceiling(dtype):
        lost = torch.where(terms.most > ceiling(dtype), torch.inf, lost)
    total = total.accumulated((needed - state.allowed).relu_() + lost, 1.0)
    total.partial, total.state = count, state._replace(allowed=torch.maximum(needed, state.allowed))
    return total


def times(a: Any, b: Any) -> ErrorNumber:
    """Return a * b, which may be a step of a recurrence. An infinity may multiply the terms of a sum one by one."""
    product: ErrorNumber = a * b
    both = isinstance(a, ErrorNumber) and isinstance(b, ErrorNumber)
    if both and product.elementary and not product.finite:
        for one, total in ((a, b), (b, a)):
            if is_sum(total) and bool((infinite := one.value.isinf()).any()):
                product = product.lost(torch.where(infinite & splits(total), torch.inf, 0.0))
    if both and product.elementary and product.reorders and not product.quantum:
        product.state = recurrence.of_product(a, b)
    return product


def is_sum(number: ErrorNumber) -> bool:
    """Return whether it is known to be a sum or a matrix product."""
    return number.addends is not None or number.distributed is not None


def splits(total: ErrorNumber) -> Tensor:
    """Return where infinity times a sum may be NaN if its terms are multiplied one by one.

    It is where a term is 0, or of another sign than another one. Of a matrix product it may be everywhere.
    """
    if total.addends is None:
        return torch.ones_like(total.value, dtype=torch.bool)
    up, down, number, *_ = total.addends()  # of the finite terms
    up, down = (up > 0) | (total.value == torch.inf), (down < 0) | (total.value == -torch.inf)
    return (number < 2) | up & down


@_changing
def gathered_sum(
    a: ErrorNumber, add: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor] | None = None
) -> ErrorNumber:
    """Return sums of elements of a, where `add` adds each element to the one that it belongs to, and `read` reads that."""
    count = add(torch.ones_like(a.value))
    units = repeated_terms.of_gathered(a.value, count, read if a.reorders else None, a.dtype)
    total: ErrorNumber = a._rounded(
        add(a.value), nan_to_inf(add(a.error)), a.dtype, units=units, size=add(magnitude(a.value)), finite=a.finite
    )
    total.partial = partial(lambda: count)
    return total
