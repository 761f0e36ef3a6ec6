"""The backward as an object for one shape: compiled when it is made, then called like `mhc_pre_backward_manual`."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.api import Gradients
from mhc.operators.mhc_pre.table import MAX_N
from mhc.operators.mhc_pre.tilelang.api import mhc_backward_tilelang
from mhc.operators.mhc_pre.tilelang.compile.cache import program
from mhc.operators.mhc_pre.tilelang.cpu import FLAGS, PASSES


class MHCBackwardTileLang:
    """`mhc_backward_tilelang` for one shape and dtype of x; making it compiles, calling it does not.

        backward = MHCBackwardTileLang(B, S, n, D)
        dx, dphi, dalpha, dbias, dgamma = backward(
            x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma
        )

    Args:
        B, S, n, D: batch, sequence, residual streams (1 to 16), hidden size.
        dtype: of x, dh_in and dx: bfloat16, float16 or float32; float64 on the CPU alone.
        device: "cuda", "cuda:1" or "cpu"; the current GPU where there is one, else the CPU.
        schedule: as for `mhc_backward_tilelang`; CUDA only.

    Raises:
        ValueError: a size that the operator does not have.
        Refused: TileLang is absent or another version than 0.1.8, or there is no compiler, or the schedule cannot run here.
    """

    def __init__(
        self,
        B: int,
        S: int,
        n: int,
        D: int,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: str | torch.device | None = None,
        schedule: Mapping[str, ScheduleValue] | None = None,
    ) -> None:
        for name, value, least, most in (("B", B, 0, None), ("S", S, 0, None), ("n", n, 1, MAX_N), ("D", D, 1, None)):
            if value < least or (most is not None and value > most):
                raise ValueError(f"{name} must be at least {least}{f' and at most {most}' if most else ''}, was {value}")
        self.shape, self.dtype, self.schedule = (B, S, n, D), dtype, schedule
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.device.type == "cuda" and B * S > 0:
            from mhc.operators.mhc_pre.tilelang.backward import prepared  # noqa: PLC0415  needs a GPU

            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            with torch.cuda.device(index):
                prepared(self.shape, dtype, index, tuple(sorted((schedule or {}).items())))
        elif self.device.type == "cpu":
            stored = torch.float32 if dtype == torch.bfloat16 else dtype
            constants: dict[str, str | int] = {"dtype": str(stored).removeprefix("torch."), "max_n": MAX_N}
            program("mhc.operators.mhc_pre.tilelang.kernels.cpu:backward", "c", constants, pass_configs=PASSES, flags=FLAGS)

    def __call__(
        self,
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
    ) -> Gradients:
        """(dx, dphi, dalpha, dbias, dgamma), as `mhc_backward_tilelang`.

        Raises:
            ValueError: x has another shape, dtype or device than this was made for.
            TypeError, ValueError: another argument does not fit; the message names it.
        """
        was = (tuple(x.shape), x.dtype, x.device.type)
        wanted = (self.shape, self.dtype, self.device.type)
        if was != wanted:
            raise ValueError(f"x must be {wanted[1]} of shape {wanted[0]} on {wanted[2]}, was {was[1]} {was[0]} on {was[2]}")
        given = (x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma)
        return mhc_backward_tilelang(*given, norm_eps=norm_eps, hc_eps=hc_eps, schedule=self.schedule)
