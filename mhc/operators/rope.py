"""Rotary position embedding: the halves of each row of a head are rotated against each other.

    y_1 = x_1 * cos - x_2 * sin        y_2 = x_2 * cos + x_1 * sin

Source: arXiv 2104.09864, eq. 34, in the order of GPT-NeoX and Llama. x_1 and x_2 are the two halves of a row:
x [B, S, H, D], cos and sin [S, R], D = 2R -> y [B, S, H, D].
"""

import torch
from torch import Tensor

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(
    x="[B, S, H, D] storage",
    cos="[S, R] float32",
    sin="[S, R] float32",
    D="2*R",
    H=(1, 128),
    R=(1, 128),
    tokens="B",
    production={"H": (8, 16, 32, 64), "R": (32, 64, 48), "S": (128, 512, 2048, 4096)},
)
def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return y, computed in the dtype of cos and rounded once to x's dtype."""
    first, second = x.to(cos.dtype).chunk(2, -1)
    c, s = cos.unsqueeze(-2), sin.unsqueeze(-2)  # [S, 1, R]
    return torch.cat([first * c - second * s, second * c + first * s], -1).to(x.dtype)


IMPLEMENTATIONS = (eager(rope),)
