"""Every mutant and every clean variant, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from oracles.mutants.clean import CLEAN as OTHER_CLEAN
from oracles.mutants.contract import CONTRACT
from oracles.mutants.effects import EFFECTS
from oracles.mutants.elsewhere import NEEDS_A_GPU
from oracles.mutants.manual import MANUAL
from oracles.mutants.precision import CLEAN_PRECISION, PRECISION
from oracles.mutants.record import Mutant
from oracles.mutants.tilelang import TILELANG
from oracles.mutants.triton import TRITON

MUTANTS: tuple[Mutant, ...] = MANUAL + CONTRACT + PRECISION + EFFECTS + TRITON + TILELANG
CLEAN: tuple[Mutant, ...] = OTHER_CLEAN + CLEAN_PRECISION

__all__ = ["ALL", "CLEAN", "MUTANTS", "NEEDS_A_GPU", "ON_CPU"]

ON_CPU: tuple[Mutant, ...] = tuple(mutant for mutant in MUTANTS if mutant.device == "cpu")
"""Those that a machine without a GPU can hunt."""

ALL: Mapping[str, Mutant] = MappingProxyType({mutant.name: mutant for mutant in (*MUTANTS, *CLEAN)})

assert len(ALL) == len(MUTANTS) + len(CLEAN), "two mutants have one name"
