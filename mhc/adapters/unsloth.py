"""Unsloth's Triton kernels, from `MHC_CHECKOUT_UNSLOTH`, a checkout.

| kernel | here |
|---|---|
| all but `_given` | contiguous inputs, as in its models; the upstream gradient, which a backward overwrites, is a copy |
| rms_layernorm_given | with tensors as they are drawn |
| norms | the weight is frozen: it has no gradient, nor has the bias |
| cross_entropy | the logits are overwritten by their gradient, by design |
| swiglu, geglu | the backward overwrites a and b, by design: it gets copies; GELU by tanh |
"""

import importlib
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from mhc.adapters.checkout import Checkout, stand_in
from mhc.adapters.library import TARGET, token_losses
from mhc.declaration import operator
from mhc.implementation import Implementation
from mhc.operator import accumulation_dtype

UNSLOTH = Checkout("unsloth", "Unsloth", "unsloth/kernels/utils.py")


@cache
def _module(name: str) -> Any:
    triton, libdevice = (importlib.import_module(one) for one in ("triton", "triton.language.extra.libdevice"))

    def settings(n: int) -> tuple[int, int]:
        size = triton.next_power_of_2(n)
        return size, min(32, max(4, size // 512))

    def nothing(*_: Any, **__: Any) -> None:
        return

    def cast(x: Any, dtype: Any) -> Any:
        return triton.language.cast(x, dtype)  # taken by name at import it is not the interpreter's

    utils = stand_in(  # its own imports bitsandbytes
        calculate_settings=settings,
        MAX_FUSED_SIZE=65536,
        triton_tanh=libdevice.tanh,
        triton_cast=cast,
        torch_gpu_device=lambda _: nullcontext(),
        is_cdna=lambda: False,
    )
    stand_ins = {
        "unsloth.kernels.utils": utils,
        "unsloth.device_type": stand_in(DEVICE_COUNT=1),
        "transformers": stand_in(),
        "transformers.models": stand_in(),
        "transformers.models.llama": stand_in(),
        "transformers.models.llama.modeling_llama": stand_in(logger=None, LlamaRMSNorm=torch.nn.Module),
        "unsloth_zoo": stand_in(),
        "unsloth_zoo.utils": stand_in(Version=lambda text: tuple(int(one) for one in text.split("+")[0].split(".")[:2])),
        "unsloth_zoo.loss_utils": stand_in(patch_loss_functions=nothing, post_patch_loss_function=nothing),
        "unsloth_zoo.patching_utils": stand_in(patch_layernorm=nothing),
    }
    return UNSLOTH.imported(f"unsloth.kernels.{name}", "unsloth unsloth.kernels", stand_ins)


class _Own(torch.autograd.Function):
    """Returns its argument, and passes the upstream gradient on as a contiguous copy, which a kernel may overwrite."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def backward(ctx: Any, up: Tensor) -> Tensor:
        return up.clone(memory_format=torch.contiguous_format)


def _own(y: Tensor) -> Any:
    return _Own.apply(y)  # type: ignore[no-untyped-call]


_FROZEN: dict[str, Any] = {
    "x": "[*B, D] storage",
    "weight": "[D] storage constant",
    "eps": (1e-6, 1e-5, 0.0),
    "tokens": "*B",
}


@operator(**_FROZEN)
def rms_norm_frozen(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """Return RMSNorm rounded before the weight, as the built-in operator, with a weight that has no gradient."""
    v = x.float()
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def _rms_given(x: Tensor, weight: Tensor, *, eps: float) -> Any:
    return _module("rms_layernorm").Fast_RMS_Layernorm.apply(x, weight, eps, False)


def _rms(x: Tensor, weight: Tensor, *, eps: float) -> Any:
    return _own(_rms_given(x.contiguous(), weight.contiguous(), eps=eps))


@operator(**_FROZEN, bias="[D] storage constant")
def layer_norm_frozen(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Return LayerNorm in float32, rounded once; weight and bias have no gradient."""
    v = x.float()
    c = v - v.mean(-1, keepdim=True)
    return (c * torch.rsqrt(c.square().mean(-1, keepdim=True) + eps) * weight.float() + bias.float()).to(x.dtype)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Any:
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    return _own(_module("layernorm").Fast_Layernorm.apply(x, weight, bias, eps))


def _gate(module: str, forward: str, backward: str) -> Any:
    def _forward(a: Tensor, b: Tensor) -> Any:
        shape = (1, -1, a.shape[-1])
        return getattr(_module(module), forward)(a.contiguous().view(shape), b.contiguous().view(shape)).view(a.shape)

    def _backward(a: Tensor, b: Tensor, dy: Tensor) -> Any:
        own = [one.clone(memory_format=torch.contiguous_format).view(-1, one.shape[-1]) for one in (dy, a, b)]
        _, db, da = getattr(_module(module), backward)(*own)
        return da.view(a.shape), db.view(a.shape)

    return {"forward": _forward, "backward": _backward}


_SWIGLU = _gate("swiglu", "swiglu_fg_kernel", "swiglu_DWf_DW_dfg_kernel")
_GEGLU = _gate("geglu", "geglu_approx_forward_kernel", "geglu_approx_backward_kernel")


@operator(
    x="[T, V] storage",
    target=TARGET,
    V=(1, 131072),
    tokens="T",
    softcap=(0.0, 30.0, 2.0),
    scale=(0.0, 0.0625),
    mutates=("x",),
)
def cross_entropy_capped(x: Tensor, target: Tensor, *, softcap: float, scale: float) -> Tensor:
    """Return the loss of each token in float32, of logits times scale where it is not 0."""
    v = x.to(accumulation_dtype(x.dtype))
    return token_losses(v * scale if scale else v, target, softcap)


def _cross_entropy(x: Tensor, target: Tensor, *, softcap: float, scale: float) -> Any:
    loss = _module("cross_entropy_loss").Fast_CrossEntropyLoss
    return loss.apply(x.contiguous(), target.contiguous(), softcap, scale)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *UNSLOTH.kernel("rms_layernorm", rms_norm_frozen, function=_rms),
    *UNSLOTH.kernel("rms_layernorm_given", rms_norm_frozen, function=_rms_given),
    *UNSLOTH.kernel("layernorm", layer_norm_frozen, function=_layer_norm),
    *UNSLOTH.kernel("swiglu", "swiglu", **_SWIGLU),
    *UNSLOTH.kernel("geglu", "geglu", **_GEGLU),
    *UNSLOTH.kernel("cross_entropy", cross_entropy_capped, function=_cross_entropy),
)
