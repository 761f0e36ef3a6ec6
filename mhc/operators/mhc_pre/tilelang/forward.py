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
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.tilelang.compile.cache import Program, program
from mhc.operators.mhc_pre.tilelang.forward_schedule import ForwardSchedule, forward_plan, resident_width

_RING = 16  # tiles of shares that a group of the resident kernel has in the workspace: RING there
_NO_TMA = {"tl.disable_warp_specialized": True, "tl.disable_tma_lower": True}
# every index of these kernels is in range
_GENERAL = {**_NO_TMA, "tl.disable_safe_memory_legalize": True}
# and the barriers of these are written out
_BY_HAND = {**_GENERAL, "tl.disable_thread_storage_sync": True}


@dataclass(frozen=True)
class Launches:
    """A program, its sizes by name, and its scratch: name to the offset in one allocation of `scratch` bytes."""

    program: Program
    sizes: Mapping[str, int | float]
    offsets: Mapping[str, int]
    scratch: int


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
) -> Launches:
    """What a shape runs; compiles where the disk does not have it."""
    name = str(dtype).removeprefix("torch.")
    plan = forward_plan(N, n, D, name, chip(device), dict(schedule))
    M, K = n * n + 2 * n, n * D
    sizes = {"N": N, "K": K, "M": M, "n": n, "D": D, "norm_eps": norm_eps, "hc_eps": hc_eps}
    target = _target(device)
    if plan.mode == "resident":
        width = resident_width(n, D, name, chip(device))
        assert width is not None, "refused before"
        group = D // width
        groups = max(1, min(chip(device).cores // group, -(-N // 16)))
        compiled = program(
            "mhc.operators.mhc_pre.tilelang.kernels.fwd_persistent_sm90:resident",
            target,
            {
                **{"n": n, "D": D, "width": width, "has_gamma": has_gamma},
                **{"slots": plan.slots, "lag": plan.lag},
            },
            pass_configs=_BY_HAND,
            device=device,
        )
        return Launches(compiled, {**sizes, "groups": groups}, {"shares": 0}, groups * _RING * group * 16 * 32 * 4)
    hopper = chip(device).capability >= 90
    if name == "float32":
        (factory, constants), passes = whole(plan, D, has_gamma, overlap=hopper), _BY_HAND
    else:
        factory, constants = two_pass(plan, n, D, name, has_gamma, overlap=hopper)
        passes = _GENERAL if not plan.fixed else {} if hopper else _NO_TMA
    compiled = program(factory, target, constants, pass_configs=passes, device=device)
    rows = -(-M // plan.block_m) * plan.block_m
    pitch = -(-K // plan.block_k) * plan.block_k
    w = -(-2 * plan.terms * rows * pitch // 256) * 256 if plan.presplit else 0
    partials = 4 * N * plan.splits * (rows + 1)
    return Launches(compiled, {**sizes, "splits": plan.splits}, {"w": 0, "partials": w}, w + partials)


def two_pass(
    plan: ForwardSchedule, n: int, D: int, dtype: str, has_gamma: bool, *, overlap: bool
) -> tuple[str, dict[str, ScheduleValue]]:
    """The factory of a two-pass plan, and its constants: with `fixed`, n and D are among them.

    overlap: the device has programmatic dependent launch (sm_90 on), so a kernel may start before the one in front ends.
    """
    constants: dict[str, ScheduleValue] = {
        **{"dtype": dtype, "has_gamma": has_gamma, "terms": plan.terms, "threads": plan.threads},
        **{"block_tokens": plan.block_tokens, "block_m": plan.block_m, "block_k": plan.block_k},
        **{"presplit": plan.presplit, "overlap": overlap, "finish_threads": plan.finish_threads},
    }
    if plan.fixed:
        return "mhc.operators.mhc_pre.tilelang.kernels.fwd_static:two_pass", {
            **constants,
            "n": n,
            "D": D,
            "stages": plan.stages,
        }
    return "mhc.operators.mhc_pre.tilelang.kernels.fwd_dynamic:general", constants


def whole(plan: ForwardSchedule, D: int, has_gamma: bool, *, overlap: bool) -> tuple[str, dict[str, ScheduleValue]]:
    """The factory of a plan for float32 x, and its constants."""
    return "mhc.operators.mhc_pre.tilelang.kernels.fwd_fp32:whole", {
        **{"has_gamma": has_gamma, "vector": 4 if D % 4 == 0 else 1, "overlap": overlap},
        **{"block_tokens": plan.block_tokens, "block_m": plan.block_m, "block_k": plan.block_k},
        **{"stages": plan.stages, "finish_threads": plan.finish_threads},
    }


@functools.cache
def _target(device: int) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"cuda -arch=sm_{major}{minor}{'a' if major >= 9 else ''}"


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
    """(h_in, h_post, h_res, inv_rms, h_mix, h_pre) of mHC Forward Pre, formula in the module's docstring.

    x [B, S, n, D] bfloat16, float16 or float32, any strides; phi [M, K], alpha [3], bias [M], gamma [n, D] or None,
    float32. h_in [B, S, D] has x's dtype; h_post [B, S, n], h_res [B, S, n, n], inv_rms [B, S], h_mix [B, S, M] and
    h_pre [B, S, n] are float32. Accumulates in float32. A tensor that is strided, or not at a multiple of 16 bytes, is
    copied first. Takes arguments already checked. schedule pins what it names of `forward_schedule.SPACE`.

    Raises:
        Refused: TileLang is absent or another version, or the device has no room for a schedule.
        BuildError: a program does not compile, or does not start.
    """
    device = x.get_device()
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return forward(x, phi, alpha, bias, gamma, norm_eps=norm_eps, hc_eps=hc_eps, schedule=schedule)
    B, S, n, D = x.shape
    empty = phi.new_empty
    h_in, h_post, h_res = x.new_empty((B, S, D)), empty((B, S, n)), empty((B, S, n, n))
    inv_rms, h_mix, h_pre = empty((B, S)), empty((B, S, n * n + 2 * n)), empty((B, S, n))
    if B * S > 0:
        key = () if not schedule else tuple(sorted(schedule.items()))
        run = launches(B * S, n, D, x.dtype, gamma is not None, float(norm_eps), float(hc_eps), device, key)
        x, phi, alpha, bias = dense(x, phi, alpha, bias)
        values = {
            "x": x.data_ptr(),
            "phi": phi.data_ptr(),
            "alpha": alpha.data_ptr(),
            "bias": bias.data_ptr(),
            "gamma": None,
            "h_in": h_in.data_ptr(),
            "h_post": h_post.data_ptr(),
            "h_res": h_res.data_ptr(),
            "inv_rms": inv_rms.data_ptr(),
            "h_mix": h_mix.data_ptr(),
            "h_pre": h_pre.data_ptr(),
            "stream": torch.cuda.current_stream(device).cuda_stream,
            **run.sizes,
        }
        if gamma is not None:
            gamma = dense(gamma)[0]
            values["gamma"] = gamma.data_ptr()
        scratch = x.new_empty(run.scratch, dtype=torch.uint8)
        for name, offset in run.offsets.items():
            values[name] = scratch.data_ptr() + offset
        run.program(*[values[name] for name, _ in run.program.arguments])
    return h_in, h_post, h_res, inv_rms, h_mix, h_pre
