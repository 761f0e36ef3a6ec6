"""Tiles, and sums over rows and over tokens."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mhc.operator import accumulation_dtype

COLUMNS, TOKENS = 16, 32
"""Sizes of a tile."""


def tiles(size: int, tile: int = COLUMNS) -> Iterator[slice]:
    """Yield the tiles of an axis; the last one may be shorter."""
    for at in range(0, size, tile):
        yield slice(at, min(at + tile, size))


def rows(x: Tensor) -> Tensor:
    """Return x as a matrix in the dtype of sums, [N, D]."""
    return x.reshape(-1, x.shape[-1]).to(accumulation_dtype(x.dtype))


def row_sum(v: Tensor) -> Tensor:
    """Return the sum of each row, [N, 1]."""
    total = v.new_zeros(len(v), 1)
    for tile in tiles(v.shape[1]):
        total = total + v[:, tile].sum(1, keepdim=True)
    return total


def token_sum(v: Tensor) -> Tensor:
    """Return the sum over tokens, [D]."""
    total = torch.zeros_like(v[:1].sum(0))
    for tile in tiles(len(v), TOKENS):
        total = total + v[tile].sum(0)
    return total
