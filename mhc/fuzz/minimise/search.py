"""The minimiser's search: the simplest case that still fails in the same way. Pure: it runs nothing itself.

It changes the fields of a case (sizes, dtype, scalars, recipes, layouts), not the random choices it was drawn from.
"""

import time
from collections.abc import Callable, Sequence

from mhc.case import Case
from mhc.fuzz.findings.ordering import rank
from mhc.fuzz.minimise.passes import Step, early, late


def search(
    case: Case,
    holds: Callable[[Case], bool],
    *,
    checks: int = 1000,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> Case:
    """Return the simplest case reached from `case` by steps that each keep `holds` true.

    Greedy until no single step holds any more, the biggest steps first. Every step leads to a simpler case by
    `mhc.fuzz.findings.ordering.rank`; no case is tried twice.

    Args:
        case: a case for which `holds` is true. holds: whether a case still shows the same bug.
        checks: most calls of `holds`. seconds: longest time, by `clock`. At either limit the best case so far is returned.
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
        """Apply all steps, again and again, until a pass changes nothing or the budget is spent."""
        before = None
        while before != self.best:
            before = self.best
            for step in steps:
                while self._down(step):
                    pass

    def _down(self, step: Step) -> bool:
        """Try the candidates of a step. Return whether one holds, which then is the best case."""
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
