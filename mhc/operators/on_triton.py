"""Implementations in Triton: compiled on a GPU, and the same source in Triton's interpreter on the CPU."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mhc.case import ScheduleValue
from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES, Operator
from mhc.operators.mhc_pre.calls import deferred
from mhc.operators.mhc_pre.triton.implementations import INTERPRETER, Unfit, supported


def on_triton(
    operator: Operator, launches: str, space: Mapping[str, tuple[ScheduleValue, ...]], unfit: Unfit, **variant: Any
) -> tuple[Implementation, Implementation]:
    """Return `OPERATOR.triton` and `OPERATOR.triton-interpreted`.

    Args:
        launches: the module with the functions forward and backward; it is imported at the first call.
        space: the schedule's names and values.
        variant: keywords of both functions that tell the operator from others with the same kernels.
    """
    compiled = Implementation(
        name=f"{operator.name}.triton",
        operator=operator,
        forward=partial(deferred(f"{launches}:forward"), **variant),
        backward=partial(deferred(f"{launches}:backward"), **variant),
        devices=("cuda",),
        dtypes=tuple(STORAGE_DTYPES),
        schedule=space,
    )
    name = f"{operator.name}.triton-interpreted"
    interpreted = replace(compiled, name=name, devices=("cpu",), env=INTERPRETER)
    return (
        replace(compiled, supports=partial(supported, compiled.name, False, unfit)),
        replace(interpreted, supports=partial(supported, name, True, unfit)),
    )
