"""The backward as an object for one shape: compiled when it is made, then called like `mhc_pre_backward_manual`."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.implementation import Implementation
from mhc.operators.mhc_pre.calls import BackwardFunction
from mhc.operators.mhc_pre.shapes import MAX_N
from mhc.operators.mhc_pre.tilelang.implementations import TILELANG, TILELANG_C


class MHCBackwardTileLang(BackwardFunction):
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
        ValueError: a size that the operator does not have; called: x has another shape, dtype or device.
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
        super().__init__("MHCBackwardTileLang", self._implementation, str(type(self).__doc__), schedule)
        self.shape, self.dtype = (B, S, n, D), dtype
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if self.device.type == "cuda" and B * S > 0:
            from mhc.operators.mhc_pre.tilelang.backward import prepared  # noqa: PLC0415  needs a GPU

            index = torch.cuda.current_device() if self.device.index is None else self.device.index
            with torch.cuda.device(index):
                prepared(self.shape, dtype, index, tuple(sorted((schedule or {}).items())))
        elif self.device.type == "cpu":
            from mhc.operators.mhc_pre.tilelang.cpu import serial_program  # noqa: PLC0415  imported where it is used

            serial_program("backward", torch.float32 if dtype == torch.bfloat16 else dtype)

    def _implementation(self, x: Tensor) -> Implementation:
        """Return the implementation for the device, where x is what this was made for."""
        was = (tuple(x.shape), x.dtype, x.device.type)
        wanted = (self.shape, self.dtype, self.device.type)
        if was != wanted:
            raise ValueError(f"x must be {wanted[1]} of shape {wanted[0]} on {wanted[2]}, was {was[1]} {was[0]} on {was[2]}")
        return TILELANG_C if self.device.type == "cpu" else TILELANG
