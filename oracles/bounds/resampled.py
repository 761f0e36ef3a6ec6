"""Pooling, interpolation and sampling of images, as sums of the elements under a window, each times a weight.

For each element of the result, of each axis, a window has some places, a weight for each, and the error that float32 makes
of the weight. Rounding may move the place x at which an image is sampled over an integer. The value hardly changes then,
since the weights are continuous in x: so a window reaches as far as x may move, and a weight of 0 has an error too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._mode_utils import no_dispatch

from mhc.oracles.bounds.aten.registry import aten, wide
from mhc.oracles.bounds.aten.windows import each
from mhc.oracles.bounds.carried import Carried
from mhc.oracles.bounds.composed import composes, constant
from mhc.oracles.bounds.rounding import unit_roundoff

_ROUNDINGS = 4.0
"""Of a place, relative to itself and to 1: of the scale, a product, a difference, and the distance to an integer."""


@dataclass(frozen=True)
class _Window:
    """Of one axis: places [out, K], which of them count, and their weights with errors; None: each weight is 1."""

    place: Tensor
    valid: Tensor
    weight: Tensor | None = None
    error: Tensor | None = None


def _gathered(x: Tensor, windows: Sequence[_Window], empty: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the elements under the windows of the last axes [..., *out, K], `empty` where none counts, and which count."""
    rank = len(windows)

    def spread(tensor: Tensor, at: int) -> Tensor:
        shape = [1] * (2 * rank)
        shape[at], shape[rank + at] = tensor.shape
        return tensor.reshape(shape)

    places = [spread(window.place, at) for at, window in enumerate(windows)]
    valid = spread(windows[0].valid, 0)
    for at, window in enumerate(windows[1:], 1):
        valid = valid & spread(window.valid, at)
    lead = x.shape[: x.dim() - rank]
    flat = x.reshape(-1, *x.shape[x.dim() - rank :])
    elements = torch.where(valid, aten.index(flat, [None, *places]), empty if x.is_floating_point() else 0)
    if windows[0].weight is not None:
        elements = elements * _product(x, [(one.weight, one.error) for one in windows], spread)
    elements = elements.flatten(1 + rank)
    return elements.reshape(*lead, *elements.shape[1:]), valid.flatten(rank)


