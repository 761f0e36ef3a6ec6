"""Backward of mHC Forward Pre in TileLang kernels on CUDA: one program, its stages launched by one call."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_pre.device import chip
from mhc.operators.mhc_pre.tilelang.backward_schedule import (
    TERMS,
    BackwardSchedule,
    backward_plan,
    columns_of_left,
    planes,
    psi_blocks_more,
    rows_of_terms,
    vector,
)
from mhc.operators.mhc_pre.tilelang.compile.cache import Constant, Program, prebuild, program

SCRATCH_ALIGNMENT = 256
# of `whole`: its loads are cp.async, every index is in range, and the barriers are written out
_BY_HAND: Mapping[str, bool] = {
    "tl.disable_warp_specialized": True,
    "tl.disable_tma_lower": True,
    "tl.disable_safe_memory_legalize": True,
    "tl.disable_thread_storage_sync": True,
}


@dataclass(frozen=True)
class Call:
    """What calls of one shape share: the program, its sizes by name, and where scratch tensors begin in one allocation."""

    program: Program
    sizes: Mapping[str, int]
    offsets: Mapping[str, int]
    scratch_bytes: int


@lru_cache(maxsize=4096)
def prepared(
    shape: tuple[int, ...], dtype: torch.dtype, device: int, schedule: tuple[tuple[str, ScheduleValue], ...]
) -> Call:
    """The call of a shape; compiles its program where neither this process nor the disk has it."""
    what = _described(shape, dtype, device, schedule)
    offsets, at = {}, 0
    for name, size in what.scratch.items():
        offsets[name] = at
        at += -(-size // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    compiled = program(what.factory, what.target, what.constants, pass_configs=what.pass_configs, device=device)
    return Call(compiled, what.sizes, offsets, at)


_KERNELS = "mhc.operators.mhc_pre.tilelang.kernels"
FACTORIES: Mapping[str, str] = {
    "plain": f"{_KERNELS}.bwd_gemm:plain",
    "ring": f"{_KERNELS}.bwd_gemm_sm90:ring",
    "streams": f"{_KERNELS}.bwd_fused_sm90:streams",
    "whole": f"{_KERNELS}.bwd_fp32:whole",
}
"""By mode: the function that makes its program."""


@lru_cache(maxsize=4096)
def start_building(
    shape: tuple[int, ...], dtype: torch.dtype, device: int, schedule: tuple[tuple[str, ScheduleValue], ...]
) -> None:
    """Have another process compile the program of a shape, where the disk does not have it; `prepared` waits for it."""
    what = _described(shape, dtype, device, schedule)
    prebuild(what.factory, what.target, what.constants, pass_configs=what.pass_configs)


@dataclass(frozen=True)
class Description:
    """The program of a shape as `program` takes it, the sizes of its calls, and the bytes of its scratch tensors."""

    factory: str
    target: str
    constants: Mapping[str, Constant]
    pass_configs: Mapping[str, bool]
    sizes: Mapping[str, int]
    scratch: Mapping[str, int]


def _described(
    shape: tuple[int, ...], dtype: torch.dtype, device: int, schedule: tuple[tuple[str, ScheduleValue], ...]
) -> Description:
    B, S, n, D = shape
    where = chip(device)
    plan = backward_plan(B * S, n, D, dtype, where, dict(schedule))
    factory = FACTORIES[plan.mode]
    target = f"cuda -arch=sm_{where.capability}{'a' if where.capability >= 90 else ''}"
    if plan.mode == "whole":
        return Description(factory, target, *_whole(B * S, n, D, plan))
    return Description(factory, target, *_in_terms(B * S, n, D, dtype, plan, where.cores))


_Parts = tuple[Mapping[str, Constant], Mapping[str, bool], Mapping[str, int], Mapping[str, int]]


def _whole(N: int, n: int, D: int, plan: BackwardSchedule) -> _Parts:
    """Constants, passes, sizes and scratch of a program for float32 x."""
    M, V = n * n + 2 * n, vector(D, torch.float32)
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


def _in_terms(N: int, n: int, D: int, dtype: torch.dtype, plan: BackwardSchedule, cores: int) -> _Parts:
    """The same of a program that multiplies bfloat16 terms."""
    M, MP, C = n * n + 2 * n, rows_of_terms(n), columns_of_left(n)
    V, P = vector(D, dtype), planes(D, dtype)
    constants: dict[str, Constant] = {
        "n": n,
        "columns": C,
        "unroll": plan.gates_unroll,
        "rows": plan.rows,
        "width": plan.width,
    }
    if plan.mode == "streams":
        constants |= {"terms": TERMS, "slots": plan.stages}
        parts = 2 * min(plan.splits, -(-N // 64))
    else:
        constants |= {
            "psi_rows_block": plan.psi_rows,
            "dtype": str(dtype).removeprefix("torch."),
            "vector": V,
            "planes": P,
            "stages": plan.stages,
        }
        parts = min(plan.splits, -(-N // 64))
    DP = -(-D // 8) * 8
    # ring: programs of dx, which go through its tiles of 128 tokens and 256 columns
    dx_programs = min(-(-N // 128) * n * -(-D // 256), cores)
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
        "upstream": 2 * N * DP if plan.mode == "ring" and V == 1 else 0,  # dh_in with padded rows
        "right": 2 * C * n * DP,
        "psi": 4 * parts * psi_rows * n * DP,
    }
    return constants, {}, sizes, scratch


def backward(
    x: Tensor,
    phi: Tensor,
    alpha: Tensor,
    bias: Tensor,
    inv_rms: Tensor,
    h_mix: Tensor,
    h_pre: Tensor,
    h_post: Tensor,
    dh_in: Tensor,
    dh_post: Tensor,
    dh_res: Tensor,
    gamma: Tensor | None = None,
    *,
    norm_eps: float = 1e-6,
    hc_eps: float = 1e-6,
    schedule: Mapping[str, ScheduleValue] | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Gradients of mHC Forward Pre (docs/operator.md, Backward).

    x [B, S, n, D] and dh_in [B, S, D] in bfloat16, float16 or float32; phi [M, K], alpha [3], bias [M], inv_rms [B, S],
    h_mix [B, S, M], h_pre, h_post, dh_post [B, S, n], dh_res [B, S, n, n] and gamma [n, D] or None in float32.
    Accumulates in float32. Returns dx [B, S, n, D] in x's dtype, rounded once, dphi [M, K], dalpha [3], dbias [M] and
    dgamma [n, D] (None without gamma). Bitwise deterministic; inputs are not written. bias and norm_eps do not enter.
    A tensor that is strided, or not at a multiple of 16 bytes, is copied first.
    Takes CUDA tensors and arguments already checked. schedule pins what it names of `backward_schedule.SPACE`;
    Refused where it cannot run.
    """
    device = x.get_device()
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            given = (x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res, gamma)
            return backward(*given, norm_eps=norm_eps, hc_eps=hc_eps, schedule=schedule)
    shape = x.shape
    x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res = dense(
        x, phi, alpha, bias, inv_rms, h_mix, h_pre, h_post, dh_in, dh_post, dh_res
    )
    gamma = None if gamma is None else dense(gamma)[0]
    like = torch.empty_like  # of what is contiguous: it costs half of new_empty
    dx, dphi, dalpha, dbias, dgamma = like(x), like(phi), like(alpha), like(bias), None if gamma is None else like(gamma)
    if shape[0] * shape[1] == 0:
        return dx, dphi.zero_(), dalpha.zero_(), dbias.zero_(), None if dgamma is None else dgamma.zero_()
    key = () if not schedule else tuple(sorted(schedule.items()))
    call = prepared(tuple(shape), x.dtype, device, key)
    scratch = x.new_empty(call.scratch_bytes, dtype=torch.uint8)
    base = scratch.data_ptr()
    at = {name: base + offset for name, offset in call.offsets.items()}
    values = {
        **call.sizes,
        **at,
        "x": x.data_ptr(),
        "dh_in": dh_in.data_ptr(),
        "phi": phi.data_ptr(),
        "gamma": (phi if gamma is None else gamma).data_ptr(),
        "h_mix": h_mix.data_ptr(),
        "h_pre": h_pre.data_ptr(),
        "h_post": h_post.data_ptr(),
        "dh_post": dh_post.data_ptr(),
        "dh_res": dh_res.data_ptr(),
        "inv_rms": inv_rms.data_ptr(),
        "alpha": alpha.data_ptr(),
        "dx": dx.data_ptr(),
        "dphi": dphi.data_ptr(),
        "dgamma": (dphi if dgamma is None else dgamma).data_ptr(),
        "dalpha": dalpha.data_ptr(),
        "dbias": dbias.data_ptr(),
        "hc_eps": hc_eps,
        "has_gamma": int(gamma is not None),
        "stream": torch.cuda.current_stream(device).cuda_stream,
    }
    # a program sees some tensors in two shapes
    values["x_flat"] = values["x"]
    values["dh_in_flat"] = values["dh_in"]
    values["phi_flat"] = values["phi"]
    values["gamma_flat"] = values["gamma"]
    if x.dtype != torch.float32:
        values["left_psi"] = values["left"]
        values["right_flat"] = values["right_units"] = values["right"]
        values["planes_out"] = values["planes"]
        values["planes_in"] = values["planes"] if planes(shape[-1], x.dtype) else values["x"]
        padded = x.shape[-1] % 8 != 0  # ring: x and dh_in come to dx with padded rows
        values["x_dx"], values["dh_in_dx"] = (
            (values["planes"], values["upstream"]) if padded else (values["x"], values["dh_in"])
        )
    call.program(*[values[name] for name, _ in call.program.arguments])
    return dx, dphi, dalpha, dbias, dgamma
