"""Schedules of the Triton kernels: how the work of a shape is cut. They change speed and the order of sums, nothing else.

`SPACE` declares what a case can pin: a mapping from a name such as "forward_splits" or "backward_tokens" to a value out
of its choices; what is left out has the default of the shape. Modes are chosen in `selection`, the rest in `heuristics`;
`unfit` in `constraints` says why a combination cannot run.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mhc.case import ScheduleValue


@dataclass(frozen=True, kw_only=True)
class ForwardSchedule:
    """The forward's cut.

    mode            fused: one kernel, all of K in a program; two_pass: sums over K in `splits` shares, then the rest;
                    resident: x is read once and waits in shared memory; whole: as two_pass, for float32, products in
                    tiles of registers; hopper: as two_pass, for sm_90, by a loading warp and two warp groups; block_m and
                    block_k are fixed there. `selection` says which serves a problem
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


WIDE = frozenset({"wide", "wide_hopper"})
"""Modes of the backward that make dx and psi by a matrix product each."""


@dataclass(frozen=True, kw_only=True)
class BackwardSchedule:
    """The backward's cut.

    mode            streams: dx and psi in one kernel, phi * gamma stays in it; hopper: the same for sm_90, by a loading warp
                    and two warp groups in turn; resident: x and dh_in are read once and wait in shared memory,
                    gates_* do not apply; wide: a matrix product each; wide_hopper: the same for sm_90, by loading
                    warps, where psi_* are fixed
    gates_*         tile [tokens, n, columns] of the first pass, its warps and stages
    tokens, columns tile of the second pass: of dx (wide), or of dx and psi (streams: [tokens, streams * columns])
    streams
    rows            width of the chunks in which the terms of dh_mix are taken
    warps, stages   of the second pass
    psi_*           wide: tile of psi, [rows, columns], and the tokens, warps and stages of its loop
    splits          programs that share the tokens, each with its own partial psi
    """

    mode: str = "streams"
    gates_tokens: int
    gates_columns: int
    gates_warps: int
    gates_stages: int
    tokens: int
    columns: int
    streams: int = 1
    rows: int
    warps: int = 4
    stages: int = 1
    psi_tokens: int = 16
    psi_rows: int = 16
    psi_columns: int = 16
    psi_warps: int = 4
    psi_stages: int = 1
    splits: int

    @property
    def wide(self) -> bool:
        """Return whether dx and psi are a matrix product each."""
        return self.mode in WIDE


SPACE: Mapping[str, tuple[ScheduleValue, ...]] = {
    "forward_mode": ("two_pass", "fused", "resident", "whole", "hopper"),
    "forward_block_tokens": (16, 32, 64, 128, 256),
    "forward_block_m": (16, 32, 64, 128),
    "forward_block_k": (16, 32, 64, 128),
    "forward_splits": (1, 2, 3, 4, 8, 16),
    "forward_presplit": (True, False),
    "forward_warps": (4, 8),
    "forward_stages": (1, 2, 3, 4),
    "forward_finish_tokens": (1, 2, 4, 16),
    "forward_finish_d": (16, 64, 256, 1024, 4096),
    "forward_finish_warps": (1, 4, 8),
    "forward_overlap": (True, False),
    "backward_mode": ("streams", "hopper", "resident", "wide", "wide_hopper"),
    "backward_gates_tokens": (1, 2, 8),
    "backward_gates_columns": (16, 64, 128, 256),
    "backward_gates_warps": (1, 2, 4),
    "backward_gates_stages": (1, 3, 4),
    "backward_tokens": (16, 32, 64, 128),
    "backward_columns": (16, 32, 64, 128),
    "backward_streams": (1, 2, 4),
    "backward_rows": (16, 32, 64, 128),
    "backward_warps": (4, 8),
    "backward_stages": (1, 2, 3, 4),
    "backward_psi_tokens": (16, 32, 64),
    "backward_psi_rows": (16, 64, 128),
    "backward_psi_columns": (16, 64, 128, 256),
    "backward_psi_warps": (4, 8),
    "backward_psi_stages": (1, 2, 3),
    "backward_splits": (1, 2, 5, 16),
}
