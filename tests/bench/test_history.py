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


def test_a_bug_is_found_by_a_finding_on_what_it_makes_wrong() -> None:
    before = history.Campaign(12, (("bound", "y"), ("exact", "y"), ("nonfinite", "y"), ("memory", "inputs")))
    after = history.Campaign(11, (("nonfinite", "y"), ("memory", "inputs")))
    cells = history.row(MENDED, before, after)
    assert cells[3:] == ("found: bound, exact", "12", "1.1: memory inputs, nonfinite y in 11")
    assert history.row(MENDED, after, history.Campaign(9, after.found))[3] == "not found", "it is in both: another bug"
    assert history.row(MENDED, after, history.Campaign(9, ()))[5] == "1.1: no finding in 9"


def test_each_bug_names_a_kernel_and_what_it_computes() -> None:
    kernels = {name: one for library in adapters.MODULES for name, one in adapters.kernels(library).items()}
    for one in history.MENDED:
        table = kernels[one.kernel].table
        there = {spec.name for spec in (*table.outputs, *table.gradients)}
        assert {*one.subjects} - {"backward", "process"} <= there, one.issue


def test_a_campaign_runs_with_the_release_and_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert env["PYTHONPATH"].startswith(f"{tmp_path / 'site'}:")
        folder = Path(command[command.index("--out") + 1]) / "run"
        folder.mkdir(parents=True)
        (folder / "1.json").write_text(json.dumps({"fingerprint": {"oracle": "bound", "subject": "y"}}))
        return subprocess.CompletedProcess(command, 1, "# 7 cases in 60 s on cpu, 1 findings\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert history.campaign("pack:sum", tmp_path / "site", 1.0, 1, tmp_path / "out") == history.Campaign(
        7, (("bound", "y"),)
    )


def test_a_campaign_that_does_not_run_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 2, "", "Error: --impl pack:sum: not available")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(click.ClickException, match="exit status 2\nError: --impl pack:sum"):
        history.campaign("pack:sum", tmp_path, 1.0, 1, tmp_path / "out")
