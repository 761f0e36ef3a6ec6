"""Known issues: findings that are not fixed yet, each with the issue that describes it.

A known finding is reported as known and fails nothing. When it is fixed, its entry fails until it is removed, so that the
list never names a bug that is gone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mhc.fuzz.findings.fingerprint import Fingerprint

_ISSUE = re.compile(r"#[1-9]\d*|https://[\w.-]+/\S+/(issues|pull|discussions)/[1-9]\d*(#\S+)?")


@dataclass(frozen=True, kw_only=True)
class KnownIssue:
    """One known finding.

    Attributes:
        fingerprint: which one. fixture: the file in tests/regressions that shows it.
        issue: where it is described: `#12` in this project, or the address of an issue, pull request or discussion.
        reason: why it is not fixed, in a sentence.
        also: other implementations that fail on the fixture, for the same cause.

    Raises:
        ValueError: no issue, or no reason.
    """

    fingerprint: Fingerprint
    fixture: str
    issue: str
    reason: str
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _ISSUE.fullmatch(self.issue):
            raise ValueError(f"{self.fingerprint}: issue must be #NUMBER or the address of an issue, was {self.issue!r}")
        if len(self.reason.split()) < 3:
            raise ValueError(f"{self.fingerprint}: reason must say why it is not fixed, was {self.reason!r}")
        if not self.fixture.startswith(self.fingerprint.id) or not self.fixture.endswith(".json"):
            raise ValueError(f"{self.fingerprint}: fixture must be {self.fingerprint.id}*.json, was {self.fixture!r}")

    def __str__(self) -> str:
        return f"known: {self.fingerprint}: {self.reason} ({self.issue})"


class Outcome(Enum):
    """What a replayed fixture means."""

    CLEAN = "clean"  # it passes, and no entry says otherwise
    KNOWN = "known"  # it fails, as an entry says
    BROKEN = "broken"  # it fails, and no entry says so
    MENDED = "mended"  # an entry says that it fails, and it passes: the entry must go

    @property
    def fails(self) -> bool:
        return self in {Outcome.BROKEN, Outcome.MENDED}


KNOWN_ISSUES: tuple[KnownIssue, ...] = ()


def known(fingerprint: Fingerprint, known_issues: Sequence[KnownIssue] | None = None) -> KnownIssue | None:
    """Return the entry of a fingerprint, if there is one; of `KNOWN_ISSUES` where no other list is given."""
    entries = KNOWN_ISSUES if known_issues is None else known_issues
    return next((one for one in entries if one.fingerprint == fingerprint), None)


def expected(fixture: str, implementation: str, known_issues: Sequence[KnownIssue] | None = None) -> KnownIssue | None:
    """Return the entry that says an implementation fails on a fixture, if there is one."""
    entries = KNOWN_ISSUES if known_issues is None else known_issues
    return next(
        (one for one in entries if one.fixture == fixture and implementation in {one.fingerprint.implementation, *one.also}),
        None,
    )


def outcome(fingerprint: Fingerprint, reproduced: bool, known_issues: Sequence[KnownIssue] | None = None) -> Outcome:
    """Return what it means that a fixture failed with its fingerprint, or did not."""
    if known(fingerprint, known_issues) is None:
        return Outcome.BROKEN if reproduced else Outcome.CLEAN
    return Outcome.KNOWN if reproduced else Outcome.MENDED
