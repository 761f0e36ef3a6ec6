"""mHC Forward Pre on TileLang: tile-level on CUDA, scalar on the CPU (the `c` target)."""

from functools import partial
from typing import Any, Literal

import torch

from mhc.case import Case, Schedule
from mhc.implementation import Implementation, Refused
from mhc.operators.mhc_pre.calls import deferred
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.selection import problem_of
from mhc.operators.mhc_pre.tensors import frozen
from mhc.operators.mhc_pre.tilelang import backward_schedule, forward_schedule
from mhc.operators.mhc_pre.tilelang.compile.cache import Counts
from mhc.operators.mhc_pre.tilelang.compile.dependencies import missing, unusable


def _forward(x: Any, *arguments: Any, schedule: Schedule | None, **keywords: Any) -> Any:
    from mhc.operators.mhc_pre.tilelang.backward import start_building  # noqa: PLC0415
    from mhc.operators.mhc_pre.tilelang.forward import forward  # noqa: PLC0415

    if x.numel() > 0:  # a backward follows, mostly: where it has to be compiled, both are at once
        start_building(tuple(x.shape), x.dtype, x.get_device(), frozen(schedule))
    return forward(x, *arguments, schedule=schedule, **keywords)


def compiles() -> int:
    """Return how many programs this process has compiled."""
    return Counts.compiled


def supports(target: str, case: Case) -> Literal[True] | Refused:
    """Return True where programs for a target, "c" or "cuda", can be compiled here."""
    del case
    reason = missing(target)
    return True if reason is None else Refused(reason)


def _supports_tiles(case: Case) -> Literal[True] | Refused:
    reason = missing("cuda")
    if reason is not None:
        return Refused(reason)
    schedule = case.schedules.get("tilelang")
    if schedule:
        problem = problem_of(case, chip(torch.cuda.current_device()))
        reason = forward_schedule.unfit(problem, schedule) or backward_schedule.unfit(problem, schedule)
        if reason is not None:
            return Refused(f"its schedule: {reason}")
    return True


TILELANG = Implementation(
    name="tilelang",
    forward=_forward,
    backward=deferred("mhc.operators.mhc_pre.tilelang.backward:backward"),
    devices=("cuda",),
    dtypes=("bfloat16", "float16", "float32"),
    supports=_supports_tiles,
    compiles=compiles,
    unavailable=unusable,
    schedule={**forward_schedule.SPACE, **backward_schedule.SPACE},
)
TILELANG_C = Implementation(
    name="tilelang-c",
    forward=deferred("mhc.operators.mhc_pre.tilelang.cpu:forward"),
    backward=deferred("mhc.operators.mhc_pre.tilelang.cpu:backward"),
    devices=("cpu",),
    dtypes=("bfloat16", "float16", "float32", "float64"),
    supports=partial(supports, "c"),
    compiles=compiles,
    unavailable=unusable,
)
