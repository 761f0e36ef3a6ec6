"""mHC post with h_res[i, o], and a layer with mHC; the backward is autograd's."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES, accumulation_dtype


def _transposed(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Tensor:
    mixed = (h_res.unsqueeze(-1) * x.to(h_res.dtype).unsqueeze(-2)).sum(-3)  # [*B, n, C], from [*B, n, n, C]
    added = h_post.unsqueeze(-1) * f.to(h_post.dtype).unsqueeze(-2)
    return (mixed + added).to(x.dtype)


def _layer(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, f: Tensor, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, Tensor]:
    n, v = x.shape[2], x.to(accumulation_dtype(x.dtype))
    flat = v.flatten(2)
    t = flat @ phi.T * torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    pre, post, res = t[..., :n], t[..., n : 2 * n], t[..., 2 * n :]
    h_pre = (alpha[0] * pre + bias[:n]).sigmoid() + hc_eps
    h_post = 2 * (alpha[1] * post + bias[n : 2 * n]).sigmoid()
    m = (alpha[2] * res + bias[2 * n :]).reshape(*x.shape[:2], n, n).exp()
    for dim in (-2, -1) * 20:
        m = m / m.sum(dim, keepdim=True)
    h_in = (h_pre.unsqueeze(-1) * v).sum(-2)
    out = m @ v + h_post.unsqueeze(-1) * f.to(v.dtype).unsqueeze(-2)
    return h_in.to(x.dtype), out.to(x.dtype)


TRANSPOSED = Implementation(
    name="mhc_post_transposed.sums", operator="mhc_post_transposed", function=_transposed, dtypes=tuple(STORAGE_DTYPES)
)
LAYER = Implementation(name="mhc_layer.fused", operator="mhc_layer", function=_layer, dtypes=tuple(STORAGE_DTYPES))
