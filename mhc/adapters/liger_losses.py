"""Liger-Kernel's losses. Those of a whole batch are scalars; what is ignored has no part in their mean."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mhc.adapters.library import IGNORED, TARGET
from mhc.adapters.liger import LIGER, apply, known, takes
from mhc.declaration import operator
from mhc.implementation import Implementation
from mhc.operator import Regime, accumulation_dtype


def far(*logits: str) -> dict[str, Regime]:
    """Return the regime of a softmax whose logits are so far apart that most probabilities are 0: exp(-104) in float32."""
    return {"far logits": Regime(tensors=dict.fromkeys(logits, (None, 6, 9)))}


def _counted(target: Tensor | None, rows: Tensor) -> tuple[Tensor, Tensor | int]:
    """Return the rows without those whose target is ignored, which are 0, and how many are left, at least 1."""
    if target is None:
        return rows, max(rows.shape[0], 1)
    there = target != IGNORED
    return torch.where(there.unsqueeze(-1) if rows.dim() > 1 else there, rows, 0.0), there.sum().clamp(min=1)


def _cross_entropies(
    x: Tensor, target: Tensor, weight: Tensor | None, smoothing: float, z: float, softcap: float
) -> tuple[Tensor, Tensor]:
    """Return for each token the loss and the part z lse^2 of it, in float32; both are 0 where the target is ignored.

    Logits of ignored tokens have the gradient 0, also where they are NaN, as in Liger; in PyTorch it is NaN there.
    """
    v = x.to(accumulation_dtype(x.dtype)).masked_fill((target == IGNORED).unsqueeze(-1), 0.0)
    if softcap:
        v = softcap * torch.tanh(v / softcap)
    there, at = target != IGNORED, target.clamp(min=0)
    lse = v.logsumexp(-1)
    hard = lse - v.gather(-1, at.unsqueeze(-1)).squeeze(-1)
    if weight is not None:
        hard = hard * weight[at]
    if smoothing:
        each = lse.unsqueeze(-1) - v
        soft = (each if weight is None else each * weight).sum(-1)
        hard = hard * (1.0 - smoothing) + soft * (smoothing / x.shape[-1])
    return torch.where(there, hard, 0.0), torch.where(there, z * lse * lse, 0.0)


_OPTIONS: dict[str, Any] = {"smoothing": (0.0, 0.1), "z": (0.0, 1e-4), "softcap": (0.0, 30.0)}


@operator(
    x="[T, V] storage",
    target=TARGET,
    weight="[V] float32 constant optional",
    V=(1, 131072),
    tokens="T",
    mutates=("x",),
    regimes=far("x"),
    **_OPTIONS,
)
def cross_entropy_each(
    x: Tensor, target: Tensor, weight: Tensor | None, *, smoothing: float, z: float, softcap: float
) -> Tensor:
    """Return the loss of each token, computed in float32 and rounded once to x's dtype."""
    hard, squares = _cross_entropies(x, target, weight, smoothing, z, softcap)
    return (hard + squares).to(x.dtype)


def _ce(reduction: str, x: Tensor, target: Tensor, weight: Tensor | None, smoothing: float, z: float, softcap: float) -> Any:
    weights = known("cross_entropy", "CrossEntropy", "weight", weight)
    arguments = (x, target, *weights, IGNORED, z, smoothing, reduction, softcap or None, False)
    return apply("cross_entropy", "CrossEntropy", *arguments)[0]


def _cross_entropy_each(
    x: Tensor, target: Tensor, weight: Tensor | None, *, smoothing: float, z: float, softcap: float
) -> Any:
    return _ce("none", x, target, weight, smoothing, z, softcap)


@operator(x="[T, V] storage", target=TARGET, V=(1, 131072), mutates=("x",), regimes=far("x"), **_OPTIONS)
def cross_entropy_mean(x: Tensor, target: Tensor, *, smoothing: float, z: float, softcap: float) -> Tensor:
    """Return the mean of the losses of the tokens that are not ignored, in x's dtype; 0 where all are."""
    hard, squares = _cross_entropies(x, target, None, smoothing, z, softcap)
    _, count = _counted(target, hard)
    return ((hard + squares).sum() / count).to(x.dtype)


def _cross_entropy_mean(x: Tensor, target: Tensor, *, smoothing: float, z: float, softcap: float) -> Any:
    return _ce("mean", x, target, None, smoothing, z, softcap)


_LINEAR: dict[str, Any] = {
    "x": "[T, D] storage",
    "weight": "[V, D] storage",
    "target": TARGET,
    "bias": "[V] storage optional",
}


@operator(**_LINEAR, V=(1, 131072), tokens="T", **_OPTIONS)
def linear_cross_entropy_each(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *, smoothing: float, z: float, softcap: float
) -> Tensor:
    """Return the loss of each token in float32, from logits that are rounded to x's dtype."""
    logits = x @ weight.T
    hard, squares = _cross_entropies(logits if bias is None else logits + bias, target, None, smoothing, z, softcap)
    return hard + squares


@operator(**_LINEAR, V=(1, 131072), **_OPTIONS)
def linear_cross_entropy_mean(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *, smoothing: float, z: float, softcap: float
) -> Tensor:
    """Return the mean over the tokens that are not ignored."""
    logits = x @ weight.T
    hard, squares = _cross_entropies(logits if bias is None else logits + bias, target, None, smoothing, z, softcap)
    _, count = _counted(target, hard)
    return (hard + squares).sum() / count


