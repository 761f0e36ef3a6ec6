"""Backward of mHC Forward Pre in TileLang kernels on CUDA: one program, its stages launched by one call."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.selection import Problem
from mhc.operators.mhc_pre.tensors import backward_tensors, frozen, on_its_device
from mhc.operators.mhc_pre.tilelang.backward_schedule import (
    TERMS,
    BackwardSchedule,
    backward_plan,
    columns_of_left,
    planes,
    psi_blocks_more,
    rows_of_terms,
    steps_of_dx,
    vector,
)
from mhc.operators.mhc_pre.tilelang.call import Call, call_of, target_of
from mhc.operators.mhc_pre.tilelang.compile.cache import Constant, prebuild, program

# of `whole`: its loads are cp.async, every index is in range, and the barriers are written out
_BY_HAND: Mapping[str, bool] = {
    "tl.disable_warp_specialized": True,
    "tl.disable_tma_lower": True,
    "tl.disable_safe_memory_legalize": True,
    "tl.disable_thread_storage_sync": True,
}
FACTORIES: Mapping[str, str] = {
    "plain": "mhc.operators.mhc_pre.tilelang.kernels.bwd_gemm:plain",
    "ring": "mhc.operators.mhc_pre.tilelang.kernels.bwd_gemm_sm90:ring",
    "streams": "mhc.operators.mhc_pre.tilelang.kernels.bwd_fused_sm90:streams",
    "whole": "mhc.operators.mhc_pre.tilelang.kernels.bwd_fp32:whole",
}
"""By the name of a mode in `selection.BACKWARD`: the function that makes its program."""

_AGAIN: Mapping[str, str] = {
    "x_flat": "x", "dh_in_flat": "dh_in", "phi_flat": "phi", "gamma_flat": "gamma", "left_psi": "left",
    "right_flat": "right", "right_units": "right", "planes_out": "planes",
}  # fmt: skip
"""Tensors that a program sees in more than one shape."""


@dataclass(frozen=True)
class Description:
    """The program of a shape as `program` takes it, the sizes of its calls, and the bytes of its scratch tensors."""

    factory: str
    target: str
    constants: Mapping[str, Constant]
    pass_configs: Mapping[str, bool]
    sizes: Mapping[str, int]
    scratch: Mapping[str, int]


@lru_cache(maxsize=4096)
def prepared(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: int,
    schedule: tuple[tuple[str, ScheduleValue], ...],
    hc_eps: float = 1e-6,
    has_gamma: bool = True,
) -> Call:
    """Return the call of a shape; compiles its program where neither this process nor the disk has it."""
    what = _described(shape, dtype, device, schedule)
    compiled = program(what.factory, what.target, what.constants, pass_configs=what.pass_configs, device=device)
    again = dict(_AGAIN)
    if dtype != torch.float32:
        D = shape[-1]
        again["planes_in"] = "planes" if planes(D, dtype) else "x"
        # ring: x and dh_in come to dx with padded rows where 8 does not divide them
        again["x_dx"], again["dh_in_dx"] = ("x", "dh_in") if D % 8 == 0 else ("planes", "upstream")
    return call_of(compiled, {**what.sizes, "hc_eps": hc_eps, "has_gamma": int(has_gamma)}, what.scratch, again)


@lru_cache(maxsize=4096)
def start_building(
    shape: tuple[int, ...], dtype: torch.dtype, device: int, schedule: tuple[tuple[str, ScheduleValue], ...]
) -> None:
    """Have another process compile the program of a shape, where the disk does not have it; `prepared` waits for it."""
    what = _described(shape, dtype, device, schedule)
    prebuild(what.factory, what.target, what.constants, pass_configs=what.pass_configs)


def _described(
    shape: tuple[int, ...], dtype: torch.dtype, device: int, schedule: tuple[tuple[str, ScheduleValue], ...]
) -> Description:
    B, S, n, D = shape
    problem = Problem(B * S, n, D, dtype, chip(device))
    plan = backward_plan(problem, dict(schedule))
    parts = _whole(problem, plan) if plan.mode == "whole" else _in_terms(problem, plan)
    return Description(FACTORIES[plan.mode], target_of(problem.chip.capability), *parts)


_Parts = tuple[Mapping[str, Constant], Mapping[str, bool], Mapping[str, int], Mapping[str, int]]


def _whole(problem: Problem, plan: BackwardSchedule) -> _Parts:
    """Return constants, passes, sizes and scratch of a program for float32 x."""
    N, n, D, M, V = problem.N, problem.n, problem.D, problem.M, vector(problem.D, torch.float32)
    constants: dict[str, Constant] = {
        "n": n,
        "vector": V,
        "unroll": plan.gates_unroll,
        "stages": plan.stages,
        "psi_rows_block": plan.psi_rows,
        "rows": plan.rows,
        "width": plan.width,
    }
    parts, programs = min(plan.splits, -(-N // 32)), min(-(-N // 4), plan.gates_programs)
    # D: Dv under the name that a stage gave it last
    sizes = {"N": N, "Dv": D // V, "D": D // V, "programs": programs, "parts": parts}
    scratch = {
        "left": 4 * N * rows_of_terms(n),
        "coef": 4 * N,
        "sums": 4 * programs * (M + 3),
        "psi": 4 * parts * M * n * D,
    }
    return constants, _BY_HAND, sizes, scratch


def _in_terms(problem: Problem, plan: BackwardSchedule) -> _Parts:
    """Return the same of a program that multiplies bfloat16 terms."""
    N, n, D, M = problem.N, problem.n, problem.D, problem.M
    MP, V, P = rows_of_terms(n), vector(D, problem.dtype), planes(D, problem.dtype)
    ring = plan.mode == "ring"
    C = columns_of_left(n, (3 if P < 2 else 5) if ring else 6)
    constants: dict[str, Constant] = {
        "n": n,
        "columns": C,
        "unroll": plan.gates_unroll,
        "rows": plan.rows,
        "width": plan.width,
    }
    if plan.mode == "streams":
        constants |= {"terms": TERMS, "slots": plan.stages}
    else:
        constants |= {
            "psi_rows_block": plan.psi_rows,
            "dtype": problem.type,
            "vector": V,
            "planes": P,
            "stages": plan.stages,
        }
    if ring:
        constants |= dict(zip(("dx_depth", "dx_steps", "dx_slots"), steps_of_dx(n), strict=True))
    parts = min(plan.splits, -(-N // 64))
    DP = -(-D // 8) * 8
    # ring: programs of dx, which go through its tiles of 128 tokens and 128 columns
    dx_programs = min(-(-N // 128) * n * -(-D // 128), problem.chip.cores)
    programs = min(-(-N // 4), plan.gates_programs)
    psi_rows = MP * (TERMS + psi_blocks_more(max(P, 1)))
    sizes = {
        "N": N,
        "Dv": D // V,
        "D": D,  # Dv under the name that a stage gave it last
        "DPv": DP // 8,
        "programs": programs,
        "parts": parts,
        "psi_rows": psi_rows,
        "terms": TERMS,
        "dx_programs": dx_programs,
    }
    scratch = {
        "left": 2 * N * C,
        "coef": 16 * N * n,  # streams: with h_pre
        "sums": 4 * programs * (M + 3),
        "planes": 2 * P * N * n * DP,
        "upstream": 2 * N * DP if ring and V == 1 else 0,  # dh_in with padded rows
        **(_scaled(problem, DP) if ring else {"right": 2 * C * n * DP}),
        "psi": 4 * parts * psi_rows * n * DP,
    }
    # every index of these is in range, TMA's apart; `plain` has copies without TMA that pass the ends
    passes = {"tl.disable_safe_memory_legalize": True} if plan.mode != "plain" and V > 1 else {}
    return constants, passes, sizes, scratch


def _scaled(problem: Problem, DP: int) -> Mapping[str, int]:
    """Return the bytes of both factors of dx in float16 terms, of what takes their factors back, and of marks."""
    depth, steps, _ = steps_of_dx(problem.n)
    tokens, columns = problem.N, problem.n * DP
    return {
        "left_dx": 4 * depth * steps * tokens, "left_back": 4 * tokens, "left_marks": 4 * tokens,
        "right": 4 * depth * steps * columns, "right_back": 4 * columns, "right_marks": 4 * columns,
    }  # fmt: skip


@on_its_device
def backward(
    *given: Tensor | None,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> tuple[Tensor | None, ...]:
    """Return dx, dphi, dalpha, dbias and dgamma of mHC Forward Pre (docs/mhc-pre.md, Backward).

    given: x [B, S, n, D], phi [M, K], alpha [3], bias [M], inv_rms [B, S], h_mix [B, S, M], h_pre and h_post [B, S, n],
    dh_in [B, S, D], dh_post [B, S, n], dh_res [B, S, n, n], gamma [n, D] or None. x and dh_in are bfloat16, float16 or
    float32, the rest float32, which is what sums are made in. Each gradient has the shape and dtype of its tensor; dx is
    rounded once, dgamma is None where gamma is. Bitwise deterministic; inputs are not written. bias and norm_eps do not
    enter. A tensor that is strided, or not at a multiple of 16 bytes, is copied first.
    Takes checked CUDA tensors. schedule pins what it names of `backward_schedule.SPACE`; Refused where it cannot run.
    """
    del norm_eps
    tensors, gradients = backward_tensors(given)
    x = tensors["x"]
    if x.numel() == 0:
        return tuple(None if gradient is None else gradient.zero_() for gradient in gradients)
    gamma_given = gradients[-1] is not None
    prepared(tuple(x.shape), x.dtype, x.get_device(), frozen(schedule), float(hc_eps), gamma_given).run(tensors)
    return gradients
