"""Backoff: an implementation whose workers fail rests, longer each time, and is disabled in the end."""

import time
from collections import Counter, defaultdict

from mhc.fuzz.worker.process import HarnessError

MOST = 5
"""An implementation is disabled after this many failures in a row without a judged case."""
_REST = 0.2  # seconds, doubled with each failure
_NO_WORKER_REST = 1.0
_NO_WORKER = 60.0  # seconds in which no worker could be started, after which the campaign ends


class Backoff:
    """Counts failures of workers that are no findings: ends between cases, faults of the harness, failed starts."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._until: defaultdict[str, float] = defaultdict(float)
        self._failing_since: float | None = None
        self._waiting_until = 0.0

    def resting(self, name: str) -> bool:
        """Return whether an implementation must not be tried yet."""
        return time.monotonic() < max(self._until[name], self._waiting_until)

    def given_up(self, name: str) -> bool:
        """Return whether an implementation is disabled."""
        return self._count[name] >= MOST

    def judged(self, name: str) -> None:
        """Record a judged case, which resets the count of its implementation."""
        self._count[name] = 0

    def met(self, name: str) -> bool:
        """Record a failure. Return whether it disables the implementation."""
        self._count[name] += 1
        self._until[name] = time.monotonic() + _REST * 2.0 ** self._count[name]
        return self._count[name] == MOST

    def started(self) -> None:
        """Record that a worker was started."""
        self._failing_since = None

    def not_started(self, error: Exception) -> None:
        """Record that no worker can be started, for lack of descriptors, memory or processes; all wait a little.

        Raises:
            HarnessError: none could be started for `_NO_WORKER` seconds.
        """
        now = time.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._waiting_until = now + _NO_WORKER_REST
        if now - self._failing_since > _NO_WORKER:
            raise HarnessError(f"no worker could be started for {_NO_WORKER:.0f} s: {error}") from error
