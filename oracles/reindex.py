"""Reindexing of tensors: another order or selection of a case's tokens, streams or gates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mhc.case import Case
from mhc.inputs import derived
from mhc.operator import STAGES, Operator, TensorSpec
from mhc.oracles.tolerances import Tolerances
from mhc.oracles.trial import Run, Trial, hash_below

OUTSIDE = "outside of the range of an axis of tokens"
"""Why a gate does not make a run with other numbers of tokens."""


@dataclass(frozen=True, kw_only=True)
class Reindexing:
    """A map from positions of a further run to those of the case.

    `tokens` has the axes of tokens: the case's token at each position of the run. `axes[symbol]` is the same for another
    axis. Sums over an axis change where an index is left out or repeated.
    """

    table: Operator
    tokens: Tensor | None = None
    axes: Mapping[str, Tensor] = field(default_factory=dict)

    def move(self, tensor: Tensor, spec: TensorSpec) -> Tensor:
        """Return the tensor of the further run for a tensor of the case."""
        moved = tensor
        if self.tokens is not None and self.table.per_token(spec):
            rest = moved.shape[self.tokens.dim() :]
            moved = moved.reshape(-1, *rest)[self.tokens.reshape(-1).to(moved.device)].reshape(*self.tokens.shape, *rest)
        for dim, symbol in enumerate(spec.symbols if self.axes else ()):
            if symbol in self.axes:
                moved = moved.index_select(dim, self.axes[symbol].to(moved.device))
        return moved.contiguous()

    def run(self, label: str, trial: Trial, stages: Sequence[str] = STAGES) -> Run:
        """Return the further run on the reindexed tensors."""
        inputs, specs = trial.inputs, self.table.argument_specs
        tensors = {name: None if t is None else self.move(t, specs[name]) for name, t in inputs.tensors.items()}
        lead = None if self.tokens is None else tuple(self.tokens.shape)
        saved = {name: self.move(tensor, specs[name]) for name, tensor in trial.reference.saved.items()}
        return Run(label=label, inputs=derived(inputs, tensors, lead=lead), saved=saved, stages=stages)

    def tolerances(self, trial: Trial) -> Tolerances:
        """Return the reindexed tolerances, valid for results that sum over no left-out or repeated token."""
        specs = self.table.result_specs
        return trial.allowed.map(lambda name, one: one.mapped(lambda tensor: self.move(tensor, specs[name])))


def one_batch(tokens: Tensor, case: Case) -> Tensor:
    """Return the indices of tokens along the last of the case's axes of tokens; the others have size 1."""
    return tokens.reshape(*(1,) * (len(case.lead) - 1), -1)


def shuffled(case: Case, purpose: str, count: int) -> Tensor:
    """Return a permutation of 0..count-1, a hash of the case and `purpose`; not the identity where count > 1."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(hash_below(case, purpose, 2**32)))
    return order.roll(1) if torch.equal(order, torch.arange(count)) else order


def index_map(blocks: Sequence[Sequence[str]], sizes: Mapping[str, int], symbol: str, order: Tensor) -> Tensor:
    """Return the index map of an axis, a concatenation of `blocks` of symbols, where `symbol` is permuted by `order`."""
    parts, begin = [], 0
    for block in blocks:
        shape = [sizes[name] for name in block]
        indices = begin + torch.arange(math.prod(shape)).reshape(shape)
        for dim, name in enumerate(block):
            if name == symbol:
                indices = indices.index_select(dim, order)
        parts.append(indices.reshape(-1))
        begin += math.prod(shape)
    return torch.cat(parts)
