"""The minimiser's search over programs: the simplest one that still fails in the same way. It runs nothing itself."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from mhc.descent import Descent
from mhc.programs.arithmetic import Invalid
from mhc.programs.edits import STEPS, Step, rank, tidy
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import Program


def search(
    program: Program,
    holds: Callable[[Program], bool],
    *,
    checks: int = 500,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> Program:
    """Return the simplest program reached by steps that each keep `holds` true.

    A program without a meaning that a compiler must keep (`mhc.programs.evaluate.Invalid`) is not tried.

    Args:
        checks: most calls of `holds`. seconds: longest time. At either limit the best program so far is returned.
    """
    descent = Descent(program, holds, rank, checks=checks, seconds=seconds, clock=clock)
    descent.through([partial(simpler, step) for step in STEPS])
    return descent.best


def simpler(step: Step, program: Program) -> Iterator[Program]:
    """Yield what a step makes of a program, where that has a meaning."""
    return (one for one in map(tidy, step(program)) if means(one))


def means(program: Program) -> bool:
    """Return whether a program is whole, and has a meaning that a compiler must keep."""
    if not program.body or not program.outputs:
        return False
    try:
        evaluate(program)
    except (Invalid, StopIteration, KeyError):  # it names what is left out
        return False
    return True
