"""A complete implementation from outside: mHC Forward Pre in chunks of tokens, and its backward, in plain PyTorch.

Run it with `python -m mhc.fuzz --impl docs/examples/my_kernel.py:IMPL --cases 200`; docs/bring-your-own.md explains it.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import sigmoid

from mhc import Case, Implementation, Refused

CHUNK = 32  # tokens


def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, ...]:
    """Gates and mixed input; `gamma` is folded into `phi` once, and the tokens are read a chunk at a time."""
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    acc = phi.dtype  # float32, or float64 where x is float64
    tokens = x.reshape(N, K)
    weights = (phi if gamma is None else phi * gamma.reshape(K)).T  # [K, M]
    scales = alpha.repeat_interleave(torch.tensor([n, n, n * n], device=x.device))  # [M], one for each row of phi

    inv_rms, h_mix = x.new_empty(N, dtype=acc), x.new_empty(N, M, dtype=acc)
    gates, h_in = x.new_empty(N, M, dtype=acc), x.new_empty(N, D)
    h_pre, h_post = x.new_empty(N, n, dtype=acc), x.new_empty(N, n, dtype=acc)
    for start in range(0, N, CHUNK):
        rows = slice(start, start + CHUNK)
        v = tokens[rows].to(acc)  # [C, K]
        inv_rms[rows] = torch.rsqrt((v * v).mean(1) + norm_eps)
        h_mix[rows] = v @ weights
        gates[rows] = scales * (h_mix[rows] * inv_rms[rows, None]) + bias
        h_pre[rows] = sigmoid(gates[rows, :n]) + hc_eps
        h_post[rows] = 2 * sigmoid(gates[rows, n : 2 * n])
        h_in[rows] = (h_pre[rows, :, None] * v.reshape(-1, n, D)).sum(1).to(x.dtype)
    return (
        h_in.reshape(B, S, D),
        h_post.reshape(B, S, n),
        gates[:, 2 * n :].reshape(B, S, n, n),
        inv_rms.reshape(B, S),
        h_mix.reshape(B, S, M),
        h_pre.reshape(B, S, n),
    )


def backward(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    inv_rms: Tensor,
    h_mix: Tensor,
    h_pre: Tensor,
    h_post: Tensor,
    dh_in: Tensor,
    dh_post: Tensor,
    dh_res: Tensor,
    gamma: Tensor | None,
    *,
    norm_eps: float,
    hc_eps: float,
) -> tuple[Tensor | None, ...]:
    """The gradients; every chunk adds its part of `dphi`, `dalpha`, `dbias` and `dgamma`, in a fixed order."""
    del bias, norm_eps  # inv_rms and the gates carry them
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    acc = phi.dtype
    tokens, dh = x.reshape(N, K), dh_in.reshape(N, D)
    inv_rms, h_mix, h_pre, h_post = inv_rms.reshape(N), h_mix.reshape(N, M), h_pre.reshape(N, n), h_post.reshape(N, n)
    dh_post, dh_res = dh_post.reshape(N, n), dh_res.reshape(N, n * n)
    scales = alpha.repeat_interleave(torch.tensor([n, n, n * n], device=x.device))  # [M]
    weight = 1.0 if gamma is None else gamma.reshape(K)

    dx = x.new_empty(N, K)
    dphi, dvec_x = torch.zeros_like(phi, memory_format=torch.contiguous_format), x.new_zeros(K, dtype=acc)
    dscales, dbias = x.new_zeros(M, dtype=acc), x.new_zeros(M, dtype=acc)
    for start in range(0, N, CHUNK):
        rows = slice(start, start + CHUNK)
        v, dh_c = tokens[rows].to(acc), dh[rows].to(acc)  # [C, K], [C, D]
        s, half = h_pre[rows] - hc_eps, h_post[rows] / 2  # the two sigmoids
        dh_pre = (dh_c[:, None] * v.reshape(-1, n, D)).sum(2)  # [C, n]
        dgate = torch.cat([dh_pre * s * (1 - s), dh_post[rows] * 2 * half * (1 - half), dh_res[rows]], 1)  # [C, M]
        dt = scales * dgate
        dh_mix = dt * inv_rms[rows, None]
        dvec = dh_mix @ phi  # [C, K]
        dnorm = (dt * h_mix[rows]).sum(1) * inv_rms[rows] ** 3 / K  # [C]
        direct = h_pre[rows, :, None] * dh_c[:, None]  # [C, n, D]
        dx[rows] = (dvec * weight - dnorm[:, None] * v + direct.reshape(-1, K)).to(x.dtype)
        dphi += dh_mix.T @ (v * weight)
        dscales += (dgate * (h_mix[rows] * inv_rms[rows, None])).sum(0)  # dgate * h_mix may overflow
        dbias += dgate.sum(0)
        dvec_x += (v * dvec).sum(0)
    dalpha = torch.stack([dscales[:n].sum(), dscales[n : 2 * n].sum(), dscales[2 * n :].sum()])
    dgamma = None if gamma is None else dvec_x.reshape(n, D)
    return dx.reshape(B, S, n, D), dphi, dalpha, dbias, dgamma


def supports(case: Case) -> Literal[True] | Refused:
    """What this kernel takes. A refusal is a reason that people read."""
    return Refused("at most 8 streams") if case.n > 8 else True


IMPL = Implementation(
    name="chunked",
    forward=forward,
    backward=backward,
    devices=("cpu", "cuda"),
    dtypes=("bfloat16", "float16", "float32", "float64"),
    supports=supports,
)
