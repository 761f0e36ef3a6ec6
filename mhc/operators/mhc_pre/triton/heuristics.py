"""The tiles, splits and warps that a Triton mode runs with where a case pins none."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.selection import Problem, balanced_splits, default_kernel, pinned, power_of_2, unsupported
from mhc.operators.mhc_pre.triton.schedule import WIDE, BackwardSchedule, ForwardSchedule
from mhc.operators.mhc_pre.triton.selection import (
    BACKWARD,
    FORWARD,
    WHOLE,
    forward_pieces,
    hopper_stages,
    packed_rows,
    pieces,
    resident_groups,
)


@functools.lru_cache(maxsize=4096)
def forward_schedule(problem: Problem, mode: str | None = None) -> ForwardSchedule:
    """Return the default for a problem, in a given mode or the one that `selection` prefers. A pure function."""
    N, n, D, dtype, chip, M, K = problem.N, problem.n, problem.D, problem.dtype, problem.chip, problem.M, problem.K
    mode = mode or default_kernel(FORWARD, problem)
    columns = power_of_2(M + 1, 16, 64)
    if chip.interpreted:  # Python runs every operation: few programs, large tiles
        small = dtype == torch.float64
        return ForwardSchedule(
            mode=mode,
            block_tokens=power_of_2(N, 16, 64),
            block_m=power_of_2(M + 1, 16, 64 if small else 512),
            block_k=power_of_2(K, 16, 64) if small else 64,
            splits=1 if K <= 128 else 2,
            presplit=False,
            warps=4,
            stages=1,
            finish_tokens=power_of_2(N, 1, 64),
            finish_d=power_of_2(D, 16, 1024),
        )
    if dtype == torch.float64:  # products in registers, without tensor cores: small tiles
        return ForwardSchedule(
            mode=mode,
            block_tokens=8,
            block_m=16,
            block_k=16,
            presplit=False,
            splits=1,
            warps=4,
            stages=1,
            finish_d=power_of_2(D, 16, 1024),
            finish_warps=4,
        )
    # 32 or 64 elements of x a thread in the second pass, in blocks of D that waste little
    finish_d = min(max(D & -D, power_of_2(D, 16, 256)), 4096, 16384 // power_of_2(n, 1, 16))
    finish_tokens = power_of_2(min(2048 // (n * finish_d), N), 1, 16)
    finish_warps = power_of_2(n * finish_d * finish_tokens // 1024, 1, 8)
    finish: Any = {"finish_tokens": finish_tokens, "finish_d": finish_d, "finish_warps": finish_warps}
    if mode == "whole" and unsupported(FORWARD, mode, problem) is None:
        if n > 4:
            finish = {"finish_tokens": 1, "finish_d": min(finish_d, 256), "finish_warps": 2}
        return _whole(problem, finish)
    if mode == "hopper":
        return _hopper(problem)
    if dtype == torch.float32:  # plain multiply-adds, unrolled over block_k in registers
        tokens = power_of_2(N, 16, 128)
        fill = -(-2 * chip.cores // (-(-N // tokens) * (M // columns + 1)))
        return ForwardSchedule(
            mode=mode,
            block_tokens=tokens,
            block_m=columns,
            block_k=16,
            presplit=False,
            warps=4,
            stages=2,
            splits=power_of_2(min(max(fill, K // 8192), -(-K // 128)), 1, 16),
            **finish,
        )
    if N * K <= 2**19:  # launches cost more than the work
        return ForwardSchedule(
            mode=mode,
            block_tokens=16,
            block_m=columns,
            block_k=64,
            presplit=False,
            warps=4,
            stages=3,
            splits=power_of_2(K // 128, 1, 8),
            **finish,
        )
    if dtype == torch.bfloat16 and M + 1 > 64:
        columns = 128
    tokens = 64 if N <= 4096 and columns <= 64 else 128
    stages = 6 if tokens == 64 and columns <= 32 else 3
    # the ring of x and of three terms of w must fit: float16 x holds its terms beside it
    block_k = 32 if dtype == torch.float16 else 64
    while stages * block_k * (tokens * dtype.itemsize + 6 * columns) > chip.shared and (stages > 2 or columns > 16):
        stages, columns = (2, columns) if stages > 2 else (stages, columns // 2)
    # enough programs to fill the device, and sums short enough for the truncating accumulators of tensor cores
    fill = -(-2 * chip.cores // (-(-N // tokens) * (M // columns + 1)))
    splits = power_of_2(min(max(fill, K // 8192), -(-K // 512)), 1, 16)
    return ForwardSchedule(
        mode=mode,
        block_tokens=tokens,
        block_m=columns,
        block_k=block_k,
        splits=splits,
        warps=tokens // 16,
        stages=stages,
        **finish,
    )


def _hopper(problem: Problem) -> ForwardSchedule:
    """Return the default of two passes of which the first loads by the tensor memory accelerator."""
    N, K, chip = problem.N, problem.K, problem.chip
    tokens = 128
    tiles = -(-N // tokens) * forward_pieces(problem, tokens)[0]

    def cost(splits: int) -> float:
        """Return the cost of a split: rounds of programs, one a core, each with its share of K; and partial sums."""
        return -(-tiles * splits // chip.cores) / splits + 0.01 * splits

    return ForwardSchedule(
        mode="hopper",
        block_tokens=tokens,
        splits=min(range(1, max(2, min(16, K // 512) + 1)), key=cost),
        stages=min(6, hopper_stages(problem, tokens)),
        # a warp a token in the second pass: sums across its lanes need no barrier; odd rows are short loads, so short pieces
        finish_tokens=1,
        finish_d=256 if problem.D % 8 else min(-(-problem.D // 256) * 256, 1024),
        finish_warps=1,
    )


def _whole(problem: Problem, finish: Mapping[str, Any]) -> ForwardSchedule:
    """Return the default of whole float32 numbers."""
    N, M, K, chip = problem.N, problem.M, problem.K, problem.chip
    # 64 where that takes no more of them in all; sm_100 multiplies in pairs, for which it has too few registers
    columns = 16 if M < 16 else 64 if M // 32 % 2 and chip.capability < 100 else 32
    tokens = power_of_2(N, 32, 128)
    at_once = chip.cores * {16: 4, 32: 3, 64: 2}[columns]  # programs, by their registers
    tiles = -(-N // tokens) * (M // columns + 1)
    longest = max(1, K // 64)

    def cost(splits: int) -> float:
        """Return what a split costs: rounds of programs, each with its share of K, and partial sums written and read."""
        return -(-tiles * splits // at_once) / splits + 0.06 * splits * tiles / at_once

    choices = [splits for splits in (1, 2, 3, 4, 6, 8, 12, 16) if min(K // 8192, 16) <= splits <= longest]
    return ForwardSchedule(
        mode="whole",
        block_tokens=tokens,
        block_m=columns,
        block_k=16,
        presplit=False,
        warps=8 if columns > 16 and chip.capability >= 100 else 4,  # 4 would spill there
        stages=4 if columns == 16 else 3,
        splits=min(choices, key=cost),
        **finish,
    )


@functools.lru_cache(maxsize=4096)
def backward_schedule(problem: Problem, mode: str | None = None) -> BackwardSchedule:
    """Return the default for a problem, in a given mode or the one that `selection` prefers. A pure function."""
    N, n, D, dtype, chip, M = problem.N, problem.n, problem.D, problem.dtype, problem.chip, problem.M
    mode = mode or default_kernel(BACKWARD, problem)
    width = power_of_2(n, 1, 16)
    columns = max(16, min(power_of_2(D, 1, 2048), 2048 // width if width < 16 else 64))
    double = dtype == torch.float64
    if chip.interpreted:
        return BackwardSchedule(
            mode=mode,
            **_gates(power_of_2(N, 1, 32), min(columns, 256), 4, 1),
            tokens=power_of_2(N, 16, 32 if double else 64),
            columns=power_of_2(D, 16, 32 if double else 128),
            streams=1 if double else width,
            rows=power_of_2(M if dtype in WHOLE or mode in WIDE else 6 * M, 16, 2048),
            **_psi(power_of_2(N, 16, 64), power_of_2(M, 16, 512), power_of_2(D, 16, 128), 4, 1),
            splits=1 if N <= 64 else 2,
        )
    if double:
        splits = min(8, -(-N // 16))
        return BackwardSchedule(
            mode=mode, **_gates(1, min(columns, 128), 4, 1), tokens=16, columns=16, rows=16, splits=splits
        )
    # a warp a token: sums across its lanes need no barrier
    gates = _gates(1, min(power_of_2(D, 16, 256), 2048 // width), 1, 3)
    if N >= 4096 and width <= 4:
        gates = _gates(8, min(columns, 128), 4, 3)
    if dtype == torch.float32:
        side = power_of_2(min(D, 2048 // M), 16, 64)  # a program keeps M of phi and M of psi for each
        return BackwardSchedule(
            mode=mode,
            **gates,
            tokens=32,
            columns=side,
            rows=32,
            warps=4 if n > 8 and D % side == 0 else 8,  # what spills least, compiled ahead of time
            splits=max(1, min(-(-2 * chip.cores // (-(-D // side) * n)), -(-N // 32))),
        )
    if mode == "wide":
        return _wide(problem, gates)
    if mode == "wide_hopper":
        pack = packed_rows(problem.K)
        programs = pieces(M, 128, least=16)[0] * -(-problem.K // 128) * pack
        splits = max(1, min(chip.cores // programs, N // pack // 256))
        return replace(_wide(problem, gates), mode=mode, splits=splits)
    streams = power_of_2(n, 1, 4)
    tile: dict[str, Any] = {"tokens": 64, "columns": 128 // streams, "streams": streams}  # of a program in Gluon
    if mode == "hopper":
        splits = balanced_splits(-(-D // (128 // streams)), -(-N // 64), chip.cores)
        return BackwardSchedule(mode=mode, **gates, **tile, rows=96, stages=4 if streams == 1 else 5, splits=splits)
    if mode == "resident" and (cut := resident_groups(problem)) is not None:
        _, groups = cut
        stages = (chip.shared - 64 * 1024) // (2 * 64 * (128 + 128 // streams))  # x and dh_in of a tile
        return BackwardSchedule(mode=mode, **gates, **tile, rows=32, stages=stages, splits=groups)
    return _streams(problem, gates)


def _gates(tokens: int, columns: int, warps: int, stages: int) -> dict[str, Any]:
    return {"gates_tokens": tokens, "gates_columns": columns, "gates_warps": warps, "gates_stages": stages}


def _psi(tokens: int, rows: int, columns: int, warps: int, stages: int) -> dict[str, Any]:
    return {
        "psi_tokens": tokens, "psi_rows": rows, "psi_columns": columns, "psi_warps": warps, "psi_stages": stages
    }  # fmt: skip


def _streams(problem: Problem, gates: Mapping[str, Any]) -> BackwardSchedule:
    """Return the default of one kernel with ordinary loads, of bfloat16 and float16."""
    N, n, D, dtype, chip, M = problem.N, problem.n, problem.D, problem.dtype, problem.chip, problem.M
    side = 64 if n == 1 else 128 if M <= 24 else 64 if M <= 80 else 32
    spills = n == 4 and chip.capability == 90  # with 128 columns, three terms of dh_mix in psi
    if dtype != torch.bfloat16 or spills:
        side = min(side, 64)
    streams = 2 if n % 2 == 0 and side < D * 2 else 1
    side = side // streams
    programs = -(-D // side) * -(-n // streams)
    stages = 4 if M <= 24 else 3 if M <= 48 else 2 if M <= 80 else 1
    long = (24 < M <= 35 or M > 80) and N >= 1024 and dtype == torch.bfloat16
    tokens = 128 if long else 64
    if spills:
        stages = 3
    elif long or dtype != torch.bfloat16:
        stages = min(stages, 2)
    while stages > 1 and _streams_shared(problem, (tokens, side, streams), stages) > chip.shared:
        tokens, stages = 64, stages - 1
    return BackwardSchedule(
        **gates,
        tokens=tokens,
        columns=side,
        streams=streams,
        rows=64,
        warps=tokens // 16,
        stages=stages,
        splits=max(1, min(chip.cores // programs, -(-N // 64))),
    )


def _streams_shared(problem: Problem, tile: tuple[int, int, int], stages: int) -> int:
    """Return the bytes of shared memory of the streams kernel with two or more stages, fitted to what compiling it gave."""
    tokens, columns, streams = tile
    size, capability = problem.dtype.itemsize, problem.chip.capability
    x, dh_in = tokens * streams * columns * size, tokens * columns * size
    terms = -(-6 * problem.M // 32) * 32  # packed dh_mix, columns
    dh_mix, phi = 2 * tokens * terms, 2 * terms * streams * columns
    if capability == 0:  # AMD
        return (stages - 1) * (x + dh_mix) + 2 * dh_in
    if capability >= 100:
        copies = 1 if problem.n <= 5 else 5  # with more than four chunks of terms each is copied again
        return stages * (x + dh_in + dh_mix + tokens * (4 * streams + 4)) + phi + copies * dh_mix + 2 * x
    return 0  # sm_80, sm_90: every default fits as it is


def _wide(problem: Problem, gates: Mapping[str, Any]) -> BackwardSchedule:
    """Return the default of many streams."""
    N, n, D, chip = problem.N, problem.n, problem.D, problem.chip
    short = problem.dtype == torch.bfloat16
    narrow = power_of_2(D, 16, 64)
    aligned = D % 8 == 0 and D > 64  # rows of x that 16-byte loads divide
    psi_columns, warps, stages = (128, 8, 3) if short and aligned else (narrow, 4, 3 if short else 2)
    if chip.shared < 96 << 10:  # gfx942
        psi_columns, stages = min(psi_columns, 128), 2
    programs = -(-problem.M // 64) * n * -(-D // psi_columns)
    return BackwardSchedule(
        mode="wide",
        **gates,
        tokens=64,
        columns=128 if aligned and chip.capability < 100 else narrow,  # sm_100 has no tensor memory for 128 beside the terms
        rows=16,
        stages=2,  # with 3, ptxas takes a quarter of a minute to gain 4 %
        **_psi(64, 64, psi_columns, warps, stages),
        splits=max(1, min(2 * chip.cores // programs, -(-N // 256))),
    )


def forward_plan(problem: Problem, schedule: Mapping[str, ScheduleValue]) -> ForwardSchedule:
    """Return what runs where a case pins `schedule`: the defaults of the mode pinned, and the rest of `schedule`."""
    mode = schedule.get("forward_mode")
    plan = pinned(forward_schedule(problem, None if mode is None else str(mode)), "forward", schedule)
    if plan.mode == "hopper" and "forward_stages" not in schedule:  # larger tiles leave room for fewer
        return replace(plan, stages=min(plan.stages, hopper_stages(problem, plan.block_tokens)))
    return plan


def backward_plan(problem: Problem, schedule: Mapping[str, ScheduleValue]) -> BackwardSchedule:
    """Return the same for the backward."""
    mode = schedule.get("backward_mode")
    return pinned(backward_schedule(problem, None if mode is None else str(mode)), "backward", schedule)
