"""Megatron-LM's plain PyTorch functions of mHC, from `MHC_CHECKOUT_MEGATRON`, a checkout; `torch.compile` is off."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mhc.adapters.checkout import Checkout, stand_in
from mhc.declaration import operator
from mhc.implementation import Implementation
from mhc.operators.mhc_post import mhc_post

_FILE = "megatron/core/transformer/hyper_connection.py"
MEGATRON = Checkout("megatron", "Megatron-LM", _FILE)
_EPS = 1e-6


@cache
def _module() -> Any:
    stand_ins: dict[str, dict[str, Any]] = {
        "megatron.core.tensor_parallel.random": {"CheckpointWithoutOutputManager": object},
        "megatron.core.transformer.module": {"MegatronModule": torch.nn.Module},
        "megatron.core.transformer.transformer_config": {"TransformerConfig": object},
        "megatron.core.utils": {"nvtx_decorator": lambda **_: lambda function: function},
    }
    return MEGATRON.load(_FILE, {name: stand_in(**names) for name, names in stand_ins.items()})


@operator(logits="[T, n, n] float32 in -6..6", n=(1, 16), tokens="T")
def megatron_sinkhorn(logits: Tensor) -> Tensor:
    """Return rows and columns divided by their sums in turn, 20 times. In this range no sum is below its least, 1e-6."""
    m = logits.softmax(-1)  # the first division of rows
    for step in range(1, 40):
        m = m / m.sum((-1, -2)[step % 2], keepdim=True)
    return m


def _sinkhorn(logits: Tensor) -> Any:
    return _module().SinkhornKnopp.apply(logits.unsqueeze(1), 20).squeeze(1)


@operator(
    x="[T, n, C] float32",
    phi="[M, K] float32",
    alpha="[3] float32",
    bias="[M] float32",
    M="n*n+2*n",
    K="n*C",
    R="n*n",
    n=(1, 16),
    tokens="T",
)
def megatron_pre(x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input of the layer, h_post and the logits of h_res, of x phi^T / (rms(x) + eps)."""
    n, v = x.shape[1], x.flatten(1)
    norm = 1.0 / (v.norm(dim=-1, keepdim=True) / v.shape[-1] ** 0.5 + _EPS)
    each = torch.cat([alpha[:1].expand(n), alpha[1:2].expand(n), alpha[2:].expand(n * n)])
    h = norm * (v @ phi.T) * each + bias
    h_in = (x * h[:, :n].sigmoid().unsqueeze(-1)).sum(1)
    return h_in, 2.0 * h[:, n : 2 * n].sigmoid(), h[:, 2 * n :]


def _pre(x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor) -> Any:
    layer, (T, n, C) = _module().HyperConnectionModule, x.shape
    gates = dict(zip(("alpha_pre", "alpha_post", "alpha_res"), torch.split(alpha, 1), strict=True))
    one = SimpleNamespace(
        mapping_proj=lambda v: functional.linear(v, phi), norm_eps=_EPS, n=n, hidden_size=C, bias=bias, **gates
    )
    v = x.reshape(T, 1, n * C)
    h_pre, h_post, logits = layer._compute_h(one, *layer._projection_and_get_norm(one, v))
    return layer.aggregate(one, v, h_pre).squeeze(1), h_post.squeeze(1), logits.squeeze(1)


def _post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    layer, (n, C) = _module().HyperConnectionModule, x.shape[-2:]
    one = SimpleNamespace(n=n, hidden_size=C)
    mixed = layer.apply_h_res(one, h_res.reshape(-1, 1, n, n), x.reshape(-1, 1, n * C))
    return (mixed + layer._apply_h_post(one, f.reshape(-1, 1, C), h_post.reshape(-1, 1, n))).view(x.shape)


_RECORD: dict[str, Any] = {"dtypes": ("float32",), "env": {"TORCH_COMPILE_DISABLE": "1"}}
_EVERYWHERE = ("cpu", "cuda")
IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *MEGATRON.on(_EVERYWHERE, "sinkhorn", megatron_sinkhorn, function=_sinkhorn, **_RECORD),
    *MEGATRON.on(_EVERYWHERE, "mhc_pre", megatron_pre, function=_pre, **_RECORD),
    *MEGATRON.on(_EVERYWHERE, "mhc_post", mhc_post, function=_post, **_RECORD),
)
