"""Functions of PyTorch that are read as compositions of other functions of PyTorch.

For most operations autograd's formula of the gradient can be read as it is. For those here it is one operation without a
rule, such as `grid_sampler_2d_backward`. Composed of others, gradient and bound follow from theirs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch

from mhc.oracles.bounds import tape
from mhc.oracles.bounds.aten.registry import wide
from mhc.oracles.bounds.carried import Carried
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.rounding import unit_roundoff

Function = TypeVar("Function", bound=Callable[..., Any])
COMPOSED: dict[Any, Callable[..., Any]] = {}


class Composed(TorchFunctionMode):
    """Calls the composition of a function in its place, where a carried tensor goes in."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call the composition of `func`; `func` itself where there is none, or none for these arguments."""
        del types
        named = dict(kwargs or {})
        composition = COMPOSED.get(func)
        if composition is not None and any(isinstance(one, Carried) for one in (*args, *named.values())):
            result = composition(*args, **named)
            if result is not NotImplemented:
                return result
        return func(*args, **named)


def composes(*functions: Any) -> Callable[[Function], Function]:
    """Register the composition of functions with one signature, such as `torch.ldexp` and `Tensor.ldexp`."""

    def add(composition: Function) -> Function:
        COMPOSED.update(dict.fromkeys(functions, composition))
        return composition

    return add


def constant(like: Tensor, value: Tensor, error: Tensor) -> Tensor:
    """Return float64 constants that are off by up to `error`, in the dtype of a tensor with which they are computed."""
    kind = type(like.number) if isinstance(like, Carried) else ErrorNumber
    return cast(Tensor, tape.made(lambda number: Carried(number(value, error, like.dtype)), kind))


@composes(torch.ldexp, Tensor.ldexp)
def _ldexp(x: Tensor, exponent: Tensor) -> Any:
    """Return x 2^exponent. Its gradient is not read: PyTorch 2.13 has 0 for it at negative integers (pytorch#187460)."""
    return NotImplemented if x.requires_grad else x * torch.pow(2.0, exponent)


@composes(torch.clamp, Tensor.clamp, torch.clip, Tensor.clip)
def _clamp(x: Tensor, min: Any = None, max: Any = None) -> Any:
    """Limit to one end after the other: for both at once autograd writes one comparison into the other."""
    return NotImplemented if min is None or max is None else x.clamp(min=min).clamp(max=max)


