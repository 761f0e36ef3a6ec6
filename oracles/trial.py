"""Records that gates share: `Trial`, one case with its first run and tolerances, and `Gate`, `Plan` and `Run`."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from mhc.case import Case
from mhc.declaration import Autograd
from mhc.declared import AS_REFERENCE, Declared
from mhc.dense import bits
from mhc.inputs import Inputs
from mhc.memory import NAN_FILL
from mhc.observation import Observation
from mhc.operator import STAGES
from mhc.oracles.tolerances import Tolerances
from mhc.oracles.verdict import Verdict
from mhc.reference import Reference
from mhc.triton_lockstep import Order


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One case on one implementation: its inputs, its reference and tolerances, and the observation of its first run.

    Attributes:
        declared: by the implementation; gates that derive their own tolerances need it.
        dtypes: of cases that the implementation takes.
        by_autograd: the implementation's backward is autograd's.
    """

    inputs: Inputs
    reference: Reference
    allowed: Tolerances
    observation: Observation
    declared: Declared = AS_REFERENCE
    dtypes: Sequence[str] = ()
    by_autograd: bool = False

    @property
    def case(self) -> Case:
        return self.inputs.case


@dataclass(frozen=True, kw_only=True)
class Run:
    """One further run of the same implementation. Gates that request the same label share one run.

    Attributes:
        saved: the values that the backward receives for the forward's saved tensors.
        fill: the byte that fills uninitialised memory.
        late: the inputs are written late on the current stream (`mhc.stream_order`).
        autograd: forward and backward run together and use autograd so, in place of the stages.
        before: allocations by name, whose values the same tensors have in a call before this one.
        order: in Triton's interpreter, of the programs of each launch (`mhc.triton_lockstep`).
    """

    label: str
    inputs: Inputs
    saved: Mapping[str, Tensor]
    stages: Sequence[str] = STAGES
    fill: int = NAN_FILL
    late: bool = False
    autograd: Autograd | None = None
    before: Mapping[str, Tensor] | None = None
    order: Order | None = None


LARGE = 1024
"""A case is large where some symbol has at least this size."""

Judge = Callable[[Mapping[str, Observation]], list[Verdict]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The further runs that a gate requests, and the function that judges their observations, by the runs' labels.

    Attributes:
        probes: the runs are of other cases. A refusal or failure among them is passed to `judge` and not reported.
    """

    judge: Judge
    runs: Sequence[Run] = ()
    probes: bool = False


@dataclass(frozen=True, kw_only=True)
class Gate:
    """A check that may need further runs.

    Attributes:
        name: its name in verdicts and fingerprints.
        variant: distinguishes gates that share a name.
        plan: returns the plan for a trial, or verdicts where no run is needed.
        every: in a campaign the gate judges one case in `every`, chosen by a hash of the case.
        every_large: the same for large cases; None for `every`.
    """

    name: str
    plan: Callable[[Trial], Plan | list[Verdict]]
    every: int = 1
    variant: str = ""
    every_large: int | None = None

    def drawn(self, case: Case) -> bool:
        """Return whether this gate judges `case` in a campaign."""
        large = max(case.sizes.values()) >= LARGE
        every = self.every_large if large and self.every_large is not None else self.every
        return hash_below(case, f"{self.name} {self.variant}", every) == 0


def hash_below(case: Case, purpose: str, many: int) -> int:
    """Return a number below `many`, a hash of the case and of `purpose`."""
    digest = hashlib.sha256(f"{purpose} {case.json}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % many


def results(observation: Observation) -> dict[str, Tensor | None]:
    """Return outputs and gradients in one mapping."""
    return {**observation.outputs, **observation.gradients}


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    """Return where two tensors of one shape and dtype hold the same bits, NaN included."""
    return bits(a.contiguous()) == bits(b.contiguous())