def _product(x: Tensor, parts: Sequence[tuple[Any, Any]], spread: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Return the products of the weights of all axes, as tensors that carry their errors."""
    weights = [constant(x, spread(weight, at), spread(error, at)) for at, (weight, error) in enumerate(parts)]
    product = weights[0]
    for weight in weights[1:]:
        product = product * weight
    return product


def _pool_window(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> _Window:
    """Return the windows of a pooling, whose places outside of the tensor do not count."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    number = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (number - 1) * stride >= size + padding:
        number -= 1
    place = torch.arange(number).unsqueeze(-1) * stride - padding + torch.arange(kernel) * dilation
    return _Window(place.clamp(0, size - 1), (place >= 0) & (place < size))


def _valid_first(window: _Window) -> _Window:
    """Return a window whose places that do not count are behind the others, which keep their order."""
    valid, order = window.valid.sort(dim=-1, descending=True, stable=True)
    return _Window(window.place.gather(-1, order), valid)


def _adaptive_window(size: int, out: int) -> _Window:
    first = torch.arange(out) * size // out
    end = -(-(torch.arange(out) + 1) * size // out)
    place = first.unsqueeze(-1) + torch.arange(int((end - first).max()) if out else 0)
    return _Window(place.clamp(max=size - 1), place < end.unsqueeze(-1))


def _mean(x: Tensor, windows: Sequence[_Window], counts: Sequence[Tensor] | None, divisor: int | None = None) -> Tensor:
    """Return sums over windows, divided by the product of a count for each axis."""
    windows = _placed(windows, x)
    elements, valid = _gathered(x.to(wide(x.dtype)), windows)
    if divisor is not None:
        return (elements.sum(-1) / divisor).to(x.dtype)
    number = valid.sum(-1)
    if counts is not None:
        number = torch.ones_like(number)
        for at, count in enumerate(counts):
            number = number * count.to(x.device).reshape([-1 if axis == at else 1 for axis in range(len(counts))])
    return (elements.sum(-1) / number).to(x.dtype)


def _placed(windows: Sequence[_Window], x: Tensor) -> list[_Window]:
    """Return windows whose tensors are on the device of x."""
    return [
        _Window(*(None if part is None else part.to(x.device) for part in (one.place, one.valid, one.weight, one.error)))  # type: ignore[arg-type]
        for one in windows
    ]


def _average(rank: int) -> Callable[..., Any]:
    def pool(
        x: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        kernel = each(kernel_size, rank)
        steps = each(stride, rank) if stride else kernel
        every = list(zip(x.shape[-rank:], kernel, steps, each(padding, rank), strict=True))
        with no_dispatch():
            windows = [_pool_window(size, k, step, side, 1, ceil_mode) for size, k, step, side in every]
            counts = None
            if count_include_pad:  # the last window may reach over the padding: that part does not count
                counts = []
                for one, (size, k, step, side) in zip(windows, every, strict=True):
                    first = torch.arange(one.place.shape[0]) * step - side
                    counts.append((first + k).clamp(max=size + side) - first)
        return _mean(x, windows, counts, divisor_override)

    return pool


def _adaptive_average(rank: int) -> Callable[..., Any]:
    return lambda x, output_size: _mean(x, _adaptive_windows(x, output_size, rank), None)


def _adaptive_windows(x: Tensor, output_size: Any, rank: int) -> list[_Window]:
    with no_dispatch():
        every = zip(x.shape[-rank:], each(output_size, rank), strict=True)
        return [_adaptive_window(size, size if out is None else out) for size, out in every]


def _largest(x: Tensor, windows: Sequence[_Window], return_indices: bool) -> Any:
    """Return the largest element of each window, and its place in the flattened axes: as in PyTorch, the first of equal
    ones, and of several NaNs the last.

    A place that does not count is behind those that do, and so never the first, where all of these are -infinity.
    """
    windows = _placed(windows, x)
    elements, _ = _gathered(x, windows, -math.inf)
    with no_dispatch():
        nan = (elements.number.value if isinstance(elements, Carried) else elements.detach()).isnan()
        earlier = nan & (nan.flip(-1).cumsum(-1).flip(-1) > 1) if bool(nan.any()) else None
    found = (elements if earlier is None else torch.where(earlier, -math.inf, elements)).max(-1)
    if not return_indices:
        return found.values
    sizes = x.shape[-len(windows) :]
    places, _ = _gathered(torch.arange(sizes.numel(), device=x.device).reshape(sizes), windows)
    return found.values, places.expand(elements.shape).gather(-1, found.indices.unsqueeze(-1)).squeeze(-1)


def _maximum(rank: int, indices: bool = False) -> Callable[..., Any]:
    def pool(
        x: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        kernel = each(kernel_size, rank)
        steps = each(stride, rank) if stride else kernel
        every = zip(x.shape[-rank:], kernel, steps, each(padding, rank), each(dilation, rank), strict=True)
        with no_dispatch():
            windows = [_valid_first(_pool_window(*one, ceil_mode)) for one in every]
        return _largest(x, windows, return_indices or indices)

    return pool


def _adaptive_maximum(rank: int, indices: bool = False) -> Callable[..., Any]:
    def pool(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return _largest(x, _adaptive_windows(x, output_size, rank), return_indices or indices)

    return pool


for _rank in (1, 2, 3):
    composes(getattr(functional, f"avg_pool{_rank}d"))(_average(_rank))
    composes(getattr(functional, f"adaptive_avg_pool{_rank}d"))(_adaptive_average(_rank))
    for _name, _pool in ((f"max_pool{_rank}d", _maximum), (f"adaptive_max_pool{_rank}d", _adaptive_maximum)):
        composes(getattr(functional, _name))(_pool(_rank))
        composes(getattr(functional, f"{_name}_with_indices"))(_pool(_rank, indices=True))


def _hat(distance: Tensor) -> Tensor:
    """Return the weight of linear interpolation at a distance."""
    return (1 - distance.abs()).clamp(min=0.0)


def _cubic(distance: Tensor) -> Tensor:
    """Return the weight of cubic convolution at a distance, with a = -0.75 as PyTorch has it."""
    a, d = -0.75, distance.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, 0.0))


_KERNELS = {"linear": (_hat, 1), "bilinear": (_hat, 1), "trilinear": (_hat, 1), "bicubic": (_cubic, 2)}
_STEEPEST = {1: 1.0, 2: 2.0}
"""By how much a weight changes at most where the distance changes by 1, by the reach of the weights."""


def _interpolation_window(
    size: int, out: int, scale: float | None, mode: str, align_corners: bool, roundoff: float
) -> _Window:
    """Return the places of an axis between which each element of the result is interpolated, with PyTorch's weights."""
    kernel, reach = _KERNELS[mode]
    at = torch.arange(out, dtype=torch.float64)
    if align_corners:
        at = at * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        at = (at + 0.5) * (1 / scale if scale else size / out) - 0.5
        at = at.clamp(min=0.0) if reach == 1 else at
    moves = _ROUNDINGS * roundoff * (at.abs() + 1)
    near = (at - moves).floor().long().unsqueeze(-1) + torch.arange(1 - reach, reach + 2)
    distance = at.unsqueeze(-1) - near
    weight = kernel(distance)
    counts = (distance.abs() < reach + moves.unsqueeze(-1)).double()
    error = (_STEEPEST[reach] * moves.unsqueeze(-1) + 8 * roundoff) * counts
    return _Window(near.clamp(0, size - 1), counts > 0, weight * counts, error)


@composes(functional.interpolate)
def _interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    rank = x.dim() - 2
    if mode == "area" and size is not None:
        return _adaptive_average(rank)(x, size)
    if mode not in _KERNELS or antialias:
        return NotImplemented
    scales: list[float | None] = [None] * rank
    if size is None:
        factors = [float(one) for one in each(scale_factor, rank)]
        outs = [math.floor(n * factor) for n, factor in zip(x.shape[2:], factors, strict=True)]
        scales = [None] * rank if recompute_scale_factor else list(factors)
    else:
        outs = each(size, rank)
    held = wide(x.dtype)
    with no_dispatch():
        windows = [
            _interpolation_window(n, out, scale, mode, bool(align_corners), unit_roundoff(held))
            for n, out, scale in zip(x.shape[2:], outs, scales, strict=True)
        ]
    elements, _ = _gathered(x.to(held), _placed(windows, x))
    return elements.sum(-1).to(x.dtype)


def _may_count(weight: Tensor) -> Tensor:
    """Return where a weight is not certainly 0."""
    with no_dispatch():
        if not isinstance(weight, Carried):
            return weight.detach() != 0
        counts: Tensor = (weight.number.value != 0) | (weight.number.error > 0)
        return counts


@composes(functional.grid_sample)
def _grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Sample images [N, C, H, W] at places [N, OH, OW, 2] by bilinear weights.

    Which four pixels surround a place is taken from its exact value, and one more on either side, whose weights are 0 but
    for the error of the place. So a place near an integer has a value and a gradient of x like any other. At an integer the
    gradient of the place is that towards larger ones, and where a place is moved to the border it is 0, as in PyTorch.
    """
    if mode != "bilinear" or padding_mode == "reflection" or x.dim() != 4:
        return NotImplemented
    held = torch.promote_types(wide(x.dtype), wide(grid.dtype))
    image = x.to(held)
    axes = []
    for at, size in ((1, x.shape[2]), (0, x.shape[3])):
        place = grid[..., at].to(held)
        place = (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2
        if padding_mode == "border":
            place = torch.where(place <= 0, 0.0, torch.where(place >= size - 1, size - 1.0, place))
        with no_dispatch():
            value = place.number.value if isinstance(place, Carried) else place.detach().double()
            near = value.floor().nan_to_num(-9.0).clamp(-9, size + 9).long().unsqueeze(-1)
            near = near + torch.arange(-1, 3, device=near.device)
            inside = (near >= 0) & (near < size)
        distance = place.unsqueeze(-1) - near
        hat = torch.where(distance >= 0, 1 - distance, 1 + distance)
        weight = torch.where(inside & (distance >= -1) & (distance < 1), hat, 0.0)
        axes.append((near.clamp(0, size - 1), weight, _may_count(weight)))
    (rows, down, by), (columns, along, bx) = axes  # [N, OH, OW, 4] each
    batch = torch.arange(x.shape[0], device=x.device).reshape(-1, 1, 1, 1, 1)
    pixels = image.permute(0, 2, 3, 1)[batch, rows.unsqueeze(-1), columns.unsqueeze(-2)]  # [N, OH, OW, 4, 4, C]
    pixels = torch.where((by.unsqueeze(-1) & bx.unsqueeze(-2)).unsqueeze(-1), pixels, 0.0)
    weights = (down.unsqueeze(-1) * along.unsqueeze(-2)).unsqueeze(-1)
    return (pixels * weights).flatten(3, 4).sum(3).permute(0, 3, 1, 2).to(x.dtype)
