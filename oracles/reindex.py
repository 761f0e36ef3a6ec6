"""Renaming of indices: which token, stream or gate of a case each position of another run's tensors holds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.case import Case
from mhc.inputs import derived
from mhc.observation import STAGES
from mhc.operator import Operator, TensorSpec
from oracles.bound import Tolerances
from oracles.trial import Run, Trial, hash_below


@dataclass(frozen=True, kw_only=True)
class Reindexing:
    """`tokens[i]` is the token of the case at position i of the run, [B', S']; `axes[symbol]` the same for another axis.

    Where a token or an index is left out or occurs twice, sums over it change: see `Reindexing.whole`.
    """

    table: Operator
    tokens: Tensor | None = None
    axes: Mapping[str, Tensor]

    def move(self, tensor: Tensor, spec: TensorSpec) -> Tensor:
        """The tensor that the run has in place of `tensor`."""
        moved = tensor
        if self.tokens is not None and self.table.per_token(spec):
            rest = moved.shape[len(self.table.tokens) :]
            moved = moved.reshape(-1, *rest)[self.tokens.reshape(-1).to(moved.device)].reshape(*self.tokens.shape, *rest)
        for dim, symbol in enumerate(spec.symbols):
            if symbol in self.axes:
                moved = moved.index_select(dim, self.axes[symbol].to(moved.device))
        return moved.contiguous()

    def run(self, label: str, trial: Trial, stages: Sequence[str] = STAGES) -> Run:
        """The case's tensors, moved."""
        inputs, specs = trial.inputs, self.table.argument_specs
        tensors = {name: None if t is None else self.move(t, specs[name]) for name, t in inputs.tensors.items()}
        B, S = (None, None) if self.tokens is None else self.tokens.shape
        saved = {name: self.move(tensor, specs[name]) for name, tensor in trial.reference.saved.items()}
        return Run(label=label, inputs=derived(inputs, tensors, B=B, S=S), saved=saved, stages=stages)

    def tolerances(self, trial: Trial) -> Tolerances:
        """What the run's outputs and gradients must be; right for each that no left-out or repeated token is summed in."""
        specs = self.table.result_specs
        return trial.allowed.map(lambda name, one: one.mapped(lambda tensor: self.move(tensor, specs[name])))


def shuffled(case: Case, purpose: str, count: int) -> Tensor:
    """A permutation of 0..count-1 that the case and a purpose determine; never the identity where there is another."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(hash_below(case, purpose, 2**32)))
    return order.roll(1) if torch.equal(order, torch.arange(count)) else order


def index_map(blocks: Sequence[Sequence[str]], sizes: Mapping[str, int], symbol: str, order: Tensor) -> Tensor:
    """How an axis that is a concatenation of `blocks`, each a product of symbols, is moved where `symbol` is by `order`."""
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
