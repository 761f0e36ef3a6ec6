"""RMSNorm over the last axis.

    y = round(x * rsqrt(mean(x*x) + eps)) * weight

Source: arXiv 1910.07467, eq. 4; rounded to x's dtype before the weight, as in Llama. x [*B, D], weight [D] -> y [*B, D].
"""

import torch
from torch import Tensor
from torch.nn import functional

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(x="[*B, D] storage", weight="[D] storage", D=(1, 8192), eps=(1e-6, 1e-5, 0.0), tokens="*B")
def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """Return y in x's dtype; the mean and the root are float32."""
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _torch(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, eps)


IMPLEMENTATIONS = (eager(rms_norm, "torch", _torch), eager(rms_norm))
