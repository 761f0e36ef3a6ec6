"""How a TileLang backward cuts the work of a problem: the schedule, its default, and why a pinned one cannot run. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.selection import Problem, balanced_splits, default_kernel, pinned, unsupported
from mhc.operators.mhc_pre.tilelang.fp32_schedule import MOST_ROWS, WARP_ROWS, at_once, rows_of_tile, shares
from mhc.operators.mhc_pre.tilelang.selection import BACKWARD

TERMS = 3  # bfloat16 terms of a float32: two are off by 2**-17, which the precision gate finds
PLANES = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 0}  # bfloat16 terms that x has; of float32 none is made


@dataclass(frozen=True, kw_only=True)
class BackwardSchedule:
    """The backward's cut.

    mode            plain: a pipelined matrix product each for psi and dx, on any GPU
                    ring: the same with a loading warp in each, dx by programs that stay
                    streams: both in one kernel, by a loading and a storing warp, two warp groups for dx, one for psi
                    whole: a product each in plain multiply-adds, for float32 and nothing else, on any GPU
                    `selection` says which serves a problem
    gates_programs  at most this many partial sums for dbias and dalpha
    gates_unroll    chunks of a token's columns that a warp loads before it uses the first
    splits          programs that share the tokens, each with its own partial psi
    stages          of the matrix products; streams: slots of the ring of tiles
    psi_rows        plain, ring, whole: rows of a tile of psi
    rows, width     of a program that adds up partial sums: groups of threads that share the rows, columns
    """

    mode: str = "plain"
    gates_programs: int = 2048
    gates_unroll: int = 2
    splits: int = 1
    stages: int = 3
    psi_rows: int = 64
    rows: int = 8
    width: int = 32


SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {
    "backward_mode": ("plain", "ring", "streams", "whole"),
    "backward_gates_programs": (1, 64, 528, 2048),
    "backward_gates_unroll": (1, 2, 4),
    "backward_splits": (1, 2, 5, 16),
    "backward_stages": (2, 3, 4, 5),
    "backward_psi_rows": (64, 128, 192, 256),
    "backward_rows": (4, 8, 32),
    "backward_width": (32,),
}


@lru_cache(maxsize=4096)
def backward_schedule(problem: Problem, mode: str | None = None) -> BackwardSchedule:
    """Return the default for a problem, in a given mode or the one that `selection` prefers."""
    N, n, D, chip, M = problem.N, problem.n, problem.D, problem.chip, problem.M
    wide = vector(D, problem.dtype) > 1
    mode = mode or default_kernel(BACKWARD, problem)
    shared: dict[str, Any] = {
        "gates_unroll": (4 if n <= 2 else 2 if n <= 6 else 1) if wide else (4 if n <= 8 else 2),
        "rows": 32 if wide and M > 32 else 8,
    }
    if mode == "streams":
        spans = -(-D // 128) if n == 1 else -(-D // 64) * (n // streams_together(n))
        return BackwardSchedule(
            mode=mode,
            **shared,
            stages={2: 5, 3: 3}.get(n, 4),
            splits=balanced_splits(spans, -(-N // 64), chip.cores),
        )
    if mode == "whole":
        psi_rows, stages = rows_of_tile(M), 2
        tiles = n * -(-D // 128) * -(-M // psi_rows)
        together = at_once(32 * psi_rows // WARP_ROWS, whole_shared(psi_rows, stages), 128, chip.shared)
        splits = shares(tiles, -(-N // 32), together, chip.cores, most=16)
        return BackwardSchedule(mode=mode, **shared, stages=stages, psi_rows=psi_rows, splits=splits)
    if mode == "ring":
        psi_rows = fitting_rows(n)
        blocks = n * -(-D // 128) * -(-TERMS * rows_of_terms(n) // psi_rows)
        splits = whole_waves(blocks, -(-N // 64), chip.cores)
        return BackwardSchedule(mode=mode, **shared, stages=4, psi_rows=psi_rows, splits=splits)
    psi_rows = 128 if 3 * rows_of_terms(n) > 64 else 64  # not by N: the program must not depend on it
    programs = n * -(-D // 128) * -(-TERMS * rows_of_terms(n) // psi_rows)
    splits = max(1, min(2 * chip.cores // programs, -(-N // 256)))
    return BackwardSchedule(**shared, psi_rows=psi_rows, splits=splits)


def backward_plan(problem: Problem, schedule: Mapping[str, ScheduleValue]) -> BackwardSchedule:
    """Return what runs where a case pins `schedule`: the default of the mode pinned, and the rest of `schedule`."""
    mode = schedule.get("backward_mode")
    return pinned(backward_schedule(problem, None if mode is None else str(mode)), "backward", schedule)


def unfit(problem: Problem, schedule: Mapping[str, ScheduleValue]) -> str | None:
    """Return why a pinned schedule cannot serve a problem; None where it can."""
    n, dtype, chip = problem.n, problem.dtype, problem.chip
    if dtype not in PLANES:
        return f"tilelang takes no float64 on CUDA, but {', '.join(str(one) for one in PLANES)}"
    plan = backward_plan(problem, schedule)
    if plan.gates_unroll * n > 32:
        return f"backward_gates_unroll * n must be at most 32, was {plan.gates_unroll * n}"
    if (plan.mode == "whole") != (dtype == torch.float32):
        return f"backward_mode whole is for float32, and float32 takes no other; was {plan.mode} with {dtype}"
    if plan.mode == "whole":
        if plan.psi_rows > MOST_ROWS:
            return f"backward_mode whole takes backward_psi_rows up to {MOST_ROWS}, was {plan.psi_rows}"
        needed = whole_shared(plan.psi_rows, plan.stages)
        if needed > chip.shared - 1024:
            return f"{plan.stages} backward_stages need {needed} bytes of shared memory, there are {chip.shared}"
    if reason := unsupported(BACKWARD, plan.mode, problem):
        return f"backward_mode {reason}"
    if plan.mode == "streams":
        needed = streams_shared(n, plan.stages)
        if needed > chip.shared:
            return f"{plan.stages} backward_stages need {needed} bytes of shared memory, there are {chip.shared}"
    if plan.mode == "ring" and (needed := ring_shared(plan.psi_rows, plan.stages)) > chip.shared - 1024:
        return f"{plan.stages} backward_stages need {needed} bytes of shared memory, there are {chip.shared}"
    if plan.mode == "plain" and plan.psi_rows > 128:
        return f"backward_mode plain takes backward_psi_rows 64 or 128, was {plan.psi_rows}"
    return None


def fitting_rows(n: int) -> int:
    """Return the rows of a tile of psi, 64 for each warp group: those with which the least is read, of dh_mix and of x."""
    return min((256, 192, 128, 64), key=lambda rows: -(-TERMS * rows_of_terms(n) // rows) * (rows + 128))


def whole_waves(blocks: int, tiles: int, cores: int) -> int:
    """Return how many programs share the tokens of a block of psi to fill waves: each costs its tiles and a start."""

    def cost(splits: int) -> float:
        return -(-blocks * splits // cores) * (-(-tiles // splits) + 4) + splits

    return min(range(1, max(2, min(16, tiles // 4 + 1))), key=cost)


def streams_together(n: int) -> int:
    """Return how many streams a program of `streams` takes side by side, as `kernels.bwd_fused_sm90.panels_of` has them."""
    return {1: 1, 3: 3}.get(n, 2)


def streams_shared(n: int, slots: int) -> int:
    """Return the bytes of shared memory of a program of `streams`, as `kernels.bwd_fused_sm90.Tiles` allocates them."""
    together, columns = streams_together(n), columns_of_left(n)
    panels, strips = (2, 2) if n == 1 else (together, 1)
    slot = 2 * 64 * (columns + 64 * panels + 64 * strips) + 16 * 64
    return slots * slot + 2 * 64 * panels * (columns + 64) + 1024


def ring_shared(rows: int, stages: int) -> int:
    """Return the bytes of shared memory of `ring` for psi: tiles of 64 tokens, 128 columns, `rows` columns of dh_mix."""
    return 2 * stages * 64 * (128 + rows)


def whole_shared(rows: int, stages: int) -> int:
    """Return the bytes of shared memory of `whole` for psi: tiles of 32 tokens, 128 columns, `rows` of dh_mix."""
    return 4 * stages * 32 * (128 + rows)


def rows_of_terms(n: int) -> int:
    """Return MP: the M rows of one term, rounded up to 8."""
    return -(-(n * n + 2 * n) // 8) * 8


def columns_of_left(n: int, blocks: int = 6) -> int:
    """Return C: the columns of so many blocks of dh_mix, rounded up to 16, and at least 64."""
    return max(-(-blocks * rows_of_terms(n) // 16) * 16, 64)


def steps_of_dx(n: int) -> tuple[int, int, int]:
    """Return depth, steps and slots of the products of dx in `ring`: M rows in steps of `depth`, `slots` of them at a time.

    The slots divide the steps and have 96 KiB; of what fits the quickest, where a step takes 12 cycles a row and 150.
    """
    M, fitting = n * n + 2 * n, []
    for depth in (16, 32):
        for steps in range(max(2, -(-M // depth)), -(-M // depth) + 3):
            slots = max(slots for slots in range(1, 96 // depth + 1) if steps % slots == 0)
            if slots > 1:
                fitting.append((steps * (12 * depth + 150), depth, steps, slots))
    return min(fitting)[1:]


def vector(D: int, dtype: torch.dtype) -> int:
    """Return the elements of x in 16 bytes where its rows are multiples of 16 bytes, else 1."""
    width = 16 // dtype.itemsize
    return width if D % width == 0 else 1


def psi_blocks_more(x_terms: int) -> int:
    """Return the blocks of psi for terms of x behind the first: two for the one of float16."""
    return (0, 2)[x_terms - 1]


def planes(D: int, dtype: torch.dtype) -> int:
    """Return how many bfloat16 copies of x, one a term, psi reads; 0 where it reads x itself."""
    return 0 if dtype == torch.bfloat16 and vector(D, dtype) > 1 else PLANES[dtype]
