"""Operations that move elements and round nothing, and tensors that are made new."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds.aten.order import certain
from mhc.oracles.bounds.aten.registry import alike, aten, integers, narrowed, of_scalars, rule, wide
from mhc.oracles.bounds.elementary import NoRule
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask


def _move(func: Any, a: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(a, Tensor):
        return func(a, *args, **kwargs)
    parts = func(a.value, *args, **kwargs)
    if isinstance(parts, Tensor):
        return a.mapped(lambda tensor: func(tensor, *args, **kwargs))
    return [a.mapped(lambda tensor, at=at: func(tensor, *args, **kwargs)[at]) for at in range(len(parts))]


rule(
    *(aten.expand, aten.permute, aten.transpose, aten.t, aten.unsqueeze, aten.squeeze, aten.slice, aten.select),
    *(aten.clone, aten.detach, aten.alias, aten.split, aten.split_with_sizes, aten.unbind, aten.lift_fresh, aten.flip),
    *(aten.tril, aten.triu, aten.roll, aten.repeat, aten.diagonal, aten.constant_pad_nd, aten.diag_embed, aten.chunk),
    aten.unfold,
)(_move)


@rule(aten.select_backward, aten.slice_backward)
def _among_zeros(func: Any, a: Any, sizes: Sequence[int], *place: int) -> Any:
    """Return the gradient of a whole tensor: 0 but for a part of it."""
    whole = _move(func, a, sizes, *place)
    if isinstance(whole, ErrorNumber):
        part = aten.select.int if func is aten.select_backward.default else aten.slice.Tensor
        whole.among_zeros = a, lambda tensor: part(tensor, *place)
    return whole


@rule(aten.as_strided)
def _as_strided(func: Any, a: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    """Return elements by their places in memory: each part of a number is laid out as its value is."""
    layout = a.value.stride()
    few = [1 if step == 0 else length for length, step in zip(a.value.shape, layout, strict=True)]

    def moved(tensor: Tensor) -> Tensor:
        laid = torch.empty_strided(few, layout, dtype=tensor.dtype, device=tensor.device)
        laid.copy_(tensor.expand(a.value.shape)[tuple(slice(length) for length in few)])
        result: Tensor = func(laid, size, stride, offset or 0)
        return result

    return a.mapped(moved)


@rule(aten.view, aten._unsafe_view, aten.reshape)
def _view(func: Any, a: Any, size: Any) -> Any:
    if func is aten.view.dtype:
        if isinstance(a, Mask) or bool((a.error > 0).any()):
            raise NoRule("the bits of numbers that have an error as another dtype")
        return func(a.value.to(a.dtype), size)
    return a.mapped(lambda tensor: tensor.reshape(size))


def _join(func: Any, parts: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    if integers(*parts):
        return _put_together(lambda tensors: func(tensors, *args, **kwargs), parts)
    operands, _ = alike(*parts)
    return type(operands[0]).joined(operands, lambda tensors: func(tensors, *args, **kwargs))


def _put_together(join: Callable[[list[Tensor]], Tensor], parts: Sequence[Any]) -> Mask:
    """Return booleans or integers put together by `join`; they are unsure where what is put there is."""
    masks = [one if isinstance(one, Mask) else Mask(one, torch.zeros_like(one, dtype=torch.bool)) for one in parts]
    value, error = join([one.value for one in masks]), join([one.error for one in masks])
    return Mask(value, error > 0, value.dtype, None if value.dtype == torch.bool else error)


rule(aten.cat, aten.stack)(_join)


@rule(aten.scatter)
def _scatter(func: Any, a: Any, dim: int, index: Any, source: Any) -> Any:
    """Return a with elements written where indices say; where one of a row is unsure, nothing is promised of the row."""
    rows, at = None, index
    if isinstance(index, Mask):
        at, rows = index.value, index.unsure.any(dim, keepdim=True)
        axis, rank = dim % len(a.shape), len(a.shape)
        fits = all(rows.shape[one] == a.shape[one] for one in range(rank) if one != axis)
        rows = rows.expand(a.shape) if fits else rows.any()
    if integers(a, source):
        plain = source if isinstance(source, (Mask, Tensor)) else torch.full_like(at, source, dtype=a.dtype)
        found = _put_together(lambda parts: func.overloadpacket(parts[0], dim, at, parts[1]), [a, plain])
        return found if rows is None else Mask(found.value, found.unsure | rows, found.dtype)
    (a, source), _ = alike(a, source)
    number = isinstance(source, ErrorNumber)
    value = func(a.value, dim, at, source.value if number else source)
    error = func(a.error, dim, at, source.error if number else 0.0)
    whole = type(a)(value, error, a.dtype)
    return whole if rows is None else certain(whole, rows)


@rule(aten.slice_scatter, aten.select_scatter, aten.diagonal_scatter)
def _part_replaced(func: Any, a: Any, source: Any, *args: Any, **kwargs: Any) -> ErrorNumber:
    (a, source), _ = alike(a, source)
    whole: ErrorNumber = type(a).joined([a, source], lambda tensors: func(*tensors, *args, **kwargs))
    return whole


@rule(aten.masked_scatter)
def _masked_scatter(func: Any, a: Any, mask: Any, source: Any) -> ErrorNumber:
    if isinstance(mask, Mask):
        raise NoRule("places that rounding may choose otherwise")
    (a, source), _ = alike(a, source)
    whole: ErrorNumber = type(a).joined([a, source], lambda tensors: func(tensors[0], mask, tensors[1]))
    return whole


@rule(aten.masked_select)
def _masked_select(func: Any, a: Any, mask: Any) -> Any:
    if isinstance(mask, Mask):
        raise NoRule("places that rounding may choose otherwise")
    return a.mapped(lambda tensor: func(tensor, mask))


_EMPTY = {aten.empty_like, aten.new_empty, aten.new_empty_strided}


@rule(
    *(aten.full_like, aten.ones_like, aten.zeros_like, aten.empty_like),
    *(aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty, aten.new_empty_strided, aten.scalar_tensor),
)
def _created(func: Any, a: Any, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    kept = {name: value for name, value in kwargs.items() if name in {"device"}}
    if isinstance(a, Mask):  # a mask too: what is chosen by it may be written there
        value = func(a.value, *args, dtype=dtype, **kept)
        return value if value.is_floating_point() else Mask(value, torch.zeros_like(value, dtype=torch.bool), value.dtype)
    dtype = dtype or a.dtype
    if not dtype.is_floating_point:
        return func(a.value, *args, dtype=dtype, **kept)
    value = func(a.value, *args, dtype=torch.float64, **kept)
    return of_scalars(type(a).exact(value.zero_() if func.overloadpacket in _EMPTY else value, dtype), args)


@rule(aten.copy)
def _copy(func: Any, a: Any, source: Any, non_blocking: bool = False) -> ErrorNumber:
    (_, source), _ = alike(a, source)
    if not isinstance(source, ErrorNumber):
        source = type(a).exact(torch.tensor(float(source), dtype=torch.float64), wide(a.dtype))
    return narrowed(source, a.dtype).mapped(lambda tensor: tensor.expand(a.shape).clone())


@rule(aten.fill, aten.zero)
def _fill(func: Any, a: ErrorNumber, value: float = 0.0) -> ErrorNumber:
    return of_scalars(type(a).exact(torch.full_like(a.value, value), a.dtype), (value,))