@composes(torch.bincount, Tensor.bincount)
def _bincount(index: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    if isinstance(index, Carried) or weights is None:
        return NotImplemented
    length = max(minlength, int(index.max()) + 1 if index.numel() else 0)
    return weights.new_zeros(length).index_add(0, index, weights)


@composes(torch.cdist)
def _cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Return the distances of rows: Euclidean ones from |a|^2 + |b|^2 - 2 a b, unless matrix products are ruled out.

    The gradient of a distance of 0 is 0.
    """
    if p == 2.0 and compute_mode != "donot_use_mm_for_euclid_dist":
        squares = a.square().sum(-1).unsqueeze(-1) + b.square().sum(-1).unsqueeze(-2) - 2 * (a @ b.mT)
        apart = squares > 0
        return torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0)
    return _norms(a.unsqueeze(-2) - b.unsqueeze(-3), p)


@composes(functional.pdist, torch.pdist)
def _pdist(a: Tensor, p: float = 2.0) -> Tensor:
    rows, columns = torch.triu_indices(a.shape[0], a.shape[0], 1, device=a.device)
    return _norms(a[rows] - a[columns], p)


def _norms(apart: Tensor, p: float) -> Tensor:
    """Return the p-norms of the last axis, whose gradient at 0 is 0."""
    size = apart.abs()
    if p == 0.0:
        return (apart != 0).to(apart.dtype).sum(-1)
    if p == 1.0:
        return size.sum(-1)
    if math.isinf(p):
        return size.amax(-1)
    powers = (apart.square() if p == 2.0 else size.pow(p)).sum(-1)
    positive = powers > 0
    roots = torch.where(positive, powers, 1.0)
    return torch.where(positive, roots.sqrt() if p == 2.0 else roots.pow(1 / p), 0.0)


@composes(functional.embedding_bag)
def _embedding_bag(
    index: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Return for each bag the sum or the mean of its rows; of an empty bag 0."""
    if isinstance(index, Carried) or max_norm is not None or scale_grad_by_freq:
        return NotImplemented
    if mode == "max":
        whole = index.dim() == 2 and padding_idx is None
        return weight[index].max(1).values if whole else NotImplemented
    if index.dim() == 2:
        number = index.shape[0]
        bags = torch.arange(number, device=index.device).repeat_interleave(index.shape[1])
    else:
        assert offsets is not None
        number = offsets.shape[0] - include_last_offset
        places = torch.arange(index.shape[0], device=index.device)
        bags = torch.searchsorted(offsets[:number].contiguous(), places, right=True) - 1
    flat = index.reshape(-1)
    kept = torch.ones_like(flat, dtype=torch.bool) if padding_idx is None else flat != padding_idx % weight.shape[0]
    rows = weight.to(wide(weight.dtype))[flat]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    rows = torch.where(kept.unsqueeze(-1), rows, 0.0)
    total = rows.new_zeros(number, weight.shape[1]).index_add(0, bags, rows)
    if mode == "mean":
        counts = torch.zeros(number, dtype=torch.int64, device=index.device).index_add(0, bags, kept.long())
        total = total / counts.clamp(min=1).unsqueeze(-1)
    return total.to(weight.dtype)


@composes(torch.segment_reduce)
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Return the reductions of segments of the first axis."""
    lengths = offsets.diff() if lengths is None and offsets is not None else lengths
    if lengths is None or lengths.dim() != 1 or axis != 0 or initial is not None or reduce == "prod":
        return NotImplemented
    names = {"sum": ("sum", 0.0), "mean": ("mean", math.nan), "max": ("amax", -math.inf), "min": ("amin", math.inf)}
    name, empty = names[reduce]
    segments = torch.repeat_interleave(torch.arange(lengths.shape[0], device=data.device), lengths)
    at = segments.reshape(-1, *[1] * (data.dim() - 1)).expand(data.shape)
    start = torch.full((lengths.shape[0], *data.shape[1:]), empty, dtype=data.dtype, device=data.device)
    return start.scatter_reduce(0, at, data, name, include_self=False)


@composes(torch.index_reduce, Tensor.index_reduce)
def _index_reduce(a: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    shape = [1] * source.dim()
    shape[dim] = -1
    return a.scatter_reduce(dim, index.reshape(shape).expand(source.shape), source, reduce, include_self=include_self)


class _Quantised(torch.autograd.Function):
    """Quantises to integers and back; its gradient passes where nothing was clamped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero: Tensor, least: int, most: int) -> Tensor:
        rounded = torch.round(x.to(wide(x.dtype)) * (1 / scale)) + zero
        ctx.save_for_backward((rounded >= least) & (rounded <= most))
        return ((rounded.clamp(least, most) - zero) * scale).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return torch.where(kept, gradients[0], 0.0), None, None, None, None


