"""The ledger of known findings: an entry cites an issue, a known finding fails nothing, one that is mended does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mhc import Case, CaseError, default_case
from mhc.case import with_tensor
from mhc.fuzz.findings.condition import Condition
from mhc.fuzz.findings.finding import Finding, read_finding
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.findings.fixtures import REGRESSIONS
from mhc.fuzz.findings.known_issues import LEDGER, Known, Outcome, expected, identified, known, outcome
from mhc.fuzz.minimise.minimise import confirm, minimise
from mhc.fuzz.minimise.sandbox import Start, processes
from mhc.registry import load
from oracles.verdict import failed, passed
from strategies.cases import DTYPES
from tests.fuzz.test_minimise import stubs
from tests.fuzz.test_search import BIG, plain
from tests.support.helpers import ROOT

FINGERPRINT = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="value")
OTHER = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="all zero")
REASON = "the compiler of this version is wrong"


def entry(issue: str = "#12", reason: str = REASON, fixture: str = f"{FINGERPRINT.id}.json") -> Known:
    return Known(fingerprint=FINGERPRINT, fixture=fixture, issue=issue, reason=reason)


def disagreeing(ledger: Sequence[Known], folder: Path, start: Start | None = None) -> list[str]:
    """The entries whose fixture does not fail as they say, or is not there."""
    told = []
    for one in ledger:
        path = folder / one.fixture
        if not path.is_file():
            told.append(f"{one}: {path} is not there")
            continue
        found = read_finding(path)
        if not one.covers(found.case):
            told.append(f"{one}: the case of {one.fixture} is none that it covers")
            continue
        implementation = None if start is not None else load(found.spec)
        if implementation is not None and "cpu" not in implementation.devices:
            continue  # replayed where there is a GPU, by the test of its fixture
        again = confirm(found, start or processes(found.spec, load(found.spec), "cpu"), runs=1).reduction
        assert again is not None
        if outcome(found.fingerprint, found.case, again.stable, ledger) is not Outcome.KNOWN:
            told.append(f"{one}: it does not fail any more: take the entry out")
    return told


def test_every_entry_still_fails() -> None:
    assert disagreeing(LEDGER, ROOT / REGRESSIONS) == []


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
    ledger = (entry(),)
    assert known(FINGERPRINT, default_case(), ledger) == ledger[0]
    assert known(OTHER, default_case(), ledger) is None
    assert known(FINGERPRINT, default_case()) is None
    assert str(ledger[0]) == f"known: mine: dx: value (bound): {REASON} (#12)"


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
    found = outcome(FINGERPRINT, default_case(), reproduced, (entry(),) if listed else ())
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


FLOAT32 = Condition(dtypes=("float32",))
MANY = Condition(least=(("n", 9), ("M", 99)))
SMALL = Condition(dtypes=("float32", "bfloat16"), below=(("x", 2.0**-126), ("phi", 1e-3)))


@pytest.mark.parametrize(
    ("condition", "case", "holds"),
    [
        (FLOAT32, default_case(dtype="float32"), True),
        (FLOAT32, default_case(dtype="float64"), False),
        (MANY, default_case(n=9), True),
        (MANY, default_case(n=8), False),
        (SMALL, default_case(), False),
        (SMALL, with_tensor(default_case(D=3), "x", kind="zero"), False),
        (SMALL, with_tensor(default_case(D=3), "x", kind="zero", literals=(((0, 0, 0, 1), -1e-40),)), True),
        (SMALL, with_tensor(default_case(D=3, dtype="float16"), "x", kind="constant", scale=1e-40), False),
        (SMALL, with_tensor(default_case(), "phi", kind="constant", scale=1e-4), True),
    ],
)
def test_of_which_cases_a_condition_holds(condition: Condition, case: Case, holds: bool) -> None:
    assert condition.holds(case) is holds


def test_a_condition_in_words_and_as_json() -> None:
    words = {str(FLOAT32): FLOAT32, str(MANY): MANY, str(SMALL): SMALL}
    assert list(words) == ["float32", "n >= 9 and M >= 99", "float32 or bfloat16 and x below 2^-126 or phi below 0.001"]
    for one in words.values():
        assert Condition.read(json.loads(json.dumps(one.document))) == one
    with pytest.raises(ValueError, match="a condition must say something"):
        Condition()


def test_the_same_failure_on_a_case_that_no_entry_covers_is_another_bug() -> None:
    ledger = (replace(entry(), where=FLOAT32),)
    inside, outside = default_case(dtype="float32"), default_case(dtype="bfloat16")
    assert identified(FINGERPRINT, inside, ledger) == FINGERPRINT
    other = identified(FINGERPRINT, outside, ledger)
    assert other == replace(FINGERPRINT, outside=(FLOAT32,))
    assert other.id != FINGERPRINT.id
    assert str(other) == "mine: dx: value (bound), not: float32"
    assert (known(FINGERPRINT, inside, ledger), known(FINGERPRINT, outside, ledger)) == (ledger[0], None)
    assert str(ledger[0]) == f"known: mine: dx: value (bound), where float32: {REASON} (#12)"
    assert outcome(FINGERPRINT, outside, True, ledger) is Outcome.BROKEN
    verdict = failed("bound", "dx", "value", "")
    assert (other.fits(verdict, inside), other.fits(verdict, outside)) == (False, True)
    assert FINGERPRINT.fits(verdict, inside)


def test_a_second_bug_with_the_same_words_has_an_entry_of_its_own() -> None:
    """Beside the first one's condition, or as what was found outside of it."""
    inside, many, neither = default_case(dtype="float32"), default_case(n=9), default_case(n=8)
    first, second = replace(entry(), where=FLOAT32), replace(entry(), where=MANY, issue="#13")
    assert [known(FINGERPRINT, case, (first, second)) for case in (inside, many, neither)] == [first, second, None]
    assert identified(FINGERPRINT, neither, (first, second)).outside == (FLOAT32, MANY)
    kind = identified(FINGERPRINT, many, (first,))
    later = replace(second, fingerprint=kind, fixture=f"{kind.id}.json")
    assert [known(FINGERPRINT, case, (first, later)) for case in (inside, many, neither)] == [first, later, None]
    assert known(kind, many, (first, later)) is later
    assert identified(FINGERPRINT, neither, (first, later)).outside == (FLOAT32, MANY)


