"""LayerNorm over the last axis.

    y = (x - mean(x)) * rsqrt(mean((x - mean(x))^2) + eps) * weight + bias

Source: arXiv 1607.06450, eq. 4. x [*B, D], weight [D], bias [D] -> y [*B, D].
"""

import torch
from torch import Tensor

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(x="[*B, D] storage", weight="[D] storage", bias="[D] storage", D=(1, 8192), eps=(1e-5, 1e-6, 0.0), tokens="*B")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Return y, computed in float32 and rounded once to x's dtype."""
    v = x.float()
    centred = v - v.mean(-1, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (centred * rstd * weight.float() + bias.float()).to(x.dtype)


# PyTorch's own is not here. On the CPU, in bfloat16 and float16, it adds up dweight and dbias in that dtype, and rounds the
# statistics of its backward to it; in float32, an infinite dy makes some dx infinite that are NaN by the formula.
IMPLEMENTATIONS = (eager(layer_norm),)
