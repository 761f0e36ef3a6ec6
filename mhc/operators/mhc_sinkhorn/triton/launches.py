"""Forward and backward of mHC's Sinkhorn as Triton launches, one each. Every sum has a fixed order."""

import math
from collections.abc import Mapping
from functools import lru_cache, partial

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.selection import power_of_2
from mhc.operators.mhc_pre.tensors import frozen, on_its_device
from mhc.operators.mhc_pre.triton.launcher import Launch, Program
from mhc.operators.mhc_sinkhorn.triton.kernels import sinkhorn_backward_kernel, sinkhorn_kernel
from mhc.operators.mhc_sinkhorn.triton.schedule import plan

_KERNELS = {
    "forward": (sinkhorn_kernel, ("logits", "y")),
    "backward": (sinkhorn_backward_kernel, ("logits", "dy", "dlogits", "kept")),
}


@lru_cache(maxsize=4096)
def program(
    stage: str,
    shape: torch.Size,
    dtype: torch.dtype,
    device: int,
    schedule: tuple[tuple[str, ScheduleValue], ...],
    pairs: int = 20,
    softmax: bool = False,
    eps: float = 0.0,
) -> Program:
    """Return the launch of a stage for logits of a shape [*B, n, n] that is not empty."""
    N, n = math.prod(shape[:-2]), shape[-1]
    cut = plan(stage, N, n, chip(device), dict(schedule))
    kernel, tensors = _KERNELS[stage]
    constants = (N, eps, pairs, softmax, n, power_of_2(n, 1, 16), cut.tokens)
    launch = Launch(kernel, (-(-N // cut.tokens), 1, 1), cut.warps, tensors, constants)
    scratch = {"kept": (pairs * N * n * n, dtype)} if stage == "backward" else {}
    return Program((launch,), scratch, pinned=bool(schedule))


forward_program = partial(program, "forward")
backward_program = partial(program, "backward")


@on_its_device
def forward(
    logits: Tensor,
    *,
    pairs: int = 20,
    softmax: bool = False,
    eps: float = 0.0,
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> Tensor:
    """Return M [*B, n, n] of logits [*B, n, n], in their dtype.

    Args:
        pairs: times that columns and rows are divided by their sums, in turn.
        softmax: begin with a softmax of the rows in place of exp, add eps to it and to each sum, and end with columns.
        schedule: pins what it names of `schedule.SPACE`; Refused where the device has no room for it.
    """
    (logits,) = dense(logits)
    y = torch.empty_like(logits)
    if y.numel():
        steps = forward_program(y.shape, y.dtype, y.get_device(), frozen(schedule), pairs, softmax, float(eps))
        steps.run({"logits": logits, "y": y})
    return y


@on_its_device
def backward(
    logits: Tensor,
    dy: Tensor,
    *,
    pairs: int = 20,
    softmax: bool = False,
    eps: float = 0.0,
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> tuple[Tensor]:
    """Return the gradient of logits [*B, n, n]; keywords as of `forward`, which it computes again."""
    logits, dy = dense(logits, dy)
    gradient = torch.empty_like(logits)
    if gradient.numel():
        steps = backward_program(
            logits.shape, logits.dtype, logits.get_device(), frozen(schedule), pairs, softmax, float(eps)
        )
        steps.run({"logits": logits, "dy": dy, "dlogits": gradient})
    return (gradient,)
