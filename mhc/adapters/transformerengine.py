"""TransformerEngine's Triton kernels of mHC, from `MHC_CHECKOUT_TRANSFORMERENGINE`, a checkout.

What they compute is in the docstrings of `transformer_engine/pytorch/triton/mhc.py` and the references of its tests: four
streams, the innermost axis of x; rows first in Sinkhorn, without eps; H_res[i, o] mixes. Of its options these are taken:
`use_tf32` is off, and `NVTE_ALLOW_NONDETERMINISTIC_ALGO=0`. The product of cuBLAS in the backward of the projection is
PyTorch's here.
"""

from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mhc.adapters.checkout import Checkout, stand_in
from mhc.declaration import operator
from mhc.implementation import Implementation

_WRAPPERS, _KERNELS = (f"transformer_engine/{one}/triton/mhc.py" for one in ("pytorch", "common"))
TE = Checkout("transformerengine", "TransformerEngine", _WRAPPERS)
_EPS = torch.finfo(torch.float32).eps


def _gemm(a: Tensor, b: Tensor, *, out_dtype: torch.dtype, layout: str) -> tuple[Tensor]:
    """Return the product that `general_gemm` of TransformerEngine returns for the one layout of these kernels."""
    assert layout == "NT"
    return ((b.T @ a).to(out_dtype),)


@cache
def _mhc() -> Any:
    kernels = TE.load(_KERNELS)
    stand_ins = {
        "transformer_engine.common.triton.mhc": kernels,
        "transformer_engine.pytorch.cpp_extensions.gemm": stand_in(general_gemm=_gemm),
    }
    module = TE.load(_WRAPPERS, stand_ins)
    if not torch.cuda.is_available():  # both ask for properties of the GPU
        module._support_tma = lambda _: False
        memory = SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 232_448})
        active = SimpleNamespace(utils=memory, get_current_device=lambda: 0)
        kernels.triton = SimpleNamespace(
            Config=kernels.triton.Config,
            cdiv=kernels.triton.cdiv,
            runtime=SimpleNamespace(driver=SimpleNamespace(active=active)),
        )
    return module


@operator(logits="[T, 4, 4] float32", tokens="T")
def te_sinkhorn(logits: Tensor) -> Tensor:
    """Return exp(logits + f + g): rows and columns divided by their sums in turn, 20 times, in the logarithmic domain.

    f and g are as large as the logits, and their sum is rounded: of logits of 65,504, exp of it is off by 0.4 %.
    """
    g = logits.new_zeros(logits.shape[0], 4)
    for _ in range(20):
        f = -(logits + g.unsqueeze(-2)).logsumexp(-1)
        g = -(logits + f.unsqueeze(-1)).logsumexp(-2)
    return (f.unsqueeze(-1) + logits + g.unsqueeze(-2)).exp()


def _sinkhorn(logits: Tensor) -> Any:
    return _mhc().mhc_fused_sinkhorn(logits.unsqueeze(1)).squeeze(1)


def _sinkhorn_stored(logits: Tensor) -> Any:
    return _mhc().mhc_fused_sinkhorn(logits.unsqueeze(1), recompute_hist=False).squeeze(1)


@operator(x="[T, C, 4] storage", h_pre="[T, 4] float32", tokens="T")
def te_aggregate(x: Tensor, h_pre: Tensor) -> Tensor:
    """Return sum_i x[i] h_pre[i], in float32 and rounded once."""
    return (x.float() * h_pre.unsqueeze(-2)).sum(-1).to(x.dtype)


def _aggregate(x: Tensor, h_pre: Tensor) -> Any:
    return _mhc().mhc_fused_aggregate(x.unsqueeze(1), h_pre.unsqueeze(1), 4, use_tf32=False).squeeze(1)


@operator(
    f="[T, C] storage",
    h_post="[T, 4] float32",
    x="[T, C, 4] storage",
    h_res="[T, 4, 4] float32",
    bias="[C] storage optional",
    tokens="T",
)
def te_expand_combine(f: Tensor, h_post: Tensor, x: Tensor, h_res: Tensor, bias: Tensor | None) -> Tensor:
    """Return (f + bias) h_post[o] + sum_i x[i] h_res[i, o], in float32 and rounded once."""
    weights = h_post.unsqueeze(-2)
    out = f.float().unsqueeze(-1) * weights + x.float() @ h_res
    return (out if bias is None else out + bias.float().unsqueeze(-1) * weights).to(x.dtype)


