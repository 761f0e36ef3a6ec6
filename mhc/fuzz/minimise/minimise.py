"""Minimises a finding: the simplest case with its fingerprint, and how often that case fails in a fresh process."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mhc.case import Case, default_case
from mhc.case_json import CaseError
from mhc.drawn_case import DrawnCase
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import MOST_STEPS, UNKNOWN_CAUSE, Drawn, Finding, Reduction, Step
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.findings.ordering import elements
from mhc.fuzz.minimise.sandbox import LEAST_LIMIT, Sandbox, Start, least_limit, processes
from mhc.fuzz.minimise.search import search
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Fault, Minimise, Minimised
from mhc.oracles import bound, liveness, memory, nonfinite, sequence
from mhc.oracles.verdict import Status, Verdict
from mhc.programs.drawn_program import DrawnProgram
from mhc.programs.minimise import search as search_programs
from mhc.registry import Tested, load_tested

CHECKS = 800
SECONDS = 300.0
RUNS = 3
_RUNS_FLAKY = 10  # processes to estimate a rate
_LIMIT = 60.0
_LIMIT_HUNG = 10.0
_TRIES = 8  # runs of the finding's case before it counts as passing
_STEADY = 2
_MISSED = 0.1  # probability that a flaky failing case is taken for a passing one


def minimise(
    found: Finding,
    device: str,
    *,
    start: Start | None = None,
    fresh: bool = True,
    least: float = LEAST_LIMIT,
    checks: int = CHECKS,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Finding:
    """Return `found` with the simplest case of the same fingerprint, its message, and how stable it is.

    Where its case is right in a new process, and wrong after others there, that is the finding instead (`after_others`).

    Cases run in worker processes, so that crashes and hangs are minimised too; each costs a process. All gates judge, unless
    the fingerprint shows without the gates that need further runs. A flaky case is run several times.

    Args:
        start: starts a process for a number of seconds that a case may take; a worker of `found.spec` where not given.
        fresh: whether it does.
        least: seconds below which a case is never taken for hung, where `start` is given.
        checks, seconds: when to stop the search. Confirming the result comes on top.

    Raises:
        ImplementationError: `found.spec` or its peer cannot be loaded.
        HarnessError: the case cannot be checked at all.
    """
    began = clock()
    if start is None:
        implementation = load_tested(found.spec)
        start, least = processes(found.spec, implementation, device, found.against), least_limit(implementation)
        found = replace(found, variables=implementation.env)
    sandbox = Sandbox(start, limit=_limit(found, least), least=least)
    try:
        if found.hung and isinstance(found.case, Case):  # measure a healthy case, so that a hang is detected soon
            if (simple := _simple(found.case)) is not None:
                sandbox.seen(simple, found.fingerprint, Level.PLAIN)
            sandbox.stop()
        probe = _Probe(found, sandbox)
        if probe.depth is not None:
            smallest = _search(found.case, probe.holds, checks=checks, seconds=seconds - (clock() - began), clock=clock)
            small = probe.shown(smallest)
            found = replace(found, errors=found.errors or probe.shown(found.case).errors)
        else:
            small = found
    finally:
        sandbox.stop()
    confirmed = confirm(small, start, probe.depth or Level.FULL, runs=probe.runs, least=least)
    if not _reproduced(confirmed) and small.case != found.case:
        confirmed = confirm(found, start, probe.depth or Level.FULL, runs=probe.runs, least=least)
    if _reproduced(confirmed):
        why = _from_memory(confirmed, start, least) + _from_reference(confirmed, start, least)
        confirmed = replace(confirmed, message=confirmed.message + why)
    else:
        confirmed = after_others(confirmed, start, least, fresh=fresh)
        if confirmed.fingerprint != found.fingerprint:
            left = max(1.0, seconds - (clock() - began))
            return minimise(
                confirmed, device, start=start, fresh=fresh, least=least, checks=checks, seconds=left, clock=clock
            )
    assert confirmed.reduction is not None
    smaller = confirmed.case != found.case
    reduction = replace(
        confirmed.reduction,
        elements_before=elements(found.case),
        checks=sandbox.checks + confirmed.reduction.checks,
        seconds=clock() - began,
        steps=probe.steps if smaller else (),
    )
    drawn = found.drawn or (Drawn(case=found.case, errors=found.errors) if smaller else None)
    return replace(confirmed, reduction=reduction, drawn=drawn)


def _search(case: DrawnCase, holds: Callable[[Any], bool], **limits: Any) -> DrawnCase:
    """Return the simplest case, or the simplest program, that `holds`."""
    if isinstance(case, DrawnProgram):
        return search_programs(case, holds, **limits)
    return search(case, holds, **limits)


def after_others(found: Finding, start: Start, least: float, *, fresh: bool = True) -> Finding:
    """Return the finding that the sequence gate makes on a case that is right by itself; else what is known of `found`.

    What the gate says of another case counts only where that is right by itself in a new process.

    Args:
        fresh: `start` starts new processes.
    """
    seen = found.fingerprint
    verdicts, _ = _alone(found, start, least, Level.FULL)
    failures = [one for one in verdicts if one.status is Status.FAIL]
    for one in failures if seen.oracle != sequence.NAME else ():
        if one.oracle == sequence.NAME and not (one.other is not None and _is_wrong(found, one, start, least)):
            fingerprint = Fingerprint.of(one, seen.operator, seen.implementation)
            return replace(found, fingerprint=fingerprint, message=one.message, errors=one.where, reduction=None)
    if not fresh:
        return found
    other = next((one for one in failures if one.subject == seen.subject), None)
    more = "" if other is None else f"; in a new process another gate fails: {other.message} ({other.oracle})"
    return replace(found, message=f"{found.message}\nnot reproduced in a new process: {UNKNOWN_CAUSE}{more}")


def _is_wrong(found: Finding, seen: Verdict, start: Start, least: float) -> bool:
    """Return whether the other case that a verdict is about is wrong by itself."""
    assert seen.other is not None
    alone, _ = _alone(replace(found, case=seen.other), start, least, Level.PLAIN)
    return any(one.status is Status.FAIL and one.subject == seen.subject for one in alone)


def _from_memory(found: Finding, start: Start, least: float) -> str:
    """Return, for a value that is wrong, how it depends on memory that holds no input; empty where it does not."""
    seen = found.fingerprint
    if seen.oracle not in {bound.NAME, nonfinite.NAME} or isinstance(found.case, DrawnProgram):
        return ""
    cause = replace(seen, oracle=memory.NAME, symptom=memory.UNINITIALISED)
    verdict = next(filter(cause.fits, _alone(found, start, least, Level.MEMORY)[0]), None)
    return "" if verdict is None else f"\ndepends on memory that holds no input: {verdict.message} ({memory.NAME})"


def _from_reference(found: Finding, start: Start, least: float) -> str:
    """Return, of a process that ends or hangs, that it does so without a call of the implementation; empty if not."""
    seen = found.fingerprint
    if (seen.oracle, seen.subject) != (liveness.NAME, "process") or isinstance(found.case, DrawnProgram):
        return ""
    verdicts, faults = _alone(found, start, least, Level.REFERENCE)
    ends = f"{liveness.IN_REFERENCE}: {seen.symptom}"
    if not (any(map(seen.fits, verdicts)) or any(str(fault).endswith(ends) for fault in faults)):
        return ""
    return "\nits process does so without a call of the implementation: the reference or its bounds are to blame"


def _alone(found: Finding, start: Start, least: float, depth: Level) -> tuple[list[Verdict], list[HarnessError]]:
    """Return the verdicts on a finding's case in a new process, and the faults of the harness."""
    sandbox = Sandbox(start, limit=_limit(found, least), least=least)
    try:
        return sandbox.verdicts(found.case, depth), sandbox.faults
    finally:
        sandbox.stop()


