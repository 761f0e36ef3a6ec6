"""How the TileLang backward cuts the work of a shape: the schedule, its default, and why a pinned one cannot run. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.device import Chip
from mhc.operators.mhc_pre.tilelang.fp32_schedule import MOST_ROWS, WARP_ROWS, at_once, rows_of_tile, shares

TERMS = 3  # bfloat16 terms of a float32: two are off by 2**-17, which the precision gate finds
PLANES = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 0}  # bfloat16 terms that x has; of float32 none is made
MODES = ("plain", "ring", "streams", "whole")


@dataclass(frozen=True, kw_only=True)
class BackwardSchedule:
    """The backward's cut.

    mode            plain: a pipelined matrix product each for psi and dx, on any GPU
                    ring: the same with a loading warp in each, dx by programs that stay (`ring` says for what)
                    streams: both in one kernel, by a loading warp group and two that take turns (`streams` says for what)
                    whole: a product each in plain multiply-adds, for float32 and nothing else, on any GPU
    gates_programs  at most this many partial sums for dbias and dalpha
    gates_unroll    chunks of a token's columns that a warp loads before it uses the first
    splits          programs that share the tokens, each with its own partial psi
    stages          of the matrix products; streams: slots of the ring of tiles, an even number
    psi_rows        plain, ring, whole: rows of a tile of psi
    rows, width     threads of a program that adds up partial sums: groups of rows, columns
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
    "backward_mode": MODES,
    "backward_gates_programs": (1, 64, 528, 2048),
    "backward_gates_unroll": (1, 2, 4),
    "backward_splits": (1, 2, 5, 16),
    "backward_stages": (2, 3, 4, 5),
    "backward_psi_rows": (64, 128, 192),
    "backward_rows": (4, 8, 32),
    "backward_width": (32,),
}


