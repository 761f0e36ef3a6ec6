"""Quantisation to float8_e4m3fn with one scale for each block of 128 elements of a row.

    scale = max(|x| over the block, 1e-4) / 448        q = x / scale, rounded to a code of e4m3

Source: arXiv 2412.19437, section 3.3.2; the floor of 1e-4 as in DeepGEMM's `per_token_cast_to_fp8`, so that a block of zeros
has the scale 1e-4 / 448 and codes 0. x [T, D] -> q [T, D], the values of the codes in float32, and scale [T, G], float32;
the last of the G blocks may be shorter. A block with a NaN is NaN, in codes and scale. No gradient.
"""

import torch
from torch import Tensor
from torch.nn import functional

from mhc.declaration import operator
from mhc.operator import accumulation_dtype
from mhc.operators.eager import eager

BLOCK, MOST, LEAST = 128, 448.0, 1e-4
_E4M3 = torch.float8_e4m3fn


def _quotients(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return x / scale before it is rounded to codes, and scale."""
    (T, D), v = x.shape, x.to(accumulation_dtype(x.dtype))
    blocks = functional.pad(v, (0, -D % BLOCK)).reshape(T, -(-D // BLOCK), BLOCK)
    scale = blocks.abs().amax(-1).clamp(min=LEAST) / MOST  # [T, G]
    return (blocks / scale.unsqueeze(-1)).flatten(1)[:, :D], scale


def _off_code(x: Tensor, q: Tensor) -> Tensor:
    """Return how far x / scale lies outside of what is rounded to the code q, and 448 more where q is no code."""
    codes = torch.arange(127, dtype=torch.uint8, device=q.device).view(_E4M3).to(q.dtype)  # 0 to 448
    at = torch.searchsorted(codes, q.abs().nan_to_num(posinf=MOST).contiguous()).clamp(max=126)
    above, below = codes[(at + 1).clamp(max=126)], codes[(at - 1).clamp(min=0)]
    high, low = (codes[at] + above) / 2, torch.where(at > 0, (codes[at] + below) / 2, -codes[1] / 2)
    v = _quotients(x)[0].float().to(q.dtype)  # a float64 is rounded to float32 first, by PyTorch and by hardware
    right = codes[at] == q.abs()
    along = v * torch.where(q.signbit(), -1.0, 1.0).to(q.dtype)
    outside = (along - high).clamp(min=0) + (low - along).clamp(min=0) + MOST * ~right
    return torch.where(v.isnan() & q.isnan(), 0.0, outside)


@operator(x="[T, D] storage constant", D=(1, 8192), G="(D+127)//128", tokens="T", residuals={"y0": _off_code})
def fp8_block_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return q before it is rounded to codes, and scale; the residual of q judges its rounding."""
    return _quotients(x)


def _rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    q, scale = _quotients(x)
    return q.to(_E4M3).to(q.dtype), scale


IMPLEMENTATIONS = (eager(fp8_block_quant, function=_rounded),)
