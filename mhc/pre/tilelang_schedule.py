"""The declared schedule space of the TileLang kernels: what a case can pin of forward and backward."""

from collections.abc import Mapping

from mhc.case import ScheduleValue
from mhc.pre import tilelang_backward_plan, tilelang_forward_plan

SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {**tilelang_forward_plan.SPACE, **tilelang_backward_plan.SPACE}
