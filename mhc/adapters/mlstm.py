"""mlstm_kernels' recurrent step in Triton, from `MHC_CHECKOUT_MLSTM`, a checkout; inference, in float32.

With 16 bits the gates are rounded to them before they multiply the states, which are float32.

| kernel | here |
|---|---|
| step | `mlstm_recurrent_step__triton`: head sizes are powers of two up to 64, or multiples of 64 |
| step_any | with any head size: its check of them is commented out |
"""

from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from mhc.adapters.checkout import Checkout, without_gpu
from mhc.adapters.library import log_sigmoid
from mhc.case import Case
from mhc.declaration import operator
from mhc.implementation import Implementation, Refused

MLSTM = Checkout("mlstm", "mlstm_kernels", "mlstm_kernels/torch/recurrent/triton_step.py")
_FOLDERS = ("", ".torch", ".torch.recurrent", ".triton", ".triton.recurrent", ".utils")


@cache
def _module() -> Any:
    without_gpu()
    packages = " ".join(f"mlstm_kernels{one}" for one in _FOLDERS)
    return MLSTM.imported("mlstm_kernels.torch.recurrent.triton_step", packages)


@operator(
    q="[B, H, K] float32 constant",
    k="[B, H, K] float32 constant",
    v="[B, H, V] float32 constant",
    i="[B, H, 1] float32 in -30..30 constant",
    f="[B, H, 1] float32 in -80..80 constant",
    c="[B, H, K, V] float32 constant",
    n="[B, H, K] float32 constant",
    m="[B, H, 1] float32 in -30..30 constant",
    H=(1, 16),
    K=(1, 256),
    V=(1, 256),
    eps=(1e-6, 1e-3),
    tokens="B",
)
def mlstm_step(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, c: Tensor, n: Tensor, m: Tensor, *, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return h and the states c, n and m after one step of the mLSTM (arXiv 2405.04517)."""
    decay = log_sigmoid(f) + m
    after = torch.maximum(decay, i)
    forget, take = torch.exp(decay - after), torch.exp(i - after)
    n = forget * n + take * k
    c = forget.unsqueeze(-1) * c + take.unsqueeze(-1) * (k.unsqueeze(-1) * v.unsqueeze(-2))
    scaled = q * q.shape[-1] ** -0.5
    below = torch.maximum((scaled * n).sum(-1, keepdim=True).abs(), torch.exp(-after)) + eps
    return (scaled.unsqueeze(-1) * c).sum(-2) / below, c, n, after


def _step(
    q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, c: Tensor, n: Tensor, m: Tensor, *, eps: float
) -> tuple[Any, ...]:
    h, states = _module().mlstm_recurrent_step__triton(q, k, v, i, f, c, n, m, eps=eps)
    return h, *states


def _whole(case: Case) -> Literal[True] | Refused:
    there = all(one % 64 == 0 or one in (1, 2, 4, 8, 16, 32) for one in (case.sizes["K"], case.sizes["V"]))
    return True if there else Refused("head sizes are powers of two up to 64, or multiples of 64")


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    *MLSTM.kernel("step", mlstm_step, _whole, forward=_step, dtypes=("float32",)),
    *MLSTM.kernel("step_any", mlstm_step, forward=_step, dtypes=("float32",)),
)
