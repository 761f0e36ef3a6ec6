"""Minimise a finding: the simplest case with its fingerprint, and how often that fails in a fresh process."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mhc.case import Case, default_case
from mhc.fuzz.check.level import Depth
from mhc.fuzz.findings.finding import Finding, Reduction
from mhc.fuzz.findings.ordering import elements
from mhc.fuzz.minimise.sandbox import LEAST_LIMIT, Sandbox, Start, least_limit, processes
from mhc.fuzz.minimise.search import reduce
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.protocol import Fault, Minimise, Minimised
from mhc.implementation import Implementation
from mhc.registry import load

CHECKS = 800
SECONDS = 300.0
RUNS = 3
_RUNS_FLAKY = 10  # for the rate
_LIMIT = 60.0
_LIMIT_HUNG = 10.0
_TRIES = 8  # of a case that was seen to fail, before it is given up
_STEADY = 2
_MISSED = 0.1  # how often a flaky case that holds may be taken for one that does not


def minimise(
    found: Finding,
    device: str,
    *,
    start: Start | None = None,
    least: float = LEAST_LIMIT,
    checks: int = CHECKS,
    seconds: float = SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Finding:
    """`found` with the simplest case that shows the same, the message of that case, and how stable it is there.

    Cases run in worker processes, so that what crashes or hangs is minimised too; each case that does costs a process. All
    gates judge, unless the fingerprint shows without those that need further runs. A flaky one is asked several times.

    Args:
        start: starts a process for a number of seconds that a case may take; a worker of `found.spec` where not given.
        least: seconds below which a case is never taken for hung, where `start` is given.
        checks, seconds: when to stop making it smaller. Confirming comes on top.

    Raises:
        ImplementationError: `found.spec`, or what it was compared with, cannot be loaded.
        HarnessError: the case cannot be checked at all.
    """
    began = clock()
    if start is None:
        implementation = load(found.spec)
        start, least = processes(found.spec, implementation, device, found.against), least_limit(implementation)
        found = replace(found, variables=implementation.env)
    sandbox = Sandbox(start, limit=_limit(found, least), least=least)
    try:
        if found.hung:  # what a healthy case takes, so that a hang is told soon
            sandbox.seen(default_case(operator=found.case.operator, dtype=found.case.dtype), found.fingerprint, Depth.PLAIN)
            sandbox.stop()
        probe = _Probe(found, sandbox)
        if probe.depth is not None:
            smallest = reduce(found.case, probe.holds, checks=checks, seconds=seconds - (clock() - began), clock=clock)
            small = replace(found, case=smallest, message=probe.messages.get(smallest, found.message))
        else:
            small = found
    finally:
        sandbox.stop()
    confirmed = confirm(small, start, probe.depth or Depth.FULL, runs=probe.runs, least=least)
    if not _reproduced(confirmed) and small.case != found.case:
        confirmed = confirm(found, start, probe.depth or Depth.FULL, runs=probe.runs, least=least)
    assert confirmed.reduction is not None
    reduction = replace(
        confirmed.reduction,
        elements_before=elements(found.case),
        checks=sandbox.checks + confirmed.reduction.checks,
        seconds=clock() - began,
    )
    return replace(confirmed, reduction=reduction)


def run_minimise(
    request: Minimise,
    implementation: Callable[[], Implementation],
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
        smaller = minimise(found, device, start=start, least=least, checks=request.checks, seconds=request.seconds)
    except BaseException as error:  # the drawn case stands
        return Fault.of(error)
    return Minimised(finding=smaller)


def confirm(
    found: Finding, start: Start, depth: Depth = Depth.FULL, *, runs: int = RUNS, least: float = LEAST_LIMIT
) -> Finding:
    """`found` with how often it failed in `runs` fresh processes; in more of them where it did not fail each time.

    Args:
        least: seconds below which a case is never taken for hung.

    Raises:
        HarnessError: a process could not check it.
    """
    began = time.monotonic()
    sandbox = Sandbox(start, limit=_limit(found, least))
    reproduced = done = 0
    message = found.message
    while done < runs or (done < _RUNS_FLAKY and 0 < reproduced < done):
        try:
            verdict = sandbox.seen(found.case, found.fingerprint, depth)
        finally:
            sandbox.stop()
        if sandbox.faults:
            raise sandbox.faults[0]
        done += 1
        reproduced += verdict is not None
        message = message if verdict is None else verdict.message
    size = elements(found.case)
    reduction = Reduction(
        elements_before=size,
        elements=size,
        checks=done,
        seconds=time.monotonic() - began,
        reproduced=reproduced,
        runs=done,
    )
    return replace(found, message=message, reduction=reduction)


class _Probe:
    """Whether a case shows the fingerprint; asked once, or several times where the original case does not always.

    Attributes:
        depth: the least at which the original case fails; None where it does not any more.
        messages: by case, what the verdict said.
    """

    def __init__(self, found: Finding, sandbox: Sandbox) -> None:
        self._found = found
        self._sandbox = sandbox
        self._tries = 1
        self.messages: dict[Case, str] = {}
        self.depth: Depth | None = Depth.PLAIN
        if not self._once(found.case):
            self.depth = Depth.FULL
        self._settle()

    def holds(self, case: Case) -> bool:
        return any(self._once(case) for _ in range(self._tries))

    def _settle(self) -> None:
        """How often to ask, from how often the original case fails."""
        seen = [self._once(self._found.case) for _ in range(_STEADY)]
        while not all(seen) and len(seen) < _TRIES:
            seen.append(self._once(self._found.case))
        if not any(seen):
            if self._sandbox.faults:
                raise self._sandbox.faults[0]
            self.depth = None
        elif not all(seen):
            rate = sum(seen) / (len(seen) + 1)  # rather too low: what is missed once is not asked again
            self._tries = min(_TRIES, math.ceil(math.log(_MISSED) / math.log(1 - rate)))

    @property
    def runs(self) -> int:
        """Fresh processes to confirm in."""
        return RUNS if self._tries == 1 else _RUNS_FLAKY

    def _once(self, case: Case) -> bool:
        assert self.depth is not None
        verdict = self._sandbox.seen(case, self._found.fingerprint, self.depth)
        if verdict is not None:
            self.messages[case] = verdict.message
        return verdict is not None


def _limit(found: Finding, least: float) -> float:
    """Seconds for a case while nothing is known: less where each hang is waited for, but not too little to compile."""
    return max(_LIMIT_HUNG, 3 * least) if found.hung else _LIMIT


def _reproduced(found: Finding) -> bool:
    return found.reduction is not None and found.reduction.reproduced > 0
