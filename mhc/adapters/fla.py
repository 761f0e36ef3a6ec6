"""flash-linear-attention, `fla-core` on PyPI: `pip install 'mhc-fuzz[fla]'`, then `python -m mhc.fuzz --impl fla:rms_norm`.

| kernel | here |
|---|---|
| rope | cos and sin in the dtype of x, as it asserts; D at most 256 |
| cross_entropy | the loss with the part z lse^2, which the library returns by itself too |
| linear_cross_entropy_mean | logits in the dtype of x; the library has no unreduced loss |
"""

import contextlib
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mhc.adapters.library import Library, log_sigmoid, not_compiled
from mhc.declaration import operator
from mhc.implementation import Implementation

FLA = Library("fla", "fla")


def module(name: str, before: str = "") -> Any:
    """Return a module of the package; in releases before 0.6.0 it was `before`, and `norm.x` was `x`."""
    if not hasattr(torch.cpu, "device"):  # releases before 0.5.1 enter it, as they do torch.cuda.device
        setattr(torch.cpu, "device", contextlib.nullcontext)  # noqa: B010
    try:
        return FLA.load(f"modules.{name}")
    except ModuleNotFoundError:
        return FLA.load(f"modules.{before or name.removeprefix('norm.')}")


def _rms(v: Tensor, eps: float) -> Tensor:
    return v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)


def _rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Any:
    return module("norm.layernorm").rms_norm(x, weight, None, eps=eps)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
    return module("norm.layernorm").layer_norm(x, weight, bias, eps=eps)