@lru_cache(maxsize=4096)
def backward_schedule(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, mode: str | None = None) -> BackwardSchedule:
    """The default for N tokens of n streams of width D, in a given mode or the fastest."""
    wide = vector(D, dtype) > 1
    if mode is None:
        mode = _fastest_mode(n, D, dtype, chip)
    unroll = (4 if n <= 2 else 2 if n <= 6 else 1) if wide else (4 if n <= 8 else 2)
    if mode == "streams":
        spans = -(-D // 128) if n == 1 else -(-D // 64) * (n // streams_together(n))
        return BackwardSchedule(
            mode=mode,
            gates_unroll=unroll,
            stages={2: 5, 3: 3}.get(n, 4),
            splits=balanced_splits(spans, -(-N // 64), chip.cores),
        )
    if mode == "whole":
        rows, stages = rows_of_tile(n * n + 2 * n), 2
        tiles = n * -(-D // 128) * -(-(n * n + 2 * n) // rows)
        together = at_once(32 * rows // WARP_ROWS, whole_shared(rows, stages), 128, chip.shared)
        splits = shares(tiles, -(-N // 32), together, chip.cores, most=16)
        return BackwardSchedule(mode=mode, gates_unroll=unroll, stages=stages, psi_rows=rows, splits=splits)
    if mode == "ring":
        psi_rows = fitting_rows(n)
        blocks = n * -(-D // 128) * -(-TERMS * rows_of_terms(n) // psi_rows)
        splits = whole_waves(blocks, -(-N // 64), chip.cores)
        return BackwardSchedule(mode=mode, gates_unroll=unroll, stages=4, psi_rows=psi_rows, splits=splits)
    psi_rows = 128 if 3 * rows_of_terms(n) > 64 else 64  # not by N: the program must not depend on it
    programs = n * -(-D // 128) * -(-TERMS * rows_of_terms(n) // psi_rows)
    splits = max(1, min(2 * chip.cores // programs, -(-N // 256)))
    return BackwardSchedule(gates_unroll=unroll, psi_rows=psi_rows, splits=splits)


def _fastest_mode(n: int, D: int, dtype: torch.dtype, chip: Chip) -> str:
    if dtype == torch.float32:
        return "whole"
    return "streams" if streams(n, D, dtype, chip) else "ring" if ring(D, dtype, chip) else "plain"


def backward_plan(
    N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, schedule: Mapping[str, ScheduleValue]
) -> BackwardSchedule:
    """What a shape runs where a case pins `schedule`: the default of the mode pinned, and the rest of `schedule`."""
    mode = schedule.get("backward_mode")
    default = backward_schedule(N, n, D, dtype, chip, None if mode is None else str(mode))
    changes = {one.name: schedule[f"backward_{one.name}"] for one in fields(default) if f"backward_{one.name}" in schedule}
    return replace(default, **changes) if changes else default  # type: ignore[arg-type]  # SPACE has the fields' types


def unfit(N: int, n: int, D: int, dtype: torch.dtype, chip: Chip, schedule: Mapping[str, ScheduleValue]) -> str | None:
    """Why a pinned schedule cannot serve a shape; None where it can."""
    if dtype not in PLANES:
        return f"tilelang takes no float64 on CUDA, but {', '.join(str(one) for one in PLANES)}"
    plan = backward_plan(N, n, D, dtype, chip, schedule)
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
    if plan.mode == "streams":
        if not streams(n, D, dtype, chip):
            wanted = "bfloat16 on sm_90, n at most 4, D a multiple of 8"
            return f"backward_mode streams is for {wanted}; was {dtype}, n = {n}, D = {D}"
        needed = streams_shared(n, plan.stages)
        if needed > chip.shared:
            return f"{plan.stages} backward_stages need {needed} bytes of shared memory, there are {chip.shared}"
    if plan.mode == "ring" and not ring(D, dtype, chip):
        wanted = "sm_90 with bfloat16, or float16 and D a multiple of 8"
        return f"backward_mode ring is for {wanted}; was {dtype}, D = {D}"
    if plan.mode == "plain" and plan.psi_rows > 128:
        return f"backward_mode plain takes backward_psi_rows 64 or 128, was {plan.psi_rows}"
    return None


def ring(D: int, dtype: torch.dtype, chip: Chip) -> bool:
    """Whether the mode `ring` serves a shape: its dx reads x in x's own dtype by TMA, from x itself or from a plane."""
    return chip.capability == 90 and (dtype == torch.bfloat16 or (dtype == torch.float16 and D % 8 == 0))


def fitting_rows(n: int) -> int:
    """Rows of a tile of psi, 64 for each warp group, that leave the fewest rows empty of two terms; the most of those."""
    return min((192, 128, 64), key=lambda rows: -(-2 * rows_of_terms(n) // rows) * rows)


def whole_waves(blocks: int, tiles: int, cores: int) -> int:
    """Programs that share the tokens of each block of psi, so that waves are full: one costs its tiles and a start."""

    def cost(splits: int) -> float:
        return -(-blocks * splits // cores) * (-(-tiles // splits) + 4) + splits

    return min(range(1, max(2, min(16, tiles // 4 + 1))), key=cost)


def streams_together(n: int) -> int:
    """Streams that a program of `streams` takes side by side: as many as its registers hold the sums of."""
    return 1 if n in {1, 4} else 3 if n == 3 else 2


def streams_shared(n: int, slots: int) -> int:
    """Bytes of shared memory of a program of `streams`, as `kernels.bwd_fused_sm90.Tiles` allocates them."""
    together, columns = streams_together(n), columns_of_left(n)
    panels, strips = (2, 2) if n == 1 else (together, 1)
    slot = 2 * 64 * (columns + 64 * panels + 64 * strips) + 16 * 64
    return slots * slot + 2 * 64 * panels * (columns + 64) + 1024


def whole_shared(rows: int, stages: int) -> int:
    """Bytes of shared memory of a program of psi of `whole`: tiles of 32 tokens, 128 columns of x and `rows` of dh_mix."""
    return 4 * stages * 32 * (128 + rows)


def streams(n: int, D: int, dtype: torch.dtype, chip: Chip) -> bool:
    """Whether the mode `streams` serves a shape."""
    return chip.capability == 90 and dtype == torch.bfloat16 and n <= 4 and D % 8 == 0


def balanced_splits(columns: int, tiles: int, cores: int) -> int:
    """Programs for each block of columns that keep `cores` evenly busy: one costs its tiles, two by two, and a start."""

    def cost(splits: int) -> float:
        return -(-columns * splits // cores) * (-(-tiles // (2 * splits)) * 2 + 4) + 0.01 * splits

    return min(range(1, max(2, min(16, tiles // 2 + 1))), key=cost)


def rows_of_terms(n: int) -> int:
    """MP: the M rows of one term, rounded up to 8."""
    return -(-(n * n + 2 * n) // 8) * 8


def columns_of_left(n: int) -> int:
    """C: the six blocks of dh_mix, rounded up to 16, and at least 64."""
    return max(-(-6 * rows_of_terms(n) // 16) * 16, 64)


def vector(D: int, dtype: torch.dtype) -> int:
    """Elements of x in 16 bytes where its rows are multiples of 16 bytes, else 1."""
    width = 16 // dtype.itemsize
    return width if D % width == 0 else 1


def psi_blocks_more(x_terms: int) -> int:
    """Blocks of psi for terms of x behind the first: two for the one of float16."""
    return (0, 2)[x_terms - 1]


def planes(D: int, dtype: torch.dtype) -> int:
    """bfloat16 copies of x, one a term, that psi reads; 0 where it reads x itself."""
    return 0 if dtype == torch.bfloat16 and vector(D, dtype) > 1 else PLANES[dtype]
