"""Triage: each bug is kept once, as it was drawn and then as the minimiser leaves it."""

from dataclasses import replace
from pathlib import Path

from mhc.fuzz.campaign.store import Store
from mhc.fuzz.campaign.triage import Triage
from mhc.fuzz.findings.finding import Finding, Reduction, finding, from_document
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.oracles.verdict import failed
from mhc.programs.grammar import Buffer, Const, Program
from mhc.programs.grammar import Store as Write
from mhc.programs.targets import TARGETS
from tests.support.fake_executor import OTHER, WRONG

PROGRAM = Program(buffers=(Buffer("y", (1,), "int32", written=True),), body=(Write("y", (Const(0),), Const(1)),))

ID, OTHER_ID = WRONG.fingerprint.id, OTHER.fingerprint.id


def triage(store: Store, new: list[Finding], small: list[Finding], *known: KnownIssue) -> Triage:
    names = {one.fingerprint.implementation for one in (WRONG, OTHER)}
    return Triage(store, names, known, new.append, small.append, lambda drawn, found: None)


def test_a_finding_is_kept_as_it_was_drawn_and_then_as_it_is_minimal(tmp_path: Path) -> None:
    store, new, small = Store.create(tmp_path / "run.db"), list[Finding](), list[Finding]()
    one = triage(store, new, small)
    assert not one.add((), 1.0)
    assert one.add((WRONG,), 2.0)
    assert (len(one), new, small, one.waiting) == (1, [WRONG], [], [WRONG])
    row = store.findings()[ID]
    assert (row["state"], row["seen"], row["at"]) == ("raw", 1, 2.0)
    assert from_document(row["document"]) == WRONG
    one.minimal(WRONG, replace(WRONG, message="smaller"), 5.0)
    row = store.findings()[ID]
    assert (row["state"], row["seen"], row["at"]) == ("minimal", 1, 2.0)
    assert from_document(row["document"]).message == "smaller"
    assert (len(one), new, [found.message for found in small]) == (1, [WRONG], ["smaller"])


def test_one_that_turns_out_to_be_another_is_that_one_which_may_be_there_already(tmp_path: Path) -> None:
    store, new, gone = Store.create(tmp_path / "run.db"), list[Finding](), list[tuple[Finding, Finding]]()
    names = {WRONG.fingerprint.implementation}
    one = Triage(store, names, (), new.append, lambda found: None, lambda *both: gone.append(both))
    after = replace(WRONG, fingerprint=replace(WRONG.fingerprint, symptom="wrong after others"))
    again = replace(after, fingerprint=replace(after.fingerprint, subject="h_in"))
    one.add((after,), 1.0)
    one.add((again,), 1.0)
    one.waiting.clear()
    one.minimal(after, WRONG, 2.0)
    assert (set(store.findings()), len(one)) == ({ID, again.fingerprint.id}, 2)
    assert (new, one.waiting, gone) == ([after, again, WRONG], [WRONG], [(after, WRONG)])
    one.minimal(again, WRONG, 3.0)
    assert {id_: (row["state"], row["seen"]) for id_, row in store.findings().items()} == {ID: ("raw", 2)}
    assert (one.waiting, len(one), len(new)) == ([WRONG], 1, 3)
    assert not one.add((after,), 4.0), "it is the same other one again"
    assert set(store.findings()) == {ID}


def test_another_one_that_is_minimised_is_not_minimised_again(tmp_path: Path) -> None:
    store, new, small = Store.create(tmp_path / "run.db"), list[Finding](), list[Finding]()
    one = triage(store, new, small)
    one.add((WRONG,), 1.0)
    one.waiting.clear()
    reduction = Reduction(elements_before=2, elements=1, checks=9, seconds=1.0, reproduced=3, runs=3)
    other = replace(OTHER, reduction=reduction)
    one.minimal(WRONG, other, 2.0)
    assert (new, small, one.waiting) == ([WRONG, other], [other], [])
    assert {id_: row["state"] for id_, row in store.findings().items()} == {OTHER_ID: "minimal"}


def test_of_a_case_the_first_new_finding_is_kept_and_those_before_it_are_counted(tmp_path: Path) -> None:
    store, new = Store.create(tmp_path / "run.db"), list[Finding]()
    one = triage(store, new, [])
    assert one.add((WRONG, OTHER), 1.0)
    assert set(store.findings()) == {ID}, "the second may follow from the first"
    assert one.add((WRONG, OTHER), 2.0)
    assert {id_: row["seen"] for id_, row in store.findings().items()} == {ID: 2, OTHER_ID: 1}
    assert not one.add((WRONG, OTHER), 3.0)
    assert {id_: row["seen"] for id_, row in store.findings().items()} == {ID: 3, OTHER_ID: 2}
    assert new == one.waiting == [WRONG, OTHER]


def test_a_known_issue_is_no_finding_and_hides_no_other(tmp_path: Path) -> None:
    store, new = Store.create(tmp_path / "run.db"), list[Finding]()
    entry = KnownIssue(fingerprint=WRONG.fingerprint, fixture=f"{ID}.json", issue="#1", reason="the compiler is wrong")
    one = triage(store, new, [], entry)
    assert not one.add((WRONG,), 1.0)
    assert store.findings() == {}
    assert one.add((WRONG, OTHER), 1.0)
    assert new == [OTHER]
    assert set(store.findings()) == {OTHER_ID}


def test_a_later_leg_has_the_findings_of_the_earlier_ones_and_minimises_what_is_not_minimal(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run.db")
    third = replace(WRONG, fingerprint=replace(WRONG.fingerprint, subject="h_in"))
    for at, (found, state) in enumerate(((WRONG, "raw"), (third, "minimal"), (OTHER, "shrunk"))):
        store.keep(found.fingerprint.id, found.document, state, float(at))
    new = list[Finding]()
    one = triage(store, new, [])
    assert (len(one), one.waiting) == (3, [WRONG, OTHER])
    assert not one.add((WRONG, third, OTHER), 9.0)
    assert new == []


def test_findings_on_minimal_programs_are_told_by_compiler_in_later_legs_too(tmp_path: Path) -> None:
    small = Reduction(elements_before=9, elements=1, checks=5, seconds=1.0, reproduced=0, runs=0)
    drawn = finding("c", TARGETS["tilelang-to-c"], PROGRAM, failed("evaluator", "+", "wrong value", "y[0] = 1"))
    minimal = replace(drawn, reduction=small)
    other = replace(minimal, fingerprint=replace(drawn.fingerprint, subject="%"), reduction=None)
    store = Store.create(tmp_path / "run.db")
    one = triage(store, [], [])
    one.add((minimal,), 1.0)
    one.add((other,), 2.0)
    one.add((WRONG,), 3.0)
    for told in (one, triage(store, [], [])):
        (found,) = told.programs("tilelang-to-c")
        assert (found.fingerprint, found.case) == (minimal.fingerprint, PROGRAM)
        assert told.programs("mine") == ()
    one.minimal(other, replace(other, reduction=small), 4.0)
    assert [found.fingerprint.subject for found in one.programs("tilelang-to-c")] == ["+", "%"], "beside the rounds too"
    one.minimal(WRONG, replace(WRONG, reduction=small), 5.0)
    assert one.programs("mine") == ()
