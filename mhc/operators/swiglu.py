"""SwiGLU: a gate by SiLU, elementwise.

    y = round(a * sigmoid(a)) * b

Source: arXiv 2002.05202, eq. 6, without its matrices. a, b [*B, D] -> y [*B, D].
"""

from torch import Tensor
from torch.nn import functional

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(a="[*B, D] storage", b="[*B, D] storage", D=(1, 16384), tokens="*B")
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    """Return y; SiLU is float32 and rounded to a's dtype, then multiplied by b."""
    return functional.silu(a.float()).to(a.dtype) * b


def _torch(a: Tensor, b: Tensor) -> Tensor:
    return functional.silu(a) * b


IMPLEMENTATIONS = (eager(swiglu, "torch", _torch), eager(swiglu))
