"""Calls of a reference on small tensors, to see which shapes it takes and which sizes must agree."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mhc.fuzz.cli.init.hints import Hint

Shapes = Mapping[str, tuple[int, ...]]
_LARGEST = 2**22
"""Elements of a tensor in a call, at most."""
_LONGEST = 300
"""The sum of the sizes of all axes, at most twice this, where a size must be a multiple of 64."""
_CALLS = 3000
"""Calls, at most."""


@dataclass
class Trials:
    """Calls of one function.

    Attributes:
        kinds: the tensors, in order, each "tensor" or "index".
        fixed: values of the other arguments.
        last: what the last call that failed raised.
    """

    function: Callable[..., Any]
    kinds: dict[str, str]
    fixed: Mapping[str, Any]
    last: str = ""
    calls: int = 0
    seed: int = field(default=1)

    def inputs(self, shapes: Shapes, largest: Mapping[str, int] | None = None) -> dict[str, Tensor]:
        """Return random tensors of these shapes: floats from 0.5 to 1.5, integers from 0 to `largest`, which is 0."""
        generator, made = torch.Generator().manual_seed(self.seed), {}
        for name, shape in shapes.items():
            if self.kinds[name] == "index":
                end = (largest or {}).get(name, 0) + 1
                made[name] = torch.randint(max(end - 1, 0), end, shape, generator=generator)
            else:
                made[name] = torch.rand(shape, generator=generator, dtype=torch.float64).add_(0.5).float()
        return made

    def call(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...] | None:
        """Return the outputs; None where the call fails, or does not return tensors."""
        self.calls += 1
        if self.calls > _CALLS:
            self.last = f"no shapes found in {_CALLS} calls"
            return None
        try:
            with torch.no_grad():
                results = self.function(**{name: one.clone() for name, one in tensors.items()}, **self.fixed)
        except (Exception, SystemExit) as error:
            self.last = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            return None
        found = tuple(results) if isinstance(results, (tuple, list)) else (results,)
        if not found or not all(isinstance(one, Tensor) for one in found):
            self.last = f"it returned {', '.join(type(one).__name__ for one in found) or 'nothing'}, not tensors"
            return None
        return found

    def works(self, shapes: Shapes) -> bool:
        """Return whether the function can be called in these shapes."""
        return max(map(math.prod, shapes.values()), default=0) <= _LARGEST and self.call(self.inputs(shapes)) is not None


@dataclass(frozen=True)
class Start:
    """Shapes in which a function can be called: each axis has `grain` times its factor in `factors` times a number."""

    ranks: Mapping[str, int]
    grain: int
    factors: Mapping[tuple[str, int], int]

    @property
    def axes(self) -> list[tuple[str, int]]:
        """Return all axes, as the name of a tensor and a position."""
        return [(name, at) for name, rank in self.ranks.items() for at in range(rank)]

    @property
    def equal(self) -> dict[str, tuple[int, ...]]:
        """Return shapes in which all axes have one size."""
        return self.shapes(dict.fromkeys(self.axes, 2 * self.grain))

    def shapes(self, sizes: Mapping[tuple[str, int], int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes for a size of each axis, without its factor."""
        return {
            name: tuple(sizes[name, at] * self.factors.get((name, at), 1) for at in range(rank))
            for name, rank in self.ranks.items()
        }


def start(trials: Trials, hints: Mapping[str, Hint]) -> Start | None:
    """Return shapes that work: all sizes equal, then one axis twice as long as the others; None where none was found."""
    names, kinds = list(trials.kinds), dict(trials.kinds)
    flips: list[tuple[str, ...]] = [(), *((name,) for name in names if not hints[name].said), *((name,) for name in names)]
    for flip in dict.fromkeys(flips):
        trials.kinds = {name: _other(kind) if name in flip else kind for name, kind in kinds.items()}
        candidates, first = _candidates(trials.kinds, hints), None
        for ranks, grain in itertools.product(candidates, (6, 8, 64)):
            found = Start(ranks, grain, {})
            if sum(ranks.values()) * grain > _LONGEST or not trials.works(found.equal):
                continue
            # an output of more axes than any input has comes from sizes that were not meant to meet
            if _output_rank(trials, found) <= max(ranks.values()):
                return found
            first = first or found
        if first is not None:
            return first
    trials.kinds = kinds
    for ranks in _candidates(kinds, hints)[:20]:
        for axis, factor in itertools.product(Start(ranks, 6, {}).axes, (2, 3)):
            found = Start(ranks, 6, {axis: factor})
            if trials.works(found.shapes(dict.fromkeys(found.axes, 12))):
                return found
    return None


