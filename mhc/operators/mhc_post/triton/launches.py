"""Forward and backward of mHC post as Triton launches, one each. Every sum has a fixed order."""

import math
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_post.triton.kernels import post_backward_kernel, post_kernel
from mhc.operators.mhc_post.triton.schedule import plan
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.selection import power_of_2
from mhc.operators.mhc_pre.tensors import frozen, on_its_device
from mhc.operators.mhc_pre.triton.launcher import Launch, Program

_INPUTS = ("x", "f", "h_post", "h_res")
_GRADIENTS = ("dx", "df", "dh_post", "dh_res")


@lru_cache(maxsize=4096)
def forward_program(
    shape: torch.Size,
    dtype: torch.dtype,
    device: int,
    schedule: tuple[tuple[str, ScheduleValue], ...],
    transposed: bool = False,
) -> Program:
    """Return the launch for x of a shape [*B, n, C] that is not empty, and of a dtype: what it keeps is compiled for it."""
    del dtype  # a part of the key, and of nothing else
    *lead, n, C = shape
    N = math.prod(lead)
    cut = plan("forward", N, n, C, chip(device), dict(schedule))
    programs = -(-N // cut.tokens) * -(-C // cut.columns)
    constants = (N, C, n, power_of_2(n, 1, 16), transposed, cut.tokens, cut.columns)
    launch = Launch(post_kernel, (programs, 1, 1), cut.warps, (*_INPUTS, "y"), constants)
    return Program((launch,), pinned=bool(schedule))


@lru_cache(maxsize=4096)
def backward_program(
    shape: torch.Size,
    dtype: torch.dtype,
    device: int,
    schedule: tuple[tuple[str, ScheduleValue], ...],
    transposed: bool = False,
) -> Program:
    """Return the launch for x of a shape [*B, n, C] that is not empty, and of a dtype: what it keeps is compiled for it."""
    del dtype  # a part of the key, and of nothing else
    *lead, n, C = shape
    N = math.prod(lead)
    cut = plan("backward", N, n, C, chip(device), dict(schedule))
    programs = -(-N // cut.tokens) * -(-n // cut.streams)
    constants = (N, C, n, cut.streams, transposed, cut.tokens, cut.columns)
    launch = Launch(post_backward_kernel, (programs, 1, 1), cut.warps, (*_INPUTS, "dy", *_GRADIENTS), constants)
    return Program((launch,), pinned=bool(schedule))


@on_its_device
def forward(*given: Tensor, transposed: bool = False, schedule: Mapping[str, ScheduleValue] | None = None) -> Tensor:
    """Return the streams [*B, n, C] in x's dtype, rounded once.

    Args:
        given: x [*B, n, C] and f [*B, C] in one dtype, h_post [*B, n] and h_res [*B, n, n] in float32, float64 with float64
            x, which sums are made in.
        transposed: h_res is mixed along its first axis.
        schedule: pins what it names of `schedule.SPACE`; Refused where the device has no room for it.
    """
    tensors = dict(zip(_INPUTS, dense(*given), strict=True))
    y = torch.empty_like(tensors["x"])
    if y.numel():
        forward_program(y.shape, y.dtype, y.get_device(), frozen(schedule), transposed).run({**tensors, "y": y})
    return y


@on_its_device
def backward(
    *given: Tensor, transposed: bool = False, schedule: Mapping[str, ScheduleValue] | None = None
) -> tuple[Tensor, ...]:
    """Return the gradients of x, f, h_post and h_res, each in the dtype of its tensor.

    given: those and dy [*B, n, C], in x's dtype. Keywords as of `forward`.
    """
    tensors = dict(zip((*_INPUTS, "dy"), dense(*given), strict=True))
    gradients = {f"d{name}": torch.empty_like(tensors[name]) for name in _INPUTS}
    x = tensors["x"]
    if x.numel():
        steps = backward_program(x.shape, x.dtype, x.get_device(), frozen(schedule), transposed)
        steps.run({**tensors, **gradients})
    else:
        for gradient in gradients.values():
            gradient.zero_()
    return tuple(gradients.values())
