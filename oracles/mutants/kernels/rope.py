"""RoPE over tiles of positions."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.mutants.kernels.tiles import TOKENS, tiles


def _forward(x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    R, y = cos.shape[-1], torch.empty_like(x, memory_format=torch.contiguous_format)
    for tile in tiles(x.shape[1], TOKENS):
        w, c, s = x[:, tile].to(cos.dtype), cos[tile, None], sin[tile, None]  # [B, T, H, D], [T, 1, R]
        y[:, tile, :, :R] = (w[..., :R] * c - w[..., R:] * s).to(x.dtype)
        y[:, tile, :, R:] = (w[..., R:] * c + w[..., :R] * s).to(x.dtype)
    return (y,)


def _backward(x: Tensor, cos: Tensor, sin: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    R, c, s = cos.shape[-1], cos[:, None], sin[:, None]
    w, g = x.to(cos.dtype), dy.to(cos.dtype)
    dx = torch.cat([g[..., :R] * c + g[..., R:] * s, g[..., R:] * c - g[..., :R] * s], -1)
    dcos = (g[..., :R] * w[..., :R]).sum((0, 2)) + (g[..., R:] * w[..., R:]).sum((0, 2))
    dsin = (g[..., R:] * w[..., :R]).sum((0, 2)) - (g[..., :R] * w[..., R:]).sum((0, 2))
    return dx.to(x.dtype), dcos, dsin


KERNEL = Implementation(
    name="rope.tiles", operator="rope", forward=_forward, backward=_backward, dtypes=tuple(STORAGE_DTYPES)
)
