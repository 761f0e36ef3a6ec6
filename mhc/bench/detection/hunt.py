"""How soon the oracles kill a mutant: drawn cases one after the other, in the worker process that a campaign would use."""

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import hypothesis
from hypothesis import Phase

from mhc.case import Case, ScheduleValue
from mhc.fuzz.campaign.size_budget import FIRST, FULL_EVERY
from mhc.fuzz.check.level import Level
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles import refusal
from mhc.oracles.gates import rare_number
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.load import SPEC
from mhc.oracles.mutants.record import BASES, Mutant
from mhc.oracles.verdict import Status, Verdict
from mhc.registry import load
from mhc.strategies.cases import cases
from mhc.strategies.reach import Reach
from mhc.strategies.rounds import ROUND, quiet


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is hunted: a mutant, a clean variant, or a base as it is.

    Attributes:
        spec: how a worker loads it. base: a key of `mhc.oracles.mutants.record.BASES`. clean: nothing may be said of it.
        device: where it runs. own: added to the seed of its cases; what has the same sees the same cases.
    """

    name: str
    spec: str
    base: str
    clean: bool
    device: str = "cpu"
    own: int = 0


def subject(mutant: Mutant, device: str = "cpu") -> Subject:
    """Return a mutant as a subject; each with a drawn threshold has cases of its own, so that it is a sample."""
    own = 0 if mutant.name in ALL else zlib.crc32(mutant.name.encode())
    spec = SPEC.format(mutant.name)
    return Subject(name=mutant.name, spec=spec, base=mutant.base, clean=mutant.clean, device=device, own=own)


def base_subject(base: str, device: str = "cpu") -> Subject:
    """Return the base itself, under the name of its kind."""
    place = BASES[base]
    spec = f"{place.package}.{place.module}:{place.attribute}"
    return Subject(name=base, spec=spec, base=base, clean=True, device=device)


@dataclass(frozen=True, kw_only=True)
class Hunt:
    """The hunt for one subject.

    Attributes:
        cases: drawn for it, up to the kill. refused: of these, not taken.
        first: the number of the case that killed it, from 1; None where it survived.
        seconds: from the first case to that one, without the start of the process.
        fired: for each oracle that failed, the number of the case where it first did.
        message: of an oracle that failed on the first one. case: that case.
        worst: the largest |error| / bound seen.
        fault: of the harness, if one ended the hunt.
        suites: what each of the fixed suites finds in it.
    """

    name: str
    cases: int = 0
    refused: int = 0
    first: int | None = None
    seconds: float = 0.0
    fired: Mapping[str, int] = field(default_factory=dict)
    message: str = ""
    case: str = ""
    worst: float = 0.0
    fault: str = ""
    suites: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def checked(self) -> int:
        return self.cases - self.refused


LIMIT = 60.0
"""Seconds that one run may take."""
ELEMENTS = 1 << 15
"""Of the largest tensor of a usual case."""
_MEMORY = {"cpu": Limits.memory, "cuda": 24 << 30}  # bytes of a worker on the host; cases on a GPU are larger


@dataclass(frozen=True)
class Share:
    """The size of a round of one reach. cases: in a round. elements: of the largest tensor."""

    cases: int
    elements: int


SHARES: Mapping[str, Mapping[Reach, Share]] = {
    "quick": {Reach.STRETCHED: Share(ROUND, 1 << 18), Reach.MODEL: Share(3, 1 << 20)},
    "slow": {Reach.STRETCHED: Share(2, 1 << 13), Reach.MODEL: Share(1, 1 << 15)},
    "cuda": {Reach.STRETCHED: Share(ROUND, 1 << 21), Reach.MODEL: Share(ROUND, 1 << 25)},
}
"""Of rounds that are not usual: about a tenth of the time each."""


_REACHES = {3: Reach.STRETCHED, 8: Reach.STRETCHED, 6: Reach.MODEL}
"""Of ten rounds; a campaign goes by a clock (`size_budget`), and a hunt's cases are drawn before any of them ran."""


def reach(number: int) -> Reach:
    """Return the reach of the `number`-th round, from 1."""
    return _REACHES.get(number % 10, Reach.USUAL)


def drawn_for(base: str, count: int, seed: int, device: str = "cpu", largest: int | None = None) -> list[Case]:
    """Draw the cases of a base's hunts. In an interpreter they are small but for every eighth round, as in a campaign.

    Args:
        largest: elements that a hunt has room for.
    """
    quick, operator = BASES[base].quick, BASES[base].operator
    shares = SHARES["cuda" if device == "cuda" else "quick" if quick else "slow"]
    if largest is not None:
        shares = {kind: replace(one, elements=min(one.elements, largest)) for kind, one in shares.items()}
    space = load(base_subject(base).spec).schedule
    return draw(count, seed, space, ELEMENTS if quick else FIRST, shares, operator=operator)


