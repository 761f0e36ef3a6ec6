"""Sums, products of matrices, and what PyTorch composes of them: normalisations and softmax."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds import elementary, most
from mhc.oracles.bounds.aten.registry import aten, held, narrowed, promoted, promoted_dtype, rule, wide, widened
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.rounding import ELEMENTARY, LAMBDA, all_finite, nan_to_inf, unit_roundoff


def reduced(a: Any, dim: Any, keepdim: bool, reduce: Callable[[Any, int], Any]) -> Any:
    """Return a reduction over some dimensions, as one over a single dimension."""
    rank = a.value.dim()
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    dims = sorted({one % rank for one in dims}) if rank else []
    if len(dims) == 1 and rank:
        found = reduce(a, dims[0])
        return found.mapped(lambda tensor: tensor.unsqueeze(dims[0])) if keepdim else found
    kept = [one for one in range(rank) if one not in dims]

    def together(tensor: Tensor) -> Tensor:
        return tensor.permute(*kept, *dims).flatten(len(kept)) if rank else tensor.reshape(1)

    found = reduce(a.mapped(together), len(kept))
    if not keepdim:
        return found
    shape = [1 if one in dims else size for one, size in enumerate(a.value.shape)]
    return found.mapped(lambda tensor: tensor.reshape(shape))


def _count(value: Tensor, error: Tensor) -> Mask:
    """Return a sum of integers, which may be off by the sum of what its terms may be."""
    found = Mask.of_integers(value, error)
    return found if isinstance(found, Mask) else Mask(value, torch.zeros_like(value, dtype=torch.bool), value.dtype)


@rule(aten.sum)
def _sum(func: Any, a: Any, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    a = held(a, ErrorNumber, dtype) if isinstance(a, Mask) and dtype is not None and dtype.is_floating_point else a
    if isinstance(a, Mask):  # a count: unsure where one of its terms is
        return reduced(a, dim, keepdim, lambda one, at: _count(one.value.sum(at), one.error.sum(at)))
    dtype = dtype or a.dtype
    return narrowed(reduced(narrowed(a, wide(dtype)), dim, keepdim, lambda one, at: one.sum(at)), dtype)


@rule(aten.mean)
def _mean(func: Any, a: ErrorNumber, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
    dtype = dtype or a.dtype
    return narrowed(reduced(narrowed(a, wide(dtype)), dim, keepdim, lambda one, at: one.mean(at)), dtype)


@rule(aten.var)
def _var(
    func: Any,
    a: ErrorNumber,
    dim: Any = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> Any:
    if isinstance(dim, bool):  # var(a, unbiased)
        dim, unbiased = None, dim
    if unbiased is not None:
        correction = float(unbiased)
    one = widened(a)
    mean = reduced(one, dim, True, lambda number, at: number.mean(at))
    squares = (one - mean).square()
    total = reduced(squares, dim, keepdim, lambda number, at: number.sum(at))
    count = max(0.0, one.value.numel() / max(1, mean.value.numel()) - (1 if correction is None else correction))
    return narrowed(total / count, a.dtype)


@rule(aten.var_mean)
def _var_mean(func: Any, a: ErrorNumber, *args: Any, **kwargs: Any) -> Any:
    dim = args[0] if args and not isinstance(args[0], bool) else None
    keepdim = args[2] if len(args) > 2 else kwargs.get("keepdim", False)
    return _var(func, a, *args, **kwargs), _mean(func, a, dim, keepdim)


@rule(aten.native_layer_norm)
def _layer_norm(func: Any, a: ErrorNumber, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    one, dims = widened(a), list(range(len(a.shape) - len(shape), len(a.shape)))
    mean = reduced(one, dims, True, lambda number, at: number.mean(at))
    centred = one - mean
    rstd = (reduced(centred.square(), dims, True, lambda number, at: number.mean(at)) + eps).rsqrt()
    result = centred * rstd
    if weight is not None:
        result = result * widened(weight)
    if bias is not None:
        result = result + widened(bias)
    return narrowed(result, a.dtype), mean, rstd


@rule(aten.mm, aten.bmm, aten.matmul)
def _matmul(func: Any, a: Any, b: Any) -> ErrorNumber:
    (a, b), dtype = promoted(a, b)
    if len(a.shape) == 1 or len(b.shape) == 1:
        return narrowed(_vector_product(a, b, dtype), dtype)
    return narrowed(_matrix_product(a, b, dtype), dtype)


def _matrix_product(a: ErrorNumber, b: ErrorNumber, dtype: torch.dtype) -> ErrorNumber:
    """Return a @ b of factors that are held in `dtype`.

    A unit for bfloat16 may take a subnormal factor as 0, and a partial sum below the normal range too. A kernel may leave
    out terms with a factor of 0, such as those behind a mask: then 0 times what is not finite makes no NaN. An infinity may
    multiply the terms of a factor that is a sum one by one.
    """
    least = torch.finfo(dtype).smallest_normal
    skipped, product = _skipped(a, b), None
    if dtype == torch.bfloat16 and not _normal(_least(a), _least(b), least):
        terms = (a.value != 0).double() @ (b.value != 0).double()
        product = (_read(a, least) @ _read(b, least)).lost(terms * least)
    whole: ErrorNumber = a @ b if product is None else product
    return whole if skipped is None else whole.lost(skipped)


def _skipped(a: ErrorNumber, b: ErrorNumber) -> Tensor | None:
    """Return an infinite error where a term of a @ b has no certain class; None where all are finite.

    It is 0 times what is not finite, or infinity times a sum.
    """
    if all_finite(a.value) and all_finite(b.value):
        return None
    zero = (a.value == 0).double() @ (~b.value.isfinite()).double()
    terms = zero + (~a.value.isfinite()).double() @ (b.value == 0).double()
    if elementary.is_sum(b):
        terms = terms + a.value.isinf().double() @ elementary.splits(b).double()
    if elementary.is_sum(a):
        terms = terms + elementary.splits(a).double() @ b.value.isinf().double()
    return torch.where(terms > 0, torch.inf, 0.0)


def _read(number: ErrorNumber, least: float) -> ErrorNumber:
    """Return a factor as a unit reads it that takes what is below `least` as 0."""
    size = number.value.abs()
    return number.lost(torch.where(size - number.error < least, size + number.error, 0.0))


def _normal(a: float, b: float, least: float) -> bool:
    """Return whether factors of at least these magnitudes, and sums of their products, have no digit below `least`."""
    return min(a, b) >= least and a * b >= 2.0**24 * least


def _least(number: ErrorNumber) -> float:
    """Return the smallest magnitude that an element may have, of those that are not exactly 0."""
    size = number.value.abs()
    return float(torch.where(size + number.error > 0, size - number.error, torch.inf).min()) if size.numel() else torch.inf


def _vector_product(a: ErrorNumber, b: ErrorNumber, dtype: torch.dtype) -> ErrorNumber:
    """Return a @ b where one of them has a single dimension."""
    rows = a.unsqueeze(0) if len(a.shape) == 1 else a
    columns = b.unsqueeze(-1) if len(b.shape) == 1 else b
    product = _matrix_product(rows, columns, dtype)
    if len(b.shape) == 1:
        product = product[..., 0]
    return (
        product[..., 0] if len(a.shape) == 1 and len(b.shape) == 1 else product[..., 0, :] if len(a.shape) == 1 else product
    )


rule(aten.mv, aten.dot)(_matmul)


@rule(aten.addmv)
def _addmv(func: Any, c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> ErrorNumber:
    (c, a, b), dtype = promoted(c, a, b)
    return _added(c, _vector_product(a, b, dtype), beta, alpha, dtype)


@rule(aten.addmm, aten.baddbmm)
def _addmm(func: Any, c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> ErrorNumber:
    (c, a, b), dtype = promoted(c, a, b)
    return _added(c, _matrix_product(a, b, dtype), beta, alpha, dtype)


def _added(c: Any, product: ErrorNumber, beta: float, alpha: float, dtype: torch.dtype) -> ErrorNumber:
    """Return beta c + alpha product, without what is multiplied by 0 or 1."""
    product = product if alpha == 1 else product * alpha
    return narrowed(product if beta == 0 else elementary.plus(product, c if beta == 1 else c * beta), dtype)


@rule(aten.cumsum)
def _cumsum(func: Any, a: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    a = held(a, ErrorNumber, dtype) if isinstance(a, Mask) and dtype is not None and dtype.is_floating_point else a
    if isinstance(a, Mask):
        value = func(a.value, dim, dtype=dtype)
        return _count(value, a.error.cumsum(dim))
    dtype = dtype or a.dtype
    return narrowed(elementary.cumulative(narrowed(a, wide(dtype)), dim), dtype)


@rule(aten.prod)
def _prod(func: Any, a: ErrorNumber, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> ErrorNumber:
    number = narrowed(a, dtype or a.dtype)  # in a narrow dtype PyTorch rounds each step to it
    if dim is None:
        number, dim, keepdim = number.mapped(lambda tensor: tensor.reshape(-1)), 0, False
    length = number.shape[dim] if number.shape else 1
    return elementary.product(number, lambda tensor: tensor.prod(dim, keepdim), max(1, length))


@rule(aten.cumprod)
def _cumprod(func: Any, a: ErrorNumber, dim: int, *, dtype: Any = None) -> ErrorNumber:
    dtype = dtype or a.dtype
    length = a.shape[dim] if a.shape else 1
    return narrowed(elementary.product(narrowed(a, wide(dtype)), lambda tensor: tensor.cumprod(dim), max(1, length)), dtype)


def _settled(number: ErrorNumber, *indices: Any) -> ErrorNumber:
    """Return a result whose elements indices chose: nothing is promised of it where one of them is unsure."""
    unsure = any(isinstance(one, Mask) and bool(one.unsure.any()) for one in indices)
    return number.lost(torch.full_like(number.value, torch.inf)) if unsure else number


def _plain(index: Any) -> Any:
    return index.value if isinstance(index, Mask) else index


@rule(aten.index_add, aten.scatter_add)
def _scatter_add(func: Any, a: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> ErrorNumber:
    if isinstance(index, Mask):
        return _settled(_scatter_add(func, a, dim, index.value, source, alpha=alpha), index)
    (a, source) = _accumulated(a, source)
    zeros = torch.zeros(a.value.shape, dtype=torch.float64, device=index.device)
    extra = {} if alpha == 1 else {"alpha": alpha}

    whole = index.shape == source.value.shape  # a scatter may leave out the end of its source

    def read(tensor: Tensor) -> Tensor:
        return tensor.gather(dim, index) if whole else tensor.index_select(dim, index)

    summed = elementary.gathered_sum(
        source,
        lambda tensor: func(zeros, dim, index, tensor, **extra),
        read if whole or index.dim() < source.value.dim() else None,
    )
    return elementary.plus(a, summed)


@rule(aten.scatter_reduce)
def _scatter_reduce(
    func: Any, a: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True, **named: Any
) -> ErrorNumber:
    """Return a reduced with elements of a source: a sum or mean as of atomic additions, extremes as order statistics."""
    include_self = named.get("include_self", include_self)
    if isinstance(index, Mask):
        return _settled(_scatter_reduce(func, a, dim, index.value, source, reduce, include_self), index)
    (a, source) = _accumulated(a, source)
    if reduce in {"amax", "amin"}:
        if not (a.elementary or a.constant):
            raise elementary.NoRule(f"an extreme of a {type(a).__name__}")
        ends = [
            func(a.value + sign * a.error, dim, index, source.value + sign * source.error, reduce, include_self=include_self)
            for sign in (-1, 0, 1)
        ]
        error = torch.maximum((ends[1] - ends[0]).abs(), (ends[2] - ends[1]).abs())
        doubt = bool(a.error.isinf().any() or source.error.isinf().any())
        error = torch.full_like(error, torch.inf) if doubt else torch.where(ends[0] == ends[2], 0.0, nan_to_inf(error))
        extremes: ErrorNumber = type(a)(ends[1], error, a.dtype)
        return extremes
    if reduce not in {"sum", "mean"}:
        raise elementary.NoRule(f"reduce={reduce!r}")
    ones = torch.ones(index.shape, dtype=torch.float64, device=index.device)
    count = torch.zeros(a.value.shape, dtype=torch.float64, device=index.device).scatter_add(dim, index, ones)
    kept = a if include_self else elementary.chosen(type(a).exact(torch.zeros_like(a.value), a.dtype), a, count > 0)
    total = _scatter_add(aten.scatter_add.default, kept, dim, index, source)
    if reduce == "sum":
        return total
    return elementary.quotient(total, type(total).exact((count + include_self).clamp(min=1.0), total.dtype))


@rule(aten.put)
def _put(func: Any, a: Any, index: Any, source: Any, accumulate: bool = False) -> ErrorNumber:
    if isinstance(index, Mask):
        return _settled(_put(func, a, index.value, source, accumulate), index)
    (a, source) = _accumulated(a, source)
    if not accumulate:
        written: ErrorNumber = type(a).joined([a, source], lambda tensors: func(tensors[0], index, tensors[1]))
        return written
    zeros = torch.zeros(a.value.shape, dtype=torch.float64, device=index.device)
    summed = elementary.gathered_sum(
        source, lambda tensor: func(zeros, index, tensor, True), lambda tensor: tensor.take(index)
    )
    return elementary.plus(a, summed)


@rule(aten.replication_pad1d_backward, aten.replication_pad2d_backward, aten.replication_pad3d_backward)
def _edges(func: Any, gradient: ErrorNumber, a: ErrorNumber, padding: Any) -> ErrorNumber:
    return elementary.gathered_sum(gradient, lambda tensor: func(tensor, a.value, padding))


@rule(aten.index_put, aten._unsafe_index_put)
def _index_put(func: Any, a: Any, indices: Any, values: Any, accumulate: bool = False, *rest: Any) -> ErrorNumber:
    if any(isinstance(one, Mask) for one in indices):
        return _settled(_index_put(func, a, [_plain(one) for one in indices], values, accumulate, *rest), *indices)
    (a, values) = _accumulated(a, values)
    if not accumulate:
        written: ErrorNumber = type(a)(func(a.value, indices, values.value), func(a.error, indices, values.error), a.dtype)
        return written
    chosen, zeros = tuple(slice(None) if one is None else one for one in indices), torch.zeros_like(a.value)
    shape = zeros[chosen].shape
    spread = values.mapped(lambda tensor: tensor.expand(shape))
    summed = elementary.gathered_sum(
        spread, lambda tensor: func(zeros, indices, tensor, True), lambda tensor: tensor[chosen]
    )
    return elementary.plus(a, summed)


@rule(aten.embedding_dense_backward)
def _embedding(func: Any, gradient: ErrorNumber, index: Any, *rest: Any) -> ErrorNumber:
    at = _plain(index)
    summed = elementary.gathered_sum(gradient, lambda tensor: func(tensor, at, *rest), lambda tensor: tensor[at])
    return _settled(summed, index)


def _accumulated(a: Any, source: Any) -> tuple[Any, Any]:
    """Return both in the dtype of the result: such sums are atomic additions there, rounded one by one."""
    kind, dtype = type(a if isinstance(a, ErrorNumber) else source), promoted_dtype((a, source))
    first, second = (narrowed(one if isinstance(one, ErrorNumber) else held(one, kind, dtype), dtype) for one in (a, source))
    return first, second


@rule(aten._softmax)
def _softmax(func: Any, a: ErrorNumber, dim: int, half_to_float: bool) -> ErrorNumber:
    result = elementary.softmax(widened(a), dim % max(1, a.value.dim()))
    return result if half_to_float else narrowed(result, a.dtype)


@rule(aten._log_softmax)
def _log_softmax(func: Any, a: ErrorNumber, dim: int, half_to_float: bool) -> ErrorNumber:
    result = elementary.log_softmax(widened(a), dim % max(1, a.value.dim()))
    return result if half_to_float else narrowed(result, a.dtype)


@rule(aten._softmax_backward_data)
def _softmax_backward(func: Any, upstream: ErrorNumber, y: ErrorNumber, dim: int, dtype: torch.dtype) -> ErrorNumber:
    """Return y (dy - sum(y dy)), where a kernel may leave out what y = 0 takes no part in."""
    dim = dim % max(1, y.value.dim())
    if not all_finite(upstream.value):
        upstream = upstream.lost(torch.where((y.value == 0) & ~upstream.value.isfinite(), torch.inf, 0.0))
    each = widened(upstream) * widened(y)
    return narrowed(each - widened(y) * reduced(each, dim, True, lambda one, at: one.sum(at)), dtype)


@rule(aten._log_softmax_backward_data)
def _log_softmax_backward(func: Any, upstream: ErrorNumber, y: ErrorNumber, dim: int, dtype: torch.dtype) -> ErrorNumber:
    """Return dy - exp(y) sum(dy), in this way or, for one element of a row, as dy (1 - exp(y)): two roundings more.

    A row without an upstream gradient may be left out: then 0 times what is not finite makes no NaN. Of an infinite dy the
    first form is NaN, as infinity less infinity, and the second infinite.
    """
    dy, p = widened(upstream), elementary.exp(widened(y))
    total = reduced(dy, dim % max(1, y.value.dim()), True, lambda one, at: one.sum(at))
    result = dy - p * total
    unsure = (upstream.value == 0).all(dim, keepdim=True) & ~y.value.isfinite() | upstream.value.isinf()
    if bool(unsure.any()):
        result = result.lost(torch.where(unsure, torch.inf, 0.0))
    again = result._rounded(result.value, result.error, result.dtype, units=2.0, finite=result.finite)
    return narrowed(again, dtype)


@rule(aten.logsumexp)
def _logsumexp(func: Any, a: ErrorNumber, dim: Any, keepdim: bool = False) -> ErrorNumber:
    def reduce(one: ErrorNumber, at: int) -> ErrorNumber:
        # PyTorch's own consists of five operations on the CPU, and rounds each
        step = 0.0 if wide(a.dtype) == a.dtype else unit_roundoff(a.dtype)
        return elementary.logsumexp(one, at, step).mapped(lambda tensor: tensor.squeeze(at))

    found: ErrorNumber = reduced(widened(a), dim, keepdim, reduce)
    return narrowed(found, a.dtype)


@rule(aten.logcumsumexp)
def _logcumsumexp(func: Any, a: ErrorNumber, dim: int) -> ErrorNumber:
    """Return log(sum of exp) of the elements so far, as a table of them all, or as a sum of two at a time."""
    number = widened(a).mapped(lambda tensor: tensor.reshape(1) if tensor.dim() == 0 else tensor.movedim(dim, -1))
    length = number.shape[-1]
    later = torch.ones(length, length, dtype=torch.bool, device=number.value.device).triu(1)
    table = number.mapped(lambda tensor: tensor.unsqueeze(-2).expand(*tensor.shape[:-1], length, length))
    masked = type(number)(table.value.masked_fill(later, -torch.inf), table.error.masked_fill(later, 0.0), number.dtype)
    if table.most is not None:
        masked.most = table.most.masked_fill(later, -torch.inf)
    found = elementary.logsumexp(masked, masked.value.dim() - 1).mapped(lambda tensor: tensor.squeeze(-1))
    steps = min(float(length), LAMBDA * math.sqrt(length)) * unit_roundoff(number.dtype)
    size = found.value.nan_to_num(0.0, 0.0, 0.0).abs()
    if masked.most is not None:  # elements that are all far below count no more than -infinity in what follows
        far = (masked.most <= -most.GONE).all(-1) & found.error.isinf()
        size = size.masked_fill(far, 0.0)
        found.most = torch.where(far, masked.most.amax(-1) / 2, torch.inf)
    size = size.cummax(-1).values + ELEMENTARY
    found = found.lost(torch.where(found.value.isfinite(), steps * size, 0.0))
    return narrowed(
        found.mapped(lambda tensor: tensor.reshape(a.shape) if not a.shape else tensor.movedim(-1, dim)), a.dtype
    )
