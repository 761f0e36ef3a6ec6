"""mHC Forward Pre on Triton: compiled on a GPU, and the same source in Triton's interpreter on the CPU."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Literal

from mhc.case import Case, Schedule
from mhc.implementation import Implementation, Refused
from mhc.operators.mhc_pre.calls import deferred
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.triton.constraints import unfit
from mhc.operators.mhc_pre.triton.schedule import SPACE

INTERPRETER = {"TRITON_INTERPRET": "1"}


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


Unfit = Callable[[Case, Schedule, Chip], str | None]
"""From a case, what its schedule pins and a device: why that schedule cannot run, or None."""


def supported(name: str, interpreted: bool, unfit: Unfit, case: Case) -> Literal[True] | Refused:
    """Return whether an implementation's kernels can run a case in this process, interpreted or compiled."""
    if not _installed():
        return Refused("Triton is not installed")
    import torch  # noqa: PLC0415
    import triton  # noqa: PLC0415

    from mhc.operators.mhc_pre.device import chip  # noqa: PLC0415

    if interpreted != triton.knobs.runtime.interpret:
        return Refused("needs TRITON_INTERPRET=1 before Triton is imported" if interpreted else "TRITON_INTERPRET is set")
    schedule = case.schedules.get(name)
    if schedule:
        reason = unfit(case, schedule, chip(-1 if interpreted else torch.cuda.current_device()))
        if reason is not None:
            return Refused(f"its schedule: {reason}")
    return True


TRITON = Implementation(
    name="triton",
    forward=deferred("mhc.operators.mhc_pre.triton.forward:forward"),
    backward=deferred("mhc.operators.mhc_pre.triton.backward:backward"),
    devices=("cuda",),
    dtypes=("bfloat16", "float16", "float32", "float64"),
    supports=partial(supported, "triton", False, unfit),
    schedule=SPACE,
)
TRITON_INTERPRETED = replace(
    TRITON,
    name="triton-interpreted",
    devices=("cpu",),
    env=INTERPRETER,
    supports=partial(supported, "triton-interpreted", True, unfit),
)
