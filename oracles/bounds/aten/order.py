"""Operations that order elements: sorting, the largest k, the median, and the indices that they return.

The k-th largest element grows with each element. So it lies between that of a - e and that of a + e: its error is the larger
distance to them. An index is a `Mask` of integers: unsure where errors let another element take the place, and for sorting
where elements are equal, since only a stable sort says which comes first.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds.aten.registry import aten, rule
from mhc.oracles.bounds.elementary import NoRule
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.rounding import nan_to_inf


def _between(a: ErrorNumber, chosen: Callable[[Tensor], Tensor], dim: int) -> ErrorNumber:
    """Return order statistics of a along a dimension, where `chosen` gives those of a plain tensor."""
    if not (a.elementary or a.constant):
        raise NoRule(f"an order of the elements of a {type(a).__name__}")
    value = chosen(a.value)
    if a.errorless or not bool((a.error > 0).any()):
        return type(a)(value, torch.zeros_like(value), a.dtype, finite=a.finite, errorless=True)
    ends = [chosen(end) for end in (a.value - a.error, a.value + a.error)]
    moved = [torch.where((end == value) | (end.isnan() & value.isnan()), 0.0, (end - value).abs()) for end in ends]
    error = nan_to_inf(torch.maximum(*moved))
    beyond = a.error.isinf().any(dim, keepdim=True) if a.value.dim() else a.error.isinf()  # which may be NaN
    beyond = beyond.expand(error.shape) if error.dim() == a.value.dim() else beyond.squeeze(dim)
    return type(a)(value, torch.where(beyond, torch.inf, error), a.dtype)


def _ranked(a: ErrorNumber, dim: int, *, descending: bool, stable: bool) -> tuple[Tensor, Tensor]:
    """Return the indices that sort a, and where they are unsure."""
    if a.value.dim() == 0:
        return torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.bool)
    _, index = torch.sort(a.value, stable=True, dim=dim, descending=descending)
    sign = -1.0 if descending else 1.0
    ordered = a.value.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)  # NaN counts as larger than all others
    value, error = (sign * ordered).gather(dim, index), a.error.gather(dim, index)
    if value.shape[dim] < 2:
        return index, torch.zeros_like(index, dtype=torch.bool)
    low, high = value - error, value + error
    most_before = high.cummax(dim).values.narrow(dim, 0, value.shape[dim] - 1)
    least_after = low.flip(dim).cummin(dim).values.flip(dim).narrow(dim, 1, value.shape[dim] - 1)
    meets = least_after <= most_before
    if stable:  # equal elements keep their order where they have no error
        either = error.narrow(dim, 1, value.shape[dim] - 1) + error.narrow(dim, 0, value.shape[dim] - 1)
        meets &= (least_after < most_before) | (either > 0)
    meets |= error.isinf().any(dim, keepdim=True)
    none = torch.zeros_like(meets.narrow(dim, 0, 1))
    return index, torch.cat((none, meets), dim) | torch.cat((meets, none), dim)


def indices(value: Tensor, unsure: Tensor) -> Any:
    """Return indices, as a mask of integers where some are unsure."""
    return Mask(value, unsure, torch.int64) if bool(unsure.any()) else value


@rule(aten.sort)
def _sort(func: Any, a: ErrorNumber, dim: int = -1, descending: bool = False, *, stable: Any = None) -> Any:
    index, unsure = _ranked(a, dim, descending=descending, stable=bool(stable))
    return _between(a, lambda one: one.sort(dim=dim, descending=descending).values, dim), indices(index, unsure)


@rule(aten.topk)
def _topk(func: Any, a: ErrorNumber, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    index, unsure = _ranked(a, dim, descending=largest, stable=False)
    first = [one.narrow(dim, 0, k) if one.dim() else one for one in (index, unsure)]
    return _between(a, lambda one: one.topk(k, dim, largest).values, dim), indices(*first)


def _kth(a: ErrorNumber, k: int, dim: int, keepdim: bool) -> Any:
    index, unsure = (one.narrow(dim, k, 1) if one.dim() else one for one in _ranked(a, dim, descending=False, stable=False))
    if not keepdim and a.value.dim():
        index, unsure = index.squeeze(dim), unsure.squeeze(dim)
    return _between(a, lambda one: one.kthvalue(k + 1, dim, keepdim).values, dim), indices(index, unsure)


@rule(aten.kthvalue)
def _kthvalue(func: Any, a: ErrorNumber, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _kth(a, k - 1, dim, keepdim)


@rule(aten.median)
def _median(func: Any, a: ErrorNumber, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the median, of an even number of elements the lower one; NaN where an element is."""
    if dim is None and not a.value.numel():
        value = func(a.value)
        return type(a)(value, torch.zeros_like(value), a.dtype)
    flat = a if dim is not None else a.mapped(lambda tensor: tensor.reshape(-1))
    at = -1 if dim is None else dim
    value, index = _kth(flat, (flat.value.shape[at] - 1) // 2 if flat.value.dim() else 0, at, keepdim)
    if bool(a.value.isnan().any()):
        none = a.value.isnan().any(at, keepdim=keepdim) if dim is not None else a.value.isnan().any()
        value = type(a)(torch.where(none, torch.nan, value.value), value.error, a.dtype)
    return value if dim is None else (value, index)


@rule(aten.frexp)
def _frexp(func: Any, a: ErrorNumber) -> Any:
    """Return the mantissa, in [1/2, 1), and the exponent: unsure where the error reaches a power of two."""
    mantissa, exponent = func(a.value)
    if a.errorless:
        return type(a)(mantissa, torch.zeros_like(mantissa), a.dtype), exponent
    ends = [func(end)[1] for end in (a.value - a.error, a.value + a.error)]
    unsure = (ends[0] != ends[1]) | (a.error >= a.value.abs()) & (a.error > 0)
    error = torch.where(unsure, torch.inf, torch.ldexp(a.error, -exponent))
    return type(a)(mantissa, error, a.dtype), Mask(exponent, unsure, exponent.dtype) if bool(unsure.any()) else exponent


@rule(aten.argmax)
def _argmax(func: Any, a: ErrorNumber, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the index of the first of the largest elements."""
    return extreme(a, dim, keepdim)


@rule(aten.argmin)
def _argmin(func: Any, a: ErrorNumber, dim: int | None = None, keepdim: bool = False) -> Any:
    return extreme(-a, dim, keepdim)


@rule(aten.cummax, aten.cummin)
def _running(func: Any, a: ErrorNumber, dim: int) -> Any:
    """Return the largest elements so far and their indices, which are unsure from the first element with an error on."""
    index = func(a.value, dim)[1]
    erring = (a.error > 0).to(torch.uint8).cummax(dim).values.bool() if a.value.dim() else a.error > 0
    return _between(a, lambda one: func(one, dim)[0], dim), indices(index, erring)


@rule(aten.searchsorted)
def _searchsorted(func: Any, places: Any, a: Any, **named: Any) -> Any:
    """Return how many of the sorted places are below a: unsure where the error of a reaches one."""
    if isinstance(places, ErrorNumber):
        if bool((places.error > 0).any()):
            raise NoRule("places that have an error")
        places = places.value
    if not isinstance(a, ErrorNumber):
        return func(places, a, **named)
    value, *ends = (func(places.double(), one, **named) for one in (a.value, a.value - a.error, a.value + a.error))
    return indices(value, ends[0] != ends[1])


@rule(aten.bucketize)
def _bucketize(func: Any, a: Any, places: Any, **named: Any) -> Any:
    return _searchsorted(aten.searchsorted.Tensor, places, a, **named)


def extreme(a: ErrorNumber, dim: int | None, keepdim: bool) -> Any:
    """Return the index of the first of the largest elements: unsure where an error lets another one be the largest."""
    index = a.value.argmax(dim, keepdim)
    if a.errorless or not bool((a.error > 0).any()):
        return index
    value, error = (one.reshape(-1) if dim is None else one for one in (a.value, a.error))
    at = -1 if dim is None else dim
    first = value.argmax(at, keepdim=True)
    best, spread = value.gather(at, first), error.gather(at, first)
    reaches = (value + error >= best - spread) & (error + spread > 0)
    reaches = reaches.scatter(at, first, False) | error.isinf()
    return indices(index, reaches.any(at).reshape(index.shape))


def certain(number: ErrorNumber, unsure: Tensor) -> ErrorNumber:
    """Return a number of which nothing is promised where an index was unsure."""
    return type(number)(number.value, torch.where(unsure, torch.inf, number.error), number.dtype)


@rule(aten.gather)
def _gather(func: Any, a: Any, dim: int, index: Any, **named: Any) -> Any:
    plain = index.value if isinstance(index, Mask) else index
    if isinstance(a, Tensor):
        found = func(a, dim, plain, **named)
        if not isinstance(index, Mask):
            return found
        return indices(found, index.unsure) if not found.is_floating_point() else _plain(found, index.unsure)
    found = a.mapped(lambda tensor: func(tensor, dim, plain, **named))
    if not isinstance(index, Mask):
        return found
    if isinstance(found, Mask):
        return Mask(found.value, found.unsure | index.unsure, found.dtype)
    return certain(found, index.unsure)


def _plain(value: Tensor, unsure: Tensor) -> ErrorNumber:
    error = torch.where(unsure, torch.inf, 0.0).double()
    return ErrorNumber(value.double(), error, value.dtype)


@rule(aten.index, aten._unsafe_index, aten.embedding, aten.index_select)
def _index(func: Any, a: Any, *args: Any) -> Any:
    """Return chosen rows: nothing is promised of those whose index is unsure."""
    found = [one for one in (args[0] if isinstance(args[0], list) else args) if isinstance(one, Mask)]
    if not found:
        return func(a, *args) if isinstance(a, Tensor) else a.mapped(lambda tensor: func(tensor, *args))
    several = isinstance(args[0], list)
    given = [one for one in args[0] if one is not None] if several else found
    if len(found) != 1 or len(given) != 1 or not isinstance(a, (Tensor, ErrorNumber)) or found[0].dtype == torch.bool:
        raise NoRule("elements that rounding may choose otherwise")
    mask = found[0]
    plain = [one.value if one is mask else one for one in (args[0] if several else args)]
    call = [plain] if several else plain
    at = args[0].index(mask) if several else args[0] if func.overloadpacket is aten.index_select else 0
    unsure = mask.unsure.reshape(*mask.unsure.shape, *(1 for _ in range(len(a.shape) - 1 - at % len(a.shape))))
    if isinstance(a, Tensor):
        value = func(a, *call)
        if not value.is_floating_point():
            return Mask(value, unsure.expand(value.shape), value.dtype)
        return _plain(value, unsure.expand(value.shape))
    number = a.mapped(lambda tensor: func(tensor, *call))
    return certain(number, unsure.expand(number.shape))