def draw(
    count: int,
    seed: int,
    space: Mapping[str, Sequence[ScheduleValue]],
    usual_elements: int = ELEMENTS,
    shares: Mapping[Reach, Share] = MappingProxyType({}),
    *,
    operator: str = "mhc_pre",
) -> list[Case]:
    """Draw `count` cases of an operator by the campaign's strategy, in short rounds with the seeds `seed`, `seed + 1`, ...

    The first of a round is always the simplest of its reach, and kept once. Schedules are out of `space`, under the name "";
    `named` puts an implementation's there.

    Args:
        shares: what rounds draw that reach further (`reach`); without one a round is usual.
    """
    drawn: list[Case] = []
    simplest: set[Case] = set()
    number = 0
    while len(drawn) < count:
        number += 1
        reached = reach(number) if reach(number) in shares else Reach.USUAL
        share = shares.get(reached, Share(ROUND, ELEMENTS if number % FULL_EVERY == 0 else usual_elements))
        found = _round(seed + number - 1, space, reached, share, operator)
        drawn += found[1:] if found[0] in simplest else found
        simplest.add(found[0])
    return drawn[:count]


def _round(
    seed: int, space: Mapping[str, Sequence[ScheduleValue]], reached: Reach, share: Share, operator: str
) -> list[Case]:
    """Draw one round."""
    drawn: list[Case] = []

    def keep(case: Case) -> None:
        drawn.append(case)

    strategy = cases(operator=operator, max_elements=share.elements, spaces={"": space} if space else {}, reach=reached)
    # the first of a round is the simplest, so that a short one has one more
    settings = quiet(share.cases + (reached is not Reach.USUAL), phases=(Phase.generate,))
    hypothesis.seed(seed)(settings(hypothesis.given(strategy)(keep)))()
    return drawn


def named(case: Case, name: str) -> Case:
    """Return a drawn case with its schedule under the implementation's name."""
    return replace(case, schedules={name: case.schedules[""]}) if case.schedules else case


def judged(
    worker: WorkerClient, drawn: Sequence[Case], seconds: float
) -> Iterator[tuple[int, Case, Sequence[Verdict], float]]:
    """Yield the number of each case, from 1, the case, its verdicts, and the seconds since the first was handed over.

    It ends when the worker has retired, or so many seconds have passed.
    """
    started = None
    for number, one in enumerate(drawn, 1):
        if worker.retired or (started is not None and time.monotonic() - started > seconds):
            return
        case = named(one, worker.implementation.name)
        worker.judged = None  # the one before, where this case ends the worker
        worker.start(case, Level.DRAWN, rare_gate=rare_number(number - 1))
        started = time.monotonic() if started is None else started
        verdicts = worker.finish()
        yield number, worker.judged or case, verdicts, time.monotonic() - started


def hunt(
    prey: Subject, drawn: Sequence[Case], *, limit: float = LIMIT, seconds: float = float("inf"), gpu_share: float = 1.0
) -> Hunt:
    """Check a mutant on the drawn cases, as a campaign would, until one kills it.

    For the matrix that case is then judged by every gate, where the base is quick. A clean variant is checked on all
    cases, whatever the verdicts.

    Args:
        limit: seconds that one run may take. seconds: that all together may. gpu_share: of a GPU's memory.
    """
    implementation = load(prey.spec)
    limits = Limits(memory=_MEMORY[prey.device], gpu_share=gpu_share)
    worker = WorkerClient(prey.spec, implementation, prey.device, limit=limit, limits=limits)
    result = Hunt(name=prey.name)
    try:
        for number, case, verdicts, spent in judged(worker, drawn, seconds):
            result = _with(result, number, case, verdicts, spent)
            if result.first is not None and not prey.clean:
                if BASES[prey.base].quick and not worker.retired:
                    worker.start(case, Level.FULL)
                    result = replace(result, fired={**_failing(worker.finish(), number), **result.fired})
                break
    except HarnessError as fault:
        result = replace(result, fault=str(fault))
    finally:
        worker.stop()
    return result


def _failing(verdicts: Sequence[Verdict], number: int) -> dict[str, int]:
    """Return the oracles that failed, by name, each with the number of the case."""
    return dict.fromkeys(sorted({verdict.oracle for verdict in verdicts if verdict.status is Status.FAIL}), number)


def _with(result: Hunt, number: int, case: Case, verdicts: Sequence[Verdict], seconds: float) -> Hunt:
    """Return the hunt with one more case."""
    result = replace(
        result,
        cases=number,
        refused=result.refused + refusal.refused(verdicts),
        worst=max([result.worst, *(verdict.ratio for verdict in verdicts if verdict.ratio is not None)]),
        fired={**_failing(verdicts, number), **result.fired},
    )
    first = next((verdict for verdict in verdicts if verdict.status is Status.FAIL), None)
    if first is None or result.first is not None:
        return result
    message = f"{first.subject}: {first.symptom} ({first.oracle}): {first.message}"
    return replace(result, first=number, seconds=seconds, message=message, case=case.json)
