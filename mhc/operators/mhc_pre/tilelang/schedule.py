"""The declared schedule space of the TileLang kernels: what a case can pin of forward and backward."""

from collections.abc import Mapping

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.tilelang import backward_schedule, forward_schedule

SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {**forward_schedule.SPACE, **backward_schedule.SPACE}
