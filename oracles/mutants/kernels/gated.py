"""SwiGLU and GEGLU over blocks of elements."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES, accumulation_dtype
from mhc.oracles.mutants.kernels.tiles import tiles

BLOCK = 64


def _blocks(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Apply a function to blocks of elements."""
    out = torch.empty_like(tensors[0], memory_format=torch.contiguous_format)
    flat = [one.reshape(-1) for one in tensors]
    for block in tiles(out.numel(), BLOCK):
        out.view(-1)[block] = function(*(one[block] for one in flat))
    return out


def _silu(a: Tensor) -> Tensor:
    w = a.to(accumulation_dtype(a.dtype))
    return (w * w.sigmoid()).to(a.dtype)


def _silu_slope(a: Tensor, g: Tensor) -> Tensor:
    w = a.to(accumulation_dtype(a.dtype))
    s = w.sigmoid()
    return (g.to(w.dtype) * (s * (1 + w * (1 - s)))).to(a.dtype)


def _gelu(a: Tensor) -> Tensor:
    w = a.to(accumulation_dtype(a.dtype))
    inner = math.sqrt(2 / math.pi) * (w + 0.044715 * w * w * w)
    return (0.5 * w * (1 + inner.tanh())).to(a.dtype)


def _gelu_slope(a: Tensor, g: Tensor) -> Tensor:
    w = a.to(accumulation_dtype(a.dtype))
    t = (math.sqrt(2 / math.pi) * (w + 0.044715 * w * w * w)).tanh()
    dinner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * w * w)
    return (g.to(w.dtype) * (0.5 * (1 + t) + 0.5 * w * ((1 - t * t) * dinner))).to(a.dtype)


def _swiglu(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (_blocks(lambda a, b: _silu(a) * b, a, b),)


def _swiglu_backward(a: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    da = _blocks(lambda a, b, g: _silu_slope(a, g * b), a, b, dy)
    db = _blocks(lambda a, g: g * _silu(a), a, dy)
    return da, db


def _geglu(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    return (_blocks(lambda a, b: _gelu(a) * b, a, b),)


def _geglu_backward(a: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    da = _blocks(lambda a, b, g: _gelu_slope(a, b * g), a, b, dy)
    db = _blocks(lambda a, g: _gelu(a) * g, a, dy)
    return da, db


SWIGLU = Implementation(
    name="swiglu.blocks", operator="swiglu", forward=_swiglu, backward=_swiglu_backward, dtypes=tuple(STORAGE_DTYPES)
)
GEGLU = Implementation(
    name="geglu.blocks", operator="geglu", forward=_geglu, backward=_geglu_backward, dtypes=tuple(STORAGE_DTYPES)
)