def test_an_entry_whose_fixture_is_no_case_of_it_is_told_of(tmp_path: Path) -> None:
    found = Finding(fingerprint=FINGERPRINT, spec="mine.py:IMPL", variables={}, case=default_case(), message="")
    (tmp_path / f"{FINGERPRINT.id}.json").write_text(found.to_json(), encoding="utf-8")
    (told,) = disagreeing(
        (replace(entry(), where=FLOAT32),), tmp_path, stubs(lambda *_: failed("bound", "dx", "value", ""))[0]
    )
    assert told.endswith(f"the case of {FINGERPRINT.id}.json is none that it covers")


def test_a_finding_outside_of_a_condition_is_read_as_it_was_written(tmp_path: Path) -> None:
    kind = replace(FINGERPRINT, outside=(FLOAT32, SMALL))
    path = tmp_path / "found.json"
    found = Finding(fingerprint=kind, spec="mine.py:IMPL", variables={}, case=default_case(), message="")
    path.write_text(found.to_json(), encoding="utf-8")
    assert read_finding(path).fingerprint == kind
    text = found.to_json().replace('"dtypes"', '"colours"')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CaseError, match="fingerprint or reduction: has other fields than expected"):
        read_finding(path)


def test_the_minimiser_does_not_walk_into_what_is_known() -> None:
    """float32 is the simplest dtype, and fails in the same words; but there it is known."""
    start, _ = stubs(lambda case, depth: failed("bound", "dx", "value", "") if case.D >= 3 else passed("bound", "dx"))
    found = Finding(
        fingerprint=replace(FINGERPRINT, outside=(FLOAT32,)), spec="mine.py:IMPL", variables={}, case=BIG, message=""
    )
    small = minimise(found, "cpu", start=start)
    assert small.case == plain(D=3, dtype=DTYPES[1])
    assert small.fingerprint == found.fingerprint
    assert small.reduction is not None
    assert small.reduction.stable
    assert minimise(replace(found, fingerprint=FINGERPRINT), "cpu", start=start).case == plain(D=3)
