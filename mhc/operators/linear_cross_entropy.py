"""Cross-entropy of logits that are a product, for each token: the last layer of a language model.

    y = logsumexp(x weight^T) - (x weight^T)[target]

Source: arXiv 2411.09009, eq. 1. x [T, D], weight [V, D], target [T], -100 for none -> y [T], float32.
"""

from torch import Tensor
from torch.nn import functional

from mhc.declaration import operator
from mhc.operator import accumulation_dtype
from mhc.operators.eager import eager


@operator(
    x="[T, D] storage",
    weight="[V, D] storage",
    target="[T] int64 in 0..V or -100",
    D=(1, 8192),
    V=(1, 131072),
    tokens="T",
)
def linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return y; logits and loss are float32."""
    wide = accumulation_dtype(x.dtype)
    return functional.cross_entropy(x.to(wide) @ weight.to(wide).T, target, reduction="none")


IMPLEMENTATIONS = (eager(linear_cross_entropy),)
