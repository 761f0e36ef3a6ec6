"""Whether a bug of the past is found: by a finding on what it makes wrong, in the release before."""

import json
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from mhc import adapters
from mhc.bench import history

MENDED = history.Mended("https://example.org/1", "a sum", "pack", "1.0", "1.1", "pack:sum", ("y",))


def finding(gate: str, subject: str) -> history.Finding:
    return history.Finding(gate, subject, Path(f"{gate}-{subject}.json"))


def test_a_bug_is_found_by_a_case_that_passes_in_the_later_release_only(monkeypatch: pytest.MonkeyPatch) -> None:
    before = history.Campaign(
        12, (finding("bound", "y"), finding("nonfinite", "y"), finding("exact", "y"), finding("algebra", "dx"))
    )
    fail = {("1.0", "bound-y"), ("1.0", "nonfinite-y"), ("1.1", "nonfinite-y"), ("1.0", "algebra-dx")}

    def run(site: Path, *arguments: str) -> tuple[int, str]:
        assert arguments[:3] == ("replay", "--impl", "pack:sum")
        return int((site.name, Path(arguments[3]).stem) in fail), ""

    monkeypatch.setattr(history, "run", run)
    assert history.gates(MENDED, before, Path("1.0"), Path("1.1")) == ["bound"], "nonfinite: in both; exact: not again"


def test_a_row_says_what_was_found() -> None:
    after = history.Campaign(11, (finding("nonfinite", "y"), finding("memory", "inputs")))
    cells = history.row(MENDED, history.Campaign(12, ()), after, ["bound", "exact"])
    assert cells[3:] == ("found: bound, exact", "12", "1.1: memory inputs, nonfinite y in 11")
    cells = history.row(MENDED, after, history.Campaign(9, ()), [])
    assert cells[3:] == ("not found", "11", "1.1: no finding in 9")


def test_each_bug_names_a_kernel_and_what_it_computes() -> None:
    kernels = {name: one for library in adapters.MODULES for name, one in adapters.kernels(library).items()}
    for one in history.MENDED:
        table = kernels[one.kernel].table
        there = {spec.name for spec in (*table.outputs, *table.gradients)}
        assert {*one.subjects} - {"forward", "backward", "process", "inputs"} <= there, one.issue


def test_a_campaign_runs_with_the_release_and_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert env["PYTHONPATH"].startswith(f"{tmp_path / 'site'}:")
        folder = Path(command[command.index("--out") + 1]) / "run"
        folder.mkdir(parents=True)
        (folder / "1.json").write_text(json.dumps({"fingerprint": {"oracle": "bound", "subject": "y"}}))
        return subprocess.CompletedProcess(command, 1, "# 7 cases in 60 s on cpu, 1 findings\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    file = tmp_path / "out" / "run" / "1.json"
    found = history.campaign("pack:sum", tmp_path / "site", 1.0, 1, tmp_path / "out")
    assert found == history.Campaign(7, (history.Finding("bound", "y", file),))


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
