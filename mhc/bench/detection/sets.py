"""The sets of mutants that reports count apart, and which mutants `--only` names.

With what was known of each set when strategies and gates were written.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from mhc.bench.verbs import refuse_unknown
from mhc.oracles.mutants import thresholds
from mhc.oracles.mutants.catalogue import SETS
from mhc.oracles.mutants.record import Mutant

THRESHOLDS = "thresholds"

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "scaled": "In-sample. The earlier catalogue: triggers scaled down into reach of the strategies, which were written "
        "with it at hand, as were the gates.",
        "true_size": "In-sample. Triggers at true size, none scaled; but the limits of the strategies were raised with most "
        "of these triggers known.",
        "precision": "In-sample. Written together with the precision gate that is to find them.",
        "effects": "In-sample. Written together with the gates for side effects that are to find them.",
        "plain": "Out-of-sample. Operators beside mHC pre; strategies and gates were written without them.",
        THRESHOLDS: "Out-of-sample in the threshold, in-sample in the kind. The templates were known; the thresholds are "
        "drawn by a seed, and nothing was written with them at hand.",
    }
)


def set_of(mutant: Mutant) -> str:
    """Return the set of a mutant, a key of `KNOWN`."""
    if thresholds.named(mutant.name) is not None:
        return THRESHOLDS
    return next(name for name, mutants in SETS.items() if mutant in mutants)


def choose(names: Sequence[str], among: Sequence[Mutant], device: str = "cpu", others: Collection[str] = ()) -> list[Mutant]:
    """Return the mutants and clean variants that `--only` names: by name, base or set; without a name all.

    A set has no clean variants.

    Args:
        among: those that run on the device. others: what may be named beside them.

    Raises:
        click.UsageError: a name is of nothing that runs on the device.
    """
    groups: dict[str, list[Mutant]] = {}
    for one in among:
        groups.setdefault(one.base, []).append(one)
    for one in among:
        if not one.clean:
            groups.setdefault(set_of(one), []).append(one)
    groups |= {one.name: [one] for one in among}
    refuse_unknown(names, [*groups, *others], f"mutant on {device}")
    return [one for one in among if not names or any(one in groups.get(name, ()) for name in names)]
