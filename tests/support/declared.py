"""Implementations of declared operators, and cases drawn for them."""

from hypothesis import given, seed

from mhc import Case, Implementation
from mhc.operator import Operator
from mhc.strategies.cases import cases
from mhc.strategies.rounds import quiet

NARROW = ("float32", "bfloat16", "float16")


def of(table: Operator, function: object = None) -> Implementation:
    return Implementation(name="it", operator=table, function=function or table.function, dtypes=NARROW)  # type: ignore[arg-type]


def drawn(table: Operator, rounds: int = 6, most: int = 1 << 10) -> list[Case]:
    found = []
    for at in range(rounds):

        @seed(at)
        @quiet(10)
        @given(cases(operator=table.name, dtypes=NARROW, max_elements=most))
        def collect(case: Case) -> None:
            found.append(case)

        collect()
    return found
