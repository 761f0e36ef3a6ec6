"""Whether reported bugs of TileLang are found among drawn programs, from a fresh seed, and after how long.

One hunt serves all: rounds are drawn for each of a few targets in turn, and every failure is compared with the bugs that are
not found yet. Programs that may show a reported bug are judged here, which a campaign does not do.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock

from mhc.bench.apart import Ended, run_apart
from mhc.bench.programs.evaluators import sample
from mhc.bench.programs.hunt import forked
from mhc.bench.programs.tracker_bugs import COMPILED, REPORTED, C, Reported
from mhc.fuzz.check.program_check import check, check_all
from mhc.oracles.verdict import Status
from mhc.programs.grammar import Program
from mhc.programs.minimise import search
from mhc.programs.targets import TARGETS, ProgramTarget
from mhc.strategies.programs.programs import CPU_BEFORE_VECTORS, GPU
from mhc.strategies.programs.statements import Features
from mhc.strategies.rounds import ROUND

_VECTORS = replace(CPU_BEFORE_VECTORS, loops=("vectorized", "serial", "unroll"))
ROUNDS: tuple[tuple[str, Features], ...] = (
    (C, CPU_BEFORE_VECTORS),
    (C, _VECTORS),
    (C, _VECTORS),
    (COMPILED, GPU),
)
"""For which target a round is, and what is drawn, in turn. The oldest releases compile few vectorised loops on a CPU."""
_LIMIT = 300.0  # seconds for a round
_CHECKS, _SECONDS = 400, 15.0  # to minimise


@dataclass(frozen=True, kw_only=True)
class Found:
    """A bug that a drawn program shows.

    Attributes:
        number: of its issue. programs: drawn until then. seconds: since the hunt began. text: the minimal program's JSON.
    """

    number: int
    programs: int
    seconds: float
    text: str


@dataclass(kw_only=True)
class Tracked:
    """What came of a hunt.

    Attributes:
        found: by the number of the issue. programs: drawn. failures: programs that fail, for whatever reason.
        lost: rounds in which a program ended the process, so that each was judged in one of its own.
    """

    found: dict[int, Found] = field(default_factory=dict)
    programs: int = 0
    failures: int = 0
    lost: int = 0
    seconds: float = 0.0


def in_release(spec: str, bugs: Sequence[Reported] = REPORTED) -> dict[int, bool]:
    """Return which bugs a release has, by their examples.

    Args:
        spec: its target for C, perhaps with the folder of the release. The others are those of the same folder.
    """
    _, at, site = spec.partition("@")
    return {one.number: _has(f"{one.target}{at}{site}", one) for one in bugs}


def _has(spec: str, bug: Reported) -> bool:
    try:
        return bool(run_apart(_shows, spec, bug.number, limit=_LIMIT))
    except Ended:
        return False


def _shows(target: ProgramTarget, number: int) -> bool:
    bug = next(one for one in REPORTED if one.number == number)
    return any(bug.is_told(one.symptom) for one in check(target, bug.example) if one.status is Status.FAIL)


def track(
    bugs: Sequence[Reported], seed: int, seconds: float, jobs: int, show: Callable[[str], None] = lambda line: None
) -> Tracked:
    """Hunt the bugs until all are found or the time is over."""
    hunt = _Hunt(bugs, seed, seconds, show)
    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(hunt.work) for _ in range(jobs)]:
            future.result()
    hunt.tracked.seconds = hunt.passed
    return hunt.tracked


class _Hunt:
    """A hunt, on which several threads work."""

    def __init__(self, bugs: Sequence[Reported], seed: int, seconds: float, show: Callable[[str], None]) -> None:
        self.tracked = Tracked()
        self._bugs, self._seed, self._seconds, self._show = bugs, seed, seconds, show
        self._lock, self._numbers, self._started = Lock(), count(), time.perf_counter()

    @property
    def passed(self) -> float:
        """Return the seconds since it began."""
        return time.perf_counter() - self._started

    def work(self) -> None:
        """Draw and judge rounds until the hunt is over."""
        while self.passed < self._seconds and (bugs := self._sought()):
            with self._lock:  # Hypothesis draws in one thread at a time
                number = next(self._numbers)
                name, features = ROUNDS[number % len(ROUNDS)]
                mine = [one for one in bugs if one.target == name]
                if not mine:
                    continue
                programs = sample(features, ROUND, self._seed + number)
                first = self.tracked.programs
                self.tracked.programs += len(programs)
            for at, symptoms in self._judged(name, programs, mine):
                self._tell(programs[at], first + at + 1, symptoms, mine)

    def _sought(self) -> list[Reported]:
        with self._lock:
            return [one for one in self._bugs if one.number not in self.tracked.found]

    def _judged(self, name: str, programs: Sequence[Program], bugs: Sequence[Reported]) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of each program that fails, and the symptoms of its verdicts."""
        chosen = list(range(len(programs)))
        if name == COMPILED:  # nvcc takes seconds for a program
            chosen = [at for at in chosen if any(one.holds(programs[at]) for one in bugs)]
        found = _symptoms(name, [programs[at] for at in chosen])
        if found is None:  # a program ends the process: each gets one of its own
            with self._lock:
                self.tracked.lost += 1
            each = (_symptoms(name, [programs[at]]) for at in chosen)
            found = [[] if one is None else one[0] for one in each]
        for at, symptoms in zip(chosen, found, strict=True):
            if symptoms:
                with self._lock:
                    self.tracked.failures += 1
                yield at, symptoms

    def _tell(self, program: Program, programs: int, symptoms: Sequence[str], bugs: Sequence[Reported]) -> None:
        """Note the bugs that a program shows."""
        for bug in bugs:
            if bug.number in self.tracked.found or not bug.holds(program) or not any(map(bug.is_told, symptoms)):
                continue
            seconds, small = self.passed, _minimal(bug, program)
            if bug.is_all(small):
                with self._lock:
                    found = Found(number=bug.number, programs=programs, seconds=seconds, text=small.json)
                    first = self.tracked.found.setdefault(bug.number, found) is found
                if first:
                    self._show(f"{bug.number}: after {programs} programs, {seconds:.0f} s")


def _symptoms(name: str, programs: Sequence[Program]) -> list[list[str]] | None:
    """Return the symptoms of each program's failures; None where the process that judges them ends."""
    found: list[list[str]] | None = forked(name, _judge, TARGETS[name], programs, limit=_LIMIT)
    return found


def _judge(target: ProgramTarget, programs: Sequence[Program]) -> list[list[str]]:
    """Return the symptoms of each program's failures."""
    return [[one.symptom for one in each if one.status is Status.FAIL] for each in check_all(target, programs, exact=False)]


def _minimal(bug: Reported, program: Program) -> Program:
    """Return the simplest program that may show the bug, and fails with a symptom of it."""
    found: str | None = forked(bug.target, _searched, bug, program, limit=_LIMIT)
    if found is not None:
        return Program.from_json(found)

    def holds(candidate: Program) -> bool:  # one of the candidates ends the process: each gets one of its own
        seen = _symptoms(bug.target, [candidate]) if bug.holds(candidate) else None
        return seen is not None and any(map(bug.is_told, seen[0]))

    return search(program, holds, checks=_CHECKS, seconds=_SECONDS)


def _searched(bug: Reported, program: Program) -> str:
    """Return the JSON of the simplest program, all of whose candidates are judged in this process."""
    target = TARGETS[bug.target]

    def holds(candidate: Program) -> bool:
        return bug.holds(candidate) and any(map(bug.is_told, _judge(target, [candidate])[0]))

    return search(program, holds, checks=_CHECKS, seconds=_SECONDS).json