@composes(torch.fake_quantize_per_tensor_affine)
def _fake_quantize(x: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
    if isinstance(scale, Carried) and scale.requires_grad:
        return NotImplemented
    result: Tensor = _Quantised.apply(x, scale, zero_point, quant_min, quant_max)  # type: ignore[no-untyped-call]
    return result


@composes(torch.fake_quantize_per_channel_affine)
def _fake_quantize_channels(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Any:
    shape = [1] * x.dim()
    shape[axis] = -1
    return _fake_quantize(x, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


@composes(torch.linalg.solve_triangular)
def _solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Any = None
) -> Tensor:
    """Return the inverse of a triangular matrix times b: kernels form the inverse too."""
    part = (torch.triu if upper else torch.tril)(a)
    if unitriangular:
        part = torch.where(torch.eye(a.shape[-1], dtype=torch.bool, device=a.device), 1.0, part)
    inverse: Tensor = (torch.triu if upper else torch.tril)(torch.linalg.inv_ex(part).inverse)
    return inverse @ b if left else b @ inverse


@composes(torch.linalg.solve)
def _solve(a: Tensor, b: Tensor, *, left: bool = True, out: Any = None) -> Tensor:
    inverse: Tensor = torch.linalg.inv_ex(a).inverse
    vector = b.dim() == 1 or (b.dim() == a.dim() - 1 and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if vector else b
    product = inverse @ columns if left else columns @ inverse
    return product.squeeze(-1) if vector else product


_DENSE = 64
"""The longest Fourier transform that is a product with one matrix."""
_ROOT = 4.0
"""Units by which a root of unity may be off, whose angle is rounded to float32 first."""


def _transformed(x: Tensor, sign: float) -> Tensor:
    """Return sum_j x_j exp(sign 2 pi i j k / n) over the axis before the last, of pairs of a real and an imaginary part."""
    length = x.shape[-2]
    factor = next((one for one in range(_DENSE, 1, -1) if length % one == 0), 1) if length > _DENSE else 1
    at = torch.arange(length, device=x.device)
    if factor == 1:
        cosine, sine = _roots(x, at.unsqueeze(-1) * at, length, sign)
        real, imaginary = x[..., 0].unsqueeze(-2), x[..., 1].unsqueeze(-2)
        parts = (real @ cosine - imaginary @ sine, real @ sine + imaginary @ cosine)
        return torch.stack([one.squeeze(-2) for one in parts], -1)
    rest = length // factor
    rows = _transformed(x.reshape(*x.shape[:-2], rest, factor, 2).transpose(-3, -2), sign)  # [..., factor, rest, 2]
    places = torch.arange(factor, device=x.device).unsqueeze(-1) * torch.arange(rest, device=x.device)
    cosine, sine = _roots(x, places, length, sign)
    real, imaginary = rows[..., 0], rows[..., 1]
    turned = torch.stack((real * cosine - imaginary * sine, real * sine + imaginary * cosine), -1)
    columns = _transformed(turned.transpose(-3, -2), sign)  # [..., rest, factor, 2]
    return columns.transpose(-3, -2).reshape(*x.shape[:-2], length, 2)


def _roots(like: Tensor, places: Tensor, length: int, sign: float) -> list[Tensor]:
    """Return cosines and sines of multiples of 2 pi / length."""
    with no_dispatch():
        angle = (places % length).double() * (sign * 2 * math.pi / length)
        return [
            constant(like, part, torch.full_like(part, _ROOT * unit_roundoff(like.dtype)))
            for part in (angle.cos(), angle.sin())
        ]


def _pairs(x: Tensor) -> Tensor:
    return torch.view_as_real(x) if x.is_complex() else torch.stack((x, torch.zeros_like(x)), -1)


def _sized(x: Tensor, length: int | None) -> Tensor:
    """Return pairs cut, or with zeros appended, to a length of the axis before the last."""
    if length is None or length == x.shape[-2]:
        return x
    return functional.pad(x, (0, 0, 0, length - x.shape[-2]))


def _fourier(sign: float, *, real: bool) -> Callable[..., Any]:
    """Return the composition of a transform, forward or inverse, of complex numbers or of real ones."""

    def transform(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None, *, out: Any = None) -> Any:
        if wide(input.dtype) != input.dtype or out is not None or (norm is not None and norm not in _SCALES):
            return NotImplemented
        pairs = _pairs(input.movedim(dim, -1))
        inverse, halved = sign > 0, real and sign > 0
        if halved:  # the second half of the spectrum is the conjugate of the first
            length = n if n is not None else 2 * (pairs.shape[-2] - 1)
            pairs = _sized(pairs, length // 2 + 1)
            mirrored = pairs[..., 1 : (length + 1) // 2, :].flip(-2)
            pairs = torch.cat((pairs, torch.stack((mirrored[..., 0], -mirrored[..., 1]), -1)), -2)
        else:
            pairs = _sized(pairs, n)
            length = pairs.shape[-2]
        found = _transformed(pairs, sign)
        power = _SCALES[norm or "backward"][inverse]
        found = found if power == 0.0 else found * length**power
        if halved:
            return found[..., 0].movedim(-1, dim)
        found = found[..., : length // 2 + 1, :] if real else found
        return torch.view_as_complex(found.contiguous()).movedim(-1, dim)

    return transform


_SCALES = {"backward": (0.0, -1.0), "ortho": (-0.5, -0.5), "forward": (-1.0, 0.0)}
"""By which power of the length the transform, and its inverse, is multiplied."""

composes(torch.fft.fft)(_fourier(-1.0, real=False))
composes(torch.fft.ifft)(_fourier(1.0, real=False))
composes(torch.fft.rfft)(_fourier(-1.0, real=True))
composes(torch.fft.irfft)(_fourier(1.0, real=True))
