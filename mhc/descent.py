"""The search of the minimisers: from a case, or a program, down to a simpler one that still fails in the same way."""

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Descent(Generic[T]):
    """A greedy search: each step leads to something simpler by `rank`; nothing is tried twice.

    Args:
        best: what shows the bug. first: returns the first of a few candidates that still shows it; None where none does.
        group: so many candidates it is given at once.
        checks: most candidates. seconds: longest time, by `clock`. At either limit the best so far stays.
    """

    def __init__(
        self,
        best: T,
        first: Callable[[Sequence[T]], T | None],
        rank: Callable[[T], Any],
        *,
        checks: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        group: int = 1,
    ) -> None:
        self.best = best
        self._first, self._rank, self._group = first, rank, group
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
        candidates = step(self.best)
        simpler = (one for one in candidates if one not in self._tried and self._rank(one) < self._rank(self.best))
        while group := list(dict.fromkeys(islice(simpler, min(self._group, self._checks)))):
            if self._clock() >= self._deadline:
                return False
            self._checks -= len(group)
            self._tried.update(group)
            found = self._first(group)
            if found is not None:
                self.best = found
                return True
        return False


def one_by_one(holds: Callable[[T], bool]) -> Callable[[Sequence[T]], T | None]:
    """Return what tries candidates one after the other.

    Args:
        holds: whether one still shows the bug.
    """
    return lambda candidates: next(filter(holds, candidates), None)
