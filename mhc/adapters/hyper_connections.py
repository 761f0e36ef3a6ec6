"""The operators of mHC as inference frameworks divide them, after DeepSeek-V4, whose names begin with `hc_`.

    mixes = x phi^T rsqrt(mean(x^2) + eps), for each token
    pre   = sigmoid(mixes[:n] scale[0] + base[:n]) + eps
    post  = 2 sigmoid(mixes[n:2n] scale[1] + base[n:2n])
    comb  = Sinkhorn(mixes[2n:] scale[2] + base[2n:]), that of `mhc_sinkhorn_liger`

x [T, n, C], phi [n n + 2n, n C]; all but x in float32.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mhc.declaration import operator
from mhc.operator import Operator
from mhc.operators.mhc_post import mhc_post_transposed
from mhc.operators.mhc_sinkhorn import mhc_sinkhorn_liger

ANY, FOUR = (1, 16), (4, 4)
"""Numbers of streams."""
BLOCKS: dict[str, Any] = {"C": "64*blocks", "blocks": (1, 128)}
"""Sizes of C that kernels in blocks take."""
HEAD: dict[str, Any] = {
    "x": "[T, n, C] storage",
    "phi": "[n, K] float32",
    "scale": "[1] float32",
    "base": "[n] float32",
    "K": "n*C",
    "n": ANY,
    "eps": (1e-6, 1e-5),
    "tokens": "T",
}
"""What is declared of the streams before the head of the model, of phi with n rows, scale and base."""


def _mixes(x: Tensor, phi: Tensor, eps: float) -> Tensor:
    v = x.flatten(1).float()
    return (v @ phi.T) * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)


def _collapse(x: Tensor, pre: Tensor) -> Tensor:
    return (x.float() * pre.unsqueeze(-1)).sum(-2).to(x.dtype)


def _splitter(sinkhorn: Operator, factor: float) -> Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]:
    def split(mixes: Tensor, scale: Tensor, base: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        n = math.isqrt(mixes.shape[-1] + 1) - 1
        each = torch.cat([scale[:1].expand(n), scale[1:2].expand(n), scale[2:].expand(n * n)])
        t = mixes * each + base
        comb = sinkhorn(t[:, 2 * n :].reshape(-1, n, n), eps=eps)
        return t[:, :n].sigmoid() + eps, factor * t[:, n : 2 * n].sigmoid(), comb

    return split


_split_of_20 = _splitter(mhc_sinkhorn_liger, 2.0)


@operator(mixes="[T, M] float32", scale="[3] float32", base="[M] float32", M="n*n+2*n", n=ANY, eps=1e-6, tokens="T")
def hc_split(mixes: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return pre, post and comb."""
    return _split_of_20(mixes, scale, base, eps)


def hc_pre(
    name: str, n: tuple[int, int], *, sinkhorn: Operator = mhc_sinkhorn_liger, factor: float = 2.0, **sizes: Any
) -> Operator:
    """Return the operator (x, phi, scale, base) -> post, comb, and the input of the layer, sum_i pre[i] x[i].

    factor: that of post. sizes: of C, where it is not any.
    """
    split = _splitter(sinkhorn, factor)

    @operator(
        name=name,
        x="[T, n, C] storage",
        phi="[M, K] float32",
        scale="[3] float32",
        base="[M] float32",
        M="n*n+2*n",
        K="n*C",
        n=n,
        eps=(1e-6, 1e-5),
        tokens="T",
        **sizes,
    )
    def hc(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        pre, post, comb = split(_mixes(x, phi, eps), scale, base, eps)
        return post, comb, _collapse(x, pre)

    return hc


@operator(
    x="[T, 4, C] storage", f="[T, C] storage", h_post="[T, 4] float32", h_res="[T, 4, 4] float32", tokens="T", **BLOCKS
)
def hc_post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    """Return h_post[o] f + sum_i h_res[i, o] x[i], as `mhc_post_transposed`, of four streams in blocks of 64 elements."""
    return mhc_post_transposed(x, f, h_post, h_res)


@operator(x="[T, 4, C] storage", pre="[T, 4] float32", tokens="T", **BLOCKS)
def hc_collapse_of_four(x: Tensor, pre: Tensor) -> Tensor:
    """Return sum_i pre[i] x[i] of four streams in blocks of 64 elements, in float32 and rounded once."""
    return _collapse(x, pre)


@operator(x="[T, 4, C] storage", phi="[24, K] float32", K="4*C", eps=(1e-6, 1e-5), tokens="T", **BLOCKS)
def hc_mixes(x: Tensor, phi: Tensor, *, eps: float) -> Tensor:
    """Return mixes of four streams in blocks of 64 elements."""
    return _mixes(x, phi, eps)


@operator(**HEAD)
def hc_head(x: Tensor, phi: Tensor, scale: Tensor, base: Tensor, *, eps: float) -> Tensor:
    """Return sum_i pre[i] x[i] before the head of the model; pre is of phi with n rows."""
    return _collapse(x, (_mixes(x, phi, eps) * scale + base).sigmoid() + eps)


@operator(x="[T, n, C] storage", pre="[T, n] float32", n=ANY, tokens="T")
def hc_collapse(x: Tensor, pre: Tensor) -> Tensor:
    """Return sum_i pre[i] x[i], in float32 and rounded once."""
    return _collapse(x, pre)


HC_PRE = hc_pre("hc_pre", ANY)
