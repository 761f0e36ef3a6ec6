"""Liger-Kernel, from PyPI: `pip install 'mhc-fuzz[liger]'`, then `python -m mhc.fuzz --impl liger:rms_norm`.

What its kernels compute is in their docstrings and in the references of its tests. Of its options these are taken:

| kernel | here |
|---|---|
| norms with `in_place` | False: with True, the upstream gradient is overwritten, as documented |
| swiglu, geglu | the backward overwrites a and b, by design (linkedin/Liger-Kernel#254): it gets copies |
| poly_norm | bias is a tensor without axes, as its docstring says |
| cross_entropy | the logits are overwritten by their gradient, as its source says: an input that may be written |
| rope, qwen2vl_mrope, llama4_rope | q and k are rotated where they lie, as its source says: inputs that may be written |
| linear_cross_entropy | logits in the dtype of x, as its source says; `accum_dtype=float32` |
| dyt | its backward knows no CPU: there the adapter names an NPU as the device, of which it takes 20 processors |
| mhc_post, mhc_sinkhorn | n must be a power of two; of mhc_post, x must have a leading axis |
"""

import inspect
import math
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from mhc.adapters.library import Library
from mhc.case import Case
from mhc.declaration import operator
from mhc.implementation import Implementation, Refused

LIGER = Library("liger", "liger_kernel")


def _function(module: str, name: str) -> Any:
    return getattr(LIGER.load(f"ops.{module}"), f"Liger{name}Function")


def apply(module: str, name: str, *arguments: Any) -> Any:
    """Call one of Liger's autograd functions, `Liger{name}Function` of `liger_kernel.ops.{module}`."""
    return _function(module, name).apply(*arguments)


def takes(module: str, name: str, option: str) -> bool:
    """Return whether the installed release of a function has an option."""
    return option in inspect.signature(_function(module, name).forward).parameters


def known(module: str, name: str, option: str, value: Any) -> tuple[Any, ...]:
    """Return the value of an option, or nothing where a release of old has no such option and it is off.

    Raises:
        TypeError: it is not off.
    """
    if takes(module, name, option):
        return (value,)
    if value is None or value is False:
        return ()
    raise TypeError(f"Liger{name}Function of this release takes no {option}")


def _rms(x: Tensor, eps: float) -> Tensor:
    v = x.float()
    return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)


# Norms


def _rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Any:
    return apply("rms_norm", "RMSNorm", x, weight, eps, 0.0, "llama", *known("rms_norm", "RMSNorm", "in_place", False))


