"""A run and a finding of an older version, in which Hypothesis shrank findings first: both are read and resumed.

`tests/older_formats/older_run` was written by the version before campaigns left all minimising to the minimiser: a store
with two findings of `kernel.py`, one minimal and one "shrunk", and the minimal one as a file.
"""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli.main import main
from mhc.fuzz.findings.finding import from_document, read_finding
from tests.support.helpers import ROOT

MINIMAL, SHRUNK = "de2c1720", "e491bfbe"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the run; its kernel is named relative to the folder above, which is the current one."""
    source = ROOT / "tests" / "older_formats" / "older_run"
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (FILE, f"{MINIMAL}.json"):
        shutil.copy(source / name, folder)
    shutil.copy(source / "kernel.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    return folder


def test_it_is_reported(run: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(run)])
    assert done.exit_code == 1, done.output
    assert "# 40 cases in 59 s on cpu, 2 findings" in done.output
    assert f"- **{MINIMAL}** mine: h_post: value (bound): minimal, stable, 3 of 3, seen 30 times" in done.output
    assert (
        f"- **{SHRUNK}** mine: h_in: value (bound): shrunk, not run again in a new process yet, seen 7 times" in done.output
    )
    assert "- mine compared with golden on 40 cases" in done.output


def test_its_finding_is_read_and_replayed(run: Path) -> None:
    path = run / f"{MINIMAL}.json"
    found = read_finding(path)
    assert found.fingerprint.id == MINIMAL
    assert found.reduction is not None
    assert found.reduction.stable
    done = CliRunner().invoke(main, ["replay", str(path), "--impl", "kernel.py:IMPL"])
    assert done.exit_code == 1, done.output
    assert "h_post[0, 0, 0] = " in done.output


@pytest.mark.slow
def test_it_is_gone_on_with_and_what_was_shrunk_is_minimised(run: Path) -> None:
    kept = run.parent / "kept"
    options = ("--cases", "44", "--workers", "2", "--trust", "--fixtures", str(kept))
    done = CliRunner().invoke(main, ["--resume", str(run), *options])
    assert done.exit_code == 1, done.output
    assert "checking mine against golden on cpu, seed 2, resuming run" in done.output.replace(str(run), "run")
    assert done.output.count("MINIMAL") == 1
    with closing(Store(run / FILE)) as store:
        rows = store.findings()
        assert {id_: row["state"] for id_, row in rows.items()} == {MINIMAL: "minimal", SHRUNK: "minimal"}
        counts = store.counts()["mine"]
        assert counts["checked"] + counts.get("refused", 0) == 44
        assert (store.meta()["seconds"], store.meta()["cases"]) == (None, 44), "the next leg has these limits"
        assert store.meta()["seeds"] == {"mine": 10}, "seeds go on behind those of the older version"
        found = from_document(rows[SHRUNK]["document"])
    assert [found.operator_case.sizes[name] for name in ("B", "S", "n", "D")] == [2, 1, 1, 1]
    assert found.reduction is not None
    assert found.reduction.stable
    assert (kept / f"{SHRUNK}.json").exists()
