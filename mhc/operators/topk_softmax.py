"""Routing of a mixture of experts: the K largest weights of a softmax, descending, and their experts.

    p = softmax(logits);  weights[k] = p[indices[k]], the k-th largest

Source: arXiv 2101.03961, eqs. 1 and 2, for K experts. logits [T, E], E >= K -> weights [T, K], float32, and indices [T, K],
int64. `buffer` [T, K] gives K, as in vLLM's `topk_softmax`; its values have no meaning, and an implementation may write it.
No gradient.

Experts whose weights differ by no more than their bounds may be exchanged, equal ones in any order. A row with a NaN or +inf
has NaN for weights; its indices must still be distinct and in range.
"""

import torch
from torch import Tensor

from mhc.declaration import operator
from mhc.operator import accumulation_dtype
from mhc.operators.eager import eager


def _shares(logits: Tensor) -> Tensor:
    return logits.to(accumulation_dtype(logits.dtype)).softmax(-1)


def _largest(p: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """Return the K largest elements of each row and their indices, by one maximum after the other."""
    weights, indices = [], []
    for _ in range(K):
        weight, at = p.max(-1)
        weights.append(weight)
        indices.append(at)
        p = p.scatter(-1, at.unsqueeze(-1), -1.0)
    return torch.stack(weights, -1), torch.stack(indices, -1)


def _not_the_largest(logits: Tensor, buffer: Tensor, indices: Tensor) -> Tensor:
    """Return by how much the weight of an index differs from that of its place, and 2 more for an invalid index."""
    p, (E, K) = _shares(logits), (logits.shape[-1], buffer.shape[-1])
    again = (indices.unsqueeze(-1) == indices.unsqueeze(-2)).sum(-1) > 1
    invalid = again | (indices < 0) | (indices >= E)
    apart = p.gather(-1, indices.clamp(0, E - 1)) - _largest(p, K)[0]
    return torch.where(apart.isnan(), 0.0, apart) + 2.0 * invalid


@operator(
    logits="[T, E] storage constant",
    buffer="[T, K] int64 in 0..E",
    E="K+rest",
    K=(1, 8),
    rest=(0, 504),
    tokens="T",
    mutates=("buffer",),
    production={"K": (2, 4, 6, 8), "rest": (8, 58, 62, 120, 126, 248)},
    residuals={"y1": _not_the_largest},
)
def topk_softmax(logits: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and indices."""
    return _largest(_shares(logits), buffer.shape[-1])


def _torch(logits: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
    weights, indices = _shares(logits).topk(buffer.shape[-1])
    return weights, indices


IMPLEMENTATIONS = (eager(topk_softmax, "torch", _torch), eager(topk_softmax))
