"""Why a pinned schedule of the Triton kernels cannot run."""

import math
from collections.abc import Mapping

import torch

from mhc.case import Case, ScheduleValue
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.selection import Problem, power_of_2, problem_of, unsupported
from mhc.operators.mhc_pre.triton.heuristics import backward_plan, backward_schedule, forward_plan
from mhc.operators.mhc_pre.triton.schedule import BackwardSchedule, ForwardSchedule
from mhc.operators.mhc_pre.triton.selection import BACKWARD, FORWARD, WHOLE, hopper_stages

# A step takes some milliseconds there, and a case has a minute.
INTERPRETED_STEPS = 512


def unfit(case: Case, schedule: Mapping[str, ScheduleValue], chip: Chip) -> str | None:
    """Return why a pinned schedule cannot serve a case; None where it can.

    Larger tiles than the registers of a program hold would compute the same and take minutes to compile; float64 has no
    tensor cores.
    """
    problem = problem_of(case, chip)
    forward, backward = forward_plan(problem, schedule), backward_plan(problem, schedule)
    n, dtype = problem.n, problem.dtype
    width, fused = power_of_2(n, 1, 16), forward.mode == "fused"
    if dtype in WHOLE and forward.presplit and not fused:
        return f"{case.dtype} has no bfloat16 terms: forward_presplit must be False"
    columns = power_of_2(problem.M, 16, 512) if fused else forward.block_m
    if reason := unsupported(BACKWARD, backward.mode, problem):
        return f"backward_mode {reason}"
    fixed = ("tokens", "columns", "streams", "stages", "splits")
    for name in {"hopper": fixed[:-1], "resident": fixed}.get(backward.mode, ()):
        own = getattr(backward_schedule(problem, backward.mode), name)
        if getattr(backward, name) != own:
            return f"backward_mode {backward.mode} takes backward_{name} {own}; pin backward_mode too for another"
    if reason := unsupported(FORWARD, forward.mode, problem):
        return f"forward_mode {reason}"
    if forward.mode == "whole" and (forward.block_tokens < 32 or forward.block_k > 32 or forward.stages < 2):
        return (
            "forward_mode whole, the default of float32, takes forward_block_tokens of 32 or more, forward_block_k 16 or 32"
            " and forward_stages of 2 or more; pin forward_mode two_pass for others;"
            f" was {forward.block_tokens}, {forward.block_k}, {forward.stages}"
        )
    if forward.mode == "hopper":
        if forward.block_tokens not in {128, 256}:
            return f"forward_mode hopper takes forward_block_tokens 128 or 256, was {forward.block_tokens}"
        stages = hopper_stages(problem, forward.block_tokens)
        if not 2 <= forward.stages <= stages:
            return f"forward_mode hopper takes forward_stages of 2 to {stages} there, was {forward.stages}"
    limits = {
        "forward_block_tokens * columns of phi": (forward.block_tokens * columns, 2048 * forward.warps),
        "n * forward_finish_tokens * forward_finish_d": (
            n * forward.finish_tokens * forward.finish_d,
            4096 * (forward.warps if fused else forward.finish_warps),
        ),
        "n * backward_gates_tokens * backward_gates_columns": (
            width * backward.gates_tokens * backward.gates_columns,
            4096 * backward.gates_warps,
        ),
        "backward_tokens * backward_streams * backward_columns": (
            backward.tokens * (backward.columns if backward.wide else backward.streams * backward.columns),
            2048 * backward.warps,
        ),
        "backward_psi_rows * backward_psi_columns": (
            backward.psi_rows * backward.psi_columns if backward.wide else 0,
            2048 * backward.psi_warps,
        ),
    }
    if dtype == torch.float64:
        limits["float64 forward_block_tokens * forward_block_m * forward_block_k"] = (
            forward.block_tokens * forward.block_m * forward.block_k,
            4096 * forward.warps,
        )
        limits["float64 backward_tokens * backward_rows * backward_streams * backward_columns"] = (
            backward.tokens * backward.rows * backward.streams * backward.columns,
            4096 * backward.warps,
        )
    if dtype == torch.float32:
        limits["float32 forward_block_tokens * columns of phi * forward_block_k"] = (
            forward.block_tokens * columns * forward.block_k,
            65536 * forward.warps,
        )
        limits["float32 (n * n + 2 * n) * backward_tokens * backward_streams * backward_columns"] = (
            problem.M * backward.tokens * backward.streams * backward.columns,
            65536 * backward.warps,
        )
    if chip.interpreted:
        steps = _steps(problem, forward, backward)
        if steps > INTERPRETED_STEPS:
            return (
                f"{steps} steps of its tiles are more than the {INTERPRETED_STEPS} that the interpreter gets through in time"
            )
        return None
    for product, (value, limit) in limits.items():
        if value > limit:
            return f"{product} must be at most {limit} there, was {value}"
    return None


def _steps(problem: Problem, forward: ForwardSchedule, backward: BackwardSchedule) -> int:
    """Return about how many tiles the kernels go through, every loop counted."""
    N, n, D, M, K = problem.N, problem.n, problem.D, problem.M, problem.K

    def tiles(*cuts: tuple[int, int]) -> int:
        return math.prod(-(-size // tile) for size, tile in cuts)

    fused = forward.mode == "fused"
    columns = M if fused else forward.block_m
    project = tiles((N, forward.block_tokens), (M + 1, columns), (K, forward.block_k))
    finish = tiles((N, forward.block_tokens if fused else forward.finish_tokens), (D, forward.finish_d)) * n
    terms = M * tiles((K, 1024)) if forward.presplit and not fused else 0
    gates = tiles((N, backward.gates_tokens), (D, backward.gates_columns))
    if backward.wide:
        middle = tiles((N, backward.tokens), (D, backward.columns), (M, backward.rows)) * 2 * n
        middle += tiles((N, backward.psi_tokens), (M, backward.psi_rows), (D, backward.psi_columns)) * 3 * n
    else:
        packed = M if problem.dtype in WHOLE else 6 * M
        middle = tiles((N, backward.tokens), (n, backward.streams), (D, backward.columns), (packed, backward.rows))
    return project + finish + terms + gates + middle
