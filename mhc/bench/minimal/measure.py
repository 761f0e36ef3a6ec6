"""How small findings become: every mutant found with drawn cases, as a campaign would, and its finding minimised."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mhc.bench.detection.hunt import drawn_for, named
from mhc.bench.state import Results
from mhc.case import Case
from mhc.fuzz.check.level import Depth
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.minimise.minimise import minimise
from mhc.fuzz.worker.client import Worker
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import ImplementationError
from mhc.registry import load
from oracles.mutants.load import SPEC
from oracles.mutants.record import Mutant
from oracles.verdict import Status

GOAL = 64
"""Elements of x, at most, in the median smallest case."""


@dataclass(frozen=True, kw_only=True)
class Minimal:
    """What became of one mutant.

    Attributes:
        cases: drawn until one failed, or in vain. fingerprint: of the finding, empty where there is none.
        case: the smallest, as JSON. before, after: elements of x. seconds: of minimising. rate: how often it failed again.
        fault: of the harness, if one ended it.
    """

    name: str
    base: str
    cases: int = 0
    fingerprint: str = ""
    case: str = ""
    message: str = ""
    before: int = 0
    after: int = 0
    checks: int = 0
    seconds: float = 0.0
    reproduced: int = 0
    runs: int = 0
    fault: str = ""


class State(Results[Minimal]):
    """Mutants that are done."""

    key, kind = "done", Minimal


def measure(
    mutants: Sequence[Mutant],
    state: State,
    *,
    cases: int,
    seed: int,
    limit: float,
    hunting: float,
    seconds: float,
    jobs: int = 1,
    total: float = float("inf"),
    on_result: Callable[[Minimal], None] = lambda result: None,
) -> list[Minimal]:
    """Find and minimise each mutant that `state` does not have yet, `jobs` at a time, until `total` seconds have passed.

    Args:
        cases, seed: drawn, the same for all of a base. limit: seconds that a case may take in the hunt.
        hunting, seconds: that finding one mutant, and making its finding smaller, may take.
    """
    deadline = time.monotonic() + total
    waiting = [mutant for mutant in mutants if mutant.name not in state.done]
    drawn = {base: drawn_for(base, cases, seed) for base in dict.fromkeys(mutant.base for mutant in waiting)}

    def one(mutant: Mutant) -> Minimal | None:
        late = time.monotonic() > deadline
        return None if late else _one(mutant, drawn[mutant.base], limit, hunting, seconds)

    state.complete(waiting, one, jobs, lambda mutant, result: on_result(result))
    return [state.done[mutant.name] for mutant in mutants if mutant.name in state.done]


def median(results: Sequence[Minimal]) -> float:
    """Of the elements of x in the smallest cases."""
    return statistics.median([one.after for one in results if one.case] or [0])


def _one(mutant: Mutant, drawn: Sequence[Case], limit: float, hunting: float, seconds: float) -> Minimal:
    spec = SPEC.format(mutant.name)
    try:
        number, first = _first(spec, drawn, limit, hunting)
        if first is None:
            return Minimal(name=mutant.name, base=mutant.base, cases=number)
        small = minimise(first, "cpu", seconds=seconds)
    except (HarnessError, ImplementationError) as fault:
        return Minimal(name=mutant.name, base=mutant.base, fault=str(fault))
    reduction = small.reduction
    assert reduction is not None
    fingerprint = small.fingerprint
    return Minimal(
        name=mutant.name,
        base=mutant.base,
        cases=number,
        fingerprint=f"{fingerprint.subject}: {fingerprint.symptom} ({fingerprint.oracle})",
        case=small.case.json,
        message=small.message,
        before=reduction.elements_before,
        after=reduction.elements,
        checks=reduction.checks,
        seconds=reduction.seconds,
        reproduced=reduction.reproduced,
        runs=reduction.runs,
    )


def _first(spec: str, drawn: Sequence[Case], limit: float, seconds: float) -> tuple[int, Finding | None]:
    """The first drawn case that fails, as a finding, and its number."""
    implementation = load(spec)
    worker = Worker(spec, implementation, "cpu", limit=limit)
    started = time.monotonic()
    number = 0
    try:
        for number, one in enumerate(drawn, 1):
            if time.monotonic() - started > seconds:
                break
            case = named(one, implementation.name)
            worker.start(case, Depth.DRAWN)
            for verdict in worker.finish():
                if verdict.status is Status.FAIL:
                    return number, finding(spec, implementation, case, verdict)
        return number, None
    finally:
        worker.stop()
