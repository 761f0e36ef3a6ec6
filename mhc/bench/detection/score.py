"""The result of hunts: kills, medians, false alarms, and what the fixed suites found of the same mutants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from mhc.bench.detection.hunt import Hunt
from mhc.bench.detection.sets import set_of
from mhc.bench.detection.suites import COMPARATORS, FULL_SIZE, place
from oracles.mutants.record import Mutant

_FULL_SIZE = tuple(place(fixed) for fixed in FULL_SIZE)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mutant or clean variant with its hunt.

    missed: the fixed suites under which nothing fails that does not fail on the unedited base too. missed_few: the same
    where their tests have few tokens.
    """

    mutant: Mutant
    hunt: Hunt
    missed: frozenset[str]
    missed_few: frozenset[str]

    @property
    def killed(self) -> bool:
        return self.hunt.first is not None


@dataclass(frozen=True, kw_only=True)
class Score:
    """The numbers of the report.

    Attributes:
        mutants, clean: the rows. bases: the unedited implementations by kind, and built-in ones that are no base.
        checks: clean (case, implementation) checks that were judged; alarms: of these, flagged.
    """

    mutants: Sequence[Row]
    clean: Sequence[Row]
    bases: Mapping[str, Hunt]

    @property
    def killed(self) -> list[Row]:
        return [row for row in self.mutants if row.killed]

    @property
    def survivors(self) -> list[Row]:
        """Mutants that were not killed, without the equivalent ones."""
        return [row for row in self.mutants if not row.killed and not row.mutant.equivalent]

    @property
    def equivalent(self) -> list[Row]:
        """Mutants that break no promise, and were not killed."""
        return [row for row in self.mutants if not row.killed and row.mutant.equivalent]

    @property
    def median_cases(self) -> float:
        return median(row.hunt.first or 0 for row in self.killed) if self.killed else 0.0

    @property
    def median_seconds(self) -> float:
        return median(row.hunt.seconds for row in self.killed) if self.killed else 0.0

    @property
    def faults(self) -> list[Hunt]:
        return [hunt for hunt in self._all if hunt.fault]

    @property
    def checks(self) -> int:
        return sum(hunt.checked for hunt in self._clean)

    @property
    def alarms(self) -> list[Hunt]:
        return [hunt for hunt in self._clean if hunt.first is not None]

    @property
    def oracles(self) -> list[str]:
        """Oracles that fired, the one that killed most mutants first."""
        counts: dict[str, int] = {}
        for row in self.mutants:
            for oracle in row.hunt.fired:
                counts[oracle] = counts.get(oracle, 0) + 1
        return sorted(counts, key=lambda oracle: (-counts[oracle], oracle))

    def kills(self, oracle: str) -> int:
        """Return the number of mutants that an oracle failed, in any of their cases."""
        return sum(oracle in row.hunt.fired for row in self.mutants)

    def alone(self, oracle: str) -> int:
        """Return the number of mutants that no other oracle failed."""
        return sum(list(row.hunt.fired) == [oracle] for row in self.mutants)

    @property
    def sets(self) -> dict[str, list[Row]]:
        """The mutants by the set that they are of."""
        found: dict[str, list[Row]] = {}
        for row in self.mutants:
            found.setdefault(set_of(row.mutant), []).append(row)
        return found

    def by_suite(self, suite: str) -> int:
        """Return the number of mutants that a fixed suite finds."""
        return sum(suite not in row.missed for row in self.mutants)

    def suite_alarms(self, suite: str) -> int:
        """Return the number of clean variants and unedited bases in which a fixed suite finds something."""
        return sum(bool(hunt.suites.get(suite)) for hunt in self._clean)

    @property
    def suite_clean_count(self) -> int:
        """The number of clean variants and unedited bases that the fixed suites ran on."""
        return sum(bool(hunt.suites) for hunt in self._clean)

    @property
    def clean_count(self) -> int:
        return len(self._clean)

    @property
    def _clean(self) -> list[Hunt]:
        return [*self.bases.values(), *(row.hunt for row in self.clean)]

    @property
    def _all(self) -> list[Hunt]:
        return [*self._clean, *(row.hunt for row in self.mutants)]


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
    real = {
        suite: set(hunt.suites.get(suite, ())) - set(() if base is None else base.suites.get(suite, ()))
        for suite in COMPARATORS
    }
    few = {suite: {one for one in found if not one.endswith(_FULL_SIZE)} for suite, found in real.items()}
    return Row(
        mutant=mutant,
        hunt=hunt,
        missed=frozenset(suite for suite, found in real.items() if not found),
        missed_few=frozenset(suite for suite, found in few.items() if not found),
    )
