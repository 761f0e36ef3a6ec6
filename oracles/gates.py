"""The gates that may need further runs, cheapest first; and which failure may follow from which."""

from mhc.oracles import (
    algebra,
    bound,
    determinism,
    exact,
    gradient,
    isolation,
    memory,
    nonfinite,
    ordering,
    pair,
    precision,
    presence,
    sequence,
    training,
)
from mhc.oracles.trial import Gate
from mhc.oracles.verdict import Verdict

GATES: tuple[Gate, ...] = (
    *gradient.GATES,
    determinism.GATE,
    *presence.GATES,
    memory.GATE,
    *ordering.GATES,
    isolation.GATE,
    exact.GATE,
    precision.GATE,
    *algebra.GATES,
    *training.GATES,
    *sequence.GATES,
)

RARE: tuple[Gate, ...] = tuple(
    gate
    for gates in (sequence.GATES, training.GATES, (exact.GATE,), gradient.GATES, algebra.GATES)
    for gate in gates
    if gate.every >= 12
)
"""Gates that judge few of the cases. Each also judges one of the first cases, so that a short campaign or test has asked it.

Those come first that any operator may have.
"""
SMALL = 3
"""So many first cases of a round, or of a test, are mostly of one element in each tensor: no rare gate is asked there."""


def rare_number(case: int, first: int = 0) -> int:
    """Return the number of the rare gate that judges a case of a round or a test; -1: none.

    Args:
        case: its number, from 0. first: that of the gate behind the `SMALL` cases; -1: no case has one.
    """
    return first + case - SMALL if first >= 0 and case >= SMALL else -1


def rare_gate(at: int) -> tuple[Gate, ...]:
    """Return the rare gate with this number; none where there is no such number, such as -1."""
    return RARE[at : at + 1] if at >= 0 else ()


_OF_THE_FIRST_RUN = frozenset({bound.NAME, nonfinite.NAME})
_AGAIN = frozenset({exact.NAME, precision.NAME, algebra.NAME, training.NAME, sequence.NAME})
_ALSO_AGAIN = frozenset(
    {(ordering.NAME, ordering.RACE), (gradient.NAME, gradient.DERIVATIVE), (gradient.NAME, gradient.ADDITIVE)}
)
_OF_VALUES = frozenset(
    {*_OF_THE_FIRST_RUN, *_AGAIN, determinism.NAME, gradient.NAME, isolation.NAME, ordering.NAME, pair.NAME}
)


def may_follow(failure: Verdict, other: Verdict) -> bool:
    """Return whether a failure may follow from another one, and so need not be another mistake.

    A result that float64 contradicts in the first run may be contradicted again wherever it is compared with float64.
    Where it depends on memory that holds no input, every comparison of its values may fail. What compares the bits of two
    runs does not fail of a wrong value alone.
    """
    if failure.subject != other.subject or failure is other:
        return False
    if (other.oracle, other.symptom) == (memory.NAME, memory.UNINITIALISED):
        return failure.oracle in _OF_VALUES
    if other.oracle not in _OF_THE_FIRST_RUN:
        return False
    return failure.oracle in _AGAIN or (failure.oracle, failure.symptom) in _ALSO_AGAIN
