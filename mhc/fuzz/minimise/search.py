"""The reducer: a failing case made as simple as it can be while it still fails in the same way.

It works on what a case means, not on the choices it was drawn from: sizes, dtype, scalars, recipes, layouts. Pure: it runs
nothing itself.
"""

import time
from collections.abc import Callable, Sequence

from mhc.case import Case
from mhc.fuzz.findings.ordering import rank
from mhc.fuzz.minimise.passes import Step, early, late


def reduce(
    case: Case,
    holds: Callable[[Case], bool],
    *,
    checks: int = 1000,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> Case:
    """The simplest case reached from `case` by steps that each keep `holds` true; `case` itself is taken to hold.

    Greedy to a fixpoint, the biggest steps first: where it stops, no single step is left that holds. Every step leads to a
    simpler case by `mhc.fuzz.findings.ordering.rank`, and none is tried twice.

    Args:
        holds: whether a case still shows the same bug.
        checks: how often to ask at most. seconds: how long, by `clock`; the best so far is returned then.
    """
    descent = _Descent(case, holds, checks, clock() + seconds, clock)
    descent.through(early(case.table))
    descent.through((*early(case.table), *late(case.table)))
    return descent.best


class _Descent:
    def __init__(
        self, case: Case, holds: Callable[[Case], bool], checks: int, deadline: float, clock: Callable[[], float]
    ) -> None:
        self.best = case
        self._holds = holds
        self._checks = checks
        self._deadline = deadline
        self._clock = clock
        self._tried = {case}

    def through(self, steps: Sequence[Step]) -> None:
        """All steps, round after round, until one changes nothing or the budget is spent."""
        before = None
        while before != self.best:
            before = self.best
            for step in steps:
                while self._down(step):
                    pass

    def _down(self, step: Step) -> bool:
        """Whether a candidate of the step holds; it is the best then."""
        for candidate in step(self.best):
            if candidate in self._tried or rank(candidate) >= rank(self.best):
                continue
            if not self._checks or self._clock() >= self._deadline:
                return False
            self._checks -= 1
            self._tried.add(candidate)
            if self._holds(candidate):
                self.best = candidate
                return True
        return False
