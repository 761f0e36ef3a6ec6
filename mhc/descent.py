"""The search of the minimisers: from a case, or a program, down to a simpler one that still fails in the same way."""

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Descent(Generic[T]):
    """A greedy search: each step leads to something simpler by `rank`; nothing is tried twice.

    Args:
        best: that for which `holds` is true. holds: whether something simpler still shows the same bug.
        checks: most calls of `holds`. seconds: longest time, by `clock`. At either limit the best so far stays.
    """

    def __init__(
        self,
        best: T,
        holds: Callable[[T], bool],
        rank: Callable[[T], Any],
        *,
        checks: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.best = best
        self._holds, self._rank = holds, rank
        self._checks, self._deadline, self._clock = checks, clock() + seconds, clock
        self._tried = {best}

    def through(self, steps: Sequence[Callable[[T], Iterable[T]]]) -> None:
        """Apply all steps, again and again, until a pass changes nothing or the budget is spent."""
        before = None
        while before != self.best:
            before = self.best
            for step in steps:
                while self._down(step):
                    pass

    def _down(self, step: Callable[[T], Iterable[T]]) -> bool:
        """Try the candidates of a step. Return whether one holds, which then is the best."""
        for candidate in step(self.best):
            if candidate in self._tried or self._rank(candidate) >= self._rank(self.best):
                continue
            if not self._checks or self._clock() >= self._deadline:
                return False
            self._checks -= 1
            self._tried.add(candidate)
            if self._holds(candidate):
                self.best = candidate
                return True
        return False
