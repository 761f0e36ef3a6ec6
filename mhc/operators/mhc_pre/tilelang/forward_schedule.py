"""How a TileLang forward cuts the work of a problem: the schedule, its default, and why a pinned one cannot run. Pure."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.selection import Problem, default_kernel, pinned, power_of_2, unsupported
from mhc.operators.mhc_pre.tilelang.fp32_schedule import MOST_ROWS, WARP_ROWS, at_once, rows_of_tile, shares
from mhc.operators.mhc_pre.tilelang.selection import FORWARD, RESIDENT_WIDTH

# Elements of x from which terms of phi have a launch.
PRESPLIT_ELEMENTS = 1 << 20
# Shared memory for the tiles on their way to the projection, compiled for n and D.
STAGES_BYTES = 192 << 10
# Rows of phi of a tile compiled for n and D: more than three sums of so many do not fit in the registers of a thread.
_MOST_ROWS = 112
# Programs of a group beyond which one tile on its way is taken, not two: faster with 16, not compared up to 8.
LARGE_GROUP = 8


@dataclass(frozen=True, kw_only=True)
class ForwardSchedule:
    """The forward's cut.

    mode            two_pass: sums over K in `splits` shares, then the rest; resident: x is read once and waits in shared
                    memory. float32 x has a two_pass of its own, `whole`, without tensor cores. `selection` says which
                    program serves a problem
    fixed           two_pass: compiled for n and D, x by TMA into shared memory; else both are dynamic
    presplit        two_pass: phi * gamma is split into bfloat16 terms by a launch of its own, not again in every tile
    terms           of phi * gamma
    block_*         two_pass: tile of the projection, tokens, rows of phi, elements of K
    splits          two_pass: programs that share K
    threads, stages (fixed, float32) of the projection; finish_threads: of the second pass, eight elements of h_in a thread
    slots, lag      resident: tiles in shared memory, and tiles between projecting one and making h_in of it
    """

    mode: str = "two_pass"
    fixed: bool = False
    presplit: bool = False
    terms: int = 3
    block_tokens: int = 64
    block_m: int = 32
    block_k: int = 64
    splits: int = 1
    threads: int = 128
    stages: int = 0
    finish_threads: int = 128
    slots: int = 5
    lag: int = 2


SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {
    "forward_mode": ("two_pass", "resident"),
    "forward_fixed": (False, True),
    "forward_presplit": (False, True),
    "forward_block_tokens": (64, 128),
    "forward_block_m": (16, 32, 64, 128),
    "forward_block_k": (32, 64),
    "forward_splits": (1, 2, 3, 4, 5, 8, 16),
    "forward_threads": (128, 256),
    "forward_stages": (2, 3, 4, 8),
    "forward_finish_threads": (64, 128, 160, 256),
    "forward_slots": (4, 5),
    "forward_lag": (2, 3),
}


def program_of(plan: ForwardSchedule, problem: Problem) -> str:
    """Return the row of `selection.FORWARD` that a plan runs."""
    if plan.mode == "resident":
        return "resident"
    return "whole" if problem.dtype == torch.float32 else "fixed" if plan.fixed else "general"


@functools.lru_cache(maxsize=4096)
def forward_schedule(problem: Problem) -> ForwardSchedule:
    """Return the default for a problem."""
    N, D, chip, M, K = problem.N, problem.D, problem.chip, problem.M, problem.K
    kernel = default_kernel(FORWARD, problem)
    if kernel == "whole":
        return _whole_schedule(problem)
    if kernel == "resident":
        return ForwardSchedule(mode="resident", terms=2, slots=4 if D // RESIDENT_WIDTH[problem.n] > LARGE_GROUP else 5)
    fixed = kernel == "fixed"
    presplit = fixed or N * K >= PRESPLIT_ELEMENTS
    large = fixed and N >= 2048
    block_tokens = 128 if large else 64
    block_k = 64 if problem.dtype == torch.bfloat16 and presplit else 32
    # of `general` each of 128 threads has a piece of eight elements
    block_m = _even_rows(M, most=_MOST_ROWS, multiple=8) if fixed else _even_rows(M, most=64, multiple=1024 // block_k)
    tiles = -(-N // block_tokens) * -(-M // block_m)
    if fixed:  # one program a multiprocessor: the split that leaves fewest of them idle

        def cost(splits: int) -> float:
            return -(-tiles * splits // chip.cores) / splits + 0.02 * splits

        splits = min(range(max(1, K // 8192), max(2, min(16, K // 512) + 1)), key=cost)
    else:  # enough programs to fill the device, and sums short enough for the truncating accumulators of tensor cores
        splits = power_of_2(min(max(2 * chip.cores // tiles, K // 8192), max(1, K // (256 if presplit else 32))), 1, 16)
    plan = ForwardSchedule(
        fixed=fixed,
        presplit=presplit,
        block_tokens=block_tokens,
        block_m=block_m,
        block_k=block_k,
        splits=splits,
        threads=2 * block_tokens,
        finish_threads=_threads(D // 8) if fixed else _finish_threads(D),
    )
    return replace(plan, stages=_stages(plan, chip.shared))


def _stages(plan: ForwardSchedule, shared: int) -> int:
    """Return the steps of a projection compiled for n and D whose tiles fit in shared memory, at most eight."""
    tile = 2 * plan.block_k * (plan.block_tokens + plan.terms * plan.block_m)
    return min(8, min(STAGES_BYTES, shared - 1024) // tile)


def _even_rows(M: int, *, most: int, multiple: int) -> int:
    """Return the rows of phi of a tile: as many tiles as must be, all with as few empty rows as can be."""
    rows = -(-M // -(-M // most))
    return -(-rows // multiple) * multiple


def _whole_schedule(problem: Problem) -> ForwardSchedule:
    """Return the default for float32 x: two tiles on their way, of as many programs as keep the multiprocessors busy."""
    N, M, chip = problem.N, problem.M, problem.chip
    block_m = rows_of_tile(M)
    block_tokens = 64 if block_m == WARP_ROWS or N <= 64 else 128
    plan = ForwardSchedule(
        block_tokens=block_tokens,
        block_m=block_m,
        block_k=32,
        threads=whole_threads(block_m),
        stages=2,
        finish_threads=_finish_threads(problem.D),
    )
    tiles = -(-N // block_tokens) * -(-M // block_m)
    together = at_once(plan.threads, whole_shared(plan), 168, chip.shared)
    return replace(plan, splits=shares(tiles, -(-problem.K // 32), together, chip.cores, most=32))


def whole_threads(block_m: int) -> int:
    """Return the threads of a program of `whole`: a warp for eight rows of phi."""
    return 32 * block_m // WARP_ROWS


def whole_shared(plan: ForwardSchedule) -> int:
    """Return the bytes of shared memory of a program of `whole`: its tiles' rows are four elements apart."""
    return 4 * plan.stages * (plan.block_tokens + plan.block_m) * (plan.block_k + 4)