def run_minimise(
    request: Minimise,
    implementation: Callable[[], Tested],
    device: str,
    limits: Limits,
    *,
    log: Path | None,
    gpu: int | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> Minimised | Fault:
    """Minimise a campaign's finding, within the limits of its workers. Return the fault where that cannot be done.

    Args:
        implementation: returns the one that the finding is on.
        log: file for what the processes write. gpu: the one CUDA device that they see.
        waiting: called several times a second; what it raises ends the work.
    """
    found = request.finding
    try:
        loaded = implementation()
        start = processes(found.spec, loaded, device, found.against, limits=limits, log=log, gpu=gpu, waiting=waiting)
        least = least_limit(loaded)
        smaller = _confirmed(found, start, least)
        if smaller is None:
            smaller = minimise(found, device, start=start, least=least, checks=request.checks, seconds=request.seconds)
    except BaseException as error:  # the drawn case stands
        return Fault.of(error)
    return Minimised(finding=smaller)


def _confirmed(found: Finding, start: Start, least: float) -> Finding | None:
    """Return a finding that was minimised where it was met, confirmed; None where it was not, or does not fail again."""
    before = found.reduction
    if before is None:
        return None
    confirmed = confirm(found, start, least=least)
    again = confirmed.reduction
    if again is None or not again.reproduced:
        return None
    checks, seconds = before.checks + again.checks, before.seconds + again.seconds
    reduction = replace(again, elements_before=before.elements_before, checks=checks, seconds=seconds)
    return replace(confirmed, reduction=reduction)


def confirm(
    found: Finding, start: Start, depth: Level = Level.FULL, *, runs: int = RUNS, least: float = LEAST_LIMIT
) -> Finding:
    """Return `found` with how often it failed in `runs` fresh processes; in more of them if it did not fail each time.

    Args:
        least: seconds below which a case is never taken for hung.

    Raises:
        HarnessError: a process could not check it.
    """
    began = time.monotonic()
    sandbox = Sandbox(start, limit=_limit(found, least), least=least)
    reproduced = done = 0
    last = None
    while done < runs or (done < _RUNS_FLAKY and 0 < reproduced < done):
        try:
            verdict = sandbox.seen(found.case, found.fingerprint, depth)
        finally:
            sandbox.stop()
        if sandbox.faults:
            raise sandbox.faults[0]
        done += 1
        reproduced += verdict is not None
        last = verdict or last
    size = elements(found.case)
    reduction = Reduction(
        elements_before=size,
        elements=size,
        checks=done,
        seconds=time.monotonic() - began,
        reproduced=reproduced,
        runs=done,
    )
    return replace(_as_in(found, last), reduction=reduction)


def _as_in(found: Finding, verdict: Verdict | None) -> Finding:
    """Return a finding with the message of a verdict on its case, and its map of where it fails, if there is one."""
    if verdict is None:
        return found
    return replace(found, message=verdict.message, errors=verdict.where or found.errors)


class _Probe:
    """Answers whether a case shows the fingerprint, by one run, or by several where the original case is flaky.

    Attributes:
        depth: the least level at which the original case fails; None if it does not fail any more.
    """

    def __init__(self, found: Finding, sandbox: Sandbox) -> None:
        self._found = found
        self._sandbox = sandbox
        self._tries = 1
        self._verdicts: dict[DrawnCase, Verdict] = {}
        self._steps: list[Step] = []
        self.depth: Level | None = Level.PLAIN
        if not self._once(found.case):
            self.depth = Level.FULL
        self._settle()
        self._record(found.case)

    def holds(self, case: DrawnCase) -> bool:
        """Return whether a case fails; the search goes on from each that does."""
        fails = any(self._once(case) for _ in range(self._tries))
        if fails:
            self._record(case)
        return fails

    def shown(self, case: DrawnCase) -> Finding:
        """Return the finding with a case that failed, and with what was seen on it last."""
        found = self._found if case == self._found.case else replace(self._found, case=case, errors=None)
        return _as_in(found, self._verdicts.get(case))

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the cases that failed, in their order; of more than are kept, the first, the last and some between."""
        many = len(self._steps)
        if many <= MOST_STEPS:
            return tuple(self._steps)
        return tuple(self._steps[at * (many - 1) // (MOST_STEPS - 1)] for at in range(MOST_STEPS))

    def _record(self, case: DrawnCase) -> None:
        sizes = {} if isinstance(case, DrawnProgram) else dict(case.sizes)
        self._steps.append(Step(checks=self._sandbox.checks, elements=elements(case), sizes=sizes))

    def _settle(self) -> None:
        """Choose the number of runs a case, from how often the original case fails."""
        seen = [self._once(self._found.case) for _ in range(_STEADY)]
        while not all(seen) and len(seen) < _TRIES:
            seen.append(self._once(self._found.case))
        if not any(seen):
            if self._sandbox.faults:
                raise self._sandbox.faults[0]
            self.depth = None
        elif not all(seen):
            rate = sum(seen) / (len(seen) + 1)  # rather too low: a case that is missed once is not tried again
            self._tries = min(_TRIES, math.ceil(math.log(_MISSED) / math.log(1 - rate)))

    @property
    def runs(self) -> int:
        """Return the number of fresh processes to confirm the result in."""
        return RUNS if self._tries == 1 else _RUNS_FLAKY

    def _once(self, case: DrawnCase) -> bool:
        assert self.depth is not None
        verdict = self._sandbox.seen(case, self._found.fingerprint, self.depth)
        if verdict is not None:
            self._verdicts[case] = verdict
        return verdict is not None


def _simple(case: Case) -> Case | None:
    """Return a case of the smallest sizes; None where these do not exist, as with an axis that is another less 5."""
    try:
        return default_case(operator=case.operator, dtype=case.dtype)
    except CaseError:
        return None


def _limit(found: Finding, least: float) -> float:
    """Return the seconds for a first case: fewer where each hang must be waited for, but enough to compile."""
    return max(_LIMIT_HUNG, 3 * least) if found.hung else _LIMIT


def _reproduced(found: Finding) -> bool:
    return found.reduction is not None and found.reduction.reproduced > 0
