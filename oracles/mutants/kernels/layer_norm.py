"""LayerNorm in tiles."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.mutants.kernels.tiles import row_sum, rows, token_sum


def _centred(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    v, D = rows(x), x.shape[-1]
    mean = row_sum(v) / D
    c = v - mean
    return c, torch.rsqrt(row_sum(c * c) / D + eps)


def _forward(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> tuple[Tensor, ...]:
    c, rstd = _centred(x, eps)
    y = c * rstd * weight.to(c.dtype) + bias.to(c.dtype)
    return (y.to(x.dtype).reshape(x.shape),)


def _backward(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor, *, eps: float) -> tuple[Tensor, ...]:
    (c, rstd), D, g = _centred(x, eps), x.shape[-1], rows(dy)
    dn = g * weight.to(c.dtype)
    dsquares = row_sum(dn * c) * -0.5 * rstd**3 / D
    dc = dn * rstd + dsquares * (2 * c)
    dx = dc - row_sum(dc) / D
    dweight, dbias = token_sum(g * (c * rstd)), token_sum(g)
    return dx.to(x.dtype).reshape(x.shape), dweight.to(weight.dtype), dbias.to(bias.dtype)


KERNEL = Implementation(
    name="layer_norm.tiles", operator="layer_norm", forward=_forward, backward=_backward, dtypes=tuple(STORAGE_DTYPES)
)
