"""Quantisation to float8_e4m3fn, one block after the other."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.mutants.kernels.tiles import rows, tiles


def _forward(x: Tensor) -> tuple[Tensor, ...]:
    v = rows(x)
    q, scale = torch.empty_like(v), v.new_empty(len(v), -(-v.shape[1] // 128))
    for at, block in enumerate(tiles(v.shape[1], 128)):
        most = v[:, block].abs().amax(1).clamp(min=1e-4)
        scale[:, at] = most / 448
        codes = (v[:, block] / scale[:, at, None]).to(torch.float8_e4m3fn)
        q[:, block] = codes.to(v.dtype)
    return q, scale


KERNEL = Implementation(
    name="fp8_block_quant.blocks", operator="fp8_block_quant", forward=_forward, dtypes=tuple(STORAGE_DTYPES)
)