def _expand_combine(f: Tensor, h_post: Tensor, x: Tensor, h_res: Tensor, bias: Tensor | None) -> Any:
    f, h_post, x, h_res = (one.unsqueeze(1) for one in (f, h_post, x, h_res))
    return _mhc().mhc_fused_expand_combine(f, bias, h_post, x, h_res, 4, use_tf32=False).squeeze(1)


@operator(x="[T, K] storage", phi="[24, K] float32", weight="[K] storage optional", K=(1, 32768), tokens="T")
def te_projection(x: Tensor, phi: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return x (phi weight)^T and the mean of x^2, in float32."""
    v = x.float()
    return v @ (phi if weight is None else phi * weight.float()).T, v.square().mean(-1)


def _projection(x: Tensor, phi: Tensor, weight: Tensor | None) -> Any:
    h, ms = _mhc().mhc_fused_projection(x, phi, use_tf32=False, norm_weight=weight)
    return h[:, :24], ms


@operator(h="[T, 24] float32", alpha="[3] float32", beta="[24] float32", ms="[T] float32 in 0..inf", tokens="T")
def te_scale(h: Tensor, alpha: Tensor, beta: Tensor, ms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return t = h alpha / sqrt(ms + eps) + beta, of its first four the sigmoid and of its next four twice the sigmoid."""
    each = torch.cat([alpha[:1].expand(4), alpha[1:2].expand(4), alpha[2:].expand(16)])
    t = h * each / (ms + _EPS).sqrt().unsqueeze(-1) + beta
    return t[:, :4].sigmoid(), 2.0 * t[:, 4:8].sigmoid(), t[:, 8:]


def _scale(h: Tensor, alpha: Tensor, beta: Tensor, ms: Tensor) -> Any:
    return _mhc().mhc_fused_scale(functional.pad(h, (0, 8)), alpha, beta.unsqueeze(0), ms, 4)


@operator(
    x="[T, C, 4] storage",
    phi="[24, K] float32",
    alpha="[3] float32",
    beta="[24] float32",
    weight="[K] storage optional",
    K="4*C",
    tokens="T",
)
def te_mix(x: Tensor, phi: Tensor, alpha: Tensor, beta: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input of the layer, h_post and h_res: projection, scale, Sinkhorn and aggregate in turn."""
    h, ms = te_projection(x.flatten(1), phi, weight)
    h_pre, h_post, logits = te_scale(h, alpha, beta, ms)
    return te_aggregate(x, h_pre), h_post, te_sinkhorn(logits.unflatten(-1, (4, 4)))


def _mix(x: Tensor, phi: Tensor, alpha: Tensor, beta: Tensor, weight: Tensor | None) -> Any:
    x = x.contiguous().unsqueeze(1)  # it views x in another shape
    found = _mhc().mhc_generate_mix_and_aggregate(x, phi, alpha, beta.unsqueeze(0), weight, use_tf32=False)
    return tuple(one.squeeze(1) for one in found)


_RECORD: dict[str, Any] = {
    "autotuned": True,
    "dtypes": ("bfloat16", "float32"),
    "env": {"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"},
}

IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *TE.kernel("sinkhorn", te_sinkhorn, function=_sinkhorn, **_RECORD),
    *TE.kernel("sinkhorn_stored", te_sinkhorn, function=_sinkhorn_stored, **_RECORD),
    *TE.kernel("aggregate", te_aggregate, function=_aggregate, **_RECORD),
    *TE.kernel("expand_combine", te_expand_combine, function=_expand_combine, **_RECORD),
    *TE.kernel("projection", te_projection, function=_projection, **_RECORD),
    *TE.kernel("scale", te_scale, function=_scale, **_RECORD),
    *TE.kernel("mix", te_mix, function=_mix, **_RECORD),
)