@operator(
    x="[*B, G, J] storage", weight="[G, J] storage", bias="[G, J] storage", G=(1, 64), eps=(1e-5, 1e-6, 0.0), tokens="*B"
)
def group_norm_rows(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Return LayerNorm of each of G groups of J features, with their own weights, in float32 and rounded once."""
    v = x.float()
    return (_rms(v - v.mean(-1, keepdim=True), eps) * weight.float() + bias.float()).to(x.dtype)


def _group_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
    y = module("norm.layernorm").group_norm(
        x.flatten(-2), weight.reshape(-1), bias.reshape(-1), eps=eps, num_groups=x.shape[-2]
    )
    return y.view(x.shape)


@operator(x="[*B, D] storage", r="[*B, D] storage", weight="[D] storage", eps=(1e-6, 1e-5, 0.0), tokens="*B")
def rms_norm_prenorm(x: Tensor, r: Tensor, weight: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    """Return RMSNorm of x + r, which is not rounded before, and x + r."""
    s = x.float() + r.float()
    return (_rms(s, eps) * weight.float()).to(x.dtype), s.to(x.dtype)


def _rms_norm_prenorm(x: Tensor, r: Tensor, weight: Tensor, *, eps: float) -> Any:
    return module("norm.layernorm").rms_norm(x, weight, None, residual=r, eps=eps, prenorm=True)


@operator(x="[*B, D] storage", eps=(1e-6, 1e-5), tokens="*B")
def l2_norm(x: Tensor, *, eps: float) -> Tensor:
    """Return x / sqrt(sum(x^2) + eps), in float32 and rounded once."""
    v = x.float()
    return (v / (v.square().sum(-1, keepdim=True) + eps).sqrt()).to(x.dtype)


def _l2_norm(x: Tensor, *, eps: float) -> Any:
    return module("norm.l2norm").l2norm(x, eps)


@operator(x="[*B, D] storage", g="[*B, D] storage", weight="[D] storage", eps=(1e-5, 1e-6, 0.0), tokens="*B")
def rms_norm_gated(x: Tensor, g: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """Return RMSNorm(x) weight SiLU(g), in float32 and rounded once."""
    w = g.float()
    return (_rms(x.float(), eps) * weight.float() * (w * torch.sigmoid(w))).to(x.dtype)


def _rms_norm_gated(x: Tensor, g: Tensor, weight: Tensor, *, eps: float) -> Any:
    return module("norm.fused_norm_gate").rms_norm_gated(x, g, weight, None, "swish", eps=eps)


@operator(x="[*B, D] storage", g="[*B, D] storage", weight="[D] storage", bias="[D] storage", eps=(1e-5, 0.0), tokens="*B")
def layer_norm_gated(x: Tensor, g: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Return LayerNorm(x) sigmoid(g), in float32 and rounded once."""
    v = x.float()
    y = _rms(v - v.mean(-1, keepdim=True), eps) * weight.float() + bias.float()
    return (y * torch.sigmoid(g.float())).to(x.dtype)


def _layer_norm_gated(x: Tensor, g: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
    return module("norm.fused_norm_gate").layer_norm_gated(x, g, weight, bias, "sigmoid", eps=eps)


@operator(
    x="[*B, D] storage",
    g="[*B, D] storage",
    weight="[D] storage",
    linear="[E, D] storage",
    E=(1, 8192),
    eps=(1e-5, 1e-6, 0.0),
    tokens="*B",
)
def rms_norm_gated_linear(x: Tensor, g: Tensor, weight: Tensor, linear: Tensor, *, eps: float) -> Tensor:
    """Return (RMSNorm(x) weight SiLU(g)) linear^T, the product rounded to x's dtype before."""
    y: Tensor = rms_norm_gated(x, g, weight, eps=eps)
    return y @ linear.T


def _rms_norm_gated_linear(x: Tensor, g: Tensor, weight: Tensor, linear: Tensor, *, eps: float) -> Any:
    return module("norm.fused_norm_gate").rms_norm_swish_gate_linear(x, g, weight, None, linear, None, eps=eps)


@operator(
    x="[B, S, D] storage",
    weight="[D, W] storage",
    bias="[D] storage optional",
    state="[B, D, W] storage optional",
    W="K+1",
    K=(1, 3),
    silu=(1.0, 0.0),
    tokens="B",
)
def causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, *, silu: float) -> Tensor:
    """Return a convolution of each feature with its last W inputs; before x come those of state, else 0."""
    (S, D), W = x.shape[1:], weight.shape[-1]
    before = x.new_zeros(x.shape[0], W, D) if state is None else state.transpose(1, 2)
    inputs = torch.cat([before, x], 1).float().unfold(1, W, 1)[:, 1 : 1 + S]  # [B, S, D, W]
    y = (inputs * weight.float()).sum(-1)
    y = y if bias is None else y + bias.float()
    return (y * torch.sigmoid(y) if silu else y).to(x.dtype)


def _causal_conv1d(x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor | None, *, silu: float) -> Any:
    function = module("causal_conv1d", "convolution").causal_conv1d
    return function(x, weight, bias, initial_state=state, activation="silu" if silu else None)[0]


_ROPE: dict[str, Any] = {
    "x": "[B, S, H, D] storage",
    "cos": "[S, R] storage constant",
    "sin": "[S, R] storage constant",
    "D": "2*R+rest",
    "H": (1, 64),
    "R": (1, 96),
    "rest": (0, 64),
    "tokens": "B",
}


@operator(**_ROPE)
def rope_partial(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x, of each row the first 2R elements rotated by halves, in float32 and rounded once."""
    R, c, s = cos.shape[-1], cos.float().unsqueeze(-2), sin.float().unsqueeze(-2)
    v = x.float()
    first, second = v[..., :R], v[..., R : 2 * R]
    return torch.cat([first * c - second * s, first * s + second * c, v[..., 2 * R :]], -1).to(x.dtype)


@operator(**_ROPE)
def rope_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x, of each row the first 2R elements rotated by neighbours, in float32 and rounded once."""
    R, c, s = cos.shape[-1], cos.float().unsqueeze(-2), sin.float().unsqueeze(-2)
    v = x.float()
    pairs = v[..., : 2 * R].reshape(*x.shape[:-1], R, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    rotated = torch.stack([even * c - odd * s, even * s + odd * c], -1).flatten(-2)
    return torch.cat([rotated, v[..., 2 * R :]], -1).to(x.dtype)


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return module("rotary").rotary_embedding(x, cos, sin)


def _rope_interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Any:
    return module("rotary").rotary_embedding(x, cos, sin, interleaved=True)


@operator(a="[*B, D] storage", b="[*B, D] storage", D=(1, 16384), tokens="*B")
def swiglu_once(a: Tensor, b: Tensor) -> Tensor:
    """Return SiLU(a) b, in float32 and rounded once."""
    v = a.float()
    return (v * torch.sigmoid(v) * b.float()).to(a.dtype)


def _swiglu(a: Tensor, b: Tensor) -> Any:
    return module("activations").swiglu(a, b)


@operator(x="[*B, D] storage", temperature=(1.0, 16.0), tokens="*B")
def logsigmoid(x: Tensor, *, temperature: float) -> Tensor:
    """Return log(sigmoid(x)) / temperature, in float32 and rounded once."""
    return (log_sigmoid(x.float()) / temperature).to(x.dtype)


def _logsigmoid(x: Tensor, *, temperature: float) -> Any:
    return module("activations").logsigmoid(x, temperature)


@operator(x="[B, S, D] storage", tokens="B")
def token_shift(x: Tensor) -> Tensor:
    """Return x at the position before, 0 before the first, minus x."""
    return functional.pad(x, (0, 0, 1, 0))[:, :-1] - x


def _token_shift(x: Tensor) -> Any:
    return module("token_shift").token_shift(x)


@operator(x="[T, D] storage", bias="[D] storage")
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """Return GELU of x + bias by tanh, in float32 and rounded once."""
    return functional.gelu(x.float() + bias.float(), approximate="tanh").to(x.dtype)


def _bias_gelu(x: Tensor, bias: Tensor) -> Any:
    not_compiled()
    return module("activations").bias_gelu_impl(x, bias)


@operator(o="[B, S, H, E] float32", q="[B, S, H, D] float32", k="[B, S, H, D] float32", tokens="B", H=(1, 64))
def normalized(o: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return o / (q . the sum of k until there + 1e-10), as linear attention normalises its output."""
    return o / ((q * k.cumsum(1)).sum(-1, keepdim=True) + 1e-10)


def _normalized(o: Tensor, q: Tensor, k: Tensor) -> Any:
    module("norm.layernorm")  # makes releases of old importable
    utils = FLA.load("ops.linear_attn.utils")
    if hasattr(utils, "normalize_output"):  # before 0.5.0
        return utils.normalize_output(q, k, o)
    return utils.normalize_with_z_state(o, q, k, 1.0, None, False, None)[0]


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *FLA.kernel("rms_norm", "rms_norm", function=_rms_norm),
    *FLA.kernel("layer_norm", "layer_norm", function=_layer_norm),
    *FLA.kernel("group_norm", group_norm_rows, function=_group_norm),
    *FLA.kernel("rms_norm_prenorm", rms_norm_prenorm, function=_rms_norm_prenorm),
    *FLA.kernel("l2_norm", l2_norm, function=_l2_norm),
    *FLA.kernel("rms_norm_gated", rms_norm_gated, function=_rms_norm_gated),
    *FLA.kernel("layer_norm_gated", layer_norm_gated, function=_layer_norm_gated),
    *FLA.kernel("rms_norm_gated_linear", rms_norm_gated_linear, function=_rms_norm_gated_linear),
    *FLA.kernel("causal_conv1d", causal_conv1d, function=_causal_conv1d),
    *FLA.kernel("rope", rope_partial, function=_rope),
    *FLA.kernel("rope_interleaved", rope_interleaved, function=_rope_interleaved),
    *FLA.kernel("swiglu", swiglu_once, function=_swiglu),
    *FLA.kernel("logsigmoid", logsigmoid, function=_logsigmoid),
    *FLA.kernel("token_shift", token_shift, function=_token_shift),
    *FLA.kernel("bias_gelu", bias_gelu, function=_bias_gelu, dtypes=("float32",)),
    *FLA.kernel("normalized", normalized, function=_normalized),
)