def _flce(reduction: str, x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *options: float) -> Any:
    smoothing, z, softcap = options
    name = ("fused_linear_cross_entropy", "FusedLinearCrossEntropy")
    weights, squares = known(*name, "ce_weight", None), known(*name, "return_z_loss", False)
    sums = (torch.float32,) if takes(*name, "accum_dtype") else ()  # before 0.6.2 in the dtype of weight
    arguments = (x, weight, target, bias, *weights, IGNORED, z, smoothing, reduction, softcap or None, *squares, *sums)
    loss = apply(*name, *arguments)
    return loss[0] if isinstance(loss, tuple) else loss


def _flce_each(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *, smoothing: float, z: float, softcap: float
) -> Any:
    return _flce("none", x, weight, target, bias, smoothing, z, softcap)


def _flce_mean(
    x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, *, smoothing: float, z: float, softcap: float
) -> Any:
    return _flce("mean", x, weight, target, bias, smoothing, z, softcap)


_PAIR: dict[str, Any] = {
    "x": "[T, V] storage",
    "target": "[T, V] storage constant",
    "labels": f"{TARGET} optional",
    "V": (1, 65536),
}


def divergences(q: Tensor, p: Tensor, beta: float) -> Tensor:
    """Return the terms of the generalised Jensen-Shannon divergence of two rows of logarithms of probabilities."""
    if beta in {0.0, 1.0}:
        return q.exp() * (q - p) if beta else p.exp() * (p - q)
    m = torch.stack([p + math.log(beta), q + math.log(1.0 - beta)]).logsumexp(0)
    return beta * p.exp() * (p - m) + (1.0 - beta) * q.exp() * (q - m)


@operator(**_PAIR, beta=(0.5, 0.0, 1.0, 0.1), regimes=far("x", "target"))
def jsd(x: Tensor, target: Tensor, labels: Tensor | None, *, beta: float) -> Tensor:
    """Return the generalised Jensen-Shannon divergence of two softmaxes: KL(P, M) and KL(Q, M), weighted by beta."""
    rows, count = _counted(labels, divergences(x.log_softmax(-1).float(), target.log_softmax(-1).float(), beta))
    return (rows.sum() / count).to(x.dtype)


def _jsd(x: Tensor, target: Tensor, labels: Tensor | None, *, beta: float) -> Any:
    return apply("jsd", "JSD", x.log_softmax(-1), target.log_softmax(-1), labels, beta, IGNORED)


@operator(x="[T, V] storage", target="[T, V] storage constant", V=(1, 65536), tokens="T")
def kl_div_each(x: Tensor, target: Tensor) -> Tensor:
    """Return exp(target) (target - x) in float32, both logarithms."""
    q, p = x.to(accumulation_dtype(x.dtype)), target.to(accumulation_dtype(x.dtype))
    return p.exp() * (p - q)


def _kl_div_each(x: Tensor, target: Tensor) -> Any:
    return apply("kl_div", "KLDivLoss", x, target, "none", True)


@operator(x="[T, V] storage", target="[T, V] storage constant", V=(1, 65536), log_target=(0.0, 1.0), eps=(1e-10, 1e-6))
def kl_div_mean(x: Tensor, target: Tensor, *, log_target: float, eps: float) -> Tensor:
    """Return the sum over V, mean over T, of target (log(max(target, eps)) - x), or with logarithms as target."""
    q, p = x.to(accumulation_dtype(x.dtype)), target.to(accumulation_dtype(x.dtype))
    each = p.exp() * (p - q) if log_target else p * (p.clamp(min=eps).log() - q)
    return each.sum() / x.shape[0]


def _kl_div_mean(x: Tensor, target: Tensor, *, log_target: float, eps: float) -> Any:
    return apply("kl_div", "KLDivLoss", x, target, "batchmean", bool(log_target), eps)


@operator(**_PAIR)
def tvd_mean(x: Tensor, target: Tensor, labels: Tensor | None) -> Tensor:
    """Return half of the sum of |x - target| over V, mean over the rows that are not ignored, in float32."""
    difference = x.to(accumulation_dtype(x.dtype)) - target.to(accumulation_dtype(x.dtype))
    sign = torch.where(x == target, 0.0, torch.where(x > target, 0.5, -0.5))  # as Liger, also where one is NaN
    rows, count = _counted(labels, sign * difference)
    return rows.sum() / count


def _tvd_mean(x: Tensor, target: Tensor, labels: Tensor | None) -> Any:
    return apply("tvd", "TVDLoss", x, target, labels, "batchmean", IGNORED)


@operator(table="[V, D] storage", index="[T] int64 in 0..V", V=(1, 8192), tokens="T")
def embedding(table: Tensor, index: Tensor) -> Tensor:
    """Return rows of a table."""
    return functional.embedding(index, table)


def _embedding(table: Tensor, index: Tensor) -> Any:
    return apply("experimental.embedding", "Embedding", table, index)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *LIGER.kernel("cross_entropy", cross_entropy_each, function=_cross_entropy_each),
    *LIGER.kernel("cross_entropy_mean", cross_entropy_mean, function=_cross_entropy_mean),
    *LIGER.kernel("linear_cross_entropy", linear_cross_entropy_each, function=_flce_each),
    *LIGER.kernel("linear_cross_entropy_mean", linear_cross_entropy_mean, function=_flce_mean),
    *LIGER.kernel("jsd", jsd, function=_jsd),
    *LIGER.kernel("kl_div", kl_div_each, function=_kl_div_each),
    *LIGER.kernel("kl_div_mean", kl_div_mean, function=_kl_div_mean),
    *LIGER.kernel("tvd_mean", tvd_mean, function=_tvd_mean),
    *LIGER.kernel("embedding", embedding, function=_embedding),
)
