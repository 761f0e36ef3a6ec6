"""The K largest weights of a softmax, by one maximum after the other."""

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.mutants.kernels.tiles import row_sum, rows


def _forward(logits: Tensor, buffer: Tensor) -> tuple[Tensor, ...]:
    v, K = rows(logits), buffer.shape[1]
    e = torch.exp(v - v.amax(1, keepdim=True))
    p = e / row_sum(e)
    weights, indices = p.new_empty(len(p), K), torch.empty(len(p), K, dtype=torch.int64, device=p.device)
    left = p.nan_to_num(nan=0.0)
    for k in range(K):
        at = left.argmax(1, keepdim=True)
        weights[:, k : k + 1] = p.gather(1, at)
        indices[:, k : k + 1] = at
        left = left.scatter(1, at, -1.0)
    return weights, indices


KERNEL = Implementation(name="topk_softmax.maxima", operator="topk_softmax", forward=_forward, dtypes=tuple(STORAGE_DTYPES))
