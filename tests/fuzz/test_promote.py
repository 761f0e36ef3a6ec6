"""Fixtures and the verbs that make them: `minimise` and `promote`."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc import default_case
from mhc.fuzz.cli import minimise
from mhc.fuzz.findings import fixtures
from mhc.fuzz.findings.finding import Finding, read_finding
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles.verdict import Verdict
from tests.fuzz.test_minimise import FINE, WRONG, Answer, found, stubs
from tests.fuzz.test_search import BIG, plain
from tests.support.helpers import ROOT

MANUAL = replace(found(WRONG), spec="manual")
SMALL = replace(MANUAL, case=plain(D=2), message="small")


def on_disk(folder: Path, finding: Finding = MANUAL) -> Path:
    path = folder / "finding.json"
    path.write_text(finding.to_json(), encoding="utf-8")
    return path


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """What the stubs of this test answer, its only entry; they stand for worker processes."""
    answers: list[Answer] = [lambda case, depth: WRONG]

    def processes(*_: object) -> object:
        return stubs(answers[0])[0]

    monkeypatch.setattr("mhc.fuzz.cli.minimise.processes", processes)
    monkeypatch.setattr("mhc.fuzz.minimise.minimise.processes", processes)
    return answers


def run(verb: str, *arguments: object) -> Result:
    return CliRunner().invoke(getattr(minimise, verb), [*map(str, arguments)])


def now_and_then() -> Answer:
    turns = iter([WRONG, FINE, WRONG] + [FINE] * 20)
    return lambda case, depth: next(turns)


def broken(case: object, depth: object) -> Verdict:
    raise HarnessError("out of paper")


def test_minimise_writes_the_small_finding_and_says_how_to_replay_it(tmp_path: Path, answer: list[Answer]) -> None:
    answer[0] = lambda case, depth: WRONG if case.sizes["D"] >= 7 else FINE
    result = run("minimise", on_disk(tmp_path))
    assert result.exit_code == 1, result.output
    path = tmp_path / "finding-small.json"
    assert f"python -m mhc.fuzz replay {path}" in result.output
    assert "stable, 3 of 3 in fresh processes; 27744 -> 7 elements" in result.output
    small = read_finding(path)
    assert small.case == plain(D=7)
    assert small.message == WRONG.message
    assert run("minimise", path, "--out", tmp_path / "again.json").exit_code == 1
    assert read_finding(tmp_path / "again.json").case == small.case


def test_minimise_writes_nothing_of_what_fails_no_more(tmp_path: Path, answer: list[Answer]) -> None:
    answer[0] = lambda case, depth: FINE
    result = run("minimise", on_disk(tmp_path))
    assert result.exit_code == 0
    assert "it does not fail any more" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["finding.json"]


def test_promote_writes_the_fixture_of_what_fails_each_time(tmp_path: Path, answer: list[Answer]) -> None:
    result = run("promote", on_disk(tmp_path), "--fixtures", tmp_path / "new")
    assert result.exit_code == 1, result.output
    (path,) = (tmp_path / "new").iterdir()
    assert path.name.startswith(read_finding(path).fingerprint.id)
    assert f"python -m mhc.fuzz replay {path}" in result.output
    kept = read_finding(path)
    assert kept.case == BIG
    assert kept.reduction is not None
    assert (kept.reduction.reproduced, kept.reduction.runs) == (3, 3)


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [("never", 0, "nothing to promote"), ("now and then", 1, "refused: a fixture must fail 3 times of 3")],
)
def test_promote_refuses_what_does_not_fail_each_time(
    tmp_path: Path, answer: list[Answer], how: str, code: int, words: str
) -> None:
    answer[0] = now_and_then() if how == "now and then" else lambda case, depth: FINE
    result = run("promote", on_disk(tmp_path), "--fixtures", tmp_path / "new")
    assert result.exit_code == code
    assert words in result.output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("verb", ["minimise", "promote"])
def test_a_fault_of_the_harness_exits_3(tmp_path: Path, answer: list[Answer], verb: str) -> None:
    answer[0] = broken
    result = run(verb, on_disk(tmp_path), *(["--fixtures", tmp_path] if verb == "promote" else []))
    assert result.exit_code == 3
    assert "fault of the harness: out of paper" in result.output


@pytest.mark.parametrize("verb", ["minimise", "promote"])
def test_bad_usage_exits_2_and_says_why(tmp_path: Path, verb: str) -> None:
    bare = tmp_path / "case.json"
    bare.write_text(default_case().to_json(), encoding="utf-8")
    assert "this is a case, and not a finding" in run(verb, bare).output
    gone = on_disk(tmp_path, replace(MANUAL, spec="absent.py:IMPL"))
    assert "absent.py: no such file" in run(verb, gone, "--trust").output
    elsewhere = run(verb, on_disk(tmp_path), "--device", "cuda")
    assert elsewhere.exit_code == 2
    assert "cuda" in elsewhere.output
    assert run(verb, tmp_path / "nothing.json").exit_code == 2


def test_promote_needs_a_folder_for_a_kernel_from_outside(tmp_path: Path) -> None:
    result = run(
        "promote", on_disk(tmp_path, replace(MANUAL, spec="mhc.operators.mhc_pre.torch.implementations:MANUAL")), "--trust"
    )
    assert result.exit_code == 2
    assert "--fixtures: must be given" in result.output


def test_where_a_fixture_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = replace(MANUAL, spec="mine.py:IMPL")
    assert fixtures.folder_for(MANUAL, tmp_path) == ROOT / "tests" / "regressions"
    assert fixtures.folder_for(outside, tmp_path) == tmp_path
    assert fixtures.folder_for(outside, tmp_path, tmp_path / "mine") == tmp_path / "mine"
    assert fixtures.folder_for(MANUAL, tmp_path, tmp_path / "mine") == tmp_path / "mine"
    installed = tmp_path / "site-packages" / "mhc" / "fuzz" / "findings" / "fixtures.py"
    monkeypatch.setattr("mhc.fuzz.findings.fixtures.__file__", str(installed))
    assert fixtures.folder_for(MANUAL, tmp_path) == tmp_path


def test_a_fixture_is_replaced_by_a_simpler_one_and_by_no_other(tmp_path: Path) -> None:
    raw = fixtures.write(MANUAL, tmp_path)
    assert raw.name == f"{MANUAL.fingerprint.id}.json"
    assert fixtures.write(SMALL, tmp_path, replacing=raw) == raw
    assert read_finding(raw) == SMALL
    second = fixtures.write(MANUAL, tmp_path)
    assert second.name.startswith(f"{MANUAL.fingerprint.id}-")
    assert read_finding(raw) == SMALL
    assert fixtures.write(replace(MANUAL, case=plain()), tmp_path, replacing=second) == raw
    assert [path.name for path in tmp_path.iterdir()] == [raw.name], "and nothing is left behind"


def test_a_fixture_that_cannot_be_read_gives_way(tmp_path: Path) -> None:
    path = tmp_path / f"{MANUAL.fingerprint.id}.json"
    path.write_text("{", encoding="utf-8")
    assert fixtures.write(MANUAL, tmp_path) == path
    assert read_finding(path) == MANUAL
