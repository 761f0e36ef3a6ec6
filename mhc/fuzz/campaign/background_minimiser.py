"""Findings made smaller beside a campaign's rounds: threads that wait for sandbox processes, which do the work."""

import queue
import threading
from collections.abc import Callable, Iterator

from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.worker.protocol import Fault

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
        self._faults: queue.SimpleQueue[tuple[Finding, Fault]] = queue.SimpleQueue()
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

    def faults(self) -> Iterator[tuple[Finding, Fault]]:
        """What has gone wrong since the last look, and with which finding."""
        while not self._faults.empty():
            yield self._faults.get()

    def _work(self, found: Finding) -> None:
        assert self._minimise is not None
        smaller = None
        try:
            smaller = self._minimise(found)
        except BaseException as error:  # whatever it is, the round's own case stands, and the place is free again
            self._faults.put((found, Fault.of(error)))
        finally:
            self._done.put((found, smaller))
