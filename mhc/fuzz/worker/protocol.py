"""The messages between the main process and its workers: plain data, small, picklable."""

import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from mhc.fuzz.check.differential import PeerResult
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Finding
from mhc.implementation import text_of
from mhc.oracles.verdict import Verdict
from mhc.strategies.reach import Reach

STACKS = signal.SIGUSR2
"""The signal at which a worker writes the stacks of its threads."""

_LONGEST = 4000  # characters of a text that is sent and kept


@dataclass(frozen=True, kw_only=True)
class Check:
    """Judge one case; the answer is `Begun`, `Running` for each call, and `Judged`.

    Attributes:
        measure: the verdicts carry the errors of each output against float64.
    """

    case: str
    depth: Level
    measure: bool = False
    rare_gate: int = -1


@dataclass(frozen=True, kw_only=True)
class Round:
    """Draw cases and judge them; the answer is `Begun`, `Running` and `Checked` for each, and `Done`.

    Attributes:
        seed: of the round; the same seed draws the same cases.
        count: cases to draw at most. skip: how many of them are only drawn, since they ran before.
        again: those of them that are judged all the same: they were begun, and then another one ended the process.
        rare: labels of regions to look for; with them a round is longer and guided.
        reach: how far sizes reach.
        like: JSON of a case; those of the round differ from it in nothing that compiled programs depend on, except tokens.
        alike: nor do numbers of tokens differ in what programs may depend on (`mhc.strategies.reach.token_class`).
        fresh: the worker looks for a case beside the regions `covered`, and the cases of the round are alike to that.
        until_compiled: what follows so many cases that compile something is not judged; 0: all cases are.
        found: minimal findings on programs, of all workers; they are not minimised again.
        rare_gate: the number of the rare gate (`mhc.oracles.gates.RARE`) that judges the first case behind the `SMALL` ones;
            the next one judges the next case, and so on; -1: none does.
    """

    seed: int
    count: int
    skip: int = 0
    again: frozenset[int] = frozenset()
    max_elements: int = 1 << 15
    rare: frozenset[str] | None = None
    like: str | None = None
    alike: bool = False
    fresh: bool = False
    covered: frozenset[str] = frozenset()
    until_compiled: int = 0
    reach: Reach = Reach.USUAL
    rare_gate: int = -1
    found: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Observe:
    """Run one case and judge nothing; the answer is `Begun`, `Running` and `PeerResult`."""

    case: str


@dataclass(frozen=True, kw_only=True)
class Minimise:
    """Minimise a finding; the answer is `Minimised` or `Fault`. An executor does it: each case needs a process that may die.

    Attributes:
        checks, seconds: when to stop.
    """

    finding: Finding
    checks: int
    seconds: float


Request = Check | Round | Observe


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The process has loaded its implementation.

    Attributes:
        stacks: descriptor of the file to which the process writes the stacks of its threads on `STACKS`.
        programs: the same for the number of programs that it has begun in Triton's interpreter.
    """

    stacks: int | None = None
    programs: int | None = None


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A case is about to run. number: in its round, from 0."""

    case: str
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class Running:
    """The implementation is about to be called, for the `nth` time in this case."""

    nth: int


@dataclass(frozen=True, kw_only=True)
class Ran:
    """The call that was about to be made has ended, and its results are judged."""


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """The process waits for a peer; sent again and again."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of the case that was begun last.

    Attributes:
        case: its JSON, without the schedule that it pinned where that was refused.
        refused: why it was; "" where it was not.
        findings: one for each failing verdict.
        ratios: the largest |error| / bound, by output. seconds: by what they were spent on. compiled: programs.
        compared: with which implementations, and with which not and why, in words that are counted.
        sizes: of the case by symbol, where it was judged.
        outcomes: of each output and gradient that the case should have, what became of it (`mhc.oracles.judge.outcomes`).
    """

    case: str
    refused: str = ""
    findings: tuple[Finding, ...] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)
    regions: frozenset[str] = frozenset()
    seconds: Mapping[str, float] = field(default_factory=dict)
    compiled: int = 0
    compared: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Done:
    """A round has ended.

    drawing: seconds in strategies. left_out: programs that were drawn and not judged. lost: the device is, and the process
    ends too.
    """

    drawing: float = 0.0
    left_out: int = 0
    lost: bool = False


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The answer to a `Check`. case: JSON of the case that was judged, without a schedule that was refused."""

    case: str
    verdicts: tuple[Verdict, ...]
    compiled: int = 0


@dataclass(frozen=True, kw_only=True)
class Minimised:
    """The answer to `Minimise`: the finding on the simplest case, with how often that fails.

    It is another one, of the sequence gate, where its case is right by itself and wrong after others.
    """

    finding: Finding


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An exception of the harness itself, which ends the process.

    Attributes:
        trace: its traceback.
    """

    message: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return the fault of an exception."""
        trace = "".join(traceback.format_tb(error.__traceback__))
        return cls(message=f"{type(error).__name__}: {text_of(error)}"[:_LONGEST], trace=trace[-_LONGEST:])


Message = Ready | Begun | Running | Ran | Comparing | Checked | Done | Judged | PeerResult | Minimised | Fault