@operator(x="[*B, D] storage", weight="[D] storage", D=(1, 8192), eps=(1e-6, 1e-5, 0.0), tokens="*B")
def rms_norm_gemma(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """Return RMSNorm with 1 + weight, rounded once to x's dtype, as in Gemma."""
    return (_rms(x, eps) * (1.0 + weight.float())).to(x.dtype)


def _rms_norm_gemma(x: Tensor, weight: Tensor, *, eps: float) -> Any:
    return apply("rms_norm", "RMSNorm", x, weight, eps, 1.0, "gemma", False)


@operator(x="[*B, D] storage", r="[*B, D] storage", weight="[D] storage", eps=(1e-6, 1e-5, 0.0), tokens="*B")
def fused_add_rms_norm(x: Tensor, r: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """Return RMSNorm of x + r, and x + r."""
    s = x + r
    return _rms(s, eps).to(x.dtype) * weight, s


def _fused_add_rms_norm(x: Tensor, r: Tensor, weight: Tensor, *, eps: float) -> Any:
    return apply("fused_add_rms_norm", "FusedAddRMSNorm", x, r, weight, eps, 0.0, "llama", False)


@operator(
    x="[B, S, D] storage",
    weight="[D] storage",
    scale="[B, D] storage",
    shift="[B, D] storage optional",
    eps=(1e-6, 1e-5, 0.0),
    tokens="B",
)
def modulated_rms_norm(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor | None, *, eps: float) -> Tensor:
    """Return (1 + scale) RMSNorm(x) + shift, scale and shift the same for all positions of a sequence."""
    y = _rms(x, eps).to(x.dtype) * weight * (1.0 + scale).unsqueeze(1)
    return y if shift is None else y + shift.unsqueeze(1)


def _modulated_rms_norm(x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor | None, *, eps: float) -> Any:
    return apply("modulated_rms_norm", "ModulatedRMSNorm", x, weight, scale, shift, eps, 0.0, "llama", False)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
    return apply("layer_norm", "LayerNorm", x, weight, bias, eps)


@operator(
    x="[N, G, J, L, W] storage",
    weight="[G, J] storage",
    bias="[G, J] storage",
    G=(1, 64),
    J=(1, 64),
    eps=(1e-5, 1e-6, 0.0),
    tokens="N",
)
def group_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Return GroupNorm of G groups of J channels of L W elements, computed in float32 and rounded once."""
    v, of_group = x.float(), (-3, -2, -1)
    centred = v - v.mean(of_group, keepdim=True)
    rstd = torch.rsqrt(centred.square().mean(of_group, keepdim=True) + eps)
    return (centred * rstd * weight.float()[..., None, None] + bias.float()[..., None, None]).to(x.dtype)


def _group_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
    G, J = weight.shape
    y = apply("group_norm", "GroupNorm", x.flatten(1, 2), weight.reshape(-1), bias.reshape(-1), G * J, G, eps)
    return y.view(x.shape)


@operator(x="[*B, D] storage", weight="[3] storage", bias="[1] storage", eps=(1e-6, 1e-5), tokens="*B")
def poly_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Return w0 norm(x^3) + w1 norm(x^2) + w2 norm(x) + bias, norm(u) = u / sqrt(mean(u^2) + eps), rounded once."""
    v, w = x.float(), weight.float()
    return (w[0] * _rms(v * v * v, eps) + w[1] * _rms(v * v, eps) + w[2] * _rms(v, eps) + bias.float()).to(x.dtype)


def _poly_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
    return apply("poly_norm", "PolyNorm", x, weight, bias.reshape(()), eps, False)


@operator(x="[*B, D] storage", alpha="[1] storage", gamma="[D] storage", beta="[D] storage optional", tokens="*B")
def dyt(x: Tensor, alpha: Tensor, gamma: Tensor, beta: Tensor | None) -> Tensor:
    """Return tanh(alpha x) gamma + beta, computed in float32 and rounded once."""
    y = torch.tanh(alpha.float() * x.float()) * gamma.float()
    return (y if beta is None else y + beta.float()).to(x.dtype)


def _dyt_forward(x: Tensor, alpha: Tensor, gamma: Tensor, beta: Tensor | None) -> Any:
    beta = None if beta is None else beta.contiguous()
    return LIGER.load("ops.dyt").liger_dyt_fwd(x.contiguous(), alpha, gamma.contiguous(), beta)


def _dyt_backward(x: Tensor, alpha: Tensor, gamma: Tensor, dy: Tensor, beta: Tensor | None) -> Any:
    module = LIGER.load("ops.dyt")
    beta = None if beta is None else beta.contiguous()
    with mock.patch.object(module, "infer_device", return_value="cuda" if x.is_cuda else "npu"):
        return module.liger_dyt_bwd(dy.contiguous(), x.contiguous(), alpha, gamma.contiguous(), beta)


# Gates and softmax


def _swiglu(a: Tensor, b: Tensor) -> Any:
    return apply("swiglu", "SiLUMul", a.clone(), b.clone())


def _geglu(a: Tensor, b: Tensor) -> Any:
    return apply("geglu", "GELUMul", a.clone(), b.clone())


@operator(x="[*B, D] storage", tokens="*B")
def relu_squared(x: Tensor) -> Tensor:
    """Return max(x, 0)^2 in x's dtype."""
    r = functional.relu(x)
    return r * r


def _relu_squared(x: Tensor) -> Any:
    return apply("relu_squared", "ReLUSquared", x)


def _softmax(x: Tensor) -> Any:
    return apply("softmax", "Softmax", x)


@operator(x="[*B, V] storage", V=(1, 65536), tokens="*B")
def sparsemax(x: Tensor) -> Tensor:
    """Return the point of the simplex that is nearest to x (arXiv 1602.02068, alg. 1); the same for x and x - max(x)."""
    v = x.float()
    v = v - v.amax(-1, keepdim=True)
    z = v.sort(-1, descending=True).values
    k = torch.arange(1, x.shape[-1] + 1, dtype=v.dtype, device=x.device)
    inside = (1.0 + k * z > z.cumsum(-1)).sum(-1, keepdim=True)
    tau = (torch.where(k <= inside, z, 0.0).sum(-1, keepdim=True) - 1.0) / inside
    return (v - tau).clamp(min=0.0).to(x.dtype)


def _sparsemax(x: Tensor) -> Any:
    return apply("sparsemax", "Sparsemax", x, -1)


# Positions


_ROTATED: dict[str, Any] = {
    "q": "[B, S, H, D] storage",
    "k": "[B, S, Hkv, D] storage",
    "D": "2*R",
    "H": (1, 64),
    "Hkv": (1, 64),
    "R": (1, 128),
    "tokens": "B",
    "mutates": ("q", "k"),
}
"""What both rotations declare of q and k."""


@operator(**_ROTATED, cos="[S, R] float32 constant", sin="[S, R] float32 constant")
def rope_pair(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k with the halves of each row rotated, computed in the dtype of cos and rounded once."""
    c, s = cos.unsqueeze(-2), sin.unsqueeze(-2)  # [*B, S, 1, R]

    def rotated(x: Tensor) -> Tensor:
        first, second = x.to(cos.dtype).chunk(2, -1)
        return torch.cat([first * c - second * s, second * c + first * s], -1).to(x.dtype)

    return rotated(q), rotated(k)


def _heads_first(module: str, name: str, q: Tensor, k: Tensor, *angles: Any) -> Any:
    """Return q and k rotated by a function that takes heads before the sequence."""
    q, k = apply(module, name, q.transpose(1, 2), k.transpose(1, 2), *angles)
    return q.transpose(1, 2), k.transpose(1, 2)


def _rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return _rope_each(q, k, cos.unsqueeze(0), sin.unsqueeze(0))


@operator(**_ROTATED, cos="[B, S, R] float32 constant", sin="[B, S, R] float32 constant")
def rope_each(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k rotated as by `rope_pair`, each sequence by its own angles."""
    rotated: tuple[Tensor, Tensor] = rope_pair(q, k, cos, sin)
    return rotated


def _rope_each(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    c, s = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
    return _heads_first("rope", "Rope", q, k, c, s)


@operator(
    **{**_ROTATED, "R": "3*third"}, third=(1, 32), cos="[B, 3, S, R] float32 constant", sin="[B, 3, S, R] float32 constant"
)
def rope_of_three(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k rotated as by `rope_each`, each third of a row by angles of its own, as in Qwen2-VL."""
    c, s = (torch.cat([part[:, i] for i, part in enumerate(angles.chunk(3, -1))], -1) for angles in (cos, sin))
    rotated: tuple[Tensor, Tensor] = rope_pair(q, k, c, s)
    return rotated


def _rope_of_three(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    c, s = (torch.cat([angles, angles], -1).transpose(0, 1).contiguous() for angles in (cos, sin))
    thirds = [cos.shape[-1] // 3] * 3
    return _heads_first("qwen2vl_mrope", "Qwen2VLMRope", q, k, c, s, thirds)


@operator(**_ROTATED, freqs="[S, R, 2] float32 constant")
def rope_complex(q: Tensor, k: Tensor, freqs: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k, whose neighbours are complex numbers, times freqs, in float32 and rounded once, as in Llama 4."""
    c, s = freqs[..., 0].unsqueeze(-2), freqs[..., 1].unsqueeze(-2)  # [S, 1, R]

    def rotated(x: Tensor) -> Tensor:
        pairs = x.to(freqs.dtype).reshape(*x.shape[:-1], -1, 2)
        real, imaginary = pairs[..., 0], pairs[..., 1]
        return torch.stack([real * c - imaginary * s, real * s + imaginary * c], -1).flatten(-2).to(x.dtype)

    return rotated(q), rotated(k)


def _llama4_rope(q: Tensor, k: Tensor, freqs: Tensor) -> Any:
    return apply("llama4_rope", "Llama4Rope", q, k, torch.view_as_complex(freqs.contiguous()))


# mHC, and attention over residual blocks


def _mhc_post(x: Tensor, f: Tensor, h_post: Tensor, h_res: Tensor) -> Any:
    return apply("mhc", "MHCPostRes", x, f, h_post, h_res)


def _logits(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `mix` [N, n n + 2n] with the logits behind 2n zeros, a bias of zeros, and an alpha of one."""
    n = logits.shape[-1]
    mix = functional.pad(logits.reshape(-1, n * n), (2 * n, 0))
    return mix, mix.new_zeros(n * n + 2 * n), mix.new_ones(())


def _mhc_sinkhorn_forward(logits: Tensor, *, eps: float) -> Any:
    mix, b, one = _logits(logits)
    options = {"tmax": 20, "pre_eps": 0.0, "sinkhorn_eps": eps, "post_mult": 2.0}
    return LIGER.load("ops.mhc").mhc_split_sinkhorn_fwd(mix, b, one, one, one, **options)[2].view(logits.shape)


def _mhc_sinkhorn_backward(logits: Tensor, dy: Tensor, *, eps: float) -> Any:
    mix, b, one = _logits(logits)
    dy = dy.reshape(-1, *dy.shape[-2:]).contiguous()
    return LIGER.load("ops.mhc").mhc_sinkhorn_bwd(mix, b, one, dy, tmax=20, sinkhorn_eps=eps).view(logits.shape)


def _powers_of_two(case: Case) -> Literal[True] | Refused:
    n = case.sizes["n"]
    return Refused("n must be a power of two") if n & (n - 1) else True


def _tokens_and_powers_of_two(case: Case) -> Literal[True] | Refused:
    return _powers_of_two(case) if case.lead else Refused("there must be a leading axis")


@operator(v="[n, T, D] storage", query="[D] storage", weight="[D] storage", n=(1, 64), eps=(1e-6, 1e-5))
def attn_res(v: Tensor, query: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """Return the sum of n blocks weighted by softmax over n of query . (RMSNorm(v) weight) (arXiv 2603.15031)."""
    k = _rms(v, eps).to(weight.dtype) * weight
    alpha = (query.float() * k.float()).sum(-1).softmax(0)  # [n, T]
    return (alpha.unsqueeze(-1) * v.float()).sum(0).to(v.dtype)


def _attn_res(v: Tensor, query: Tensor, weight: Tensor, *, eps: float) -> Any:
    return apply("attn_res", "AttnRes", v, query, weight, eps)


@operator(
    scores="[B, C, L, L] storage",
    weight="[F, C, K, K] storage",
    bias="[F] storage optional",
    K="2*P+1",
    C=(1, 16),
    F=(1, 16),
    L=(1, 2048),
    P=(0, 3),
    tokens="B",
)
def multi_token_attention(scores: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a convolution over queries and keys of causal softmax weights, causal again (arXiv 2504.00927, eq. 6)."""
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    weights = scores.float().masked_fill(later, -math.inf).softmax(-1).to(scores.dtype)
    return functional.conv2d(weights, weight, bias, padding=weight.shape[-1] // 2).masked_fill(later, 0.0)


def _multi_token_attention(scores: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    return apply("multi_token_attention", "MultiTokenAttention", scores, weight, bias, 1, weight.shape[-1] // 2)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *LIGER.kernel("rms_norm", "rms_norm", function=_rms_norm),
    *LIGER.kernel("rms_norm_gemma", rms_norm_gemma, function=_rms_norm_gemma),
    *LIGER.kernel("fused_add_rms_norm", fused_add_rms_norm, function=_fused_add_rms_norm),
    *LIGER.kernel("modulated_rms_norm", modulated_rms_norm, function=_modulated_rms_norm),
    *LIGER.kernel("layer_norm", "layer_norm", function=_layer_norm),
    *LIGER.kernel("group_norm", group_norm, function=_group_norm),
    *LIGER.kernel("poly_norm", poly_norm, function=_poly_norm),
    *LIGER.kernel("dyt", dyt, forward=_dyt_forward, backward=_dyt_backward),
    *LIGER.kernel("swiglu", "swiglu", function=_swiglu),
    *LIGER.kernel("geglu", "geglu", function=_geglu),
    *LIGER.kernel("relu_squared", relu_squared, function=_relu_squared),
    *LIGER.kernel("softmax", "softmax", function=_softmax),
    *LIGER.kernel("sparsemax", sparsemax, function=_sparsemax),
    *LIGER.kernel("rope", rope_pair, function=_rope),
    *LIGER.kernel("rope_each", rope_each, function=_rope_each),
    *LIGER.kernel("qwen2vl_mrope", rope_of_three, function=_rope_of_three),
    *LIGER.kernel("llama4_rope", rope_complex, function=_llama4_rope),
    *LIGER.kernel("mhc_post", "mhc_post", _tokens_and_powers_of_two, function=_mhc_post),
    *LIGER.kernel(
        "mhc_sinkhorn", "mhc_sinkhorn_liger", _powers_of_two, forward=_mhc_sinkhorn_forward, backward=_mhc_sinkhorn_backward
    ),
    *LIGER.kernel("attn_res", attn_res, function=_attn_res),
    *LIGER.kernel("multi_token_attention", multi_token_attention, function=_multi_token_attention),
)
