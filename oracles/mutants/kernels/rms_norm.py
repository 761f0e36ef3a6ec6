"""RMSNorm in tiles."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.mutants.kernels.tiles import row_sum, rows, token_sum


def _forward(x: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, ...]:
    v, D = rows(x), x.shape[-1]
    rstd = torch.rsqrt(row_sum(v * v) / D + eps)
    y = (v * rstd).to(x.dtype) * weight
    return (y.reshape(x.shape),)


def _backward(x: Tensor, weight: Tensor, dy: Tensor, *, eps: float) -> tuple[Tensor, ...]:
    v, D, dy = rows(x), x.shape[-1], dy.reshape(-1, x.shape[-1])
    rstd = torch.rsqrt(row_sum(v * v) / D + eps)
    dn = (dy * weight).to(v.dtype)
    dsquares = row_sum(dn * v) * -0.5 * rstd**3 / D
    dx = dn * rstd + dsquares * (2 * v)
    dweight = token_sum((dy * (v * rstd).to(x.dtype)).to(v.dtype))
    return dx.to(x.dtype).reshape(x.shape), dweight.to(weight.dtype)


KERNEL = Implementation(
    name="rms_norm.tiles", operator="rms_norm", forward=_forward, backward=_backward, dtypes=tuple(STORAGE_DTYPES)
)
