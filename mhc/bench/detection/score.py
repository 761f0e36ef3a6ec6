"""The result of hunts: kills, false alarms, and what the fixed suites found of the same mutants."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mhc.bench.detection.hunt import Hunt
from mhc.bench.detection.sets import set_of
from mhc.bench.detection.suites import COMPARATORS, FULL_SIZE
from mhc.oracles.mutants.record import Mutant

_FULL_SIZE = tuple(map(str, FULL_SIZE))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mutant or clean variant with its hunt.

    Attributes:
        suites: the fixed suites under which something fails that does not fail on the unedited base. few: the same where
            their tests have few tokens.
    """

    mutant: Mutant
    hunt: Hunt
    suites: frozenset[str]
    few: frozenset[str]

    @property
    def killed(self) -> bool:
        return self.hunt.first is not None


@dataclass(frozen=True, kw_only=True)
class Score:
    """The numbers of the report.

    Attributes:
        mutants, clean: the rows. bases: the unedited implementations by kind, and built-in ones that are no base.
    """

    mutants: Sequence[Row]
    clean: Sequence[Row]
    bases: Mapping[str, Hunt]

    @property
    def killed(self) -> list[Row]:
        return [row for row in self.mutants if row.killed]

    @property
    def survivors(self) -> list[Row]:
        """Return the mutants that were not killed, without the equivalent ones."""
        return [row for row in self.mutants if not row.killed and not row.mutant.equivalent]

    @property
    def equivalent(self) -> list[Row]:
        """Return the mutants that break no promise, and were not killed."""
        return [row for row in self.mutants if not row.killed and row.mutant.equivalent]

    @property
    def correct(self) -> list[Hunt]:
        """Return the hunts of correct implementations: bases, built-in implementations and clean variants."""
        return [*self.bases.values(), *(row.hunt for row in self.clean)]

    @property
    def checks(self) -> int:
        """Return the number of clean (case, implementation) checks that were judged."""
        return sum(hunt.checked for hunt in self.correct)

    @property
    def alarms(self) -> list[Hunt]:
        return [hunt for hunt in self.correct if hunt.first is not None]

    @property
    def faults(self) -> list[Hunt]:
        return [hunt for hunt in (*self.correct, *(row.hunt for row in self.mutants)) if hunt.fault]

    @property
    def oracles(self) -> dict[str, int]:
        """Return the number of mutants that each oracle failed, in any of their cases; the largest first."""
        counts = Counter(oracle for row in self.mutants for oracle in row.hunt.fired)
        return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))

    @property
    def sets(self) -> dict[str, list[Row]]:
        """Return the mutants by their set."""
        found: dict[str, list[Row]] = {}
        for row in self.mutants:
            found.setdefault(set_of(row.mutant), []).append(row)
        return found

    def suite_alarms(self, suite: str) -> tuple[int, int]:
        """Return in how many of the correct implementations a fixed suite finds something, and on how many it ran."""
        ran = [hunt for hunt in self.correct if hunt.suites]
        return sum(bool(hunt.suites.get(suite)) for hunt in ran), len(ran)


def score(mutants: Sequence[Mutant], hunts: Mapping[str, Hunt], others: Sequence[Hunt] = ()) -> Score:
    """Put hunts beside their mutants; the bases' own are in `hunts` under the names of their kinds.

    Args:
        others: of built-in implementations that are no base.
    """
    bases = {name: hunts[name] for name in dict.fromkeys(mutant.base for mutant in mutants) if name in hunts}
    rows = [_row(mutant, hunts[mutant.name], bases.get(mutant.base)) for mutant in mutants if mutant.name in hunts]
    return Score(
        mutants=[row for row in rows if not row.mutant.clean],
        clean=[row for row in rows if row.mutant.clean],
        bases=bases | {hunt.name: hunt for hunt in others},
    )


def _row(mutant: Mutant, hunt: Hunt, base: Hunt | None) -> Row:
    """Return a row; a suite's finding that the base shows as well is a false alarm, not a kill."""
    known = {} if base is None else base.suites
    real = {suite: {*hunt.suites.get(suite, ())}.difference(known.get(suite, ())) for suite in COMPARATORS}
    return Row(
        mutant=mutant,
        hunt=hunt,
        suites=frozenset(suite for suite, found in real.items() if found),
        few=frozenset(suite for suite, found in real.items() if any(not one.endswith(_FULL_SIZE) for one in found)),
    )
