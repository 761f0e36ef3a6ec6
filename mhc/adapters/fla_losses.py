"""The losses of flash-linear-attention. Those of a whole batch are scalars."""

from typing import Any

import torch
from torch import Tensor

from mhc.adapters.fla import FLA, module
from mhc.adapters.library import IGNORED, TARGET, not_compiled
from mhc.declaration import operator
from mhc.implementation import Implementation
from mhc.operator import accumulation_dtype

_OPTIONS: dict[str, Any] = {"smoothing": (0.0, 0.1), "scale": (1.0, 0.5), "softcap": (0.0, 30.0)}


def _losses(x: Tensor, target: Tensor, smoothing: float, scale: float, z: float, softcap: float) -> Tensor:
    v = x.to(accumulation_dtype(x.dtype)) * scale
    if softcap:
        v = softcap * torch.tanh(v / softcap)
    lse = v.logsumexp(-1)
    loss = lse - (1.0 - smoothing) * v.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    if smoothing:
        loss = loss - smoothing * v.mean(-1)
    return torch.where(target != IGNORED, loss + z * lse * lse, 0.0)


@operator(x="[T, V] storage", target=TARGET, V=(1, 131072), tokens="T", z=(0.0, 1e-4), **_OPTIONS)
def cross_entropy_scaled(x: Tensor, target: Tensor, *, smoothing: float, scale: float, z: float, softcap: float) -> Tensor:
    """Return the loss of each token, of logits times scale, in float32."""
    return _losses(x, target, smoothing, scale, z, softcap)


def _cross_entropy(x: Tensor, target: Tensor, *, smoothing: float, scale: float, z: float, softcap: float) -> Any:
    return module("fused_cross_entropy").cross_entropy_loss(x, target, smoothing, scale, z, softcap or None, IGNORED)[0]


@operator(x="[T, D] storage", weight="[V, D] storage", target=TARGET, bias="[V] storage optional", V=(1, 131072), **_OPTIONS)
def linear_cross_entropy_scaled(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    *,
    smoothing: float,
    scale: float,
    softcap: float,
) -> Tensor:
    """Return the mean loss of the tokens that are not ignored, 0 where all are."""
    logits = x @ weight.T
    losses = _losses(logits if bias is None else logits + bias, target, smoothing, scale, 0.0, softcap)
    return losses.sum() / (target != IGNORED).sum().clamp(min=1)


def _linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    *,
    smoothing: float,
    scale: float,
    softcap: float,
) -> Any:
    loss = module("fused_linear_cross_entropy").fused_linear_cross_entropy_loss
    return loss(x, target, weight, bias, IGNORED, smoothing, scale, softcap or None)


@operator(
    x="[T, D] storage",
    teacher_x="[T, D] storage constant",
    weight="[V, D] storage",
    teacher="[V, D] storage constant",
    V=(1, 65536),
)
def linear_kl_div(x: Tensor, teacher_x: Tensor, weight: Tensor, teacher: Tensor) -> Tensor:
    """Return KL of softmax(x weight^T) from that of the teacher, the mean over tokens, from logits in x's dtype."""
    wide = accumulation_dtype(x.dtype)
    student, right = (x @ weight.T).to(wide).log_softmax(-1), (teacher_x @ teacher.T).to(wide).log_softmax(-1)
    return (right.exp() * (right - student)).sum() / x.shape[0]


def _linear_kl_div(x: Tensor, teacher_x: Tensor, weight: Tensor, teacher: Tensor) -> Any:
    return module("fused_kl_div").fused_kl_div_loss(x, teacher_x, weight, teacher)


@operator(loss="[1] float32", logits="[B, S, V] float32", V=(1, 65536))
def l2_wrap(loss: Tensor, logits: Tensor) -> Tensor:
    """Return the loss; the gradient is that of loss + 1e-4 / (2 B S) sum(max(logits)^2)."""
    penalty = logits.max(-1).values.square().sum() * (0.5e-4 / (logits.shape[0] * logits.shape[1]))
    return loss + (penalty - penalty.detach())


def _l2_wrap(loss: Tensor, logits: Tensor) -> Any:
    return module("l2warp").l2_warp(loss, logits, 1e-4).clone()  # it returns the loss itself


@operator(
    logp="[B, S] float32",
    reference="[B, S] float32 constant",
    old="[B, S] float32 constant",
    rewards="[B] float32 constant",
    there="[B, S] bool",
    B="2*P",
    P=(1, 32),
    beta=(0.2, 0.0),
    epsilon=(0.2, 0.5),
)
def grpo_with_old(
    logp: Tensor, reference: Tensor, old: Tensor, rewards: Tensor, there: Tensor, *, beta: float, epsilon: float
) -> Tensor:
    """Return the loss of GRPO with clipped ratios to an older policy, mean over the tokens that count (arXiv 2402.03300)."""
    gain = ((rewards - rewards.mean()) / (rewards.std() + 1e-8)).unsqueeze(1)
    ratio = (logp - old).exp()
    divergence = (reference - logp).exp() - (reference - logp) - 1
    each = torch.minimum(gain * ratio, gain * ratio.clamp(1 - epsilon, 1 + epsilon)) - beta * divergence
    return -(each * there).sum() / there.sum()


def _grpo_with_old(
    logp: Tensor, reference: Tensor, old: Tensor, rewards: Tensor, there: Tensor, *, beta: float, epsilon: float
) -> Any:
    not_compiled()
    loss = module("grpo").grpo_loss_with_old_logps
    return loss(logp, reference, old, there, logp.shape[1], rewards, beta, epsilon)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *FLA.kernel("cross_entropy", cross_entropy_scaled, function=_cross_entropy),
    *FLA.kernel("linear_cross_entropy_mean", linear_cross_entropy_scaled, function=_linear_cross_entropy),
    *FLA.kernel("linear_kl_div", linear_kl_div, function=_linear_kl_div),
    *FLA.kernel("l2_wrap", l2_wrap, function=_l2_wrap),
    *FLA.kernel("grpo_with_old", grpo_with_old, function=_grpo_with_old),
)