def _candidates(kinds: Mapping[str, str], hints: Mapping[str, Hint]) -> list[dict[str, int]]:
    """Return numbers of axes for all tensors, most likely first."""
    usual = max({one.rank for one in hints.values() if one.rank} or {2})
    choices = [_ranks(hints[name], kind, usual, first=at == 0) for at, (name, kind) in enumerate(kinds.items())]
    order = sorted(itertools.product(*(enumerate(some) for some in choices)), key=lambda one: sum(at for at, _ in one))
    return [{name: rank for name, (_, rank) in zip(kinds, one, strict=True)} for one in order[:60]]


def _output_rank(trials: Trials, found: Start) -> int:
    return max(one.dim() for one in trials.call(trials.inputs(found.equal)) or ())


def _ranks(hint: Hint, kind: str, usual: int, *, first: bool) -> list[int]:
    """Return the numbers of axes to try, most likely first."""
    if hint.rank is not None:
        return [hint.rank]
    vector = (
        kind == "index"
        or any(part in hint.name for part in ("weight", "bias", "gamma", "beta", "scale"))
        or hint.name in "wb"
    )
    if kind == "index" or (vector and not first):
        tried = [1, usual, 2, 3]
    else:
        tried = [usual, 2, 3, 1, 4] if first else [usual, 1, 2, 3, 4]
    if hint.flattened:
        tried = [2, *tried]
    return [one for one in dict.fromkeys(tried) if one >= hint.least] or [hint.least]


def _other(kind: str) -> str:
    return "tensor" if kind == "index" else "index"


def groups(trials: Trials, found: Start) -> list[list[tuple[str, int]]]:
    """Return the axes in groups whose sizes must agree: the smallest sets that can be changed together, and only so."""
    base, other = 2 * found.grain, 3 * found.grain
    parts: list[list[tuple[str, int]]] = []
    free = found.axes
    while free:
        first, *others = free
        sets = ([first, *some] for size in range(len(others)) for some in itertools.combinations(others, size))
        group = next(
            (
                one
                for one in sets
                if trials.works(found.shapes({axis: other if axis in one else base for axis in found.axes}))
            ),
            free,
        )
        parts.append(group)
        free = [one for one in free if one not in group]
    return parts


def divisor(trials: Trials, found: Start, parts: Sequence[Sequence[tuple[str, int]]], at: int) -> int | None:
    """Return the number of which the sizes of a group must be a multiple, 1 for none; None if it is not found."""

    def works(size: int) -> bool:
        return trials.works(found.shapes({one: size if one in parts[at] else 2 * found.grain for one in found.axes}))

    for number in (1, 2, 3, 4, 8, 16, 32, 64, 128):
        if all(works(number * times) for times in (5, 7)):
            return number
    return None


def largest_index(trials: Trials, shapes: Shapes, name: str) -> int | None:
    """Return the size at which an index of a tensor stops to be valid: with it the call fails, with one less not."""
    for size in sorted({one for shape in shapes.values() for one in shape}, reverse=True):
        below, at = (trials.call(trials.inputs(shapes, {name: value})) for value in (size - 1, size))
        if below is not None and at is None:
            return size
    return None


def independent(trials: Trials, shapes: Shapes, axes: Mapping[str, int]) -> bool:
    """Return whether positions on an axis are independent: exchanged and left out, the outputs change alike.

    Args:
        axes: the position of the axis in each tensor that has it.
    """
    tensors = trials.inputs(shapes)
    whole = trials.call(tensors)
    at = next(iter(axes.values()))
    size = shapes[next(iter(axes))][at]
    order = torch.arange(size - 1, 0, -1)  # all but the first
    part = trials.call({name: one.index_select(axes[name], order) if name in axes else one for name, one in tensors.items()})
    if whole is None or part is None:
        return False
    with suppress(RuntimeError, IndexError):
        return all(
            len(one.shape) > at
            and one.shape[at] == size
            and torch.allclose(one.index_select(at, order).double(), two.double(), rtol=1e-4, atol=1e-6, equal_nan=True)
            for one, two in zip(whole, part, strict=True)
        )
    return False
