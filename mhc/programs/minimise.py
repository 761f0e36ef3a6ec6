"""The minimiser's search over programs: the simplest one that still fails in the same way. It runs nothing itself."""

import time
from collections.abc import Callable

from mhc.programs.edits import STEPS, rank, tidy
from mhc.programs.evaluate import Invalid, evaluate
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
    deadline, best = clock() + seconds, program
    tried = {program.json}

    def better(candidate: Program) -> bool:
        nonlocal checks
        candidate = tidy(candidate)
        if candidate.json in tried or rank(candidate) >= rank(best) or not means(candidate):
            return False
        tried.add(candidate.json)
        if checks <= 0 or clock() > deadline:
            return False
        checks -= 1
        return holds(candidate)

    before = None
    while before != best and checks > 0 and clock() <= deadline:
        before = best
        for step in STEPS:
            found = True
            while found:
                found = False
                for candidate in step(best):
                    if better(candidate):
                        best, found = tidy(candidate), True
                        break
    return best


def means(program: Program) -> bool:
    """Return whether a program is whole, and has a meaning that a compiler must keep."""
    if not program.body or not program.outputs:
        return False
    try:
        evaluate(program)
    except (Invalid, StopIteration, KeyError):  # it names what is left out
        return False
    return True
