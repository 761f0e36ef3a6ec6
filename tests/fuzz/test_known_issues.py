"""The list of known issues: an entry cites an issue, a known finding fails nothing, one that is mended does."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mhc import default_case
from mhc.fuzz.findings.finding import Finding, read_finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.findings.fixtures import REGRESSIONS
from mhc.fuzz.findings.known_issues import KNOWN_ISSUES, KnownIssue, Outcome, expected, known, outcome
from mhc.fuzz.minimise.minimise import confirm
from mhc.fuzz.minimise.sandbox import Start, processes
from mhc.oracles.verdict import failed, passed
from mhc.registry import load
from tests.fuzz.test_minimise import stubs
from tests.support.helpers import ROOT

FINGERPRINT = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="value")
OTHER = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="all zero")
REASON = "the compiler of this version is wrong"


def entry(issue: str = "#12", reason: str = REASON, fixture: str = f"{FINGERPRINT.id}.json") -> KnownIssue:
    return KnownIssue(fingerprint=FINGERPRINT, fixture=fixture, issue=issue, reason=reason)


def disagreeing(known_issues: Sequence[KnownIssue], folder: Path, start: Start | None = None) -> list[str]:
    """The entries whose fixture does not fail as they say, or is not there."""
    told = []
    for one in known_issues:
        path = folder / one.fixture
        if not path.is_file():
            told.append(f"{one}: {path} is not there")
            continue
        found = read_finding(path)
        implementation = None if start is not None else load(found.spec)
        if implementation is not None and "cpu" not in implementation.devices:
            continue  # replayed where there is a GPU, by the test of its fixture
        again = confirm(found, start or processes(found.spec, load(found.spec), "cpu"), runs=1).reduction
        assert again is not None
        if outcome(found.fingerprint, again.stable, known_issues) is not Outcome.KNOWN:
            told.append(f"{one}: it does not fail any more: take the entry out")
    return told


def test_every_entry_still_fails() -> None:
    assert disagreeing(KNOWN_ISSUES, ROOT / REGRESSIONS) == []


@pytest.mark.parametrize("fails", [True, False])
def test_an_entry_that_is_mended_is_told_of(tmp_path: Path, fails: bool) -> None:
    found = Finding(fingerprint=FINGERPRINT, spec="mine.py:IMPL", variables={}, case=default_case(), message="")
    (tmp_path / f"{FINGERPRINT.id}.json").write_text(found.to_json(), encoding="utf-8")
    verdict = failed("bound", "dx", "value", "") if fails else passed("bound", "dx")
    told = disagreeing((entry(),), tmp_path, stubs(lambda case, depth: verdict)[0])
    assert len(told) == (0 if fails else 1)
    assert all("take the entry out" in line for line in told)


def test_an_entry_without_its_fixture_is_told_of(tmp_path: Path) -> None:
    (told,) = disagreeing((entry(),), tmp_path)
    assert "is not there" in told


def test_a_known_finding_is_looked_up_by_its_fingerprint() -> None:
    known_issues = (entry(),)
    assert known(FINGERPRINT, known_issues) == known_issues[0]
    assert known(OTHER, known_issues) is None
    assert known(FINGERPRINT) is None
    assert str(known_issues[0]) == f"known: mine: dx: value (bound): {REASON} (#12)"


def test_a_fixture_is_known_to_fail_on_those_that_its_entry_names() -> None:
    one = replace(entry(), also=("yours",))
    assert expected(one.fixture, "mine", (one,)) is one
    assert expected(one.fixture, "yours", (one,)) is one
    assert expected(one.fixture, "theirs", (one,)) is None
    assert expected("other.json", "mine", (one,)) is None


@pytest.mark.parametrize(
    ("reproduced", "listed", "wanted", "fails"),
    [
        (False, False, Outcome.CLEAN, False),
        (True, False, Outcome.BROKEN, True),
        (True, True, Outcome.KNOWN, False),
        (False, True, Outcome.MENDED, True),
    ],
)
def test_what_a_replayed_fixture_means(reproduced: bool, listed: bool, wanted: Outcome, fails: bool) -> None:
    found = outcome(FINGERPRINT, reproduced, (entry(),) if listed else ())
    assert found is wanted
    assert found.fails is fails


@pytest.mark.parametrize("issue", ["", "soon", "12", "#0", "https://example.org", "http://github.com/a/b/issues/3"])
def test_an_entry_must_cite_an_issue(issue: str) -> None:
    with pytest.raises(ValueError, match="issue must be #NUMBER or the address of an issue"):
        entry(issue=issue)


@pytest.mark.parametrize(
    "issue", ["#7", "https://github.com/tile-ai/tilelang/issues/1758", "https://github.com/a/b/pull/3#x"]
)
def test_an_issue_is_a_number_or_an_address(issue: str) -> None:
    assert entry(issue=issue).issue == issue


def test_an_entry_must_say_why_and_name_its_own_fixture() -> None:
    with pytest.raises(ValueError, match="reason must say why"):
        entry(reason="flaky")
    with pytest.raises(ValueError, match="fixture must be"):
        entry(fixture=f"{OTHER.id}.json")


def test_an_entry_says_enough() -> None:
    with pytest.raises(ValueError, match="reason must say why"):
        entry(reason="compiler wrong")
    assert entry(reason="it is so").reason
    for fixture in (f"x{FINGERPRINT.id}.json", f"{FINGERPRINT.id}.txt"):
        with pytest.raises(ValueError, match="fixture must be"):
            entry(fixture=fixture)
    assert entry(fixture=f"{FINGERPRINT.id}-more.json").fixture


def test_an_entry_is_of_its_own_fingerprint_only() -> None:
    known_issues = (entry(),)
    assert known(replace(FINGERPRINT, against="golden"), known_issues) is None
    assert outcome(OTHER, True, known_issues) is Outcome.BROKEN
    assert outcome(OTHER, False, known_issues) is Outcome.CLEAN
