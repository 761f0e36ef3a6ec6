"""Operations that move elements and round nothing, and tensors that are made new."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oracles.bounds.aten.registry import aten, narrowed, promoted, rule, wide
from oracles.bounds.elementary import NoRule
from oracles.bounds.error_number import ErrorNumber
from oracles.bounds.mask import Mask


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
    *(aten.gather, aten.index_select, aten.index, aten._unsafe_index, aten.tril, aten.triu, aten.roll, aten.repeat),
    *(aten.diagonal, aten.slice_backward, aten.select_backward, aten.unfold, aten.embedding, aten.as_strided),
    *(aten.constant_pad_nd, aten.diag_embed, aten.chunk),
)(_move)


@rule(aten.view, aten._unsafe_view, aten.reshape)
def _view(func: Any, a: Any, size: Any) -> Any:
    if func is aten.view.dtype:
        raise NoRule("the bits of numbers as another dtype")
    return a.mapped(lambda tensor: tensor.reshape(size))


def _join(func: Any, parts: Sequence[Any], *args: Any, **kwargs: Any) -> ErrorNumber:
    operands, dtype = promoted(*parts)
    return narrowed(type(operands[0]).joined(operands, lambda tensors: func(tensors, *args, **kwargs)), dtype)


rule(aten.cat, aten.stack)(_join)


@rule(aten.scatter)
def _scatter(func: Any, a: ErrorNumber, dim: int, index: Tensor, source: Any) -> ErrorNumber:
    (a, source), dtype = promoted(a, source)
    number = isinstance(source, ErrorNumber)
    value = func(a.value, dim, index, source.value if number else source)
    error = func(a.error, dim, index, source.error if number else 0.0)
    return narrowed(type(a)(value, error, a.dtype), dtype)


@rule(aten.slice_scatter, aten.select_scatter)
def _slice_scatter(func: Any, a: Any, source: Any, *args: Any, **kwargs: Any) -> ErrorNumber:
    (a, source), dtype = promoted(a, source)
    value, error = (func(getattr(a, part), getattr(source, part), *args, **kwargs) for part in ("value", "error"))
    return narrowed(type(a)(value, error, a.dtype), dtype)


@rule(
    *(aten.full_like, aten.ones_like, aten.zeros_like, aten.empty_like),
    *(aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty, aten.scalar_tensor),
)
def _created(func: Any, a: Any, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    kept = {name: value for name, value in kwargs.items() if name in {"device"}}
    if isinstance(a, Mask):
        return func(a.value, *args, dtype=dtype, **kept)
    dtype = dtype or a.dtype
    if not dtype.is_floating_point:
        return func(a.value, *args, dtype=dtype, **kept)
    return type(a).exact(func(a.value, *args, dtype=torch.float64, **kept).contiguous(), dtype)


@rule(aten.copy)
def _copy(func: Any, a: Any, source: Any, non_blocking: bool = False) -> ErrorNumber:
    (_, source), _ = promoted(a, source)
    if not isinstance(source, ErrorNumber):
        source = type(a).exact(torch.tensor(float(source), dtype=torch.float64), wide(a.dtype))
    return narrowed(source, a.dtype).mapped(lambda tensor: tensor.expand(a.shape).clone())


@rule(aten.fill, aten.zero)
def _fill(func: Any, a: ErrorNumber, value: float = 0.0) -> ErrorNumber:
    return type(a).exact(torch.full_like(a.value, value), a.dtype)
