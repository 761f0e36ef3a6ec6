"""Softmax in tiles: the maximum, then the sum, then the quotients."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.mutants.kernels.tiles import row_sum, rows, tiles


def _shares(x: Tensor) -> Tensor:
    v = rows(x)
    most = torch.full_like(v[:, :1], -torch.inf)
    for tile in tiles(v.shape[1]):
        most = torch.maximum(most, v[:, tile].amax(1, keepdim=True))
    e = torch.exp(v - most)
    return e / row_sum(e)


def _forward(x: Tensor) -> tuple[Tensor, ...]:
    return (_shares(x).to(x.dtype).reshape(x.shape),)


def _backward(x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    y, g = _shares(x), rows(dy)
    dx = y * g - y * row_sum(y * g)
    return (dx.to(x.dtype).reshape(x.shape),)


KERNEL = Implementation(
    name="softmax.tiles", operator="softmax", forward=_forward, backward=_backward, dtypes=tuple(STORAGE_DTYPES)
)
