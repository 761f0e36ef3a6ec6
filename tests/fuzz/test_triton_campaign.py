"""A campaign over Triton programs, from the command line to the replay of what it finds."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from mhc.fuzz.check.program_check import COMPILER
from mhc.fuzz.findings.finding import finding, read_finding
from mhc.oracles.verdict import failed
from mhc.programs.targets import TARGETS
from mhc.programs.triton.grammar import Buffer, Op, Store, TritonProgram

pytestmark = pytest.mark.slow

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


def test_a_program_is_replayed_on_the_interpreter_by_default_and_export_wants_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    path.write_text(FLIP.to_json(), encoding="utf-8")
    ran = fuzz("replay", path)
    assert ran.returncode == 1, ran.stderr
    assert "v2 = tl.flip(v1, 0)" in ran.stdout
    assert "run: AttributeError" in ran.stdout
    refused = fuzz("export", path, "--to", "triton")
    assert refused.returncode == 2
    assert "this is a case, and not a finding" in " ".join(refused.stderr.split())


def test_a_finding_is_minimised_from_the_command_line(tmp_path: Path) -> None:
    more = (Op("v3", "add", ("v2", "v1")), Op("v4", "mul", ("v3", "v3")), Store("y", "v0", "v4"))
    target = TARGETS["triton-interpreter"]
    verdict = failed(COMPILER, "run", "AttributeError: _ object has no attribute _", "found by hand")
    path, small = tmp_path / "finding.json", tmp_path / "small.json"
    drawn = replace(FLIP, body=(*FLIP.body[:-1], *more), num_warps=8, seed=3)
    path.write_text(finding(target.name, target, drawn, verdict).to_json(), encoding="utf-8")
    ran = fuzz("minimise", path, "--out", small)
    assert ran.returncode == 1, ran.stderr
    found = read_finding(small)
    assert isinstance(found.case, TritonProgram)
    assert [getattr(one, "op", "store") for one in found.case.body] == ["full", "flip", "store"]
    assert (found.case.num_warps, found.case.seed) == (4, 0)
    assert found.reduction is not None
    assert found.reduction.stable
    environment = json.loads(small.read_text(encoding="utf-8"))["environment"]
    assert environment["variables"]["TRITON_INTERPRET"] == "1"


def test_a_campaign_is_reported_and_resumed(tmp_path: Path) -> None:
    fixtures = tmp_path / "fixtures"
    options = ("--programs", "triton", "--cases", 20, "--workers", 1, "--seed", 101)
    ran = fuzz(*options, "--out", tmp_path / "runs", "--fixtures", fixtures)
    assert ran.returncode == 0, ran.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert {"report.html", "summary.md", "junit.xml", "campaign.sqlite"} <= {one.name for one in run.iterdir()}
    before = judged(run)
    assert before >= 20
    resumed = fuzz("--resume", run, "--cases", 30, "--fixtures", fixtures)
    assert resumed.returncode == 0, resumed.stderr
    assert judged(run) >= max(30, before)


def judged(run: Path) -> int:
    found = re.search(r"\| triton-interpreter \| (\d+) \|", (run / "summary.md").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])
