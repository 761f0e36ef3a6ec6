"""What the blocks of docs/operators.md import: an operator that is registered with PyTorch, and a kernel."""

import torch
from torch import Tensor


def rms_norm_ref(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


@torch.library.custom_op("my::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return rms_norm_ref(x, weight, eps)


def rope_d64(x: Tensor, cos_sin: Tensor, positions: Tensor) -> Tensor:
    cos, sin = cos_sin[positions].float()[:, None].chunk(2, -1)
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)
