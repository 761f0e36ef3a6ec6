"""Liger-Kernel's mHC as an implementation from outside (`pip install mhc-fuzz[liger]`); docs/bring-your-own.md explains it.

    python -m mhc.fuzz --minutes 3 --impl docs/examples/liger_mhc.py:IMPL

Liger computes the gates in one function, with Sinkhorn's iteration on h_res and no weight in the norm, and applies them in
others. What of it is this operator, and what is not:

| here | in Liger |
|---|---|
| phi [M, K], alpha [3] | phi [K, M], three scalars |
| h_pre, h_post, inv_rms, h_in, and the order pre, post, res | the same; `pre_eps`, `rms_eps` and `post_mult` are arguments |
| h_res, raw | goes through Sinkhorn at once: below it is made of Liger's `mix` by Liger's own expression for these logits |
| h_mix, raw | `mix`, which has inv_rms in it: not returned, not judged |
| backward from saved tensors | Liger's autograd functions behind its own forward; Sinkhorn's backward left out |
| gamma; n not a power of two | not there, refused |
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal
from unittest import mock

import torch
from liger_kernel.ops import mhc as liger
from torch import Tensor

from mhc import Case, Implementation, Refused

POST_MULT = 2.0  # h_post = 2 sigmoid(...)
STEPS = 1  # of Sinkhorn, whose result is not looked at


def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor | None, ...]:
    """What `LigerMHCCoeffsFunction` and `LigerMHCPreFunction` do, call by call, since they do not return `mix`."""
    assert gamma is None
    B, S, n, D = x.shape
    tokens, bias = x.reshape(B * S, n, D).contiguous(), bias.contiguous()
    mix, inv_rms = liger.mhc_mm_norm_fwd(tokens.view(B * S, n * D), phi.T.contiguous(), eps=norm_eps)
    h_pre, h_post, _ = liger.mhc_split_sinkhorn_fwd(
        mix, bias, *alpha.unbind(), tmax=STEPS, pre_eps=hc_eps, sinkhorn_eps=0.0, post_mult=POST_MULT
    )
    h_in = liger.mhc_pre_fwd(tokens, h_pre).to(x.dtype)
    h_res = mix[:, 2 * n :] * alpha[2] + bias[2 * n :]
    return (
        h_in.view(B, S, D),
        h_post.view(B, S, n),
        h_res.view(B, S, n, n),
        inv_rms.view(B, S),
        None,
        h_pre.view(B, S, n),
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
    """Liger's autograd functions as a model would call them: both, and PyTorch adds up the two gradients of x."""
    del inv_rms, h_mix, h_pre, h_post  # Liger's backward has its own forward's
    assert gamma is None
    leaves = [one.detach().requires_grad_() for one in (x, phi.T.contiguous(), bias, *alpha.unbind())]
    with torch.enable_grad(), without_sinkhorn():
        gates = liger.LigerMHCCoeffsFunction.apply(*leaves, True, STEPS, norm_eps, hc_eps, 0.0, POST_MULT)
        h_in = liger.LigerMHCPreFunction.apply(leaves[0], gates[0])
        gradients = torch.autograd.grad((h_in, *gates[1:]), leaves, (dh_in, dh_post, dh_res))
    dx, dphi, dbias, *dalpha = gradients
    return dx, dphi.T.contiguous(), torch.stack(dalpha), dbias, None


@contextmanager
def without_sinkhorn() -> Iterator[None]:
    """Liger's backward with dh_res taken for the gradient of the logits, as it is here, and not of Sinkhorn's result."""
    with mock.patch.object(liger, "mhc_sinkhorn_bwd", lambda mix, b, alpha_res, grad_hres, **_: grad_hres):
        yield


def forward_wide(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor | None, ...]:
    """`forward` on x in float32, and h_in rounded at the end."""
    h_in, *others = forward(x.float(), phi, alpha, bias, gamma, norm_eps=norm_eps, hc_eps=hc_eps)
    assert h_in is not None
    return h_in.to(x.dtype), *others


def backward_wide(x: Tensor, *others: Tensor | None, norm_eps: float, hc_eps: float) -> tuple[Tensor | None, ...]:
    """`backward` on x and dh_in in float32, and dx rounded once, when its two parts are added up."""
    phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma = others
    assert dh_in is not None
    wide = (x.float(), phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in.float(), dh_post, dh_res, gamma)
    dx, *rest = backward(*wide, norm_eps=norm_eps, hc_eps=hc_eps)
    assert dx is not None
    return dx.to(x.dtype), *rest


def supports(case: Case) -> Literal[True] | Refused:
    """Liger's matrices of n x n are tiles of Triton, and it expects the norm's weight in phi."""
    if case.n & (case.n - 1):
        return Refused("n must be a power of two")
    if case.has("gamma"):
        return Refused("there is no gamma")
    return True


# No bfloat16: Triton 3.7.1's interpreter truncates float32 to it and misreads its subnormals, which is no fault of Liger's.
# WIDE takes it, since no kernel sees it there.
IMPL = Implementation(
    name="liger-interpreted",
    forward=forward,
    backward=backward,
    dtypes=("float16", "float32"),
    supports=supports,
    env={"TRITON_INTERPRET": "1"},
    recomputes_forward=True,
)
ALL = ("bfloat16", "float16", "float32")
WIDE = replace(IMPL, name="liger-wide-interpreted", forward=forward_wide, backward=backward_wide, dtypes=ALL)
COMPILED = replace(IMPL, name="liger", devices=("cuda",), dtypes=ALL, env={})
# float32 products in float32 on tensor cores that would take TF32 by default
WIDE_COMPILED = replace(WIDE, name="liger-wide", devices=("cuda",), env={"TRITON_F32_DEFAULT": "ieee"})
