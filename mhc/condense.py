"""Condensed inputs: the few tokens that differ, in place of many, so that a large case is judged at the cost of a small one.

Tokens do not depend on one another, and the backward is linear in each token's upstream gradient. So two things hold for any
operator with tokens:

- tokens with the same rows in every input and no upstream gradient have the same rows in every output and gradient: one of
  them stands for all;
- a token without an upstream gradient adds 0 to every sum over tokens (NaN where it holds one, however often it comes).

What is left are the tokens with an upstream gradient, each by itself, and one of each kind of the others. The formula read
over them, in float64 or over error-carrying numbers, gives every row, and every sum over tokens, of the whole. A sum's error
bound is that of its terms that are not 0: adding 0 rounds nothing, in any order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.dense import dense
from mhc.inputs import Inputs, derived
from mhc.operator import TensorSpec

LEAST = 1 << 16
"""Elements of the largest tensor; smaller cases are judged whole."""
_GAIN = 4
"""Condensed where at most one token in four is left."""


@dataclass(frozen=True, kw_only=True)
class Condensed:
    """The tokens that stand for all.

    Attributes:
        inputs: the same case with these tokens alone, as one batch.
        chosen: their positions among the tokens of the whole, in order. stands_for: for each token of the whole, the
            position of the one that stands for it among `chosen`.
        lead: sizes of the whole's token axes.
    """

    inputs: Inputs
    chosen: Tensor
    stands_for: Tensor
    lead: tuple[int, ...]

    def take(self, tensor: Tensor, spec: TensorSpec) -> Tensor:
        """The chosen tokens' rows of a tensor of the whole; one without token axes as it is."""
        if not self.inputs.case.table.per_token(spec):
            return tensor
        rows = tensor.reshape(-1, *tensor.shape[len(self.lead) :])
        return rows[self.chosen.to(tensor.device)].unsqueeze(0)  # [1, tokens chosen, ...]

    def expand(self, tensor: Tensor, spec: TensorSpec) -> Tensor:
        """The whole's tensor from that of the chosen tokens, where the whole is judged: each row where it belongs."""
        there = tensor.to(self.stands_for.device)
        if not self.inputs.case.table.per_token(spec):
            return there
        rest = tensor.shape[len(self.lead) :]
        return there.reshape(-1, *rest)[self.stands_for].reshape(*self.lead, *rest)


def condense(inputs: Inputs, device: torch.device) -> Condensed | None:
    """The tokens of `inputs` that stand for all, on `device`; None where too few can be left out to be worth it."""
    table, case = inputs.case.table, inputs.case
    count = len(table.tokens)
    largest = max((tensor.numel() for tensor in inputs.tensors.values() if tensor is not None), default=0)
    if largest < LEAST or count != 2 or case.N < _GAIN:  # `derived` changes B and S
        return None
    specs = [spec for spec in table.drawn if table.per_token(spec) and inputs.tensors[spec.name] is not None]
    upstream = {spec.name for spec in table.upstream}
    active = torch.zeros(case.N, dtype=torch.bool, device=device)
    same = torch.zeros(case.N, dtype=torch.int64, device=device)
    tensors: dict[str, Tensor] = {}
    for spec in specs:
        tensor = inputs.tensors[spec.name]
        assert tensor is not None
        tensors[spec.name] = dense(tensor.detach().to(device))[0]
        rows = tensors[spec.name].reshape(case.N, -1)
        if spec.name in upstream:
            active |= (rows != 0).any(1)
        else:
            same = same * _PRIME + _digests(rows)
    if int(active.sum()) * _GAIN > case.N:
        return None
    # each active token is alone; of the others those with one digest are one
    _, kinds = torch.unique(same, return_inverse=True)
    alone = kinds.max() + 1 + torch.arange(case.N, device=device)
    groups, stands_for = torch.unique(torch.where(active, alone, kinds), return_inverse=True)
    if len(groups) * _GAIN > case.N:
        return None
    chosen = torch.full_like(groups, case.N).scatter_reduce(0, stands_for, torch.arange(case.N, device=device), "amin")
    chosen, order = chosen.sort()
    stands_for = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=device))[stands_for]
    if not all(_same(tensor.reshape(case.N, -1), chosen, stands_for, ~active) for tensor in tensors.values()):
        return None  # two rows with one digest
    taken = {name: tensor.reshape(case.N, *tensor.shape[count:])[chosen].unsqueeze(0) for name, tensor in tensors.items()}
    small = derived(inputs, {name: tensor.cpu() for name, tensor in taken.items()}, B=1, S=len(chosen))
    return Condensed(inputs=small, chosen=chosen, stands_for=stands_for, lead=(case.B, case.S))


_PRIME = 1099511628211
_CHUNK = 1 << 22  # elements compared at a time
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _digests(rows: Tensor) -> Tensor:
    """A 64-bit number for each row, of its bits: a sum of them, each times an odd number of its own."""
    width = rows.shape[1]
    factors = torch.randint(-(2**62), 2**62, (width,), generator=torch.Generator().manual_seed(width)) * 2 + 1
    factors = factors.to(rows.device)
    parts = []
    for part in torch.split(rows.view(_BITS[rows.element_size()]), max(1, _CHUNK // max(1, width))):
        bits = part.long()
        # the highest bits alone, a sign, would be lost in a product modulo 2**64; not in place: of float64 they are x's own
        bits = bits ^ (bits >> 29)
        parts.append((bits * factors).sum(1))
    return torch.cat(parts)


def _same(rows: Tensor, chosen: Tensor, stands_for: Tensor, judged: Tensor) -> bool:
    """Whether each `judged` row has the bits of the one that stands for it."""
    bits, step = rows.view(_BITS[rows.element_size()]), max(1, _CHUNK // max(1, rows.shape[1]))
    return all(
        bool(((bits[at : at + step] == bits[chosen[stands_for[at : at + step]]]).all(1) | ~judged[at : at + step]).all())
        for at in range(0, len(bits), step)
    )
