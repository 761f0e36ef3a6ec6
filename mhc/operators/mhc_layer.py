"""A layer with mHC, around its sublayer F: gates, Sinkhorn, the input of F, and the streams behind it.

    h_in = sum_i h_pre[i] x[i]        out[o] = sum_i H[o, i] x[i] + h_post[o] f,  H = Sinkhorn(h_res),  f = F(h_in)

Source: arXiv 2512.24880, eqs. 3, 8, 9 and 14-19; the gates are those of mHC pre. f is an input here.
x [B, S, n, C], phi [M, K], alpha [3], bias [M], f [B, S, C], K = n C, M = n n + 2n -> h_in [B, S, C], out [B, S, n, C].
"""

from torch import Tensor

from mhc.declaration import operator
from mhc.operators.eager import eager
from mhc.operators.mhc_post import mhc_post
from mhc.operators.mhc_pre.formula import forward
from mhc.operators.mhc_pre.table import usual_exponents
from mhc.operators.mhc_sinkhorn import mhc_sinkhorn


@operator(
    x="[B, S, n, C] storage",
    phi="[M, K] float32",
    alpha="[3] float32",
    bias="[M] float32",
    f="[B, S, C] storage",
    K="n*C",
    M="n*n+2*n",
    n=(1, 16),
    norm_eps=(1e-6, 1e-5),
    hc_eps=(1e-6, 0.0),
    tokens="B, S",
    usual=usual_exponents,
)
def mhc_layer(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, f: Tensor, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, Tensor]:
    """Return h_in and out, each rounded once to x's dtype."""
    pre = forward(x, phi, alpha, bias, None, norm_eps=norm_eps, hc_eps=hc_eps)
    (mixing,) = mhc_sinkhorn.forward(pre.h_res)
    (out,) = mhc_post.forward(x, f, pre.h_post, mixing)
    return pre.h_in, out


IMPLEMENTATIONS = (eager(mhc_layer),)
