"""The two implementations in plain PyTorch: `golden` (autograd) and `manual` (the backward written by hand)."""

import torch
from torch import Tensor

from mhc.dense import dense
from mhc.implementation import Implementation
from mhc.operators.mhc_pre.torch.golden import mhc_forward_pre, mhc_pre_backward_manual

_DEVICES = ("cpu", "cuda")
_DTYPES = ("bfloat16", "float16", "float32", "float64")


def _forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return mhc_forward_pre(x, phi, alpha, bias, gamma, outflag=True, norm_eps=norm_eps, hc_eps=hc_eps)


def _autograd_backward(
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
    """Run the golden forward again, and autograd through it; the saved tensors are not used."""
    del inv_rms, h_mix, h_pre, h_post
    given = [x, phi, alpha, bias, gamma]
    leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in given]
    with torch.enable_grad():
        outputs = mhc_forward_pre(*leaves, norm_eps=norm_eps, hc_eps=hc_eps)  # type: ignore[arg-type]  # None only for gamma
    wanted = [leaf for leaf in leaves if leaf is not None]
    upstream = dense(dh_in, dh_post, dh_res)  # a view may be summed in another order
    gradients = torch.autograd.grad(outputs, wanted, upstream)
    return (*gradients, None) if gamma is None else gradients


GOLDEN = Implementation(
    name="golden",
    forward=_forward,
    backward=_autograd_backward,
    devices=_DEVICES,
    dtypes=_DTYPES,
    recomputes_forward=True,
)
MANUAL = Implementation(name="manual", forward=_forward, backward=mhc_pre_backward_manual, devices=_DEVICES, dtypes=_DTYPES)
