"""Forward and backward on TileLang, and the forward as a TIR script, under the names and signatures of the golden ones."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.implementation import Implementation
from mhc.operators.mhc_pre.api import Gradients, backward_by, forward_by
from mhc.operators.mhc_pre.tilelang.implementations import TILELANG, TILELANG_C, TIR


def mhc_forward_pre_tilelang(
    x: Float[Tensor, "B S n D"],
    phi: Float[Tensor, "M K"],
    alpha: Float[Tensor, "3"],
    bias: Float[Tensor, "M"],
    gamma: Float[Tensor, "n D"] | None = None,
    *,
    outflag: bool = False,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> tuple[Tensor, ...]:
    """`mhc_forward_pre` in TileLang kernels: the same equations, arguments, shapes and dtypes.

    Differentiable: gradients come from `mhc_backward_tilelang`. CUDA tensors run on the tile-level kernels (`tilelang`), CPU
    tensors on the scalar ones of the `c` target (`tilelang-c`), the only ones that take float64. float32-level accuracy, bit
    for bit the same on every run. The first call compiles, unless the disk has the program (docs/tilelang).

    Args:
        schedule: pins tile sizes and the like, of `tilelang.schedule.SPACE`; what it leaves out is chosen from the
            shape. CUDA only.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: TileLang is absent or another version than 0.1.8, there is no compiler, or the dtype or schedule cannot run
            here; with the reason. There is no fallback.
    """
    arguments = {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma}
    keywords = {"norm_eps": norm_eps, "hc_eps": hc_eps, "schedule": schedule}
    return forward_by(_implementation(x), arguments, keywords, outflag=outflag)


def mhc_backward_tilelang(
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
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> Gradients:
    """`mhc_pre_backward_manual` in TileLang kernels: the same equations, arguments, shapes and dtypes.

    No [N, K] intermediate; bit for bit the same on every run. CPU tensors and `schedule` as for the forward.

    Returns:
        (dx [B,S,n,D], dphi [M,K], dalpha [3], dbias [M], dgamma [n,D]); dgamma is None where gamma is.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: as for the forward. There is no fallback.
    """
    arguments = {
        "x": x, "phi": phi, "alpha": alpha, "bias": bias, "inv_rms": inv_rms, "h_mix": h_mix, "h_pre": h_pre,
        "h_post": h_post, "dh_in": dh_in, "dh_post": dh_post, "dh_res": dh_res, "gamma": gamma,
    }  # fmt: skip
    return backward_by(_implementation(x), arguments, {"norm_eps": norm_eps, "hc_eps": hc_eps, "schedule": schedule})


def mhc_forward_pre_tir(
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
    """`mhc_forward_pre` as a TIR script: threads bound by hand on CUDA, plain loops on the CPU. Not differentiable.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
        Refused: as for `mhc_forward_pre_tilelang`. There is no fallback.
    """
    arguments = {"x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma}
    return forward_by(TIR, arguments, {"norm_eps": norm_eps, "hc_eps": hc_eps}, outflag=outflag)


def _implementation(x: Any) -> Implementation:
    """The tile-level kernels on a GPU, the scalar ones on the CPU."""
    on_cpu = isinstance(x, Tensor) and x.device.type == "cpu"
    return TILELANG_C if on_cpu else TILELANG
