"""The minimiser's search: the simplest case that still fails in the same way. Pure: it runs nothing itself.

It changes the fields of a case (sizes, dtype, scalars, recipes, layouts), not the random choices it was drawn from.
"""

import time
from collections.abc import Callable

from mhc.case import Case
from mhc.descent import Descent, one_by_one
from mhc.fuzz.findings.ordering import rank
from mhc.fuzz.minimise.passes import early, late


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
    descent = Descent(case, one_by_one(holds), rank, checks=checks, seconds=seconds, clock=clock)
    descent.through(early(case.table))
    descent.through((*early(case.table), *late(case.table)))
    return descent.best
