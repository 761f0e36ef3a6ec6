"""Causal scaled dot-product attention.

    o = softmax(q k^T / sqrt(D), where key <= query) v

Source: arXiv 1706.03762, eq. 1. q, k, v [B, H, S, D] -> o [B, H, S, D].
"""

import math

import torch
from torch import Tensor

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(
    q="[B, H, S, D] storage", k="[B, H, S, D] storage", v="[B, H, S, D] storage", S=(1, 4096), D=(1, 256), tokens="B, H"
)
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return o in q's dtype. Products accumulate in float32; the weights are rounded to q's dtype before they meet v."""
    S, D = q.shape[-2:]
    later = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1)
    scores = q.float() @ k.float().mT / math.sqrt(D)
    weights = scores.masked_fill(later, -math.inf).softmax(-1)
    return weights.to(q.dtype) @ v


# `scaled_dot_product_attention` is not here: a query whose scores are all -inf gets 0 from it, and NaN by the formula.
IMPLEMENTATIONS = (eager(attention),)
