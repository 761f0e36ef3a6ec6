"""What gates work with: a trial (one case, run once and with its tolerances) and the further runs that a gate asks for."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.case import Case
from mhc.inputs import Inputs
from mhc.memory import NAN_FILL
from mhc.observation import STAGES, Observation
from mhc.reference import Reference
from oracles.bound import Tolerances
from oracles.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One case on one implementation: what it was given, what is right, and what it did.

    Attributes:
        recomputes_forward: the implementation's; a gate that derives tolerances of its own must know it.
    """

    inputs: Inputs
    reference: Reference
    allowed: Tolerances
    observation: Observation
    recomputes_forward: bool = False

    @property
    def case(self) -> Case:
        return self.inputs.case


@dataclass(frozen=True, kw_only=True)
class Run:
    """One more run of the same implementation. Two gates that ask for the same label share one run.

    Attributes:
        saved: what the backward is given for the forward's saved tensors.
        fill: the byte in memory that is allocated and not initialised.
        late: the inputs come late on the current stream (`mhc.stream_order`).
    """

    label: str
    inputs: Inputs
    saved: Mapping[str, Tensor]
    stages: Sequence[str] = STAGES
    fill: int = NAN_FILL
    late: bool = False


LARGE = 1024
"""A case is large from this size of some symbol on."""

Judge = Callable[[Mapping[str, Observation]], list[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a gate wants to see, and how it judges that: from the observations by the runs' labels. Without runs, of none.

    Attributes:
        probes: the runs are of other cases. One that is refused or fails is judged with the others, and is not told of.
    """

    judge: Judge
    runs: Sequence[Run] = ()
    probes: bool = False


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A gate.

    Attributes:
        name: what verdicts and fingerprints call it.
        variant: what it does in particular, where several gates have one name.
        plan: the plan for a trial, or the verdicts themselves where it does not apply.
        every: in a campaign it judges one case in so many, since running costs; which ones, the case itself decides.
        every_large: the same for large cases; None for `every`.
    """

    name: str
    plan: Callable[[Trial], Plan | list[Verdict]]
    every: int = 1
    variant: str = ""
    every_large: int | None = None

    def drawn(self, case: Case) -> bool:
        """Whether `case` is one of those that this gate judges in a campaign."""
        large = max(case.sizes.values()) >= LARGE
        every = self.every_large if large and self.every_large is not None else self.every
        return hash_below(case, f"{self.name} {self.variant}", every) == 0


def hash_below(case: Case, purpose: str, many: int) -> int:
    """A number below `many` that the case and a purpose determine."""
    digest = hashlib.sha256(f"{purpose} {case.json}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % many


def results(observation: Observation) -> dict[str, Tensor | None]:
    """Outputs and gradients together."""
    return {**observation.outputs, **observation.gradients}


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Where two tensors of one shape and dtype hold the same bits, NaN included."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.contiguous().view(integers) == b.contiguous().view(integers)
