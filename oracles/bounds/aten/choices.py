"""Comparisons, choices by them, and maxima."""

from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds import elementary, made_nan, most
from mhc.oracles.bounds.aten.order import extreme
from mhc.oracles.bounds.aten.registry import alike, aten, integers, narrowed, promoted, promoted_dtype, rule, scalar
from mhc.oracles.bounds.aten.sums import reduced
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.rounding import ELEMENTARY, magnitude, unit_roundoff

_ORDERED = {aten.lt, aten.gt, aten.le, aten.ge}


def _compared(func: Any, a: Any, b: Any) -> Any:
    masks = [one for one in (a, b) if isinstance(one, Mask)]
    if any(one.dtype == torch.bool for one in masks):
        raise elementary.NoRule("a comparison of comparisons that rounding may decide")
    first, second = (one.value if isinstance(one, (ErrorNumber, Mask)) else one for one in (a, b))
    value = func(first, second)
    error = sum((one.error for one in (a, b) if isinstance(one, (ErrorNumber, Mask))), torch.zeros((), dtype=torch.float64))
    if masks:  # the difference of two integers of 8 bits may not be one
        first, second = (one.double() if isinstance(one, Tensor) else one for one in (first, second))
    if a is b:  # only NaN differs from itself
        error = torch.where(error.isinf(), torch.inf, 0.0)
    ordered = getattr(func, "overloadpacket", func) in _ORDERED
    open_nan = made_nan.without_order(first, second) if ordered else None
    if not bool((error > 0).any()):
        return value if open_nan is None else Mask(value, open_nan)
    unsure = ((first - second).abs() <= error) | error.isinf()
    unsure &= (error > 0).expand(unsure.shape)
    if isinstance(a, ErrorNumber) and isinstance(b, ErrorNumber) and not (a.most is None and b.most is None):
        unsure &= ~(most.below(a, b) | most.below(b, a))
    unsure = unsure if open_nan is None else unsure | open_nan
    return Mask(value, unsure) if bool(unsure.any()) else value


rule(aten.eq, aten.ne, aten.lt, aten.gt, aten.le, aten.ge)(_compared)


@rule(aten.logical_not, aten.bitwise_not)
def _not(func: Any, a: Any) -> Any:
    if not isinstance(a, Mask):
        return a.value == 0
    value = func(a.value)
    return Mask(value, a.unsure, value.dtype)


@rule(aten.logical_and, aten.logical_or, aten.bitwise_and, aten.bitwise_or)
def logical(func: Any, a: Any, b: Any) -> Mask:
    """Return two masks put together: unsure where one of them is."""
    value = func(*(one.value if isinstance(one, Mask) else one for one in (a, b)))
    none = torch.zeros_like(value, dtype=torch.bool)
    for one in (a, b):
        none = none | one.unsure if isinstance(one, Mask) else none
    return Mask(value, none, value.dtype)


@rule(aten.isnan, aten.isinf, aten.isfinite)
def _class(func: Any, a: ErrorNumber) -> Any:
    value = func(a.value)
    return Mask(value, a.error.isinf()) if bool(a.error.isinf().any()) else value


@rule(aten.any, aten.all)
def _any(func: Any, a: Any, *rest: Any, **named: Any) -> Any:
    value, unsure = func(a.value, *rest, **named), aten.any(a.unsure, *rest, **named)
    return Mask(value, unsure)


@rule(aten.where)
def _where(func: Any, condition: Any, a: Any, b: Any) -> ErrorNumber | Mask:
    return _chosen_integers(condition, a, b) if integers(a, b) else _chosen(condition, a, b)


def _chosen(condition: Any, a: Any, b: Any) -> ErrorNumber:
    numbers = [one for one in (a, b) if isinstance(one, ErrorNumber)]
    kind = type(numbers[0]) if numbers else ErrorNumber
    marker = kind.exact(torch.zeros((), dtype=torch.float64), promoted_dtype((a, b)))
    (_, *operands), _ = alike(marker, a, b)
    first, second = (
        one if isinstance(one, ErrorNumber) else marker._coerce(one)  # a constant that the dtype does not hold is rounded
        for one in operands
    )
    value, unsure = (condition.value, condition.unsure) if isinstance(condition, Mask) else (condition, None)
    return elementary.chosen(first, second, value, unsure)


