"""The ledger: findings that are known and not mended yet, each with the issue that tells of it.

A known finding is reported as known and fails nothing. Where it is mended, its entry fails until it is taken out: the ledger
never says of a bug that is gone that it is there.

An entry may be confined to the cases that its reason explains (`Known.where`). The same failure on another case is another
bug: its fingerprint says outside of which conditions it was found, so that its name, its file and whatever else goes by
fingerprints are its own, and no smaller case is taken for it that the entry explains.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from mhc.case import Case
from mhc.fuzz.findings.condition import Condition
from mhc.fuzz.findings.fingerprint import Fingerprint

_ISSUE = re.compile(r"#[1-9]\d*|https://[\w.-]+/\S+/(issues|pull|discussions)/[1-9]\d*(#\S+)?")


@dataclass(frozen=True, kw_only=True)
class Known:
    """One known finding.

    Attributes:
        fingerprint: which one. fixture: the file in tests/regressions that shows it.
        issue: where it is told of: `#12` in this project, or the address of an issue, pull request or discussion.
        reason: why it is not mended, in a sentence.
        also: other implementations that fail on the fixture, for the same cause.
        where: of which cases this is known; None: of all with the fingerprint.

    Raises:
        ValueError: no issue, or no reason.
    """

    fingerprint: Fingerprint
    fixture: str
    issue: str
    reason: str
    also: tuple[str, ...] = ()
    where: Condition | None = None

    def __post_init__(self) -> None:
        if not _ISSUE.fullmatch(self.issue):
            raise ValueError(f"{self.fingerprint}: issue must be #NUMBER or the address of an issue, was {self.issue!r}")
        if len(self.reason.split()) < 3:
            raise ValueError(f"{self.fingerprint}: reason must say why it is not mended, was {self.reason!r}")
        if not self.fixture.startswith(self.fingerprint.id) or not self.fixture.endswith(".json"):
            raise ValueError(f"{self.fingerprint}: fixture must be {self.fingerprint.id}*.json, was {self.fixture!r}")

    def covers(self, case: Case) -> bool:
        """Whether `case` is one of those of which this is known."""
        return self.where is None or self.where.holds(case)

    def __str__(self) -> str:
        where = "" if self.where is None else f", where {self.where}"
        return f"known: {self.fingerprint}{where}: {self.reason} ({self.issue})"


class Outcome(Enum):
    """What a replayed fixture means."""

    CLEAN = "clean"  # it does not fail, and nobody said it would
    KNOWN = "known"  # it fails as the ledger says
    BROKEN = "broken"  # it fails, and the ledger does not know
    MENDED = "mended"  # the ledger says that it fails, and it does not: the entry must go

    @property
    def fails(self) -> bool:
        return self in {Outcome.BROKEN, Outcome.MENDED}


LEDGER: tuple[Known, ...] = ()


def identified(fingerprint: Fingerprint, case: Case, ledger: Sequence[Known] | None = None) -> Fingerprint:
    """The fingerprint of a failure on `case`, with the conditions of the entries that would explain it on another case.

    Args:
        fingerprint: what the failure says without looking at its case.
    """
    entries = [one for one in (LEDGER if ledger is None else ledger) if one.fingerprint == fingerprint]
    if not entries or any(one.covers(case) for one in entries):
        return fingerprint
    conditions = dict.fromkeys(one.where for one in entries if one.where is not None)
    return identified(replace(fingerprint, outside=(*fingerprint.outside, *conditions)), case, ledger)


def known(fingerprint: Fingerprint, case: Case, ledger: Sequence[Known] | None = None) -> Known | None:
    """The entry that explains a failure on `case`, if there is one; of `LEDGER` where no other is given."""
    kind = identified(fingerprint, case, ledger)
    entries = LEDGER if ledger is None else ledger
    return next((one for one in entries if one.fingerprint == kind and one.covers(case)), None)


def expected(fixture: str, implementation: str, ledger: Sequence[Known] | None = None) -> Known | None:
    """The entry that says an implementation fails on a fixture, if there is one."""
    entries = LEDGER if ledger is None else ledger
    return next(
        (one for one in entries if one.fixture == fixture and implementation in {one.fingerprint.implementation, *one.also}),
        None,
    )


def outcome(fingerprint: Fingerprint, case: Case, reproduced: bool, ledger: Sequence[Known] | None = None) -> Outcome:
    """What it means that a fixture, of that case, failed with its fingerprint, or did not."""
    if known(fingerprint, case, ledger) is None:
        return Outcome.BROKEN if reproduced else Outcome.CLEAN
    return Outcome.KNOWN if reproduced else Outcome.MENDED
