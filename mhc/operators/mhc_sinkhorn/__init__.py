"""Sinkhorn-Knopp of mHC: logits become doubly stochastic matrices, which mix the residual streams.

    M = exp(logits);  then, 20 times:  M = M / (sums of columns),  M = M / (sums of rows)

Source: arXiv 2512.24880, eqs. 8 and 9: columns first, rows last, no eps. logits [*B, n, n] -> M [*B, n, n],
both float32.

Kernels in production compute other functions, which differ by more than roundings: each is an operator of its own here.
Rows are sums over the last axis.
"""

from torch import Tensor

from mhc.declaration import operator
from mhc.operator import Operator
from mhc.operators.eager import eager
from mhc.operators.mhc_sinkhorn.triton.schedule import SPACE, unfit
from mhc.operators.on_triton import on_triton

N = (1, 16)


def _sinkhorn(name: str, *, iterations: int = 20, softmax: bool = False, rows_first: bool = False) -> Operator:
    """Return the operator that divides by the sums of columns and rows in turn, `iterations` times each.

    Args:
        softmax: begin with a softmax of the rows in place of exp, with eps added to it and to each sum.
        rows_first: begin with rows, so that the columns are the last.
    """
    dims = (-1, -2) if rows_first else (-2, -1)

    if softmax:

        @operator(name=name, logits="[*B, n, n] float32", n=N, eps=(1e-6, 1e-4, 0.0), tokens="*B")
        def with_eps(logits: Tensor, *, eps: float) -> Tensor:
            m = logits.softmax(-1) + eps  # the first division of rows
            for step in range(1, 2 * iterations):
                m = m / (m.sum(dims[step % 2], keepdim=True) + eps)
            return m

        return with_eps

    @operator(name=name, logits="[*B, n, n] float32", n=N, tokens="*B")
    def plain(logits: Tensor) -> Tensor:
        m = logits.exp()
        for step in range(2 * iterations):
            m = m / m.sum(dims[step % 2], keepdim=True)
        return m

    return plain


mhc_sinkhorn = _sinkhorn("mhc_sinkhorn")
mhc_sinkhorn_liger = _sinkhorn("mhc_sinkhorn_liger", softmax=True, rows_first=True)
"""As in Liger-Kernel, DeepSeek-V4's `hc_split_sinkhorn` in SGLang, and CANN."""
mhc_sinkhorn_tilekernels = _sinkhorn("mhc_sinkhorn_tilekernels", iterations=10, softmax=True, rows_first=True)
"""As in DeepSeek's TileKernels."""


@operator(logits="[*B, n, n] float32", n=N, tokens="*B")
def mhc_sinkhorn_te(logits: Tensor) -> Tensor:
    """Return M as TransformerEngine does: in the logarithmic domain, rows first, no eps."""
    log = logits
    for _ in range(20):
        log = log.log_softmax(-1).log_softmax(-2)
    return log.exp()


SINKHORNS = (mhc_sinkhorn, mhc_sinkhorn_liger, mhc_sinkhorn_tilekernels, mhc_sinkhorn_te)
_LAUNCHES = "mhc.operators.mhc_sinkhorn.triton.launches"
IMPLEMENTATIONS = (
    *(eager(one) for one in SINKHORNS),
    *on_triton(mhc_sinkhorn, _LAUNCHES, SPACE, unfit),
    *on_triton(mhc_sinkhorn_liger, _LAUNCHES, SPACE, unfit, softmax=True, pairs=19),
    *on_triton(mhc_sinkhorn_tilekernels, _LAUNCHES, SPACE, unfit, softmax=True, pairs=9),
)
