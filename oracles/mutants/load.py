"""Mutants by name, for whoever loads implementations: `oracles.mutants.load:NAME`."""

from typing import Any

from oracles.mutants.catalogue import ALL
from oracles.mutants.edit import implementation

SPEC = "oracles.mutants.load:{}"


def __getattr__(name: str) -> Any:
    mutant = ALL.get(name)
    if mutant is None:
        raise AttributeError(name)
    return implementation(mutant)


def __dir__() -> list[str]:
    return sorted(ALL)
