"""mamba's Triton kernels of `mamba_ssm/ops/triton`, from `MHC_CHECKOUT_MAMBA`, a checkout.

| kernel | here |
|---|---|
| rms_norm_gated, layer_norm_gated | in groups; the norm before the gate, and after it |
| selective_state_update | D and dt_bias are always there: without them it raises; the state, which it writes, is a copy |
| chunk_cumsum | internal; one chunk |
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from mhc.adapters.checkout import Checkout, stand_in, without_gpu
from mhc.adapters.library import silu
from mhc.declaration import operator
from mhc.implementation import Implementation

MAMBA = Checkout("mamba", "mamba", "mamba_ssm/ops/triton/layernorm_gated.py")


@cache
def _module(name: str) -> Any:
    without_gpu()
    stand_ins = {"einops": stand_in(rearrange=None, repeat=None)}  # its references call them, not its kernels
    packages = "mamba_ssm mamba_ssm.ops mamba_ssm.ops.triton mamba_ssm.utils"
    return MAMBA.imported(f"mamba_ssm.ops.triton.{name}", packages, stand_ins)


_GATED: dict[str, Any] = {
    "x": "[*B, G, J] storage",
    "weight": "[G, J] storage",
    "bias": "[G, J] storage optional",
    "z": "[*B, G, J] storage optional",
    "G": (1, 16),
    "J": (1, 4096),
    "eps": (1e-6, 1e-5, 0.0),
    "before": (True, False),
    "tokens": "*B",
}


def _gated(v: Tensor, weight: Tensor, bias: Tensor | None, z: Tensor | None, eps: float, before: bool, mean: bool) -> Tensor:
    gate = None if z is None else silu(z.float())
    v = v if gate is None or before else v * gate
    v = v - v.mean(-1, keepdim=True) if mean else v
    y = v * torch.rsqrt(v.square().mean(-1, keepdim=True) + eps) * weight.float()
    y = y if bias is None else y + bias.float()
    return y if gate is None or not before else y * gate


@operator(**_GATED)
def rms_norm_gated_groups(
    x: Tensor, weight: Tensor, bias: Tensor | None, z: Tensor | None, *, eps: float, before: bool
) -> Tensor:
    """Return RMSNorm in groups and a gate SiLU(z), after the norm or before it, in float32 and rounded once."""
    return _gated(x.float(), weight, bias, z, eps, before, False).to(x.dtype)


@operator(**_GATED)
def layer_norm_gated_groups(
    x: Tensor, weight: Tensor, bias: Tensor | None, z: Tensor | None, *, eps: float, before: bool
) -> Tensor:
    """Return LayerNorm in groups and a gate SiLU(z), after the norm or before it, in float32 and rounded once."""
    return _gated(x.float(), weight, bias, z, eps, before, True).to(x.dtype)


def _norm(rms: bool) -> Any:
    def function(x: Tensor, weight: Tensor, bias: Any, z: Any, *, eps: float, before: bool) -> Any:
        G, J = x.shape[-2:]
        flat, gate = (None if one is None else one.reshape(-1, G * J) for one in (x, z))
        bias = None if bias is None else bias.reshape(-1)
        normed = _module("layernorm_gated").layernorm_fn
        return normed(flat, weight.reshape(-1), bias, gate, eps, J, before, rms).reshape(x.shape)

    return function


def _softplus(v: Tensor) -> Tensor:
    return torch.log1p(torch.exp(v))  # v is at most 28 here


@operator(
    state="[B, H, P, N] float32 constant",
    x="[B, H, P] storage constant",
    dt="[B, H, P] storage in -20..20 constant",
    A="[H, P, N] float32 in -16..0 constant",
    Bt="[B, Gr, N] storage constant",
    C="[B, Gr, N] storage constant",
    D="[H, P] float32 constant",
    dt_bias="[H, P] float32 in -8..8 constant",
    z="[B, H, P] storage constant optional",
    H="Gr*K",
    Gr=(1, 8),
    K=(1, 8),
    P=(1, 256),
    N=(1, 256),
    soft=(True, False),
    tokens="B",
)
def selective_step(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    Bt: Tensor,
    C: Tensor,
    D: Tensor,
    dt_bias: Tensor,
    z: Tensor | None,
    *,
    soft: bool,
) -> tuple[Tensor, Tensor]:
    """Return the output of one step of Mamba's recurrence, rounded once, and the state after it (arXiv 2312.00752)."""
    K, v = state.shape[1] // Bt.shape[1], x.float()
    t = dt.float() + dt_bias
    t = (_softplus(t) if soft else t).unsqueeze(-1)
    b, c = (one.float().repeat_interleave(K, 1).unsqueeze(2) for one in (Bt, C))
    state = state * torch.exp(A * t) + b * t * v.unsqueeze(-1)
    y = (state * c).sum(-1) + v * D
    return (y if z is None else y * silu(z.float())).to(x.dtype), state


def _update(
    state: Tensor, x: Tensor, dt: Tensor, A: Tensor, Bt: Tensor, C: Tensor, D: Tensor, dt_bias: Tensor, z: Any, *, soft: bool
) -> Any:
    state = state.clone()
    y = _module("selective_state_update").selective_state_update(state, x, dt, A, Bt, C, D, z, dt_bias, soft)
    return y, state


@operator(
    dt="[B, S, H] storage in -20..20",
    A="[H] float32 in -16..0",
    dt_bias="[H] float32 in -8..8",
    S=(1, 256),
    H=(1, 64),
    soft=(True, False),
    tokens="B",
)
def chunk_cumsum(dt: Tensor, A: Tensor, dt_bias: Tensor, *, soft: bool) -> tuple[Tensor, Tensor]:
    """Return the steps dt of one chunk of S positions, at least 0, and the sums of A dt until each, in float32."""
    t = dt.float() + dt_bias
    t = (_softplus(t) if soft else t).clamp(min=0.0).transpose(1, 2).unsqueeze(2)  # [B, H, 1, S]
    return t, (t * A[:, None, None]).cumsum(-1)


def _cumsum(dt: Tensor, A: Tensor, dt_bias: Tensor, *, soft: bool) -> Any:
    sums, t = _module("ssd_chunk_state")._chunk_cumsum_fwd(dt, A, dt.shape[1], dt_bias=dt_bias, dt_softplus=soft)
    return t, sums


def _cumsum_backward(dt: Tensor, A: Tensor, dt_bias: Tensor, ddt: Tensor, dsums: Tensor, *, soft: bool) -> Any:
    each = dsums.flip(-1).cumsum(-1).flip(-1)  # the kernel takes the gradient of A dt, as its caller forms it
    return _module("ssd_chunk_state")._chunk_cumsum_bwd(each, ddt, dt, A, dt_bias=dt_bias, dt_softplus=soft)


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *MAMBA.kernel("rms_norm_gated", rms_norm_gated_groups, function=_norm(True)),
    *MAMBA.kernel("layer_norm_gated", layer_norm_gated_groups, function=_norm(False)),
    *MAMBA.kernel("selective_state_update", selective_step, forward=_update),
    *MAMBA.kernel("chunk_cumsum", chunk_cumsum, forward=_cumsum, backward=_cumsum_backward),
)
