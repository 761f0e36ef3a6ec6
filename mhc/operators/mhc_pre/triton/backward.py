"""Backward of mHC Forward Pre in Triton launches: gates, streams, parameters.

gates       reads x and dh_in once: dh_pre, the gates' gradients, dh_mix [N, M] and one coefficient a token
streams     reads x and dh_in again: writes dx, and accumulates psi = dh_mix^T x [M, K] over the tokens
parameters  adds the partial sums in a fixed order: dphi = psi * gamma, dgamma = sum_M psi * phi, dbias, dalpha

float32 products run on bfloat16 tensor cores where x is narrower: v = h + m + l in three terms, and a @ b is the six
products hh mh lh hm mm hl (the other three are together about 2**-23 |a| |b| at most), side by side along the contraction.
With many streams dx is three products of scaled float16 terms instead (`fp16_split`). Where x is float32 they are plain
multiply-adds of whole numbers.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import torch
import triton
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.operators.mhc_pre.device import Chip, chip
from mhc.operators.mhc_pre.selection import TWO_TERMS_FROM, Problem, balanced_splits, power_of_2
from mhc.operators.mhc_pre.tensors import backward_tensors, frozen, on_its_device
from mhc.operators.mhc_pre.triton.heuristics import backward_plan
from mhc.operators.mhc_pre.triton.kernels.bwd_common import gates_kernel, parameters_kernel, streams_kernel
from mhc.operators.mhc_pre.triton.kernels.bwd_gemm import dx_kernel, mend_kernel, psi_kernel, weights_kernel
from mhc.operators.mhc_pre.triton.launcher import Launch, Program, Tiles, can_overlap
from mhc.operators.mhc_pre.triton.schedule import BackwardSchedule
from mhc.operators.mhc_pre.triton.selection import WHOLE, Held, held_columns, packed_columns, packed_rows, pieces

X_TERMS = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 1, torch.float64: 1}
HOPPER_COLUMNS = 96  # of packed dh_mix
GATES_PROGRAMS = 2048  # at most this many partial sums for dbias and dalpha


@lru_cache(maxsize=4096)
def program(
    shape: torch.Size,
    dtype: torch.dtype,
    has_gamma: bool,
    hc_eps: float,
    device: int,
    schedule: tuple[tuple[str, ScheduleValue], ...],
) -> Program:
    """Return the launches of a backward; their scratch is dh_mix in packed terms, coef, partial sums and partial psi."""
    B, S, n, D = shape
    N, K, M = B * S, n * D, n * n + 2 * n
    where = chip(device)
    problem = Problem(N, n, D, dtype, where)
    plan = backward_plan(problem, dict(schedule))
    if plan.mode == "resident":
        return _resident(problem, plan, has_gamma, hc_eps, can_overlap(device), pinned=bool(schedule))
    whole = dtype in WHOLE
    wide, hopper, loaded = plan.wide, plan.mode == "hopper", plan.mode == "wide_hopper"
    overlap = (hopper or (wide and where.capability == 90)) and can_overlap(device)
    # packed dh_mix: six terms a row of phi (or whole, one), in chunks of plan.rows and a smaller last one; wide: three
    held = held_columns(n, D, where.shared) if loaded and (plan.tokens, plan.columns) == (64, 128) else None
    MP = held.rows if held is not None else triton.cdiv(M, plan.rows) * plan.rows if wide else M
    need = M if whole else 6 * M
    tail = need % plan.rows
    C = (
        HOPPER_COLUMNS
        if hopper
        else 3 * MP
        if wide
        else max(plan.rows, need - tail + (power_of_2(tail, 16, plan.rows) if tail else 0))
    )
    # of dh_mix in psi: two are off by 2**-17, which the precision gate finds, and the bound where few tokens have an x
    # that is not 0; before sm_90 a third spills
    terms = 2 if not where.interpreted and where.capability < 90 and N >= TWO_TERMS_FROM else 3
    R = M if whole or wide else terms * M
    if hopper:
        MP = 24  # columns a term has in its layout
    chunk = plan.gates_tokens * triton.cdiv(N, GATES_PROGRAMS * plan.gates_tokens)
    programs = triton.cdiv(N, chunk)
    share = plan.psi_tokens * triton.cdiv(N, plan.splits * plan.psi_tokens)  # tokens of a program of psi
    splits = plan.splits if loaded else triton.cdiv(N, share) if wide else min(plan.splits, triton.cdiv(N, plan.tokens))
    parts = 2 * X_TERMS[dtype] * splits if hopper else packed_rows(K) * splits if loaded else splits  # of psi
    gates = Launch(
        gates_kernel,
        (programs, 1, 1),
        plan.gates_warps,
        (
            *("x", "dh_in", "h_mix", "h_pre", "h_post", "dh_post", "dh_res", "inv_rms", "alpha"),
            *("dh_mix", "left", "left_scale", "left_marks", "coef", "sums"),
        ),
        (
            *(N, D, chunk, hc_eps),
            n,
            power_of_2(n, 1, 16),
            power_of_2(MP - 2 * n, 1, 1024),
            MP,
            "wide" if wide else plan.mode,
            C,
            power_of_2(C - need, 1, 4096) if plan.mode == "streams" else 1,
            plan.gates_tokens,
            plan.gates_columns,
            plan.gates_stages,
            plan.gates_tokens * K < 2**31,
            overlap,
        ),
        overlap and wide,
        registers=128 if hopper and N >= 4096 else None,
    )
    accumulator = torch.float64 if dtype == torch.float64 else torch.float32
    scratch = {
        "dh_mix": (N * C, accumulator if whole else torch.bfloat16),
        "left": (2 * N * MP if wide else 0, torch.float16),
        "left_scale": (N if wide else 0, torch.float32),
        "left_marks": (N if wide else 0, torch.int32),
        "coef": (N, accumulator),
        "sums": (programs * (M + 3), accumulator),
        "psi": (parts * R * K, accumulator),
    }
    if wide:
        (weights, *products), more = _wide(plan, N, n, D, has_gamma, terms, MP, share, splits, loaded, held, where, overlap)
        scratch |= more
        launches = weights, gates, *products
    elif hopper:
        launches = gates, _hopper(plan, N, n, D, has_gamma, splits, overlap)
    else:
        launches = gates, _streams(plan, N, n, D, has_gamma, X_TERMS[dtype], C, R, splits)
    form = "" if whole or wide else plan.mode
    parameters = _parameters(problem, has_gamma, parts, programs, R, overlap and ("late" if wide else True), form, C)
    return Program((*launches, parameters), scratch, pinned=bool(schedule))


def _parameters(
    problem: Problem,
    has_gamma: bool,
    parts: int,
    programs: int,
    R: int,
    overlap: Literal[False, True, "late"],
    form: str = "",
    C: int = 0,
) -> Launch:
    """Return the launch that adds up `parts` of psi, R rows each, and the sums of `programs` for dbias and dalpha.

    Args:
        form, C: how dh_mix is packed, and the columns of its rows, where dx may have to be mended.
    """
    K, M, interpreted = problem.K, problem.M, problem.chip.interpreted
    # of psi for a program: fewer where there are many rows, which it takes one block after the other
    columns = power_of_2(K // 320, 16, 64) if M > 32 else 64 if K >= 4096 else 16
    if interpreted:
        columns = power_of_2(K, 16, 256)
    sums_columns = power_of_2(M + 3, 1, 512) if interpreted else 4
    return Launch(
        parameters_kernel,
        (triton.cdiv(K, columns) + triton.cdiv(M + 3, sums_columns), 1, 1),
        4,
        (
            *("phi", "gamma", "psi", "sums", "dphi", "dgamma", "dalpha", "dbias"),
            *(("x", "dh_in", "h_pre", "dh_mix", "coef", "dx") if form else ("psi",) * 6),
        ),
        (
            *(problem.N, problem.D, K, parts, programs),
            problem.n,
            M,
            R,
            has_gamma,
            power_of_2(M, 1, 512 if interpreted else 32),
            columns,
            power_of_2(programs, 16, 2048),
            sums_columns,
            form,
            C,
            power_of_2(problem.N, 16, 256) if interpreted else max(16, 1024 // columns),
            overlap,
        ),
        bool(overlap),
    )


def _resident(
    problem: Problem, plan: BackwardSchedule, has_gamma: bool, hc_eps: float, overlap: bool, *, pinned: bool
) -> Program:
    """Return the launches that read x and dh_in once, in one cooperative kernel; x, dh_in and dx are dense."""
    from mhc.operators.mhc_pre.triton.kernels.bwd_resident_sm90 import ROW, clear_kernel, resident_backward_kernel  # noqa: PLC0415  Gluon, sm_90 only

    N, n, D, K, M = problem.N, problem.n, problem.D, problem.K, problem.M
    NS, BD, groups, stages = plan.streams, plan.columns, plan.splits, plan.stages
    G, swizzle, parts = D // BD, min(128, 2 * BD), groups * X_TERMS[problem.dtype]
    words = groups * stages * 64 * (4 * G + ROW.value)
    clear = Launch(clear_kernel, (triton.cdiv(words, 4096), 1, 1), 4, ("words",), (words, 4096, overlap))
    streams = Tiles((n, N, D), (D, K, 1), (NS, 64, BD), swizzle)
    rest = Launch(
        resident_backward_kernel,
        (groups * G, 1, 1),
        4,
        (
            *("x", "dh_in", "dx", "phi", "gamma", "alpha", "h_mix", "h_pre", "h_post", "dh_post", "dh_res", "inv_rms"),
            *("words", "psi", "sums"),
        ),
        (
            *(N, D, K, triton.cdiv(N, 64), hc_eps),
            *(n, G, groups, has_gamma, NS, BD, stages),
            112,  # registers of a thread of dx
            96,  # of one that loads or sends: with fewer the shares spill
            overlap,
        ),
        overlap,
        together=True,
        tiles={0: streams, 1: Tiles((N, D), (D, 1), (64, BD), swizzle), 2: streams},
    )
    scratch = {
        "words": (words, torch.int32),
        "psi": (parts * 3 * M * K, torch.float32),
        "sums": (groups * G * (M + 3), torch.float32),
    }
    parameters = _parameters(problem, has_gamma, parts, groups * G, 3 * M, overlap)
    return Program((clear, rest, parameters), scratch, pinned=pinned)


def _streams(
    plan: BackwardSchedule,
    N: int,
    n: int,
    D: int,
    has_gamma: bool,
    x_terms: int,
    C: int,
    R: int,
    splits: int,
) -> Launch:
    """Return the launch of one kernel for dx and psi."""
    K = n * D
    even = N % plan.tokens == 0 and D % plan.columns == 0 and n % plan.streams == 0
    near = (plan.tokens + 1) * max(K, C) + n * D < 2**31
    return Launch(
        streams_kernel,
        (triton.cdiv(D, plan.columns), triton.cdiv(n, plan.streams), splits),
        plan.warps,
        ("x", "dh_in", "phi", "gamma", "h_pre", "dh_mix", "coef", "dx", "psi"),
        (
            *(N, D, K),
            n,
            has_gamma,
            plan.streams,
            C,
            plan.rows,
            R,
            x_terms,
            plan.tokens,
            plan.columns,
            plan.stages,
            even,
            near,
        ),
    )


def _hopper(plan: BackwardSchedule, N: int, n: int, D: int, has_gamma: bool, splits: int, overlap: bool) -> Launch:
    """Return the launch of one kernel for dx and psi; x, dh_in and dx are dense, dh_mix is [N, 96]."""
    from mhc.operators.mhc_pre.triton.kernels.bwd_fused_sm90 import hopper_streams_kernel  # noqa: PLC0415  Gluon, sm_90 only

    K, NS, BD = n * D, plan.streams, plan.columns
    swizzle = min(128, 2 * BD)
    streams = Tiles((n, N, D), (D, K, 1), (NS, 64, BD), swizzle)
    return Launch(
        hopper_streams_kernel,
        (triton.cdiv(D, BD), triton.cdiv(n, NS), splits),
        4,
        ("x", "dh_in", "dh_mix", "dx", "phi", "gamma", "h_pre", "coef", "psi"),
        (
            *(N, D, K, triton.cdiv(N, 64), splits),
            *(n, has_gamma, NS, BD, plan.stages, plan.stages, overlap),
        ),
        overlap,
        registers=168,  # shared out again between the loading warp and the two groups
        tiles={
            0: streams,
            1: Tiles((N, D), (D, 1), (64, BD), swizzle),
            3: streams,
            2: Tiles((N, HOPPER_COLUMNS), (HOPPER_COLUMNS, 1), (64, 32), 64),
        },
    )


def _wide(
    plan: BackwardSchedule,
    N: int,
    n: int,
    D: int,
    has_gamma: bool,
    terms: int,
    MP: int,
    share: int,
    splits: int,
    loaded: bool,
    held: Held | None,
    where: Chip,
    overlap: bool,
) -> tuple[tuple[Launch, ...], dict[str, tuple[int, torch.dtype]]]:
    """Return the launches for phi * gamma in terms, psi, dx, and what is in doubt of dx again; with their scratch."""
    K, M = n * D, n * n + 2 * n
    side = max(plan.columns, plan.psi_columns)
    DP = triton.cdiv(D, side) * side
    tiles = triton.cdiv(N, plan.tokens) * n * (DP // plan.columns)
    rows = power_of_2(M, 1, 512)
    block = 1024 if where.interpreted else power_of_2(4096 // rows, 16, 128)
    weights = Launch(
        weights_kernel,
        (triton.cdiv(n * DP, block), 1, 1),
        4,
        ("phi", "gamma", "w", "w_scale", "w_marks"),
        (D, K, M, DP, has_gamma, rows, block, overlap),
    )
    psi = (
        _loaded_psi(N, K, M, MP, splits, where.shared, overlap)
        if loaded
        else Launch(
            psi_kernel,
            (triton.cdiv(M, plan.psi_rows) * n * triton.cdiv(DP, plan.psi_columns), splits, 1),
            plan.psi_warps,
            ("x", "dh_mix", "psi"),
            (
                *(N, D, K, share),
                *(n, MP, DP, terms, plan.psi_tokens, plan.psi_rows, plan.psi_columns, plan.psi_stages, overlap),
            ),
            overlap,
        )
    )
    tile, near = (n, MP, DP, plan.tokens, plan.columns, 16), (plan.tokens + 1) * K < 2**31
    dx = (
        _loaded_dx(N, n, D, DP, held, where.cores, overlap)
        if held is not None
        else Launch(
            dx_kernel,
            (tiles, 1, 1),
            plan.warps,
            ("x", "dh_in", "h_pre", "left", "left_scale", "coef", "w", "w_scale", "dx"),
            (N, D, K, *tile, plan.rows, plan.stages, near, overlap),
            overlap,
        )
    )
    mend = Launch(
        mend_kernel,
        (triton.cdiv(tiles, 16), 1, 1),
        plan.warps,
        ("x", "dh_in", "h_pre", "dh_mix", "left_marks", "coef", "phi", "gamma", "w_marks", "dx"),
        (N, D, K, *tile[:3], has_gamma, *tile[3:], 16, 16, near, overlap),
        overlap,
    )
    scratch = {
        "w": (2 * M * n * DP, torch.float16),
        "w_scale": (n * DP, torch.float32),
        "w_marks": (n * DP, torch.int32),
    }
    return (weights, psi, dx, mend), scratch


def _loaded_psi(N: int, K: int, M: int, MP: int, splits: int, shared: int, overlap: bool) -> Launch:
    """Return the launch for psi whose tiles the tensor memory accelerator loads."""
    from mhc.operators.mhc_pre.triton.kernels.bwd_psi_sm90 import hopper_psi_kernel  # noqa: PLC0415  Gluon, sm_90 only

    pack = packed_rows(K)
    blocks, CA, CB = pieces(M, 128, least=16)
    stages = min(6, (shared - 2048) // (128 * (128 + 3 * (CA + CB))))
    rows, across = N // pack, pack * 3 * MP
    first, second = (Tiles((rows, across), (across, 1), (64, C), 2 * C) for C in (CA, CB or CA))  # without B none is loaded
    return Launch(
        hopper_psi_kernel,
        (blocks * triton.cdiv(packed_columns(K), 128), pack * splits, 1),
        4,
        ("x", "dh_mix", "dh_mix", "psi"),
        (N, K, splits, M, MP, pack, CA, CB, stages, overlap),
        overlap,
        registers=168,  # shared out again between the loading warp and the two groups
        tiles={
            0: Tiles((rows, pack * K), (pack * K, 1), (64, 64), 128),
            1: first,
            2: second,
        },
    )


def _loaded_dx(N: int, n: int, D: int, DP: int, held: Held, cores: int, overlap: bool) -> Launch:
    """Return the launch for dx whose tiles the tensor memory accelerator loads."""
    from mhc.operators.mhc_pre.triton.kernels.bwd_dx_sm90 import hopper_dx_kernel  # noqa: PLC0415  Gluon, sm_90 only

    K, M, MP, COLS = n * D, n * n + 2 * n, held.rows, held.columns
    CA, CB = held.chunk
    programs = n // 2 * (DP // COLS)
    splits = balanced_splits(programs, triton.cdiv(N, 64), cores)
    streams = Tiles((n, N, D), (D, K, 1), (1, 64, COLS), 128)
    return Launch(
        hopper_dx_kernel,
        (programs, splits, 1),
        4,
        ("x", "dh_in", "left", "left", "w", "w", "dx", "h_pre", "coef", "left_scale", "w_scale"),
        (N, D, splits, n, MP, DP, CA, CB, COLS, held.ring, held.stages, overlap),
        overlap,
        registers=168,  # shared out again between the loading warps and the two groups
        tiles={
            0: streams,
            1: Tiles((N, D), (D, 1), (64, COLS), 128),
            2: Tiles((N, 2 * MP), (2 * MP, 1), (64, CA), min(2 * CA, 128)),
            3: Tiles((N, 2 * MP), (2 * MP, 1), (64, CB), min(2 * CB, 128)),
            4: Tiles((2 * M, n * DP), (n * DP, 1), (CA, COLS), 128),
            5: Tiles((2 * M, n * DP), (n * DP, 1), (CB, COLS), 128),
            6: streams,
        },
    )


@on_its_device
def backward(
    *given: Tensor | None,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> tuple[Tensor | None, ...]:
    """Return dx, dphi, dalpha, dbias and dgamma of mHC Forward Pre (docs/mhc-pre.md, Backward).

    given: x [B, S, n, D], phi [M, K], alpha [3], bias [M], inv_rms [B, S], h_mix [B, S, M], h_pre and h_post [B, S, n],
    dh_in [B, S, D], dh_post [B, S, n], dh_res [B, S, n, n], gamma [n, D] or None. x and dh_in are bfloat16, float16,
    float32 or float64, the rest float32 (float64 with float64 x), which is what sums are made in.
    Each gradient has the shape and dtype of its tensor; dx is rounded once, dgamma is None where gamma is. Bitwise
    deterministic; inputs are not written. bias and norm_eps do not enter.
    A tensor that is strided, or not at a multiple of 16 bytes, is copied first.
    Takes checked arguments. schedule pins what it names of `schedule.SPACE`; Refused where it cannot run.
    """
    del norm_eps
    tensors, gradients = backward_tensors(given)
    x = tensors["x"]
    if x.numel() == 0:
        return tuple(None if gradient is None else gradient.zero_() for gradient in gradients)
    steps = program(x.shape, x.dtype, gradients[-1] is not None, float(hc_eps), x.get_device(), frozen(schedule))
    steps.run(tensors)
    return gradients