def _chosen_integers(condition: Any, a: Any, b: Any) -> Mask:
    """Return a choice of integers or booleans, unsure where the choice is and they differ, or where what is chosen is."""
    values, error = zip(
        *(
            (one.value, one.error) if isinstance(one, Mask) else (one, torch.zeros((), dtype=torch.float64))
            for one in (condition, a, b)
        ),
        strict=True,
    )
    value, off = torch.where(*values), torch.where(values[0], error[1], error[2])
    if isinstance(condition, Mask):
        first, second = (torch.as_tensor(one).double() for one in values[1:])
        off = torch.where(condition.unsure, (first - second).abs() + torch.maximum(error[1], error[2]), off)
    if value.dtype == torch.bool:
        return Mask(value, (off > 0).expand(value.shape))
    found = Mask.of_integers(value, off)
    return found if isinstance(found, Mask) else Mask(value, torch.zeros_like(value, dtype=torch.bool), value.dtype)


@rule(aten.masked_fill)
def _masked_fill(func: Any, a: Any, mask: Any, value: Any) -> ErrorNumber | Mask:
    return _where(func, mask, scalar(value), a)


@rule(aten.threshold_backward)
def _threshold(func: Any, gradient: ErrorNumber, a: Any, threshold: float) -> ErrorNumber:
    return _chosen(_compared(aten.gt, a, threshold), gradient, 0.0)


@rule(aten.elu_backward)
def _elu_backward(
    func: Any, gradient: Any, alpha: float, scale: float, input_scale: float, is_result: bool, a: Any
) -> ErrorNumber:
    """Return dy c exp(s a) for a <= 0, or as (y + c) s of the result y, which rounds at the size of c = alpha * scale."""
    if is_result:
        raise elementary.NoRule("the gradient of an elu from its result")
    (dy, b), dtype = promoted(gradient, a)
    slope = elementary.exp(b if input_scale == 1 else b * input_scale) * (alpha * scale * input_scale)
    own = (ELEMENTARY + 3) * unit_roundoff(dy.dtype) * abs(alpha * scale * input_scale)
    below = (dy * slope).lost(own * (magnitude(dy.value) + dy.error))
    above = dy if scale == 1 else dy * scale
    return narrowed(_chosen(_compared(aten.le, b, 0.0), below, above), dtype)


@rule(aten.hardswish_backward)
def _hardswish_backward(func: Any, gradient: Any, a: Any) -> ErrorNumber:
    """Return dy (a / 3 + 1/2) between -3 and 3, or as dy (relu6(a + 3) + a) / 6, whose sums are up to 6 and up to 9."""
    (dy, b), dtype = promoted(gradient, a)
    own = (6 + 9) / 6 * unit_roundoff(dy.dtype)
    between = (dy * (b / 3 + 0.5)).lost(own * (magnitude(dy.value) + dy.error))
    inner = _chosen(_compared(aten.lt, b, 3.0), between, dy)
    return narrowed(_chosen(_compared(aten.le, b, -3.0), 0.0, inner), dtype)


@rule(aten.softshrink_backward, aten.hardshrink_backward)
def _shrunk(func: Any, gradient: ErrorNumber, a: ErrorNumber, threshold: float) -> ErrorNumber:
    return _chosen(_compared(aten.le, elementary.absolute(a), threshold), 0.0, gradient)


@rule(aten.amax)
def _amax(func: Any, a: ErrorNumber, dim: Any = (), keepdim: bool = False) -> Any:
    return reduced(a, dim, keepdim, elementary.largest)


@rule(aten.amin)
def _amin(func: Any, a: ErrorNumber, dim: Any = (), keepdim: bool = False) -> Any:
    return -reduced(-a, dim, keepdim, elementary.largest)


@rule(aten.max)
def _max(func: Any, a: ErrorNumber, *rest: Any) -> Any:
    if not rest:
        return reduced(a, None, False, elementary.largest)
    if isinstance(rest[0], ErrorNumber):
        return elementary.larger(a, rest[0])
    dim, keepdim = rest[0], len(rest) > 1 and rest[1]
    return reduced(a, dim, keepdim, elementary.largest), extreme(a, dim, keepdim)


@rule(aten.min)
def _min(func: Any, a: ErrorNumber, *rest: Any) -> Any:
    if rest and isinstance(rest[0], ErrorNumber):
        return elementary.larger(a, rest[0], torch.minimum)
    found = _max(func, -a, *rest)
    return (-found[0], found[1]) if isinstance(found, tuple) else -found
