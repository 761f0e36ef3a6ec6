"""Mutants by name, for whoever loads implementations: `oracles.mutants.load:NAME`; those of `thresholds` too."""

from typing import Any

from oracles.mutants.catalogue import ALL
from oracles.mutants.edit import implementation
from oracles.mutants.thresholds import named

SPEC = "oracles.mutants.load:{}"


def __getattr__(name: str) -> Any:
    mutant = ALL.get(name) or named(name)
    if mutant is None:
        raise AttributeError(name)
    return implementation(mutant)


def __dir__() -> list[str]:
    return sorted(ALL)
