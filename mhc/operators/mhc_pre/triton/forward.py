"""mHC Forward Pre on Triton: the launches, and the schedule that each shape gets.

    v       = x.reshape(B, S, K)                               K = n * D, M = n * n + 2 * n, N = B * S tokens
    inv_rms = rsqrt(mean(v * v) + norm_eps)
    h_mix   = (v * gamma) @ phi.T
    z       = alpha * h_mix * inv_rms + bias                   alpha by columns: n | n | n * n
    h_pre   = sigmoid(z[:n]) + hc_eps,  h_post = 2 * sigmoid(z[n:2n]),  h_res = z[2n:]
    h_in    = sum_i h_pre[i] * x[i]

Source: arXiv 2512.24880 eqs. 14-19.
"""

from collections.abc import Mapping
from functools import lru_cache

import torch
import triton
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.selection import Problem, power_of_2
from mhc.operators.mhc_pre.tensors import OUTPUTS, empty_outputs, frozen, on_its_device
from mhc.operators.mhc_pre.triton.heuristics import forward_plan
from mhc.operators.mhc_pre.triton.kernels.fwd_finish import finish_kernel, fused_kernel
from mhc.operators.mhc_pre.triton.kernels.fwd_project import partial_kernel, split_phi_kernel
from mhc.operators.mhc_pre.triton.launcher import Launch, Program, Tiles, can_overlap
from mhc.operators.mhc_pre.triton.schedule import ForwardSchedule
from mhc.operators.mhc_pre.triton.selection import forward_pieces, packed_columns, packed_rows, resident

AGAIN: Mapping[str, ScheduleValue] = {
    "forward_mode": "fused",
    "forward_block_tokens": 64,
    "forward_block_k": 64,
    "forward_finish_d": 64,
    "forward_warps": 4,
    "forward_stages": 3,
}
"""The schedule of the launch that makes all outputs again where float16 terms are too coarse. Larger tiles take minutes to
compile, and spill."""


@lru_cache(maxsize=4096)
def program(
    shape: torch.Size,
    dtype: torch.dtype,
    has_gamma: bool,
    norm_eps: float,
    hc_eps: float,
    device: int,
    schedule: tuple[tuple[str, ScheduleValue], ...],
) -> Program:
    """Return the launches of a forward; its scratch is the partial sums and the terms of phi * gamma."""
    B, S, n, D = shape
    N, K, M = B * S, n * D, n * n + 2 * n
    problem = Problem(N, n, D, dtype, chip(device))
    plan = forward_plan(problem, dict(schedule))
    overlap = plan.overlap and can_overlap(device)
    if plan.mode == "resident":
        return _resident(problem, has_gamma, norm_eps, hc_eps, overlap, pinned=bool(schedule))
    if plan.mode == "hopper":
        return _hopper(problem, plan, has_gamma, norm_eps, hc_eps, overlap, pinned=bool(schedule))
    if plan.mode == "fused":
        return Program((_fused(problem, plan, has_gamma, norm_eps, hc_eps),), pinned=bool(schedule))
    accumulator = torch.float64 if dtype == torch.float64 else torch.float32
    steps = []
    pitch = triton.cdiv(K, 64) * 64
    # bfloat16 x reaches the tensor cores in the order in which the threads loaded it
    mma_order = plan.presplit and dtype == torch.bfloat16 and plan.block_k == 64 and plan.block_tokens >= 8 * plan.warps
    if plan.presplit:
        steps.append(
            Launch(
                split_phi_kernel,
                (triton.cdiv(pitch, 1024), M, 1),
                4,
                ("phi", "gamma", "w"),
                (K, pitch, M, has_gamma, mma_order, 1024, overlap),
            )
        )
    m_tiles = M // plan.block_m + 1  # one column more than M: sum(x * x)
    width = m_tiles * plan.block_m
    shares = triton.cdiv(N, plan.block_tokens) * plan.splits
    tile = plan.block_tokens, plan.block_m, plan.block_k, plan.stages, plan.warps, overlap
    if plan.mode == "whole":
        from mhc.operators.mhc_pre.triton.kernels.fwd_project_fp32 import whole_kernel  # noqa: PLC0415  Gluon, NVIDIA only

        steps.append(
            Launch(
                whole_kernel,
                (shares * m_tiles, 1, 1),
                plan.warps,
                ("x", "phi", "gamma", "partials"),
                (N, K, M, plan.splits, m_tiles, has_gamma, *tile),
            )
        )
    else:
        even = K % plan.block_k == 0
        steps.append(
            Launch(
                partial_kernel,
                (shares, m_tiles, 1),
                plan.warps,
                ("x", "phi", "gamma", "w" if plan.presplit else "phi", "partials"),
                (N, K, pitch, M, has_gamma, plan.presplit, mma_order, even, plan.splits, *tile),
                overlap and plan.presplit,
            )
        )
    steps.append(_finish(problem, plan, width, norm_eps, hc_eps, overlap))
    scratch = {"partials": (N * plan.splits * width, accumulator)}
    if plan.presplit:
        scratch["w"] = 3 * M * pitch, torch.bfloat16
    return Program(tuple(steps), scratch, pinned=bool(schedule))


