"""GEGLU: a gate by GELU in its tanh form, elementwise.

    y = round(a/2 * (1 + tanh(sqrt(2/pi) * (a + 0.044715 a^3)))) * b

Source: arXiv 2002.05202, eq. 6, without its matrices; GELU as in arXiv 1606.08415. a, b [*B, D] -> y [*B, D].
"""

from torch import Tensor
from torch.nn import functional

from mhc.declaration import operator
from mhc.operators.eager import eager


@operator(a="[*B, D] storage", b="[*B, D] storage", D=(1, 16384), tokens="*B")
def geglu(a: Tensor, b: Tensor) -> Tensor:
    """Return y; GELU is float32 and rounded to a's dtype, then multiplied by b."""
    return functional.gelu(a.float(), approximate="tanh").to(a.dtype) * b


def _torch(a: Tensor, b: Tensor) -> Tensor:
    return functional.gelu(a, approximate="tanh") * b


IMPLEMENTATIONS = (eager(geglu, "torch", _torch), eager(geglu))
