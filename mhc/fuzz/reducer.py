"""Findings made smaller beside a campaign's rounds: threads that wait for sandbox processes, which do the work."""

import queue
import threading
from collections.abc import Callable, Iterator

from mhc.fuzz.finding import Finding
from mhc.fuzz.process import HarnessError
from mhc.implementation import ImplementationError

Minimise = Callable[[Finding], Finding]


class Reducer:
    """Takes findings and gives them back smaller.

    Args:
        minimise: what is done to one; None: nothing is.
    """

    def __init__(self, minimise: Minimise | None) -> None:
        self._minimise = minimise
        self._waiting: list[Finding] = []
        self._done: queue.SimpleQueue[tuple[Finding, Finding | None]] = queue.SimpleQueue()
        self._working: list[Finding] = []

    @property
    def busy(self) -> bool:
        """Whether anything waits or is being worked on."""
        return bool(self._waiting or self._working)

    @property
    def working(self) -> tuple[Finding, ...]:
        """What is being worked on."""
        return tuple(self._working)

    def add(self, found: Finding) -> None:
        if self._minimise is not None:
            self._waiting.append(found)

    def start(self, most: int) -> int:
        """Begin what waits, `most` at a time; how many are at work."""
        while self._waiting and len(self._working) < most:
            found = self._waiting.pop(0)
            self._working.append(found)
            # a daemon: an end at once does not wait for it, and its processes die with this one
            threading.Thread(target=self._work, args=(found,), daemon=True).start()
        return len(self._working)

    def done(self) -> Iterator[Finding]:
        """What has come back since the last look; a finding that could not be worked on comes back as it was."""
        while not self._done.empty():
            before, after = self._done.get()
            self._working.remove(before)
            yield before if after is None else after

    def _work(self, found: Finding) -> None:
        assert self._minimise is not None
        try:
            self._done.put((found, self._minimise(found)))
        except (HarnessError, ImplementationError):  # the round's own case stands
            self._done.put((found, None))
