"""Schedules of mHC post's kernels: tiles [tokens, columns]. They change speed and the order of sums, nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass

from mhc.case import Case, Schedule, ScheduleValue
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.selection import power_of_2

REGISTERS = 512
"""Most numbers of a thread that a pinned schedule may hold; what is above 200 or so spills, and takes minutes to compile."""
INTERPRETED = 1 << 16  # tokens * columns of a tile: few programs, and at most 2^20 elements with n streams
INTERPRETED_STEPS = 1024  # a step is a stream of a tile and takes 1 or 2 ms, and a call has a minute

SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {
    "forward_tokens": (1, 2, 8),
    "forward_columns": (16, 64, 256, 1024),
    "forward_warps": (1, 4, 8),
    "backward_tokens": (1, 2, 8),
    "backward_columns": (16, 64, 128, 512),
    "backward_streams": (1, 2, 4),
    "backward_warps": (1, 2, 4),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cut of one stage.

    tokens, columns: of a tile. The backward goes through all of C in tiles.
    streams: of x, whose gradients a program of the backward makes; dy is read again for the next ones.
    """

    tokens: int
    columns: int
    streams: int = 1
    warps: int = 4


def plan(stage: str, N: int, n: int, C: int, chip: Chip, schedule: Schedule) -> Plan:
    """Return the cut for N tokens: what the schedule pins, and the default for the rest."""

    def pinned(name: str, default: int) -> int:
        return int(schedule.get(f"{stage}_{name}", default))

    if stage == "forward":
        # eight columns a thread: 16-byte loads, in the layout in which y is stored
        streams, warps, each = (1, 1, 8) if n <= 8 else (1, 4, 4)
    else:
        # n * streams sums a thread and column; a single warp adds them up without barriers
        streams = power_of_2(n, 1, 16 if chip.interpreted else 4)
        many = chip.cores * 16 <= N
        warps, each = 1 if many else 4, 4 if n <= 4 else 2 if n <= 8 else 1
    warps = pinned("warps", warps)
    tile = INTERPRETED if chip.interpreted else 32 * warps * each
    columns = pinned("columns", power_of_2(C, 1, tile // pinned("tokens", 1)))
    tokens = pinned("tokens", power_of_2(N, 1, max(1, tile // columns)))
    return Plan(tokens=tokens, columns=columns, streams=pinned("streams", streams), warps=warps)


def unfit(case: Case, schedule: Schedule, chip: Chip) -> str | None:
    """Return why a pinned schedule cannot run a case; None where it can."""
    N, n, C = case.token_count, case.sizes["n"], case.sizes["C"]
    for stage in ("forward", "backward"):
        cut = plan(stage, N, n, C, chip, schedule)
        groups = -(-n // cut.streams) if stage == "backward" else 1
        steps = -(-N // cut.tokens) * -(-C // cut.columns) * groups * n
        if chip.interpreted:
            if steps > INTERPRETED_STEPS:
                return f"{steps} steps are more than the {INTERPRETED_STEPS} that the interpreter gets through in time"
            continue
        held = n * (cut.streams + 1) if stage == "backward" else power_of_2(n, 1, 16)
        numbers = held * max(1, cut.tokens * cut.columns // (32 * cut.warps))
        if numbers > REGISTERS:
            return f"{stage}_tokens and {stage}_columns of a tile make {numbers} numbers a thread, more than {REGISTERS}"
    return None
