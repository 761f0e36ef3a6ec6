"""Cross-entropy in tiles of classes, of logits and of logits that are a product."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES, accumulation_dtype
from mhc.oracles.mutants.kernels.tiles import row_sum, rows, tiles

IGNORED = -100


def _log_sum(v: Tensor) -> Tensor:
    """Return the logarithm of the sum of exp over each row, [T, 1]."""
    most = torch.full_like(v[:, :1], -torch.inf)
    for tile in tiles(v.shape[1]):
        most = torch.maximum(most, v[:, tile].amax(1, keepdim=True))
    return most + row_sum(torch.exp(v - most)).log()


def _losses(v: Tensor, target: Tensor) -> Tensor:
    kept = target != IGNORED
    at = torch.where(kept, target, 0).unsqueeze(1)
    loss = _log_sum(v) - v.gather(1, at)
    return torch.where(kept, loss[:, 0], 0.0)


def _slopes(v: Tensor, target: Tensor, dy: Tensor) -> Tensor:
    """Return the gradient of the logits, [T, V]."""
    hit = torch.arange(v.shape[1], device=v.device) == target.unsqueeze(1)  # nowhere for a target of -100
    g = torch.where(hit, -dy.unsqueeze(1), 0.0)
    return g - torch.exp(v - _log_sum(v)) * g.sum(1, keepdim=True)


def _forward(x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    return (_losses(rows(x), target),)


def _backward(x: Tensor, target: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    return (_slopes(rows(x), target, dy).to(x.dtype),)


def _linear_forward(x: Tensor, weight: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    wide = accumulation_dtype(x.dtype)
    return (_losses(x.to(wide) @ weight.to(wide).T, target),)


def _linear_backward(x: Tensor, weight: Tensor, target: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
    v, w = rows(x), rows(weight)
    g = _slopes(v @ w.T, target, dy)
    return (g @ w).to(x.dtype), (g.T @ v).to(weight.dtype)


KERNEL = Implementation(
    name="cross_entropy.tiles", operator="cross_entropy", forward=_forward, backward=_backward, dtypes=tuple(STORAGE_DTYPES)
)
LINEAR = Implementation(
    name="linear_cross_entropy.tiles",
    operator="linear_cross_entropy",
    forward=_linear_forward,
    backward=_linear_backward,
    dtypes=tuple(STORAGE_DTYPES),
)
