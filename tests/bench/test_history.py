"""Whether a bug of the past is found: by a finding on what it makes wrong, in the release before."""

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mhc import adapters
from mhc.bench import history
from mhc.bench.mended import MENDED as RECORDS
from mhc.bench.mended import Mended

MENDED = Mended("https://example.org/1", "a sum", "pack", "1.0", "1.1", "pack:sum", ("y",))


FINDINGS = (
    history.Finding("bound", "y", ('"smaller"', '"drawn"')),
    history.Finding("algebra", "dx", ('"other"',)),
)


def searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fail: set[tuple[str, str]], after: int = 1
) -> tuple[history.Search, list[str]]:
    """Return what a search finds where `fail` are the releases with the cases that fail in them, and what it replayed."""
    legs, replayed = list[float](), list[str]()

    def campaign(kernel: str, site: Path, minutes: float, seed: int, out: Path) -> history.Campaign:
        assert (kernel, site.name, seed) == ("pack:sum", "1.0", 7)
        legs.append(minutes)
        return history.Campaign(6 * len(legs), FINDINGS if len(legs) >= after else FINDINGS[1:])

    def run(site: Path, *arguments: str) -> tuple[int, str]:
        assert arguments[:3] == ("replay", "--impl", "pack:sum")
        case = json.loads(Path(arguments[3]).read_text())
        replayed.append(f"{site.name} {case}")
        return int((site.name, case) in fail), ""

    monkeypatch.setattr(history, "campaign", campaign)
    monkeypatch.setattr(history, "run", run)
    return history.search(MENDED, Path("1.0"), Path("1.1"), 1.2, 7, tmp_path / "out"), replayed


def test_a_bug_is_found_by_a_case_that_passes_in_the_later_release_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, replayed = searched(monkeypatch, tmp_path, {("1.0", "smaller"), ("1.0", "drawn")})
    assert (found.summary, found.cases, found.minutes) == ("found: bound y", 6, 0.5)
    assert replayed == ["1.1 smaller", "1.0 smaller"], "the case as drawn is not needed, nor one of another output"


def test_the_case_as_drawn_finds_a_bug_where_the_smaller_one_shows_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, _ = searched(monkeypatch, tmp_path, {("1.0", "smaller"), ("1.1", "smaller"), ("1.0", "drawn")}, after=3)
    assert (found.summary, found.cases) == ("found: bound y", 18)
    assert found.minutes == pytest.approx(1.2)


def test_a_bug_that_is_missed_says_what_came_of_each_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missed, replayed = searched(monkeypatch, tmp_path, {("1.0", "smaller"), ("1.1", "smaller")})
    assert missed.summary == "not found: bound y does not fail again; bound y fails in the later release too"
    assert (missed.cases, len(replayed)) == (18, 3), "each case is replayed once"
    assert missed.minutes == pytest.approx(1.2)
    assert history.Search(others=("algebra dx",)).summary == "not found: no finding on its outputs; algebra dx on others"


def test_a_case_that_is_not_judged_again_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> tuple[int, str]:
        raise click.ClickException("exit status 2")

    monkeypatch.setattr(history, "run", run)
    assert history.outcome(MENDED, Path("a.json"), Path("1.0"), Path("1.1")) == "is not judged again"


def test_a_bug_that_cannot_be_run_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def search(mended: Mended, *_: Any) -> history.Search:
        if mended is MENDED:
            raise click.ClickException("--impl pack:sum: exit status 3\ntraceback")
        return history.Search(9, 0.5, [("bound y", history.FOUND)])

    other = dataclasses.replace(MENDED, what="a product")
    monkeypatch.setattr(history, "MENDED", (MENDED, other))
    monkeypatch.setattr(history, "installed", lambda *_: tmp_path)
    monkeypatch.setattr(history, "search", search)
    shown = CliRunner().invoke(history.history, ["--folder", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "| not run: --impl pack:sum: exit status 3 | 0 | 0.0 |" in shown.output
    assert "| pack 1.0, 1.1 | found: bound y | 9 | 0.5 |" in shown.output
    assert "1 of 2 found." in shown.output


def test_each_bug_names_a_kernel_and_what_it_computes() -> None:
    kernels = {name: one for library in adapters.MODULES for name, one in adapters.kernels(library).items()}
    for one in RECORDS:
        table = kernels[one.kernel].table
        there = {spec.name for spec in (*table.outputs, *table.gradients)}
        assert {*one.subjects} - {"forward", "backward", "process", "inputs"} <= there, one.issue


def test_a_campaign_runs_with_the_release_and_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert env["PYTHONPATH"].startswith(f"{tmp_path / 'site'}:")
        folder = Path(command[command.index("--resume-or-start") + 1])
        folder.mkdir(parents=True)
        finding = {"fingerprint": {"oracle": "bound", "subject": "y"}, "case": {"T": 1}}
        (folder / "1.json").write_text(json.dumps(finding))
        (folder / "2.json").write_text(json.dumps({**finding, "drawn": {"case": {"T": 5}}}))
        return subprocess.CompletedProcess(command, 1, "# 7 cases in 60 s on cpu, 1 findings\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    found = history.campaign("pack:sum", tmp_path / "site", 1.0, 1, tmp_path / "out")
    raw, small = ('{"T": 1}',), ('{"T": 1}', '{"T": 5}')
    assert found == history.Campaign(7, (history.Finding("bound", "y", raw), history.Finding("bound", "y", small)))


def test_a_release_without_init_goes_before_the_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> None:
        where = Path(command[command.index("--target") + 1])
        (where / "pack").mkdir(parents=True)
        (where / "pack-1.0.dist-info").mkdir()

    monkeypatch.setattr(subprocess, "run", run)
    where = history.installed("pack", "1.0", tmp_path)
    assert [file.relative_to(where) for file in where.rglob("*.py")] == [Path("pack/__init__.py")]


def test_a_campaign_that_does_not_run_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 2, "", "Error: --impl pack:sum: not available")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(click.ClickException, match="exit status 2\nError: --impl pack:sum"):
        history.campaign("pack:sum", tmp_path, 1.0, 1, tmp_path / "out")
