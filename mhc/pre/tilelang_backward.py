"""Backward of mHC Forward Pre in TileLang kernels on CUDA: one program, its stages launched by one call."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.pre.device import chip
from mhc.pre.tilelang_backward_plan import (
    TWO_TERMS_FROM,
    backward_plan,
    columns_of_left,
    planes,
    psi_blocks_more,
    rows_of_terms,
    vector,
)
from mhc.pre.tilelang_build import Program, prebuild, program

SCRATCH_ALIGNMENT = 256


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
    factory, target, constants, sizes, scratch = _described(shape, dtype, device, schedule)
    offsets, at = {}, 0
    for name, size in scratch.items():
        offsets[name] = at
        at += -(-size // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
    return Call(program(factory, target, constants, device=device), sizes, offsets, at)


@lru_cache(maxsize=4096)
def start_building(
    shape: tuple[int, ...], dtype: torch.dtype, device: int, schedule: tuple[tuple[str, ScheduleValue], ...]
) -> None:
    """Have another process compile the program of a shape, where the disk does not have it; `prepared` waits for it."""
    factory, target, constants, _, _ = _described(shape, dtype, device, schedule)
    prebuild(factory, target, constants)


def _described(
    shape: tuple[int, ...], dtype: torch.dtype, device: int, schedule: tuple[tuple[str, ScheduleValue], ...]
) -> tuple[str, str, dict[str, bool | int | float | str], dict[str, int], dict[str, int]]:
    """A shape's factory, target and constants, the sizes of the call, and the bytes of its scratch tensors."""
    B, S, n, D = shape
    N, M, MP, C = B * S, n * n + 2 * n, rows_of_terms(n), columns_of_left(n)
    where = chip(device)
    plan = backward_plan(N, n, D, dtype, where, dict(schedule))
    V, P = vector(D, dtype), planes(D, dtype)
    constants: dict[str, bool | int | float | str] = {
        "n": n,
        "columns": C,
        "unroll": plan.gates_unroll,
        "rows": plan.rows,
        "width": plan.width,
    }
    terms = 2 if N >= TWO_TERMS_FROM else 3
    if plan.mode == "streams":
        constants |= {"terms": terms, "slots": plan.stages}
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
    dx_programs = min(-(-N // 128) * n * -(-D // 256), where.cores)
    programs = min(-(-N // 4), plan.gates_programs)
    psi_rows = MP * (terms + psi_blocks_more(max(P, 1)))
    sizes = {
        "N": N,
        "Dv": D // V,
        "D": D,  # Dv under the name that a stage gave it last
        "DPv": DP // 8,
        "programs": programs,
        "parts": parts,
        "psi_rows": psi_rows,
        "terms": terms,
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
    arch = f"{where.capability}a" if where.capability >= 90 else f"{where.capability}"
    factory = f"mhc.pre.tilelang_backward_{plan.mode}_kernels:{plan.mode}"
    return factory, f"cuda -arch=sm_{arch}", constants, sizes, scratch


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
    Takes CUDA tensors and arguments already checked. schedule pins what it names of `tilelang_backward_plan.SPACE`;
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
    values["left_psi"] = values["left"]
    values["right_flat"] = values["right_units"] = values["right"]
    values["planes_out"] = values["planes"]
    values["planes_in"] = values["planes"] if planes(shape[-1], x.dtype) else values["x"]
    padded = x.shape[-1] % 8 != 0  # ring: x and dh_in come to dx with padded rows
    values["x_dx"], values["dh_in_dx"] = (values["planes"], values["upstream"]) if padded else (values["x"], values["dh_in"])
    call.program(*[values[name] for name, _ in call.program.arguments])
    return dx, dphi, dalpha, dbias, dgamma
