"""A campaign over Triton programs, from the command line to the replay of what it finds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mhc.fuzz.findings.finding import read_finding
from mhc.programs.triton.grammar import Buffer, Op, Store, TritonProgram

FLIP = TritonProgram(
    buffers=(Buffer("y", 1, written=True),),
    body=(
        Op("v0", "full", shape=(1,)),
        Op("v1", "full", shape=(1,), value=7),
        Op("v2", "flip", ("v1",)),
        Store("y", "v0", "v2"),
    ),
)


def fuzz(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mhc.fuzz", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_is_replayed_on_the_interpreter_by_default_and_export_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    path.write_text(FLIP.to_json(), encoding="utf-8")
    ran = fuzz("replay", path)
    assert ran.returncode == 1, ran.stderr
    assert "v2 = tl.flip(v1, 0)" in ran.stdout
    assert "run: AttributeError" in ran.stdout
    refused = fuzz("export", path, "--to", "triton")
    assert refused.returncode == 2
    assert "only TileLang programs are exported" in " ".join(refused.stderr.split())


@pytest.mark.slow
def test_a_campaign_finds_a_bug_reports_it_minimises_it_and_goes_on(tmp_path: Path) -> None:
    fixtures = tmp_path / "fixtures"
    ran = fuzz(
        *("--programs", "triton", "--cases", 120, "--minutes", 4, "--workers", 2, "--seed", 101),
        *("--out", tmp_path / "runs", "--fixtures", fixtures),
    )
    assert ran.returncode == 1, ran.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert {"report.html", "summary.md", "junit.xml", "campaign.sqlite"} <= {one.name for one in run.iterdir()}
    found = {one: read_finding(one) for one in run.glob("????????.json")}
    assert found
    path, one = min(found.items(), key=lambda pair: pair[0])
    assert isinstance(one.case, TritonProgram)
    assert dict(json.loads(path.read_text(encoding="utf-8"))["environment"]["variables"])["TRITON_INTERPRET"] == "1"
    again = fuzz("replay", path)
    assert again.returncode == 1, again.stderr
    assert "@triton.jit" in again.stdout
    small = fuzz("minimise", path, "--seconds", 5, "--out", tmp_path / "small.json")
    assert small.returncode == 1, small.stderr
    assert read_finding(tmp_path / "small.json").fingerprint == one.fingerprint
    resumed = fuzz("--resume", run, "--cases", 130, "--fixtures", fixtures)
    assert resumed.returncode == 1, resumed.stderr
