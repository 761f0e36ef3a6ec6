"""mHC Forward Pre and its backward, each written once.

Source: manifold-constrained hyper-connections, arXiv 2512.24880 eqs. 14-19; docs/mhc-pre.md states the contracts.

Every function here is polymorphic in its number type. The same lines are read three ways:

- float64 tensors: the reference,
- working-precision tensors, under autograd: the golden implementation,
- error-carrying numbers (`mhc.oracles.bounds.error_number`): the tolerance.

A number type supplies `dtype`, `shape`, `+ - * / @ **`, indexing, and the methods `to`, `reshape`, `unsqueeze`, `sum`,
`mean`, `square`, `rsqrt`, `sigmoid` and `mT`; `torch.cat` reaches it through `__torch_function__`.

Symbols: B batch, S sequence, N = B*S tokens, n residual streams, D hidden size, K = n*D, M = n*n + 2*n.
"""

from typing import Any, NamedTuple

import torch

from mhc.operator import accumulation_dtype

# A tensor or an error-carrying number. Tensor's operators are untyped overloads, which no structural protocol matches.
Number = Any


class Forward(NamedTuple):
    """What the forward computes, in the order in which implementations return it."""

    h_in: Number  # [B, S, D], x's dtype
    h_post: Number  # [B, S, n]
    h_res: Number  # [B, S, n, n]
    inv_rms: Number  # [B, S]
    h_mix: Number  # [B, S, M]
    h_pre: Number  # [B, S, n]


class Backward(NamedTuple):
    """What the backward computes, in the order in which implementations return it."""

    dx: Number  # [B, S, n, D], x's dtype
    dphi: Number  # [M, K]
    dalpha: Number  # [3]
    dbias: Number  # [M]
    dgamma: Number  # [n, D], or None where gamma is None


def forward(
    x: Number, phi: Number, alpha: Number, bias: Number, gamma: Number | None, *, norm_eps: float, hc_eps: float
) -> Forward:
    """Compute the gates and the mixed input of one layer; eqs. 14-19.

    Shapes: x [B, S, n, D], phi [M, K], alpha [3], bias [M], gamma [n, D] or None (ones).
    `x` is raised to the accumulation dtype once, and `h_in` rounded once to `x.dtype`.
    """
    B, S, n, D = x.shape
    K = n * D
    v = x.to(accumulation_dtype(x.dtype))  # [B, S, n, D]
    flat = v.reshape(B, S, K)
    weighted = flat if gamma is None else flat * gamma.reshape(K)

    inv_rms = (flat.square().mean(-1) + norm_eps).rsqrt()  # [B, S]      gamma is not in the mean
    h_mix = weighted @ phi.mT  # [B, S, M]   raw: before inv_rms
    t = h_mix * inv_rms.unsqueeze(-1)
    h_pre = (alpha[0] * t[..., :n] + bias[:n]).sigmoid() + hc_eps  # [B, S, n]
    h_post = (alpha[1] * t[..., n : 2 * n] + bias[n : 2 * n]).sigmoid() * 2  # [B, S, n]
    h_res = (alpha[2] * t[..., 2 * n :] + bias[2 * n :]).reshape(B, S, n, n)  # raw: before any Sinkhorn
    h_in = (h_pre.unsqueeze(-1) * v).sum(-2)  # [B, S, D]   raw x
    return Forward(h_in.to(x.dtype), h_post, h_res, inv_rms, h_mix, h_pre)


def backward(
    x: Number,
    phi: Number,
    alpha: Number,
    bias: Number,
    inv_rms: Number,
    h_mix: Number,
    h_pre: Number,
    h_post: Number,
    dh_in: Number,
    dh_post: Number,
    dh_res: Number,
    gamma: Number | None,
    *,
    norm_eps: float,
    hc_eps: float,
) -> Backward:
    """Compute the gradients of `forward`, derived by hand; docs/mhc-pre.md has the derivation step by step.

    Shapes: as `forward`, with its saved inv_rms [B, S], h_mix [B, S, M], h_pre and h_post [B, S, n], and the upstream
    gradients dh_in [B, S, D] (x's dtype), dh_post [B, S, n], dh_res [B, S, n, n]. `dx` is rounded once to `x.dtype`.
    `bias` and `norm_eps` are part of the signature and do not enter: the saved tensors carry them.
    """
    del bias, norm_eps
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    acc = accumulation_dtype(x.dtype)
    v, dh = x.to(acc), dh_in.to(acc).unsqueeze(-2)  # [B, S, n, D], [B, S, 1, D]
    flat = v.reshape(B, S, K)

    dh_pre = (dh * v).sum(-1)  # [B, S, n]
    s = h_pre - hc_eps  # the sigmoid itself
    dh_pre2 = dh_pre * s * (1 - s)
    dh_post2 = dh_post * h_post * (1 - h_post / 2)
    dh_res2 = dh_res.reshape(B, S, n * n)
    dgate = torch.cat([dh_pre2, dh_post2, dh_res2], -1)  # [B, S, M]
    dt = torch.cat([alpha[0] * dh_pre2, alpha[1] * dh_post2, alpha[2] * dh_res2], -1)  # [B, S, M]

    dh_mix = dt * inv_rms.unsqueeze(-1)
    dvec_mm = dh_mix @ phi  # [B, S, K]
    dinv_rms = (dt * h_mix).sum(-1)  # [B, S]      dt, not dh_mix; h_mix raw
    dvec = dvec_mm if gamma is None else dvec_mm * gamma.reshape(K)
    dnorm = (dinv_rms * inv_rms**3 / K).unsqueeze(-1) * flat
    dx = (dvec - dnorm).reshape(B, S, n, D) + h_pre.unsqueeze(-1) * dh

    weighted = flat if gamma is None else flat * gamma.reshape(K)
    dphi = dh_mix.reshape(N, M).mT @ weighted.reshape(N, K)  # [M, K]
    t = h_mix * inv_rms.unsqueeze(-1)
    dscale = (dgate * t).reshape(N, M)
    parts = dscale[:, :n], dscale[:, n : 2 * n], dscale[:, 2 * n :]
    dalpha = torch.cat([part.reshape(1, -1).sum(-1) for part in parts])  # [3]   over tokens and gates at once
    dbias = dgate.reshape(N, M).sum(0)  # [M]
    dgamma = None if gamma is None else (flat * dvec_mm).reshape(N, K).sum(0).reshape(n, D)
    return Backward(dx.to(x.dtype), dphi, dalpha, dbias, dgamma)
