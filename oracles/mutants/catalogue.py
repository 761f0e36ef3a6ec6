"""Every mutant and every clean variant, by name."""

from collections.abc import Mapping
from types import MappingProxyType

from mhc.oracles.mutants.clean import CLEAN as OTHER_CLEAN
from mhc.oracles.mutants.contract import CONTRACT
from mhc.oracles.mutants.effects import EFFECTS
from mhc.oracles.mutants.gpu_only import NEEDS_A_GPU
from mhc.oracles.mutants.manual import MANUAL
from mhc.oracles.mutants.plain.catalogue import PLAIN
from mhc.oracles.mutants.precision import CLEAN_PRECISION, PRECISION
from mhc.oracles.mutants.record import Mutant
from mhc.oracles.mutants.tilelang import TILELANG
from mhc.oracles.mutants.triton import TRITON
from mhc.oracles.mutants.true_size import TRUE_SIZE

SETS: Mapping[str, tuple[Mutant, ...]] = MappingProxyType(
    {
        "scaled": MANUAL + CONTRACT + TRITON + TILELANG,
        "true_size": TRUE_SIZE,
        "precision": PRECISION,
        "effects": EFFECTS,
        "plain": PLAIN,
    }
)
"""Sets that reports count separately; `mhc.bench.detection.sets` describes each."""
MUTANTS: tuple[Mutant, ...] = tuple(mutant for mutants in SETS.values() for mutant in mutants)
CLEAN: tuple[Mutant, ...] = OTHER_CLEAN + CLEAN_PRECISION
ON_CPU: tuple[Mutant, ...] = tuple(mutant for mutant in MUTANTS if mutant.device == "cpu")
"""Mutants that run without a GPU."""

__all__ = ["ALL", "CLEAN", "MUTANTS", "NEEDS_A_GPU", "ON_CPU", "SETS"]


ALL: Mapping[str, Mutant] = MappingProxyType({mutant.name: mutant for mutant in (*MUTANTS, *CLEAN)})

assert len(ALL) == len(MUTANTS) + len(CLEAN), "two mutants have one name"
