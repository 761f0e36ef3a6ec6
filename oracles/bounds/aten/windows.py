"""Convolutions, as matrix products over the windows of a tensor.

A convolution is the product of its weights with a matrix whose columns are windows: with it come the bound of a matrix
product, and its order of summation, which is free. The gradient of its input is a convolution too: of the upstream gradient,
spread out by the stride, with the weights flipped.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mhc.oracles.bounds import elementary
from mhc.oracles.bounds.aten.registry import DECOMPOSED, aten, narrowed, rule, wide, widened
from mhc.oracles.bounds.error_number import ErrorNumber


def each(value: Any, rank: int) -> list[Any]:
    """Return one value for each dimension."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


def _padded(x: Tensor, low: Sequence[int], high: Sequence[int], value: float = 0.0) -> Tensor:
    sides = [side for pair in zip(reversed(low), reversed(high), strict=True) for side in pair]
    padded: Tensor = aten.constant_pad_nd(x, sides, value) if any(sides) else x
    return padded


def _windows(x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """Return [N, C, *out, *kernel] of x [N, C, *in]."""
    for at, (size, step, apart) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(2 + at, (size - 1) * apart + 1, step)
        x = x[..., ::apart] if apart > 1 else x
    return x


def _columns(x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int) -> Tensor:
    """Return [N, groups, C / groups * kernel, out] of x [N, C, *in]."""
    windows, rank = _windows(x, kernel, stride, dilation), len(kernel)
    moved = windows.permute(0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    length = x.shape[1] // groups
    for size in kernel:
        length *= size
    return moved.reshape(x.shape[0], groups, length, windows.shape[2 : 2 + rank].numel())


def _correlated(x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int) -> Tensor:
    """Return the convolution of x, padded, with weight [O, C / groups, *kernel]."""
    kernel = weight.shape[2:]
    out = [
        (size - (k - 1) * apart - 1) // step + 1
        for size, k, step, apart in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    rows = weight.reshape(1, groups, weight.shape[0] // groups, -1)
    product = torch.matmul(rows, _columns(x, kernel, stride, dilation, groups))
    return product.reshape(x.shape[0], weight.shape[0], *out)


def _spread(x: Tensor, stride: Sequence[int]) -> Tensor:
    """Return x with stride - 1 zeros between its elements."""
    for at, step in enumerate(stride):
        if step > 1 and x.shape[2 + at] > 1:
            shape = list(x.shape)
            shape[2 + at] = (x.shape[2 + at] - 1) * step + 1
            x = aten.slice_scatter(x.new_zeros(shape), x, 2 + at, 0, shape[2 + at], step)
    return x


def _transposed(
    x: Tensor,
    weight: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Return the transposed convolution of x with weight [C, O / groups, *kernel], with the given size."""
    spread, kernel = _spread(x, stride), weight.shape[2:]
    reach = [(k - 1) * apart for k, apart in zip(kernel, dilation, strict=True)]
    low = [far - side for far, side in zip(reach, padding, strict=True)]
    high = [one + far - there - side for one, far, there, side in zip(size, reach, spread.shape[2:], low, strict=True)]
    flipped = weight.flip([*range(2, weight.dim())]).reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    turned = flipped.transpose(1, 2).reshape(groups * weight.shape[1], weight.shape[0] // groups, *kernel)
    return _correlated(_padded(spread, low, high), turned, [1] * len(kernel), dilation, groups)


def _weight_gradient(
    x: Tensor, gradient: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Tensor:
    """Return the gradient of a convolution's weight from its padded input and the gradient of its result."""
    columns = _columns(x, weight.shape[2:], stride, dilation, groups)
    columns = columns[..., : gradient.shape[2:].numel()]
    rows = gradient.reshape(gradient.shape[0], groups, gradient.shape[1] // groups, gradient.shape[2:].numel())
    rows = rows.permute(1, 2, 0, 3).flatten(2)
    columns = columns.permute(1, 0, 3, 2).flatten(1, 2)
    return torch.matmul(rows, columns).reshape(weight.shape)


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    rank, dtype = x.dim() - 2, x.dtype
    stride, padding, dilation, more = (each(one, rank) for one in (stride, padding, dilation, output_padding))
    x, weight = x.to(wide(dtype)), weight.to(wide(dtype))
    if transposed:
        every = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, more, strict=True)
        size = [(n - 1) * step - 2 * side + apart * (k - 1) + add + 1 for n, k, step, side, apart, add in every]
        result = _transposed(x, weight, size, stride, padding, dilation, groups)
    else:
        result = _correlated(_padded(x, padding, padding), weight, stride, dilation, groups)
    if bias is not None:
        result = result + bias.to(wide(dtype)).reshape(-1, *[1] * rank)
    return result.to(dtype)


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    rank, dtype = x.dim() - 2, x.dtype
    stride, padding, dilation = (each(one, rank) for one in (stride, padding, dilation))
    dy, x, weight = (one.to(wide(dtype)) for one in (gradient, x, weight))
    dx = dweight = dbias = None
    if output_mask[0] and transposed:
        dx = _correlated(_padded(dy, padding, padding), weight, stride, dilation, groups)
        dx = dx[tuple(slice(size) for size in x.shape)]
    elif output_mask[0]:
        dx = _transposed(dy, weight, x.shape[2:], stride, padding, dilation, groups)
    if output_mask[1]:
        inside, outside = (dy, x) if transposed else (x, dy)
        inside = _padded(inside, padding, padding)
        every = zip(outside.shape[2:], weight.shape[2:], stride, dilation, strict=True)
        used = [slice((n - 1) * step + (k - 1) * apart + 1) for n, k, step, apart in every]  # what the windows cover
        dweight = _weight_gradient(inside[(slice(None), slice(None), *used)], outside, weight, stride, dilation, groups)
    if output_mask[2]:
        dbias = dy.sum([0, *range(2, 2 + rank)])
    results = [None if one is None else one.to(dtype) for one in (dx, dweight, dbias)]
    return results[0], results[1], results[2]


DECOMPOSED[aten.convolution.default] = _convolution
DECOMPOSED[aten.convolution_backward.default] = _convolution_backward


@rule(
    aten.upsample_nearest1d_backward,
    aten.upsample_nearest2d_backward,
    aten.upsample_nearest3d_backward,
    aten._upsample_nearest_exact1d_backward,
    aten._upsample_nearest_exact2d_backward,
    aten._upsample_nearest_exact3d_backward,
)
def _upsample_backward(func: Any, gradient: ErrorNumber, *rest: Any) -> ErrorNumber:
    """Return the sums of the gradients of the copies of each element."""
    return narrowed(elementary.gathered_sum(widened(gradient), lambda one: func(one, *rest)), gradient.dtype)
