"""The sets of mutants that reports count apart, and what was known of each when strategies and gates were written."""

from collections.abc import Mapping
from types import MappingProxyType

from oracles.mutants import thresholds
from oracles.mutants.catalogue import SETS
from oracles.mutants.record import Mutant

THRESHOLDS = "thresholds"

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "scaled": "In-sample. The earlier catalogue: triggers scaled down into reach of the strategies, which were written "
        "with it at hand, as were the gates.",
        "true_size": "In-sample. Triggers at true size, none scaled; but the limits of the strategies were raised with most "
        "of these triggers known.",
        "precision": "In-sample. Written together with the precision gate that is to find them.",
        "effects": "In-sample. Written together with the gates for side effects that are to find them.",
        THRESHOLDS: "Out-of-sample in the threshold, in-sample in the kind. The templates were known; the thresholds are "
        "drawn by a seed, and nothing was written with them at hand.",
    }
)


def set_of(mutant: Mutant) -> str:
    """Return the set of a mutant, a key of `KNOWN`."""
    if thresholds.named(mutant.name) is not None:
        return THRESHOLDS
    return next(name for name, mutants in SETS.items() if any(one.name == mutant.name for one in mutants))
