"""mHC Forward Pre on TileLang for CUDA: the programs of a shape, their scratch, and the call.

    v       = x.reshape(B, S, K)                               K = n * D, M = n * n + 2 * n, N = B * S tokens
    inv_rms = rsqrt(mean(v * v) + norm_eps)
    h_mix   = (v * gamma) @ phi.T
    z       = alpha * h_mix * inv_rms + bias                   alpha by columns: n | n | n * n
    h_pre   = sigmoid(z[:n]) + hc_eps,  h_post = 2 * sigmoid(z[n:2n]),  h_res = z[2n:]
    h_in    = sum_i h_pre[i] * x[i]

Source: arXiv 2512.24880 eqs. 14-19.
"""

import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.selection import Problem
from mhc.operators.mhc_pre.tensors import empty_outputs, frozen, on_its_device
from mhc.operators.mhc_pre.tilelang.call import Call, call_of, target_of
from mhc.operators.mhc_pre.tilelang.compile.cache import program
from mhc.operators.mhc_pre.tilelang.forward_schedule import ForwardSchedule, forward_plan, program_of
from mhc.operators.mhc_pre.tilelang.selection import resident_width

FACTORIES: Mapping[str, str] = {
    "resident": "mhc.operators.mhc_pre.tilelang.kernels.fwd_persistent_sm90:resident",
    "fixed": "mhc.operators.mhc_pre.tilelang.kernels.fwd_static:two_pass",
    "general": "mhc.operators.mhc_pre.tilelang.kernels.fwd_dynamic:general",
    "whole": "mhc.operators.mhc_pre.tilelang.kernels.fwd_fp32:whole",
}
"""By the name of a program in `selection.FORWARD`: the function that makes it."""

_RING = 16  # tiles of shares that a group of the resident kernel has in the workspace: RING there
_NO_TMA = {"tl.disable_warp_specialized": True, "tl.disable_tma_lower": True}
# every index of these kernels is in range
_GENERAL = {**_NO_TMA, "tl.disable_safe_memory_legalize": True}
# and the barriers of these are written out
_BY_HAND = {**_GENERAL, "tl.disable_thread_storage_sync": True}


@functools.lru_cache(maxsize=4096)
def launches(
    N: int,
    n: int,
    D: int,
    dtype: torch.dtype,
    has_gamma: bool,
    norm_eps: float,
    hc_eps: float,
    device: int,
    schedule: tuple[tuple[str, ScheduleValue], ...],
) -> Call:
    """Return the call of a shape; compiles its program where the disk does not have it."""
    problem = Problem(N, n, D, dtype, chip(device))
    plan = forward_plan(problem, dict(schedule))
    kernel, hopper = program_of(plan, problem), problem.chip.capability >= 90
    scalars: dict[str, int | float] = {
        "N": N, "K": problem.K, "M": problem.M, "n": n, "D": D, "norm_eps": norm_eps, "hc_eps": hc_eps
    }  # fmt: skip
    if kernel == "resident":
        width = resident_width(problem)
        assert width is not None, "refused before"
        group = D // width
        groups = max(1, min(problem.chip.cores // group, -(-N // 16)))
        scalars, scratch = {**scalars, "groups": groups}, {"shares": groups * _RING * group * 16 * 32 * 4}
        constants: dict[str, ScheduleValue] = {
            "n": n, "D": D, "width": width, "has_gamma": has_gamma, "slots": plan.slots, "lag": plan.lag
        }  # fmt: skip
        passes = _BY_HAND
    else:
        rows = -(-problem.M // plan.block_m) * plan.block_m
        pitch = -(-problem.K // plan.block_k) * plan.block_k
        scalars["splits"] = plan.splits
        scratch = {
            "w": 2 * plan.terms * rows * pitch if plan.presplit else 0,
            "partials": 4 * N * plan.splits * (rows + 1),
        }
        constants = _two_pass(kernel, plan, problem, has_gamma, overlap=hopper)
        passes = {"whole": _BY_HAND, "general": _GENERAL, "fixed": {} if hopper else _NO_TMA}[kernel]
    target = target_of(problem.chip.capability)
    return call_of(program(FACTORIES[kernel], target, constants, pass_configs=passes, device=device), scalars, scratch)


def _two_pass(
    kernel: str, plan: ForwardSchedule, problem: Problem, has_gamma: bool, *, overlap: bool
) -> dict[str, ScheduleValue]:
    """Return the constants of a program in two passes.

    overlap: the device has programmatic dependent launch (sm_90 on), so a kernel may start before the one in front ends, and
        TMA, by which `fixed` loads its tiles.
    """
    shared: dict[str, ScheduleValue] = {
        "has_gamma": has_gamma, "overlap": overlap, "finish_threads": plan.finish_threads,
        "block_tokens": plan.block_tokens, "block_m": plan.block_m, "block_k": plan.block_k,
    }  # fmt: skip
    if kernel == "whole":
        return {**shared, "vector": 4 if problem.D % 4 == 0 else 1, "stages": plan.stages}
    shared |= {"terms": plan.terms, "threads": plan.threads}
    if kernel == "fixed":
        return {**shared, "n": problem.n, "D": problem.D, "stages": plan.stages}
    return {**shared, "dtype": problem.type, "presplit": plan.presplit}


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

    x [B, S, n, D] bfloat16, float16 or float32, any strides; phi [M, K], alpha [3], bias [M], gamma [n, D] or None,
    float32. h_in [B, S, D] has x's dtype; h_post [B, S, n], h_res [B, S, n, n], inv_rms [B, S], h_mix [B, S, M] and
    h_pre [B, S, n] are float32. Accumulates in float32. A tensor that is strided, or not at a multiple of 16 bytes, is
    copied first. Takes checked CUDA tensors. schedule pins what it names of `forward_schedule.SPACE`.

    Raises:
        Refused: TileLang is absent or another version, or the device has no room for a schedule.
        BuildError: a program does not compile, or does not start.
    """
    outputs = empty_outputs(x)
    if x.numel() > 0:
        B, S, n, D = x.shape
        scalars = (float(norm_eps), float(hc_eps))
        call = launches(B * S, n, D, x.dtype, gamma is not None, *scalars, x.get_device(), frozen(schedule))
        x, phi, alpha, bias = dense(x, phi, alpha, bias)
        gamma = phi if gamma is None else dense(gamma)[0]
        call.run({**outputs, "x": x, "phi": phi, "alpha": alpha, "bias": bias, "gamma": gamma})
    return tuple(outputs.values())
