"""Cross-entropy of logits and a target class, for each token; a token whose target is -100 has no loss and no gradient.

    y = logsumexp(x) - x[target]

x [T, V], target [T] -> y [T], float32.
"""

from torch import Tensor
from torch.nn import functional

from mhc.declaration import operator
from mhc.operator import accumulation_dtype
from mhc.operators.eager import eager


@operator(x="[T, V] storage", target="[T] int64 in 0..V or -100", V=(1, 131072), tokens="T")
def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """Return y, computed in float32."""
    return functional.cross_entropy(x.to(accumulation_dtype(x.dtype)), target, reduction="none")


IMPLEMENTATIONS = (eager(cross_entropy),)
