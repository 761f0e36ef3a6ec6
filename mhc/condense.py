"""Condensed inputs: only the tokens that differ, so that judging a large case costs as much as a small one.

Tokens are independent, and the backward is linear in each token's upstream gradient. So for any operator with tokens:

- tokens with the same rows in every input and no upstream gradient have the same rows in every output and gradient: one of
  them represents all;
- a token without an upstream gradient adds 0 to every sum over tokens (NaN if it contains one, for any number of copies).

The representative tokens are those with an upstream gradient, each by itself, and one of each group of equal others. The
formula evaluated on them, in float64 or on error-carrying numbers, gives every row and every sum over tokens of the whole
case. A sum's error bound is that of its nonzero terms: adding 0 rounds nothing, in any order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.dense import bits, dense
from mhc.inputs import Inputs, derived
from mhc.operator import TensorSpec

LEAST = 1 << 16
"""Elements of the largest tensor from which a case is condensed."""
_GAIN = 4
"""A case is condensed if at most one token in `_GAIN` remains."""


@dataclass(frozen=True, kw_only=True)
class Condensed:
    """The representative tokens of a case.

    Attributes:
        inputs: the case with these tokens only, as one batch.
        chosen: the indices of the representatives among all tokens, in order.
        stands_for: for each token, the index of its representative in `chosen`.
        lead: the sizes of the case's token axes.
    """

    inputs: Inputs
    chosen: Tensor
    stands_for: Tensor
    lead: tuple[int, ...]

    def take(self, tensor: Tensor, spec: TensorSpec) -> Tensor:
        """Return the representatives' rows of a tensor of the case; a tensor without token axes is returned unchanged."""
        if not self.inputs.case.table.per_token(spec):
            return tensor
        rows = tensor.reshape(-1, *tensor.shape[len(self.lead) :])
        return _as_last(rows[self.chosen.to(tensor.device)], len(self.lead))  # [1, tokens chosen, ...]

    def expand(self, tensor: Tensor, spec: TensorSpec) -> Tensor:
        """Return the tensor of the case from that of the representatives, on the device where the case is judged."""
        there = tensor.to(self.stands_for.device)
        if not self.inputs.case.table.per_token(spec):
            return there
        rest = tensor.shape[len(self.lead) :]
        return there.reshape(-1, *rest)[self.stands_for].reshape(*self.lead, *rest)


def condense(inputs: Inputs, device: torch.device) -> Condensed | None:
    """Return the representative tokens of `inputs`, found on `device`; None where too many tokens differ."""
    table, case = inputs.case.table, inputs.case
    count = len(case.lead)
    largest = max((tensor.numel() for tensor in inputs.tensors.values() if tensor is not None), default=0)
    if largest < LEAST or not count or case.token_count < _GAIN:
        return None
    specs = [spec for spec in table.drawn if table.per_token(spec) and inputs.tensors[spec.name] is not None]
    upstream = {spec.name for spec in table.upstream}
    active = torch.zeros(case.token_count, dtype=torch.bool, device=device)
    same = torch.zeros(case.token_count, dtype=torch.int64, device=device)
    tensors: dict[str, Tensor] = {}
    for spec in specs:
        tensor = inputs.tensors[spec.name]
        assert tensor is not None
        tensors[spec.name] = dense(tensor.detach().to(device))[0]
        rows = tensors[spec.name].reshape(case.token_count, -1)
        if spec.name in upstream:
            active |= (rows != 0).any(1)
        else:
            same = same * _PRIME + _digests(rows)
    # each active token represents itself; the others are grouped by digest
    _, kinds = torch.unique(same, return_inverse=True)
    alone = kinds.max() + 1 + torch.arange(case.token_count, device=device)
    groups, stands_for = torch.unique(torch.where(active, alone, kinds), return_inverse=True)
    lead = (*(1,) * (count - 1), len(groups))
    if len(groups) * _GAIN > case.token_count or not case.may_have(lead):
        return None
    chosen = torch.full_like(groups, case.token_count).scatter_reduce(
        0, stands_for, torch.arange(case.token_count, device=device), "amin"
    )
    chosen, order = chosen.sort()
    stands_for = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=device))[stands_for]
    if not all(_same(tensor.reshape(case.token_count, -1), chosen, stands_for, ~active) for tensor in tensors.values()):
        return None  # two different rows have one digest
    rows_of = {
        name: _as_last(tensor.reshape(case.token_count, *tensor.shape[count:])[chosen], count)
        for name, tensor in tensors.items()
    }
    small = derived(inputs, {name: tensor.cpu() for name, tensor in rows_of.items()}, lead=lead)
    return Condensed(inputs=small, chosen=chosen, stands_for=stands_for, lead=case.lead)


def _as_last(rows: Tensor, count: int) -> Tensor:
    """Return rows of tokens with `count` axes of tokens, of which only the last is longer than 1."""
    return rows.reshape(*(1,) * (count - 1), *rows.shape)


_PRIME = 1099511628211
_CHUNK = 1 << 22  # elements compared at a time


def _digests(rows: Tensor) -> Tensor:
    """Return a 64-bit hash of each row: the sum of its elements' bits, each times its own odd number."""
    width = rows.shape[1]
    factors = torch.randint(-(2**62), 2**62, (width,), generator=torch.Generator().manual_seed(width)) * 2 + 1
    factors = factors.to(rows.device)
    parts = []
    for part in torch.split(bits(rows), max(1, _CHUNK // max(1, width))):
        whole = part.long()
        # a sign bit alone would be lost modulo 2**64; not in place, since float64 bits are the tensor's own memory
        parts.append(((whole ^ (whole >> 29)) * factors).sum(1))
    return torch.cat(parts)


def _same(rows: Tensor, chosen: Tensor, stands_for: Tensor, judged: Tensor) -> bool:
    """Return whether each `judged` row has the same bits as its representative."""
    whole, step = bits(rows), max(1, _CHUNK // max(1, rows.shape[1]))
    return all(
        bool(((whole[at : at + step] == whole[chosen[stands_for[at : at + step]]]).all(1) | ~judged[at : at + step]).all())
        for at in range(0, len(whole), step)
    )
