"""Which implementations can be given work: one that meets trouble rests, longer each time, and is given up in the end."""

import time
from collections import Counter, defaultdict

from mhc.fuzz.worker.process import HarnessError

MOST = 5
"""Troubles in a row, without a case judged in between, after which an implementation is given up."""
_REST = 0.2  # seconds, doubled with each trouble
_NO_WORKER_REST = 1.0
_NO_WORKER = 60.0  # seconds without a worker that could be started, after which nothing is left to do


class Troubles:
    """Ends of workers between cases, faults of the harness, and workers that cannot be started."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._until: defaultdict[str, float] = defaultdict(float)
        self._nobody_since: float | None = None
        self._nobody_until = 0.0

    def resting(self, name: str) -> bool:
        """Whether an implementation is not to be tried yet."""
        return time.monotonic() < max(self._until[name], self._nobody_until)

    def given_up(self, name: str) -> bool:
        """Whether an implementation is not to be tried any more."""
        return self._count[name] >= MOST

    def judged(self, name: str) -> None:
        """A case of an implementation was judged: what was before does not count."""
        self._count[name] = 0

    def met(self, name: str) -> bool:
        """An implementation met trouble; whether it is given up by that."""
        self._count[name] += 1
        self._until[name] = time.monotonic() + _REST * 2.0 ** self._count[name]
        return self._count[name] == MOST

    def started(self) -> None:
        """A worker could be started."""
        self._nobody_since = None

    def not_started(self, error: Exception) -> None:
        """No worker can be started: no descriptors, memory or processes are left. There may be some soon.

        Raises:
            HarnessError: it has been so for long.
        """
        now = time.monotonic()
        self._nobody_since = now if self._nobody_since is None else self._nobody_since
        self._nobody_until = now + _NO_WORKER_REST
        if now - self._nobody_since > _NO_WORKER:
            raise HarnessError(f"no worker could be started for {_NO_WORKER:.0f} s: {error}") from error
