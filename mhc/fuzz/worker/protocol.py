"""What the main process and its workers say to one another. Plain data, small, picklable."""

import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from mhc.fuzz.check.level import Depth
from mhc.fuzz.findings.condition import Condition
from mhc.fuzz.findings.known_issues import Known
from mhc.implementation import Implementation, text_of
from mhc.observation import Failure as Raised
from oracles.verdict import Verdict
from strategies.reach import Reach

STACKS = signal.SIGUSR2
"""The signal at which a worker writes down what its threads do."""

_LONGEST = 4000  # characters of a text that is sent and kept


@dataclass(frozen=True, kw_only=True)
class Partner:
    """An implementation that others are compared with: what their processes must know of it, which never load it.

    Attributes:
        spec: how it was named on the command line.
    """

    spec: str
    name: str
    variables: Mapping[str, str]
    recomputes_forward: bool = False

    @classmethod
    def of(cls, spec: str, implementation: Implementation) -> Self:
        return cls(
            spec=spec,
            name=implementation.name,
            variables=dict(implementation.env),
            recomputes_forward=implementation.recomputes_forward,
        )


@dataclass(frozen=True, kw_only=True)
class Check:
    """Judge one case; the answer is `Begun`, `Running` for each call, and `Judged`.

    Attributes:
        measure: tell of each output how far it is from float64 as well.
    """

    case: str
    depth: Depth
    measure: bool = False


@dataclass(frozen=True, kw_only=True)
class Round:
    """Draw cases and judge them; the answer is `Begun`, `Running`, `Checked` for each, `Found` for each bug, and `Done`.

    Attributes:
        seed: of the round; the same seed draws the same cases.
        count: cases to draw at most. skip: how many of them are only drawn, since they ran before.
        known: ids of fingerprints that are not raised again. ledger: what tells fingerprints apart by their cases.
        rare: labels of regions to look for; with them a round is longer and guided.
        reach: how far sizes reach.
        like: JSON of a case; those of the round differ from it in nothing that compiled programs depend on.
        shrink: seconds that shrinking may take.
    """

    seed: int
    count: int
    skip: int = 0
    max_elements: int = 1 << 15
    known: frozenset[str] = frozenset()
    ledger: tuple[Known, ...] = ()
    rare: frozenset[str] | None = None
    like: str | None = None
    reach: Reach = Reach.USUAL
    shrink: float = 20.0


@dataclass(frozen=True, kw_only=True)
class Observe:
    """Run one case and judge nothing; the answer is `Begun`, `Running` and `Observed`."""

    case: str


Request = Check | Round | Observe


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The process has loaded its implementation.

    Attributes:
        stacks: the descriptor of a file of the process to which it writes what its threads do when `STACKS` reaches it.
    """

    stacks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A case is about to run. number: in its round, from 0; -1 where it is a probe of shrinking."""

    case: str
    number: int = -1


@dataclass(frozen=True, kw_only=True)
class Running:
    """The implementation is about to be called, for the `nth` time in this case."""

    nth: int


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """The process waits for the one that it is compared with; said again and again."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failing verdict, in short. outside: known conditions that its case does not meet, as in `Fingerprint`."""

    oracle: str
    subject: str
    symptom: str
    message: str
    against: str = ""
    outside: tuple[Condition, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What became of the case that was begun last.

    Attributes:
        case: it, without the schedule that it pinned where that was refused.
        probe: it was a probe of shrinking.
        ratios: the largest |error| / bound, by output. seconds: by what they were spent on. compiled: programs.
        compared: with which implementations, and with which not and why, in words that are counted.
        sizes: of the case by symbol, where it was judged.
        outcomes: of each output and gradient that the case should have, what became of it (`oracles.judge.outcomes`).
    """

    case: str
    refused: bool = False
    probe: bool = False
    failures: tuple[Failure, ...] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)
    regions: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict)
    compiled: int = 0
    compared: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A bug of this round at its smallest."""

    case: str
    failure: Failure


@dataclass(frozen=True, kw_only=True)
class Done:
    """A round has ended. drawing: seconds in strategies. lost: the process can do nothing more, and ends too."""

    drawing: float = 0.0
    lost: bool = False


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The answer to a `Check`."""

    verdicts: tuple[Verdict, ...]
    compiled: int = 0


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The answer to `Observe`. tensors: outputs and gradients, pickled: PyTorch would send them through shared memory."""

    refused: str | None
    failure: Raised | None
    tensors: bytes


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An exception out of the harness itself, which ends the process.

    Attributes:
        trace: where it was raised.
    """

    message: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """The fault that an exception is."""
        trace = "".join(traceback.format_tb(error.__traceback__))
        return cls(message=f"{type(error).__name__}: {text_of(error)}"[:_LONGEST], trace=trace[-_LONGEST:])


Message = Ready | Begun | Running | Comparing | Checked | Found | Done | Judged | Observed | Fault
