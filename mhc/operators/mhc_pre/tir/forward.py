"""mHC Forward Pre as a TIR script: on a GPU a block of threads for sixteen tokens, on the CPU the same lines as plain loops.

One program for each dtype of x and target. On the CPU bfloat16 x is stored as float32, as in `tilelang.cpu`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.operators.mhc_pre.table import MAX_N
from mhc.operators.mhc_pre.tilelang.compile.cache import Program, program
from mhc.operators.mhc_pre.tilelang.cpu import FLAGS, PASSES, call, stored, weight

# On a GPU: 48 KiB of shared memory is what a block may have unasked. A share of a chunk's columns is a warp's: 16 of them.
TILES: Mapping[str, int] = {"threads": 256, "tokens": 16, "rows": 32, "chunk": 128, "token_tile": 4, "row_tile": 4}
TILES_FLOAT64: Mapping[str, int] = {**TILES, "threads": 128, "chunk": 64}
PLAIN: Mapping[str, int] = {"threads": 1, "tokens": 1, "rows": 4, "chunk": 64, "token_tile": 1, "row_tile": 4}


def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, ...]:
    """(h_in, h_post, h_res, inv_rms, h_mix, h_pre) of mHC Forward Pre; the formula is in `mhc.operators.mhc_pre.formula`.

    x [B, S, n, D] bfloat16, float16, float32 or float64, any strides (a view is copied first), on the CPU or a CUDA GPU;
    phi [M, K], alpha [3], bias [M], gamma [n, D] or None, float32 (float64 with float64 x). h_in [B, S, D] has x's dtype;
    h_post [B, S, n], h_res [B, S, n, n], inv_rms [B, S], h_mix [B, S, M] and h_pre [B, S, n] have phi's. Accumulates in
    phi's dtype. Takes arguments already checked.
    """
    device = x.get_device()
    if x.is_cuda and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return forward(x, phi, alpha, bias, gamma, norm_eps=norm_eps, hc_eps=hc_eps)
    B, S, n, D = x.shape
    N, K, M = B * S, n * D, n * n + 2 * n
    v = x.contiguous() if x.is_cuda else stored(x)
    empty = phi.new_empty
    h_in, h_post, h_res = v.new_empty(B, S, D), empty(B, S, n), empty(B, S, n, n)
    inv_rms, h_mix, h_pre = empty(B, S), empty(B, S, M), empty(B, S, n)
    if N > 0:
        given = {"phi": phi, "alpha": alpha, "bias": bias}
        values: dict[str, Tensor | float] = {
            "x": v, **{name: tensor.contiguous() for name, tensor in given.items()}, "gamma": weight(gamma, phi),
            "h_in": h_in, "h_post": h_post, "h_res": h_res, "inv_rms": inv_rms, "h_mix": h_mix, "h_pre": h_pre,
            "norm_eps": norm_eps, "hc_eps": hc_eps, "N": N, "K": K, "M": M, "n": n, "D": D,
        }  # fmt: skip
        if x.is_cuda:
            values["stream"] = torch.cuda.current_stream(device).cuda_stream
        call(_program(v.dtype, device), values)
    return h_in.to(x.dtype), h_post, h_res, inv_rms, h_mix, h_pre


def _program(dtype: torch.dtype, device: int) -> Program:
    """The script for a dtype of x, on a device by its index (-1: the CPU)."""
    constants: dict[str, str | int] = {"dtype": str(dtype).removeprefix("torch."), "max_n": MAX_N}
    if device < 0:
        return program(
            "mhc.operators.mhc_pre.tir.kernels:forward", "c", {**constants, **PLAIN}, pass_configs=PASSES, flags=FLAGS
        )
    major, minor = torch.cuda.get_device_capability(device)
    target, tiles = f"cuda -arch=sm_{major}{minor}", TILES_FLOAT64 if dtype == torch.float64 else TILES
    return program(
        "mhc.operators.mhc_pre.tir.kernels:forward", target, {**constants, **tiles}, pass_configs=PASSES, device=device
    )
