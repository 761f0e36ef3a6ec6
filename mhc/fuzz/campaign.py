"""The campaign: rounds of Hypothesis over every implementation until the budget is spent; each bug once."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky

from mhc.case import Case
from mhc.fuzz.check import taken
from mhc.fuzz.depth import Depth
from mhc.fuzz.finding import Finding, Fingerprint, finding
from mhc.fuzz.worker import HarnessError, Worker
from oracles import refusal
from oracles.verdict import Status
from strategies.cases import cases

# Hypothesis fills a run up with variations of what it drew once it has ten examples.
_ROUND = 10
_SHRINK_GRACE = 30.0


class FoundBug(Exception):
    """Base of the exceptions through which Hypothesis tells bugs apart: one subclass for each fingerprint."""


@dataclass(kw_only=True)
class Tally:
    """What a campaign counted, by implementation. compiled: programs; None where they are not counted."""

    cases: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    compiled: dict[str, int | None] = field(default_factory=dict)
    worst: dict[tuple[str, str], float] = field(default_factory=dict)
    findings: dict[Fingerprint, Finding] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to stop: whichever comes first. Seconds from the start, or cases drawn."""

    seconds: float = float("inf")
    cases: float = float("inf")


def run(
    workers: Sequence[Worker],
    budget: Budget,
    *,
    seed: int = 0,
    max_elements: int = 1 << 15,
    on_progress: Callable[[Tally], None] = lambda tally: None,
    on_finding: Callable[[Finding], None] = lambda found: None,
) -> Tally:
    """Draw cases and check every worker's implementation on each, until the budget is spent.

    A failing case is shrunk while its fingerprint stays the same; a fingerprint once found is not raised again. An
    implementation that kills or hangs its process is retired with the case as it was drawn, and the others go on. Rounds
    have the seeds `seed`, `seed + 1`, ..., so that a campaign bounded by cases can be repeated.
    """
    tally = Tally()
    deadline = time.monotonic() + budget.seconds
    for worker in workers:
        tally.checked[worker.implementation.name] += 0
    round_seed = seed
    while time.monotonic() < deadline and tally.cases < budget.cases and not all(worker.retired for worker in workers):
        for found in _round(workers, tally, deadline, budget, round_seed, max_elements, on_progress).values():
            tally.findings[found.fingerprint] = found
            on_finding(found)
        round_seed += 1
    return tally


def _round(
    workers: Sequence[Worker],
    tally: Tally,
    deadline: float,
    budget: Budget,
    seed: int,
    max_elements: int,
    on_progress: Callable[[Tally], None],
) -> dict[Fingerprint, Finding]:
    """One Hypothesis run; what it found, each at its smallest."""
    fresh: dict[Fingerprint, Finding] = {}
    classes: dict[Fingerprint, type[FoundBug]] = {}
    faults: list[HarnessError] = []

    def body(case: Case) -> None:
        shrinking = bool(classes)
        if time.monotonic() > deadline + (_SHRINK_GRACE if shrinking else 0.0):
            return
        if faults or all(worker.retired for worker in workers) or (tally.cases >= budget.cases and not shrinking):
            return
        try:
            failures = _check(workers, case, tally, Depth.FULL if shrinking else Depth.DRAWN)
        except HarnessError as fault:  # not a failing case: Hypothesis must not shrink it
            faults.append(fault)
            return
        on_progress(tally)
        for found in failures:
            if found.fingerprint not in tally.findings:
                fresh[found.fingerprint] = found
                if found.fingerprint.subject == "process":
                    continue
                name = f"Bug{found.fingerprint.id}"
                raise classes.setdefault(found.fingerprint, type(name, (FoundBug,), {}))(found.message)

    configured = settings(
        max_examples=_ROUND,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    spaces = {worker.implementation.name: worker.implementation.schedule for worker in workers}
    drawn = cases(max_elements=max_elements, spaces={name: space for name, space in spaces.items() if space})
    test = hypothesis.seed(seed)(configured(hypothesis.given(drawn)(body)))
    try:
        test()
    except (FoundBug, Flaky):
        pass
    except BaseExceptionGroup as group:
        _, others = group.split((FoundBug, Flaky))
        if others is not None:
            raise others from None
    if faults:
        raise faults[0]
    return fresh


def _check(workers: Sequence[Worker], case: Case, tally: Tally, depth: Depth) -> list[Finding]:
    """Run one case on every worker at once; count, and return what failed.

    A smaller case would not draw the gates that the failing one drew: while shrinking, every gate judges.
    """
    active = [worker for worker in workers if not worker.retired]
    for worker in active:
        worker.start(case, depth)
    tally.cases += 1
    failures = []
    for worker in active:
        name = worker.implementation.name
        verdicts = worker.finish()
        (tally.refused if refusal.refused(verdicts) else tally.checked)[name] += 1
        tally.compiled[name] = None if worker.implementation.compiles is None else worker.compiled
        for verdict in verdicts:
            if verdict.ratio is not None:
                key = (name, verdict.subject)
                tally.worst[key] = max(tally.worst.get(key, 0.0), verdict.ratio)
            if verdict.status is Status.FAIL:
                judged = taken(worker.implementation, case, verdicts)
                failures.append(finding(worker.spec, worker.implementation, judged, verdict))
    return failures
