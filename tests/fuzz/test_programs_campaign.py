"""A campaign over programs, from the command line to the replay of what it finds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mhc.fuzz.findings.finding import read_finding
from mhc.programs.grammar import Program

pytestmark = pytest.mark.slow


def fuzz(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mhc.fuzz", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_campaign_finds_wrong_code_reports_it_and_replays_it(tmp_path: Path) -> None:
    ran = fuzz("--programs", "tilelang", "--cases", 150, "--minutes", 6, "--workers", 2, "--seed", 77, "--out", tmp_path)
    assert ran.returncode == 1, ran.stderr
    (run,) = tmp_path.iterdir()
    assert {"report.html", "summary.md", "junit.xml", "campaign.sqlite"} <= {one.name for one in run.iterdir()}
    found = {one: read_finding(one) for one in run.glob("????????.json")}
    wrong = {path: one for path, one in found.items() if one.fingerprint.symptom == "wrong value"}
    assert wrong
    path, one = min(wrong.items(), key=lambda pair: pair[0])
    assert isinstance(one.case, Program)
    assert one.reduction is None or one.reduction.stable
    again = fuzz("replay", path)
    assert again.returncode == 1, again.stderr
    assert "@T.prim_func" in again.stdout
    assert "wrong value" in again.stdout
    lines = [json.loads(line) for line in fuzz("replay", path, "--json").stdout.splitlines()]
    assert "wrong value" in {line["symptom"] for line in lines}
    document = json.loads(path.read_text(encoding="utf-8"))
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps({**document, "implementation": f"tilelang-to-c@{tmp_path}"}), encoding="utf-8")
    refused = fuzz("replay", elsewhere)
    assert refused.returncode == 2
    assert "which would be executed" in " ".join(refused.stderr.split())
    resumed = fuzz("--resume", run, "--cases", 160)
    assert resumed.returncode == 1, resumed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--programs", "tilelang", "--impl", "golden"), "not both"),
        (("--programs", "cuda"), "must be one of tilelang, triton, tilelang-to-c"),
        (("--programs", "tilelang-to-c@nowhere"), "there is no tilelang in nowhere"),
        (("--programs", "tilelang@nowhere"), "--programs tilelang-to-c@nowhere: there is no tilelang in nowhere"),
        pytest.param(
            ("--programs", "triton", "--device", "cuda"),
            "--device cuda: PyTorch sees no CUDA device here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    ran = fuzz(*arguments, "--out", tmp_path)
    assert ran.returncode == 2
    assert message in " ".join(ran.stderr.split())
    assert not list(tmp_path.iterdir())


def test_a_program_without_a_meaning_is_not_judged(tmp_path: Path) -> None:
    document = {"buffers": [{"name": "y", "shape": [1], "dtype": "int32", "written": True}], "body": []}
    store = {"type": "store", "buffer": "y", "at": [{"type": "const", "value": 5}], "value": {"type": "const", "value": 1}}
    path = tmp_path / "program.json"
    path.write_text(json.dumps({**document, "body": [store]}), encoding="utf-8")
    ran = fuzz("replay", path)
    assert ran.returncode == 2
    assert "no element 5" in ran.stdout
