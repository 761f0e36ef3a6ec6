"""Causal scaled dot-product attention, where G query heads share a head of keys and values.

    o = softmax(q k^T / sqrt(D) + bias, where key <= query) v

Source: arXiv 1706.03762, eq. 1; shared heads: arXiv 2305.13245. q [B, H, S, D], k and v [B, Hkv, S, D], H = Hkv G,
the bias of positions [B, H, S, S], without a gradient -> o [B, H, S, D]. Query head h takes head h // G of k and v.
"""

import math

import torch
from torch import Tensor

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(
    q="[B, H, S, D] storage",
    k="[B, Hkv, S, D] storage",
    v="[B, Hkv, S, D] storage",
    bias="[B, H, S, S] float32 constant optional",
    H="Hkv*G",
    Hkv=(1, 128),
    G=(1, 16),
    S=(1, 4096),
    D=(1, 256),
    tokens="B",
    production={"Hkv": (1, 2, 8), "G": (1, 4, 8), "D": (64, 128, 80, 96, 192, 256), "S": (128, 256, 512, 1024, 2048)},
)
def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Return o in q's dtype. Products accumulate in float32; the weights are rounded to q's dtype before they meet v."""
    (B, H, S, D), Hkv = q.shape, k.shape[1]
    grouped = q.reshape(B, Hkv, H // Hkv, S, D)
    later = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1)
    scores = grouped.float() @ k.float().unsqueeze(2).mT / math.sqrt(D)
    if bias is not None:
        scores = scores + bias.reshape(scores.shape)
    weights = scores.masked_fill(later, -math.inf).softmax(-1)
    o: Tensor = weights.to(q.dtype) @ v.unsqueeze(2)
    return o.flatten(1, 2)


# `scaled_dot_product_attention` is not here: a query whose scores are all -inf gets 0 from it, and NaN by the formula.
IMPLEMENTATIONS = (eager(attention),)
