"""Every mutant and every clean variant, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from oracles.mutants.clean import CLEAN
from oracles.mutants.contract import CONTRACT
from oracles.mutants.elsewhere import NEEDS_A_GPU
from oracles.mutants.manual import MANUAL
from oracles.mutants.record import Mutant
from oracles.mutants.tilelang import TILELANG
from oracles.mutants.triton import TRITON
from oracles.mutants.true_size import TRUE_SIZE

SETS: Mapping[str, tuple[Mutant, ...]] = MappingProxyType(
    {"scaled": MANUAL + CONTRACT + TRITON + TILELANG, "true_size": TRUE_SIZE}
)
"""By what was known of them: `mhc.bench.detection_sets` says it of each set, and reports count them apart."""
MUTANTS: tuple[Mutant, ...] = tuple(mutant for mutants in SETS.values() for mutant in mutants)

__all__ = ["ALL", "CLEAN", "MUTANTS", "NEEDS_A_GPU", "SETS"]

ALL: Mapping[str, Mutant] = MappingProxyType({mutant.name: mutant for mutant in (*MUTANTS, *CLEAN)})

assert len(ALL) == len(MUTANTS) + len(CLEAN), "two mutants have one name"
