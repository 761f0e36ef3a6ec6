"""The schedule that a shape gets where a case pins none."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.triton.schedule import BackwardSchedule, ForwardSchedule, pinned, power_of_2


@dataclass(frozen=True)
class Resident:
    """How the resident kernel shares a token: `group` programs, each with `width` elements of every stream, taken in
    `chunks` pieces of `chunk` columns; `groups` of them at once."""

    group: int
    groups: int
    width: int
    chunk: int
    chunks: int


# Two bfloat16 terms of a float32 leave 2**-16 sum|a||b|, under 6 sqrt(L) 2**-24 sum|a||b| for sums this long.
TWO_TERMS_FROM = 1821
# Of x: products without tensor cores, whose three bfloat16 terms lose digits of a float32 that is subnormal.
WHOLE = frozenset({torch.float32, torch.float64})
# Tokens, and elements of x, from which the resident kernel's start pays.
RESIDENT_TOKENS, RESIDENT_ELEMENTS = 1024, 1 << 23


def resident(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip) -> Resident | None:
    """The resident kernel's cut for a shape; None where it does not serve it."""
    if chip.capability != 90 or dtype != torch.bfloat16 or n > 4 or n * D < TWO_TERMS_FROM:
        return None
    width, chunk, chunks = {1: (1024, 256, 4), 2: (512, 256, 4), 3: (256, 128, 6), 4: (256, 256, 4)}[n]
    group = D // width
    if D % width or group > min(28, chip.cores):  # every share of a sum is a register
        return None
    return Resident(group, max(1, min(chip.cores // group, -(-N // 16))), width, chunk, chunks)


def whole(dtype: torch.dtype, chip: Chip) -> bool:
    """Whether the projection of whole float32 numbers serves a dtype."""
    return dtype == torch.float32 and chip.capability >= 80


@functools.lru_cache(maxsize=4096)
def forward_schedule(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, mode: str | None = None) -> ForwardSchedule:
    """The default for N tokens of n streams of width D, in a given mode or the fastest. A pure function."""
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
    if whole(dtype, chip) and mode in (None, "whole"):
        if n > 4:
            finish = {"finish_tokens": 1, "finish_d": min(finish_d, 256), "finish_warps": 2}
        return _whole(N, M, K, chip, finish)
    if dtype == torch.float32:  # plain multiply-adds, unrolled over block_k in registers
        tokens = power_of_2(N, 16, 128)
        fill = -(-2 * chip.cores // (-(-N // tokens) * (M // columns + 1)))
        return ForwardSchedule(
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
    worth = N >= RESIDENT_TOKENS and N * K >= RESIDENT_ELEMENTS
    mode = "resident" if worth and resident(N, n, D, dtype, chip) else "two_pass"
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


def _whole(N: int, M: int, K: int, chip: Chip, finish: Mapping[str, Any]) -> ForwardSchedule:
    """The default of whole float32 numbers."""
    # 64 where that takes no more of them in all; sm_100 multiplies in pairs, for which it has too few registers
    columns = 16 if M < 16 else 64 if M // 32 % 2 and chip.capability < 100 else 32
    tokens = power_of_2(N, 32, 128)
    at_once = chip.cores * {16: 4, 32: 3, 64: 2}[columns]  # programs, by their registers
    tiles = -(-N // tokens) * (M // columns + 1)
    longest = max(1, K // 64)

    def cost(splits: int) -> float:
        """Rounds of programs, each with its share of K, and the partial sums that are written and read."""
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
def backward_schedule(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, mode: str | None = None) -> BackwardSchedule:
    """The default for N tokens of n streams of width D, in a given mode or the fastest. A pure function."""
    M, width = n * n + 2 * n, power_of_2(n, 1, 16)
    columns = max(16, min(power_of_2(D, 1, 2048), 2048 // width if width < 16 else 64))
    double = dtype == torch.float64
    gates = (8, min(columns, 128), 4, 3) if N >= 4096 else (1, min(columns, 128), 2, 4)
    if width > 4:
        gates = (2 if N >= 4096 else 1, min(columns, 64 if width == 16 else 128), 4, 3)
    if mode is None:
        wide = dtype in {torch.bfloat16, torch.float16} and (n >= 9 or (n >= 5 and N >= 2048))
        mode = "wide" if wide else "hopper" if hopper(n, D, dtype, chip) else "streams"
    if chip.interpreted:
        return _backward(
            mode=mode,
            gates=(power_of_2(N, 1, 32), min(columns, 256), 4, 1),
            tile=(power_of_2(N, 16, 32 if double else 64), power_of_2(D, 16, 32 if double else 128), 1 if double else width),
            rows=power_of_2(M if dtype in WHOLE or mode == "wide" else 6 * M, 16, 2048),
            psi=(power_of_2(N, 16, 64), power_of_2(M, 16, 512), power_of_2(D, 16, 128), 4, 1),
            splits=1 if N <= 64 else 2,
        )
    if double:
        tile, splits = (16, 16, 1), min(8, -(-N // 16))
        return _backward(mode=mode, gates=(1, min(columns, 128), 4, 1), tile=tile, rows=16, splits=splits)
    if dtype == torch.float32:
        side = power_of_2(min(D, 2048 // M), 16, 64)  # a program keeps M of phi and M of psi for each
        warps = 4 if n > 8 and D % side == 0 else 8  # what spills least, compiled ahead of time
        programs = -(-D // side) * n
        splits = max(1, min(-(-2 * chip.cores // programs), -(-N // 32)))
        return _backward(mode=mode, gates=gates, tile=(32, side, 1), rows=32, warps=warps, splits=splits)
    if mode == "wide":
        return _wide(N, n, D, dtype, chip, gates)
    if mode == "hopper":
        streams = power_of_2(n, 1, 4)
        return _backward(
            mode="hopper",
            gates=gates,
            tile=(64, 128 // streams, streams),
            rows=96,
            stages=4 if streams == 1 else 5,
            splits=_balanced_splits(-(-D // (128 // streams)), -(-N // 64), chip.cores),
        )
    side = 64 if n == 1 else 128 if M <= 24 else 64 if M <= 80 else 32
    if dtype != torch.bfloat16:
        side = min(side, 64)
    streams = 2 if n % 2 == 0 and side < D * 2 else 1
    side = side // streams
    programs = -(-D // side) * -(-n // streams)
    stages = 4 if M <= 24 else 3 if M <= 48 else 2 if M <= 80 else 1
    long = (24 < M <= 35 or M > 80) and N >= 1024 and dtype == torch.bfloat16
    tokens = 128 if long else 64
    stages = min(stages, 2) if long or dtype != torch.bfloat16 else stages
    while stages > 1 and _streams_shared(n, dtype, (tokens, side, streams), stages, chip) > chip.shared:
        tokens, stages = 64, stages - 1
    return _backward(
        gates=gates,
        tile=(tokens, side, streams),
        rows=64,
        warps=tokens // 16,
        stages=stages,
        splits=max(1, min(chip.cores // programs, -(-N // 64))),
    )


def _streams_shared(n: int, dtype: torch.dtype, tile: tuple[int, int, int], stages: int, chip: Chip) -> int:
    """Bytes of shared memory of the streams kernel with two or more stages, fitted to what compiling it gave."""
    tokens, columns, streams = tile
    x, dh_in = tokens * streams * columns * dtype.itemsize, tokens * columns * dtype.itemsize
    terms = -(-6 * (n * n + 2 * n) // 32) * 32  # packed dh_mix, columns
    dh_mix, phi = 2 * tokens * terms, 2 * terms * streams * columns
    if chip.capability == 0:  # AMD
        return (stages - 1) * (x + dh_mix) + 2 * dh_in
    if chip.capability >= 100:
        copies = 1 if n <= 5 else 5  # with more than four chunks of terms each is copied again
        return stages * (x + dh_in + dh_mix + tokens * (4 * streams + 4)) + phi + copies * dh_mix + 2 * x
    return 0  # sm_80, sm_90: every default fits as it is


def hopper(n: int, D: int, dtype: torch.dtype, chip: Chip) -> bool:
    """Whether the backward for Hopper serves a shape."""
    return chip.capability == 90 and dtype == torch.bfloat16 and n <= 4 and D % 8 == 0


def _balanced_splits(columns: int, tiles: int, cores: int) -> int:
    """Programs for each block of columns that keep `cores` evenly busy: one costs its tiles, two by two, and a start."""

    def cost(splits: int) -> float:
        return -(-columns * splits // cores) * (-(-tiles // (2 * splits)) * 2 + 4) + 0.01 * splits

    return min(range(1, max(2, min(16, tiles // 2 + 1))), key=cost)


def _wide(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, gates: tuple[int, int, int, int]) -> BackwardSchedule:
    """The default of many streams."""
    M = n * n + 2 * n
    narrow = power_of_2(D, 16, 64)
    whole = dtype == torch.bfloat16 and D % 8 == 0 and D > 64  # rows of x that 16-byte loads divide
    psi = (64, 64, 128, 8, 3) if whole else (64, 64, narrow, 4, 3 if dtype == torch.bfloat16 else 2)
    if chip.shared < 96 << 10:  # gfx942
        psi = (64, 64, min(psi[2], 128), psi[3], 2)
    programs = -(-M // 64) * n * -(-D // psi[2])
    # sm_100 has no tensor memory for 128 columns beside the terms of dh_mix
    side = 128 if D > 64 and D % 8 == 0 and chip.capability < 100 else narrow
    return _backward(
        mode="wide",
        gates=gates,
        tile=(64, side, 1),
        rows=16,
        stages=2,  # with 3, ptxas takes a quarter of a minute to gain 4 %
        psi=psi,
        splits=max(1, min(2 * chip.cores // programs, -(-N // 256))),
    )


def _backward(
    *,
    gates: tuple[int, int, int, int],
    tile: tuple[int, int, int],
    rows: int,
    splits: int,
    mode: str = "streams",
    warps: int = 4,
    stages: int = 1,
    psi: tuple[int, int, int, int, int] = (16, 16, 16, 4, 1),
) -> BackwardSchedule:
    gates_tokens, gates_columns, gates_warps, gates_stages = gates
    tokens, columns, streams = tile
    psi_tokens, psi_rows, psi_columns, psi_warps, psi_stages = psi
    return BackwardSchedule(
        mode=mode,
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
        psi_tokens=psi_tokens,
        psi_rows=psi_rows,
        psi_columns=psi_columns,
        psi_warps=psi_warps,
        psi_stages=psi_stages,
        splits=splits,
    )


def forward_plan(
    N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, schedule: Mapping[str, ScheduleValue]
) -> ForwardSchedule:
    """What a shape runs where a case pins `schedule`: the defaults of the mode pinned, and the rest of `schedule`."""
    mode = schedule.get("forward_mode")
    return pinned(forward_schedule(N, n, D, dtype, chip, None if mode is None else str(mode)), "forward", schedule)


def backward_plan(
    N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, schedule: Mapping[str, ScheduleValue]
) -> BackwardSchedule:
    """The same for the backward."""
    mode = schedule.get("backward_mode")
    return pinned(backward_schedule(N, n, D, dtype, chip, None if mode is None else str(mode)), "backward", schedule)
