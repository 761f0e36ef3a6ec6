"""The minimiser's search over programs: the simplest one that still fails in the same way. It runs nothing itself."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from mhc.descent import Descent, one_by_one
from mhc.programs.arithmetic import Invalid
from mhc.programs.languages import AnyProgram, language_of

P = TypeVar("P", bound=AnyProgram)


def search(
    program: P,
    holds: Callable[[Any], bool],
    *,
    checks: int = 500,
    seconds: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> P:
    """Return the simplest program reached by steps that each keep `holds` true.

    A program without a meaning that a compiler must keep (`mhc.programs.evaluate.Invalid`) is not tried.

    Args:
        checks: most calls of `holds`. seconds: longest time. At either limit the best program so far is returned.
    """
    return search_in_groups(program, one_by_one(holds), checks=checks, seconds=seconds, clock=clock)


def search_in_groups(program: P, first: Callable[[Sequence[Any]], Any], **limits: Any) -> P:
    """Do what `search` does.

    Args:
        first: returns the first of a few programs that still fails in the same way, or None.
        limits: those of `search`, and `group`: so many programs it is given at once.
    """
    language = language_of(program)
    descent = Descent(program, first, language.rank, **limits)
    descent.through([partial(simpler, step) for step in language.steps])
    return descent.best


def simpler(step: Callable[[Any], Iterator[Any]], program: P) -> Iterator[P]:
    """Yield what a step makes of a program, where that has a meaning."""
    return (one for one in map(language_of(program).tidy, step(program)) if means(one))


def means(program: AnyProgram) -> bool:
    """Return whether a program is whole, and has a meaning that a compiler must keep."""
    if not program.body or not program.outputs:
        return False
    try:
        language_of(program).evaluate(program)
    except (Invalid, StopIteration, KeyError):  # it names what is left out
        return False
    return True
