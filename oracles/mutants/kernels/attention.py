"""Attention, one head at a time."""

import math

import torch
from torch import Tensor

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES, accumulation_dtype

_F = accumulation_dtype


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, h: int) -> Tensor:
    """Return the softmax of the scores of head h, [B, S, S]."""
    S, D = q.shape[1:]
    scale = 1 / math.sqrt(D)
    scores = q.to(_F(q.dtype)) @ k.to(_F(k.dtype)).mT * scale
    scores = scores if bias is None else scores + bias[:, h]
    later = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(later, -math.inf)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def _forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    for h in range(q.shape[1]):
        shared = h // (q.shape[1] // k.shape[1])
        o[:, h] = _weights(q[:, h], k[:, shared], bias, h).to(q.dtype) @ v[:, shared]
    return (o,)


def _backward(q: Tensor, k: Tensor, v: Tensor, do: Tensor, bias: Tensor | None) -> tuple[Tensor, ...]:
    wide, G = _F(q.dtype), q.shape[1] // k.shape[1]
    dq, dk, dv = (torch.zeros(one.shape, dtype=wide, device=q.device) for one in (q, k, v))
    scale = 1 / math.sqrt(q.shape[-1])
    for h in range(q.shape[1]):
        p = _weights(q[:, h], k[:, h // G], bias, h)
        g = do[:, h]
        dv[:, h // G] += p.to(q.dtype).mT.to(wide) @ g.to(wide)
        dp = (g @ v[:, h // G].mT).to(wide)
        ds = (p * dp - p * (p * dp).sum(-1, keepdim=True)).tril()
        dq[:, h] = ds @ k[:, h // G].to(wide) * scale
        dk[:, h // G] += ds.mT @ q[:, h].to(wide) * scale
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype)


KERNEL = Implementation(
    name="attention.heads", operator="attention", forward=_forward, backward=_backward, dtypes=tuple(STORAGE_DTYPES)
)
