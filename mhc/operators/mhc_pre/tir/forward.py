"""mHC Forward Pre as a TIR script: on a GPU a block of threads for sixteen tokens, on the CPU the same lines as plain loops.

One program for each dtype of x and target. On the CPU bfloat16 x is stored as float32, as in `tilelang.cpu`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mhc.operators.mhc_pre.device import stream_of
from mhc.operators.mhc_pre.shapes import MAX_N
from mhc.operators.mhc_pre.table import sizes
from mhc.operators.mhc_pre.tensors import empty_outputs, on_its_device
from mhc.operators.mhc_pre.tilelang.compile.cache import Program, program
from mhc.operators.mhc_pre.tilelang.cpu import FLAGS, PASSES, call, stored, weight

FACTORY = "mhc.operators.mhc_pre.tir.kernels:forward"
# On a GPU: 48 KiB of shared memory is what a block may have unasked. A share of a chunk's columns is a warp's: 16 of them.
TILES: Mapping[str, int] = {"threads": 256, "tokens": 16, "rows": 32, "chunk": 128, "token_tile": 4, "row_tile": 4}
TILES_FLOAT64: Mapping[str, int] = {**TILES, "threads": 128, "chunk": 64}
PLAIN: Mapping[str, int] = {"threads": 1, "tokens": 1, "rows": 4, "chunk": 64, "token_tile": 1, "row_tile": 4}


@on_its_device
def forward(
    x: Tensor, phi: Tensor, alpha: Tensor, bias: Tensor, gamma: Tensor | None, *, norm_eps: float, hc_eps: float
) -> tuple[Tensor, ...]:
    """Return (h_in, h_post, h_res, inv_rms, h_mix, h_pre) as `tilelang.cpu.forward`, with x on the CPU or a CUDA GPU."""
    device = x.get_device()
    v = x.contiguous() if x.is_cuda else stored(x)
    outputs = empty_outputs(v)
    if x.numel() > 0:
        given = {"phi": phi, "alpha": alpha, "bias": bias}
        tensors = {"x": v, "gamma": weight(gamma, phi), **{name: one.contiguous() for name, one in given.items()}, **outputs}
        scalars = {**sizes(*x.shape), "norm_eps": norm_eps, "hc_eps": hc_eps}
        stream = {"stream": stream_of(device)} if x.is_cuda else {}
        call(_program(v.dtype, device), {**tensors, **scalars, **stream})
    outputs["h_in"] = outputs["h_in"].to(x.dtype)
    return tuple(outputs.values())


def _program(dtype: torch.dtype, device: int) -> Program:
    """Return the script for a dtype of x, on a device by its index (-1: the CPU)."""
    constants: dict[str, str | int] = {"dtype": str(dtype).removeprefix("torch."), "max_n": MAX_N}
    if device < 0:
        return program(FACTORY, "c", {**constants, **PLAIN}, pass_configs=PASSES, flags=FLAGS)
    major, minor = torch.cuda.get_device_capability(device)
    tiles = TILES_FLOAT64 if dtype == torch.float64 else TILES
    return program(FACTORY, f"cuda -arch=sm_{major}{minor}", {**constants, **tiles}, pass_configs=PASSES, device=device)
