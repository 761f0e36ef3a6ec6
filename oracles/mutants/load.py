"""Implementations by name as `mhc.oracles.mutants.load:NAME`: mutants, those of `thresholds`, and `misbehaving` ones."""

from typing import Any

from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.edit import implementation
from mhc.oracles.mutants.misbehaving import record
from mhc.oracles.mutants.misbehaving.catalogue import MISBEHAVING
from mhc.oracles.mutants.thresholds import named

SPEC = "mhc.oracles.mutants.load:{}"


def __getattr__(name: str) -> Any:
    if name in MISBEHAVING:
        return record.implementation(MISBEHAVING[name])
    mutant = ALL.get(name) or named(name)
    if mutant is None:
        raise AttributeError(name)
    return implementation(mutant)


def __dir__() -> list[str]:
    return sorted([*ALL, *MISBEHAVING])