def _fused(
    problem: Problem, plan: ForwardSchedule, has_gamma: bool, norm_eps: float, hc_eps: float, marks: int = 0
) -> Launch:
    """Return the launch that is a whole forward. marks: how many it reads, to return at once if all are 0; 0 for none."""
    return Launch(
        fused_kernel,
        (triton.cdiv(problem.N, plan.block_tokens), 1, 1),
        plan.warps,
        ("x", "phi", "gamma", "alpha", "bias", *OUTPUTS, "marks" if marks else "phi"),
        (
            *(problem.N, problem.D, problem.K),
            norm_eps,
            hc_eps,
            problem.n,
            marks,
            has_gamma,
            problem.K % plan.block_k == 0,
            plan.block_tokens,
            power_of_2(problem.M, 16, 512),
            plan.block_k,
            plan.finish_d,
            plan.stages,
        ),
    )


def _finish(problem: Problem, plan: ForwardSchedule, width: int, norm_eps: float, hc_eps: float, overlap: bool) -> Launch:
    """Return the launch that adds the partial sums, rows of `width`, and makes the gates and h_in."""
    N, n, D, K = problem.N, problem.n, problem.D, problem.K
    piece = min(plan.finish_d, power_of_2(256 * plan.finish_warps // plan.finish_tokens, 16, 4096))
    block = plan.finish_d // piece * piece
    return Launch(
        finish_kernel,
        (triton.cdiv(N, plan.finish_tokens), triton.cdiv(D, block), 1),
        plan.finish_warps,
        ("x", "partials", "alpha", "bias", *OUTPUTS),
        (
            *(N, D, K),
            norm_eps,
            hc_eps,
            n,
            power_of_2(n, 1, 16),
            plan.splits,
            width,
            power_of_2(width, 16, 512),
            plan.finish_tokens,
            block,
            piece,
            overlap,
        ),
        overlap,
    )


def _hopper(
    problem: Problem, plan: ForwardSchedule, has_gamma: bool, norm_eps: float, hc_eps: float, overlap: bool, *, pinned: bool
) -> Program:
    """Return the launches of two passes of which the first loads by the tensor memory accelerator; x is dense."""
    from mhc.operators.mhc_pre.triton.kernels.fwd_hopper_sm90 import hopper_partial_kernel, split_hopper_kernel  # noqa: PLC0415  Gluon, sm_90 only

    N, K, M, BT = problem.N, problem.K, problem.M, plan.block_tokens
    pack = packed_rows(K)
    blocks, CA, CB = forward_pieces(problem, BT)
    pitch = triton.cdiv(packed_columns(K), 64) * 64
    width = triton.cdiv(M + 1, 4) * 4
    tiles = triton.cdiv(N // pack, BT) * pack
    rows = {"a": (pack * blocks * 3 * CA, CA), "b": (pack * blocks * 4 * CB, 4 * CB)}  # and those of a tile
    second = "b" if CB else "a"  # without a second piece none is loaded
    split = Launch(
        split_hopper_kernel,
        (triton.cdiv(pitch, 1024), blocks * (CA + CB), pack),
        4,
        ("phi", "gamma", "a", second),
        (K, pitch, M, CA, CB, pack, has_gamma, 1024, overlap),
    )
    partial = Launch(
        hopper_partial_kernel,
        (tiles * plan.splits, blocks, 1),
        4,
        ("x", "a", second, "partials"),
        (N, K, M, pack, plan.splits, width, BT, CA, CB, plan.stages, overlap),
        overlap,
        registers=168,  # shared out again between the loading warp and the two groups
        tiles={
            0: Tiles((N // pack, pack * K), (pack * K, 1), (BT, 64), 128),
            **{
                i: Tiles((rows[name][0], pitch), (pitch, 1), (rows[name][1], 64), 128)
                for i, name in enumerate(("a", second), 1)
            },
        },
    )
    scratch = {
        "partials": (N * plan.splits * width, torch.float32),
        **{name: (count * pitch, torch.bfloat16) for name, (count, _) in rows.items()},
    }
    return Program((split, partial, _finish(problem, plan, width, norm_eps, hc_eps, overlap)), scratch, pinned=pinned)


def _resident(problem: Problem, has_gamma: bool, norm_eps: float, hc_eps: float, overlap: bool, *, pinned: bool) -> Program:
    """Return the launches that read x once: phi * gamma into terms, then all else in one cooperative kernel; x is dense.

    float16 has a third, which makes all outputs again where a row of phi * gamma is marked.
    """
    from mhc.operators.mhc_pre.triton.kernels.fwd_persistent_sm90 import (  # noqa: PLC0415  Gluon, sm_90 only
        resident_kernel,
        split_resident_kernel,
        split_scaled_kernel,
    )

    cut = resident(problem)
    assert cut is not None, "refused before"
    N, n, D, K, T, slots = problem.N, problem.n, problem.D, problem.K, 16, 6
    tiles = triton.cdiv(N, T)
    ring = min(16, triton.cdiv(tiles, cut.groups))  # 16: at least twice the slots
    words = cut.groups * ring * cut.group * T * 32
    scratch = {"w": (K * 64, problem.dtype), "shares": (words, torch.int32)}
    behind = []
    if problem.dtype == torch.float16:
        halves, piece = 2 * cut.group, 128
        scratch |= {"back": (32 * halves, torch.float32), "marks": (halves, torch.int32)}
        split = Launch(
            split_scaled_kernel,
            (cut.group * cut.chunks * cut.chunk // piece, 1, 1),
            8,
            ("phi", "gamma", "w", "back", "marks", "shares"),
            (K, D, words, n, cut.width, cut.chunk, cut.chunks // 2, piece, has_gamma, overlap),
        )
        behind.append(_fused(problem, forward_plan(problem, AGAIN), has_gamma, norm_eps, hc_eps, marks=halves))
    else:
        block = 16 if K <= 8192 else 32  # small: the launch behind it waits for the last of its programs
        split = Launch(
            split_resident_kernel,
            (K // block, 1, 1),
            block // 8,
            ("phi", "gamma", "w", "shares"),
            (K, words, n, has_gamma, block, overlap),
        )
    rest = Launch(
        resident_kernel,
        (cut.groups * cut.group, 1, 1),
        4,
        ("x", "w", "back" if behind else "w", "shares", "alpha", "bias", *OUTPUTS),
        (
            *(N, D, K, tiles, norm_eps, hc_eps),
            *(n, cut.group, power_of_2(triton.cdiv(T, cut.group), 1, T), cut.groups, cut.width, T, cut.chunk, cut.chunks),
            slots,
            ring,
            168,  # registers of a projecting thread: with 160 ptxas makes the products wait for one another
            56,  # registers of a thread that loads, sends or writes the small outputs
            overlap,
        ),
        overlap,
        together=True,
        tiles={0: Tiles((N, K), (K, 1), (T, cut.chunk), 128)},
    )
    return Program((split, rest, *behind), scratch, pinned=pinned)


@on_its_device
def forward(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    gamma: Tensor | None,
    *,
    norm_eps: float,
    hc_eps: float,
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> tuple[Tensor, ...]:
    """Return (h_in, h_post, h_res, inv_rms, h_mix, h_pre) of mHC Forward Pre, formula in the module's docstring.

    x [B, S, n, D] bfloat16, float16, float32 or float64, any strides; phi [M, K], alpha [3], bias [M],
    gamma [n, D] or None, float32 (float64 with float64 x). h_in [B, S, D] has x's dtype; h_post [B, S, n],
    h_res [B, S, n, n], inv_rms [B, S], h_mix [B, S, M] and h_pre [B, S, n] have phi's. Accumulates in phi's dtype.
    A tensor that is strided, or not at a multiple of 16 bytes, is copied first.
    Takes checked arguments. schedule pins what it names of `schedule.SPACE`; Refused where it cannot run.
    """
    outputs = empty_outputs(x)
    if x.numel() > 0:
        key = frozen(schedule)
        steps = program(x.shape, x.dtype, gamma is not None, float(norm_eps), float(hc_eps), x.get_device(), key)
        x, phi, alpha, bias = dense(x, phi, alpha, bias)
        gamma = phi if gamma is None else dense(gamma)[0]
        steps.run({**outputs, "x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma})
    return tuple(outputs.values())
