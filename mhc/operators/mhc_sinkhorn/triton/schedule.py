"""Schedules of Sinkhorn's kernels: how many matrices a program takes. They change speed and, compiled, the order of sums."""

from collections.abc import Mapping
from dataclasses import dataclass

from mhc.case import Case, Schedule, ScheduleValue
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.selection import pinned, power_of_2

ELEMENTS, FEWEST = 512, 32
"""Of the matrices of a warp: 16 a thread, or as few as 1 where there are too few warps to hide what each waits for."""
INTERPRETED = 1 << 16  # elements: Python runs every operation, so few programs
INTERPRETED_PROGRAMS = 16  # some 40 ms each for a backward, and a case has a minute
MOST = 4
"""Times `ELEMENTS` that a pinned schedule may have."""

SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {
    "forward_tokens": (1, 2, 8, 32),
    "forward_warps": (1, 2, 4),
    "backward_tokens": (1, 2, 8, 32),
    "backward_warps": (1, 2, 4),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cut of one stage. tokens: matrices of a program; warps: of a program, one keeps sums free of barriers."""

    tokens: int
    warps: int = 1


def plan(stage: str, N: int, n: int, chip: Chip, schedule: Schedule) -> Plan:
    """Return the cut for N matrices: the default, with what the schedule pins."""
    matrix = power_of_2(n, 1, 16) ** 2
    room = INTERPRETED if chip.interpreted else power_of_2(N * matrix // (32 * chip.cores), FEWEST, ELEMENTS)
    return pinned(Plan(tokens=power_of_2(N, 1, max(1, room // matrix))), stage, schedule)


def unfit(case: Case, schedule: Schedule, chip: Chip) -> str | None:
    """Return why a pinned schedule cannot run a case; None where it can."""
    N, n = case.token_count, case.sizes["n"]
    for stage in ("forward", "backward"):
        cut = plan(stage, N, n, chip, schedule)
        programs, elements = -(-N // cut.tokens), cut.tokens * power_of_2(n, 1, 16) ** 2
        if chip.interpreted and programs > INTERPRETED_PROGRAMS:
            return f"{programs} programs are more than the {INTERPRETED_PROGRAMS} that the interpreter gets through in time"
        if not chip.interpreted and elements > MOST * ELEMENTS * cut.warps:
            return f"{stage}_tokens make {elements} elements a program, more than {MOST * ELEMENTS * cut.warps}"
    return None
