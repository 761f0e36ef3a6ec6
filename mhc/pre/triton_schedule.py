"""Schedules of the Triton kernels: how the work of a shape is cut. They change speed and the order of sums, nothing else.

`SPACE` declares what a case can pin: a mapping from a name such as "forward_splits" or "backward_tokens" to a value out
of its choices; what is left out has the default of the shape. `unfit` says why a combination cannot run.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch

from mhc.case import Case, ScheduleValue


@dataclass(frozen=True)
class Chip:
    """What a default schedule asks of a device: multiprocessors, bytes of shared memory a program may take."""

    cores: int
    shared: int
    interpreted: bool = False


@dataclass(frozen=True, kw_only=True)
class ForwardSchedule:
    """The forward's cut.

    mode            fused: one kernel, all of K in a program; two_pass: sums over K in `splits` shares, then the rest
    block_*         tile of the projection: tokens, columns of phi, elements of K
    presplit        phi * gamma is split into bfloat16 terms by a kernel of its own, not again in every tile
    warps, stages   of the projection
    finish_*        tile of the second pass: tokens, elements of D; and its warps
    overlap         on an NVIDIA GPU that can (sm_90 on), a kernel starts before the one it depends on has ended
    """

    mode: str = "two_pass"
    block_tokens: int = 128
    block_m: int = 32
    block_k: int = 64
    splits: int = 4
    presplit: bool = True
    warps: int = 8
    stages: int = 3
    finish_tokens: int = 1
    finish_d: int = 4096
    finish_warps: int = 8
    overlap: bool = True


@dataclass(frozen=True, kw_only=True)
class BackwardSchedule:
    """The backward's cut.

    gates_*         tile [tokens, n, columns] of the first pass, its warps and stages
    tokens          tile [tokens, streams * columns] of the second pass
    columns, streams
    rows            width of the chunks in which the packed terms of dh_mix are taken
    warps, stages   of the second pass
    splits          programs that share the tokens, each with its own partial psi
    """

    gates_tokens: int
    gates_columns: int
    gates_warps: int
    gates_stages: int
    tokens: int
    columns: int
    streams: int
    rows: int
    warps: int
    stages: int
    splits: int


SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {
    "forward_mode": ("two_pass", "fused"),
    "forward_block_tokens": (16, 32, 64, 128),
    "forward_block_m": (16, 32, 64, 128),
    "forward_block_k": (32, 64, 128),
    "forward_splits": (1, 2, 3, 4, 8, 16),
    "forward_presplit": (True, False),
    "forward_warps": (4, 8),
    "forward_stages": (1, 2, 3, 4),
    "forward_finish_tokens": (1, 2, 4, 16),
    "forward_finish_d": (16, 64, 256, 1024, 4096),
    "forward_finish_warps": (1, 4, 8),
    "forward_overlap": (True, False),
    "backward_gates_tokens": (1, 2, 8),
    "backward_gates_columns": (16, 64, 128),
    "backward_gates_warps": (2, 4),
    "backward_gates_stages": (1, 3, 4),
    "backward_tokens": (16, 32, 64, 128),
    "backward_columns": (16, 32, 64, 128),
    "backward_streams": (1, 2, 4),
    "backward_rows": (32, 64, 128),
    "backward_warps": (4, 8),
    "backward_stages": (1, 2, 3, 4),
    "backward_splits": (1, 2, 5, 16),
}

_S = TypeVar("_S", ForwardSchedule, BackwardSchedule)


def pinned(default: _S, stage: str, schedule: Mapping[str, ScheduleValue]) -> _S:
    """`default` with what `schedule` pins for the stage, "forward" or "backward"."""
    changes = {
        field.name: schedule[f"{stage}_{field.name}"] for field in fields(default) if f"{stage}_{field.name}" in schedule
    }
    return replace(default, **changes) if changes else default


def power_of_2(value: int, low: int, high: int) -> int:
    """The smallest power of two >= value, kept within low..high."""
    return min(max(1 << (max(value, 1) - 1).bit_length(), low), high)


@functools.lru_cache(maxsize=4096)
def forward_schedule(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip) -> ForwardSchedule:
    """The default for N tokens of n streams of width D. A pure function."""
    M, K = n * n + 2 * n, n * D
    columns = power_of_2(M + 1, 16, 64)
    if chip.interpreted:  # Python runs every operation: few programs, large tiles
        small = dtype == torch.float64
        return ForwardSchedule(
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
    if N * K <= 2**19:  # launches cost more than the work
        return ForwardSchedule(
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
    # the ring of x and of three terms of w must fit: float16 and float32 x hold their terms beside it
    block_k = 32 if dtype == torch.float16 else 64
    while stages * block_k * (tokens * dtype.itemsize + 6 * columns) > chip.shared and (stages > 2 or columns > 16):
        stages, columns = (2, columns) if stages > 2 else (stages, columns // 2)
    # enough programs to fill the device, and sums short enough for the truncating accumulators of tensor cores
    fill = -(-2 * chip.cores // (-(-N // tokens) * (M // columns + 1)))
    splits = power_of_2(min(max(fill, K // 8192), -(-K // 512)), 1, 16)
    return ForwardSchedule(
        block_tokens=tokens,
        block_m=columns,
        block_k=block_k,
        splits=splits,
        warps=tokens // 16,
        stages=stages,
        **finish,
    )


@functools.lru_cache(maxsize=4096)
def backward_schedule(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip) -> BackwardSchedule:
    """The default for N tokens of n streams of width D. A pure function."""
    M, width = n * n + 2 * n, power_of_2(n, 1, 16)
    columns = max(16, min(power_of_2(D, 1, 2048), 2048 // width if width < 16 else 64))
    double = dtype == torch.float64
    if chip.interpreted:
        return _backward(
            gates=(power_of_2(N, 1, 32), min(columns, 256), 4, 1),
            tile=(power_of_2(N, 16, 32 if double else 64), power_of_2(D, 16, 32 if double else 128), 1 if double else width),
            rows=power_of_2(M if double else 6 * M, 16, 2048),
            warps=4,
            stages=1,
            splits=1 if N <= 64 else 2,
        )
    if double:
        return _backward(
            gates=(1, min(columns, 128), 4, 1),
            tile=(16, 16, 1),
            rows=16,
            warps=4,
            stages=1,
            splits=min(8, -(-N // 16)),
        )
    if width <= 4:
        gates = (8, min(columns, 128), 4, 3) if N >= 4096 else (1, min(columns, 128), 2, 4)
    else:
        gates = (2 if N >= 4096 else 1, min(columns, 64 if width == 16 else 128), 4, 3)
    side = 64 if n == 1 else 128 if M <= 24 else 64 if M <= 80 else 32
    if dtype != torch.bfloat16:
        side = min(side, 64)
    streams = 2 if n % 2 == 0 and side < D * 2 else 1
    side = side // streams
    programs = -(-D // side) * -(-n // streams)
    stages = 4 if M <= 24 else 3 if M <= 48 else 2 if M <= 80 else 1
    wide = (24 < M <= 35 or M > 80) and N >= 1024 and dtype == torch.bfloat16
    return _backward(
        gates=gates,
        tile=(128 if wide else 64, side, streams),
        rows=64,
        warps=8 if wide else 4,
        stages=min(stages, 2) if wide or dtype != torch.bfloat16 else stages,
        splits=max(1, min(chip.cores // programs, -(-N // 64))),
    )


def _backward(
    *, gates: tuple[int, int, int, int], tile: tuple[int, int, int], rows: int, warps: int, stages: int, splits: int
) -> BackwardSchedule:
    gates_tokens, gates_columns, gates_warps, gates_stages = gates
    tokens, columns, streams = tile
    return BackwardSchedule(
        gates_tokens=gates_tokens,
        gates_columns=gates_columns,
        gates_warps=gates_warps,
        gates_stages=gates_stages,
        tokens=tokens,
        columns=columns,
        streams=streams,
        rows=rows,
        warps=warps,
        stages=stages,
        splits=splits,
    )


def unfit(case: Case, schedule: Mapping[str, ScheduleValue], chip: Chip) -> str | None:
    """Why a pinned schedule cannot serve a case; None where it can.

    Tiles beyond what the registers of a program hold would be right and take minutes to compile; float64 has no tensor
    cores to go to.
    """
    dtype = getattr(torch, case.dtype)
    N, n, D = max(case.N, 1), case.n, case.D
    forward = pinned(forward_schedule(N, n, D, dtype, chip), "forward", schedule)
    backward = pinned(backward_schedule(N, n, D, dtype, chip), "backward", schedule)
    width, fused = power_of_2(n, 1, 16), forward.mode == "fused"
    if dtype == torch.float64 and forward.presplit and not fused:
        return "float64 has no bfloat16 terms: forward_presplit must be False"
    columns = power_of_2(n * n + 2 * n, 16, 512) if fused else forward.block_m
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
            backward.tokens * backward.streams * backward.columns,
            2048 * backward.warps,
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
    if not chip.interpreted:
        for product, (value, limit) in limits.items():
            if value > limit:
                return f"{product} must be at most {limit} there, was {value}"
    return None