def _finish_threads(D: int) -> int:
    """Return the threads of the second pass where D is dynamic."""
    return 64 if D <= 512 else 160 if D <= 1280 else 256


def _threads(chunks: int) -> int:
    """Return the threads of the second pass for pieces of eight elements: the most, up to 256, without an idle one."""
    return next((threads for threads in (256, 128, 64) if chunks % threads == 0), power_of_2(chunks, 32, 256))


def forward_plan(problem: Problem, schedule: Mapping[str, ScheduleValue]) -> ForwardSchedule:
    """Return what runs where a case pins `schedule`; with float32, pinned rows bring their threads."""
    plan = pinned(forward_schedule(problem), "forward", schedule)
    if problem.dtype == torch.float32 and "forward_threads" not in schedule:
        return replace(plan, threads=whole_threads(plan.block_m))
    if program_of(plan, problem) == "fixed" and "forward_stages" not in schedule:
        return replace(plan, stages=_stages(plan, problem.chip.shared))
    return plan


def unfit(problem: Problem, schedule: Mapping[str, ScheduleValue]) -> str | None:
    """Return why a pinned schedule cannot serve a problem; None where it can."""
    N, D, chip = problem.N, problem.D, problem.chip
    plan = forward_plan(problem, schedule)
    if plan.mode == "resident":
        if reason := unsupported(FORWARD, "resident", problem):
            return f"forward_mode {reason}"
        if plan.lag >= plan.slots - 1:
            return f"forward_lag {plan.lag} leaves no slot to load into of forward_slots {plan.slots}"
        return None
    if N * -(-D // (8 * plan.finish_threads)) >= 1 << 31:
        return f"the second pass would be more than 2**31 programs, for {N} tokens of {D} columns"
    if plan.fixed and (reason := unsupported(FORWARD, "fixed", problem)):
        return f"forward_{reason}"
    if problem.dtype == torch.float32:
        return _unfit_whole(plan, chip.shared)
    if plan.fixed and not plan.presplit:
        return "forward_fixed takes forward_presplit True"
    if not plan.fixed and plan.terms * plan.block_m > 192:
        return f"forward_block_m must be at most 64 without forward_fixed, was {plan.block_m}"
    if plan.fixed and plan.stages * plan.block_k * 2 * (plan.block_tokens + plan.terms * plan.block_m) > chip.shared - 1024:
        return f"forward_stages {plan.stages} of those tiles are more than the {chip.shared} bytes of shared memory"
    if not plan.fixed and plan.block_m * plan.block_k % (8 * plan.threads) != 0:
        return (
            "forward_block_m * forward_block_k must be a multiple of 8 * forward_threads without forward_fixed,"
            f" was {plan.block_m} * {plan.block_k} for {plan.threads}"
        )
    if plan.threads != 2 * plan.block_tokens:
        return f"forward_threads must be twice forward_block_tokens, was {plan.threads} for {plan.block_tokens}"
    return None


def _unfit_whole(plan: ForwardSchedule, shared: int) -> str | None:
    """Return why a pinned schedule cannot serve float32 x."""
    if plan.presplit:
        return "forward_presplit is for bfloat16 and float16: float32 has no terms"
    if plan.block_m > MOST_ROWS:
        return f"forward_block_m must be at most {MOST_ROWS} with float32, was {plan.block_m}"
    if plan.threads != whole_threads(plan.block_m):
        return f"forward_threads must be 4 * forward_block_m with float32, was {plan.threads} for {plan.block_m}"
    if whole_shared(plan) > shared - 1024:
        return f"forward_stages {plan.stages} of those tiles are more than the {shared} bytes of shared memory"
    return None
