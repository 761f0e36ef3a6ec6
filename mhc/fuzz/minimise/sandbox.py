"""The sandbox: worker processes in which the minimiser tries cases, and which a case may kill."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from mhc.drawn_case import DrawnCase
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles import sequence
from mhc.oracles.verdict import Verdict
from mhc.registry import Tested, load

# A case hangs if it takes `_HANG_FACTOR` times as long as the slowest case with an answer, and at least `LEAST_LIMIT`
# seconds, or `_LEAST_COMPILED` where a new shape may have to be compiled.
_HANG_FACTOR = 5.0
LEAST_LIMIT = 2.0
_LEAST_COMPILED = 20.0


class Process(Protocol):
    """What the sandbox asks of `mhc.fuzz.worker.client.WorkerClient`."""

    @property
    def retired(self) -> bool: ...

    def start(self, case: Any, depth: Level) -> None: ...

    def finish(self) -> list[Verdict]: ...

    def stop(self) -> None: ...


Start = Callable[[float], Process]
"""Starts a process in which a case may take the given seconds."""


class Sandbox:
    """Checks cases one after the other in a process, and in a new one after each crash or hang.

    Args:
        limit: seconds that the first cases may take; later cases may take `_HANG_FACTOR` times the slowest.

    Attributes:
        checks: cases run. faults: of the harness; a case with one counts as passing.
    """

    def __init__(self, start: Start, *, limit: float, least: float = LEAST_LIMIT) -> None:
        self._start = start
        self._most = limit
        self._least = least
        self._slowest: float | None = None
        self._process: Process | None = None
        self.checks = 0
        self.faults: list[HarnessError] = []

    @property
    def limit(self) -> float:
        """Return the seconds that a case may take in a new process."""
        if self._slowest is None:
            return self._most
        return min(self._most, max(self._least, _HANG_FACTOR * self._slowest))

    def seen(self, case: DrawnCase, fingerprint: Fingerprint, depth: Level) -> Verdict | None:
        """Return the verdict with that fingerprint, if the case fails so.

        What depends on the calls before it is tried in a new process.
        """
        if fingerprint.oracle == sequence.NAME:
            self.stop()
        return next((verdict for verdict in self.verdicts(case, depth) if fingerprint.fits(verdict)), None)

    def stop(self) -> None:
        """End the process; the next case starts a new one."""
        if self._process is not None:
            self._process.stop()
        self._process = None

    def verdicts(self, case: DrawnCase, depth: Level) -> list[Verdict]:
        """Return the verdicts on a case; none where the harness is at fault."""
        self.checks += 1
        try:
            if self._process is None:
                self._process = self._start(self.limit)
            self._process.start(case, depth)
            started = time.monotonic()
            verdicts = self._process.finish()
        except HarnessError as fault:
            self.faults.append(fault)
            self.stop()
            return []
        if self._process.retired:
            self.stop()
        else:
            self._slowest = max(self._slowest or 0.0, time.monotonic() - started)
        return verdicts


def processes(
    spec: str,
    implementation: Tested,
    device: str,
    against: str | None = None,
    *,
    limits: Limits | None = None,
    log: Path | None = None,
    gpu: int | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> Start:
    """Return a function that starts worker processes of an implementation.

    Args:
        against: how the implementation is named that it is compared with. limits, log, gpu, waiting: as for `WorkerClient`.

    Raises:
        ImplementationError: `against` cannot be loaded.
    """
    peers = () if against is None else (Peer.of(against, load(against)),)
    return lambda limit: WorkerClient(
        spec, implementation, device, limit=limit, limits=limits, log=log, gpu=gpu, peers=peers, waiting=waiting
    )


def least_limit(implementation: Tested) -> float:
    """Return the seconds below which a case never counts as a hang."""
    return LEAST_LIMIT if implementation.compiles is None else _LEAST_COMPILED
