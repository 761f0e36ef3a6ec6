"""Softmax over the last axis.

    y_i = exp(x_i - max(x)) / sum_j exp(x_j - max(x))

x [*B, V] -> y [*B, V].
"""

from torch import Tensor
from torch.nn import functional

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(x="[*B, V] storage", V=(1, 65536), tokens="*B")
def softmax(x: Tensor) -> Tensor:
    """Return y, computed in float32 and rounded once to x's dtype."""
    return functional.softmax(x.float(), -1).to(x.dtype)


def _torch(x: Tensor) -> Tensor:
    return functional.softmax(x, -1)


# In bfloat16 and float16 PyTorch's backward takes the rounded y: dx is wrong by y's rounding times max |dy|.
IMPLEMENTATIONS = (eager(softmax, "torch", _torch, dtypes=("float32", "float64")), eager(softmax))
