"""Golden forward and golden manual backward: the formula on working-precision tensors, with the contract's checks."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from mhc.arguments import check_arguments
from mhc.dense import dense
from mhc.operators.mhc_pre import formula
from mhc.operators.mhc_pre.table import PRE
from mhc.precision import float32_matmuls


def mhc_forward_pre(
    x: Float[Tensor, "B S n D"],
    phi: Float[Tensor, "M K"],
    alpha: Float[Tensor, "3"],
    bias: Float[Tensor, "M"],
    gamma: Float[Tensor, "n D"] | None = None,
    *,
    outflag: bool = False,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
) -> tuple[Tensor, ...]:
    """Compute mHC Forward Pre in plain PyTorch, differentiable by autograd.

        inv_rms = rsqrt(mean(x*x) + norm_eps)        h_mix  = (x*gamma) @ phi.T        t = h_mix * inv_rms
        h_pre   = sigmoid(alpha[0]*t_pre + bias_pre) + hc_eps
        h_post  = 2*sigmoid(alpha[1]*t_post + bias_post)
        h_res   = alpha[2]*t_res + bias_res          h_in   = sum_i h_pre[i] * x[i]

    Source: arXiv 2512.24880, eqs. 14-19. Sums and gates are float32 (float64 where x is float64); h_in is rounded once to
    x's dtype. float32 products are not TF32, whatever the global setting; a later `.backward()` follows the setting.

    Args:
        x: residual streams, bfloat16, float16, float32 or float64; any strides.
        phi: projection. alpha: gate scales (pre, post, res). bias: gate biases. gamma: norm weight; None means ones.
            Float64 where x is float64, else float32.
        outflag: also return what the backward needs.
        norm_eps, hc_eps: not negative, finite; no units.

    Returns:
        (h_in [B,S,D], h_post [B,S,n], h_res [B,S,n,n]), and with `outflag` also (inv_rms [B,S], h_mix [B,S,M],
        h_pre [B,S,n]).

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
    """
    arguments = {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma}
    check_arguments(PRE, arguments, {"norm_eps": norm_eps, "hc_eps": hc_eps})
    with float32_matmuls(x.device.type):
        result = formula.forward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)
    return tuple(result) if outflag else tuple(result[:3])


def mhc_pre_backward_manual(
    x: Float[Tensor, "B S n D"],
    phi: Float[Tensor, "M K"],
    alpha: Float[Tensor, "3"],
    bias: Float[Tensor, "M"],
    inv_rms: Float[Tensor, "B S"],
    h_mix: Float[Tensor, "B S M"],
    h_pre: Float[Tensor, "B S n"],
    h_post: Float[Tensor, "B S n"],
    dh_in: Float[Tensor, "B S D"],
    dh_post: Float[Tensor, "B S n"],
    dh_res: Float[Tensor, "B S n n"],
    gamma: Float[Tensor, "n D"] | None = None,
    *,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Compute the backward of mHC Forward Pre, written out by hand: no autograd.

        dh_mix = dt * inv_rms        dvec = dh_mix @ phi        dinv_rms = sum_M dt * h_mix
        dx     = dvec*gamma - dinv_rms * inv_rms**3 / K * x + h_pre * dh_in
        dphi   = sum_tokens dh_mix^T (x*gamma)                  dgamma = sum_tokens x * dvec

    Source: derived in docs/mhc-pre.md from arXiv 2512.24880, eqs. 14-19. Sums are float32 (float64 where x is float64); dx
    is rounded once to x's dtype. norm_eps does not enter: inv_rms carries it.

    Args:
        x, phi, alpha, bias, gamma: as given to the forward.
        inv_rms, h_mix, h_pre, h_post: as the forward returned them.
        dh_in, dh_post, dh_res: upstream gradients; dh_in in x's dtype.

    Returns:
        (dx [B,S,n,D], dphi [M,K], dalpha [3], dbias [M], dgamma [n,D]); dgamma is None where gamma is.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
    """
    arguments = {
        "x": x, "phi": phi, "alpha": alpha, "bias": bias, "inv_rms": inv_rms, "h_mix": h_mix, "h_pre": h_pre,
        "h_post": h_post, "dh_in": dh_in, "dh_post": dh_post, "dh_res": dh_res, "gamma": gamma,
    }  # fmt: skip
    check_arguments(PRE, arguments, {"norm_eps": norm_eps, "hc_eps": hc_eps})
    with float32_matmuls(x.device.type), torch.no_grad():
        return formula.backward(*_dense(arguments), norm_eps=norm_eps, hc_eps=hc_eps)


def _dense(arguments: Mapping[str, Tensor | None]) -> list[Tensor | None]:
    """Return the arguments, dense: a matrix product may sum a view in another order than its copy."""
    return [None if tensor is None else dense(tensor)[0] for tensor in arguments.values()]
