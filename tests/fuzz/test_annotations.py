"""What a run shows on GitHub: annotations at the source, few and escaped, and the summary of its job."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc.fuzz.campaign.harness_faults import FaultRecord
from mhc.fuzz.campaign.store import FILE
from mhc.fuzz.cli.main import main
from mhc.fuzz.report import Run, annotations, read, summary
from mhc.fuzz.report.annotations import defined_in
from tests.support.report_stores import HOSTILE, hostile, night


@pytest.fixture
def ran(tmp_path: Path) -> Run:
    (tmp_path / "run").mkdir()
    return read(tmp_path / "run", night(tmp_path / "run", cases=50))


def test_the_first_findings_are_shown_and_the_rest_counted(ran: Run, tmp_path: Path) -> None:
    assert len(ran.findings) == 5
    lines = annotations(ran, 3, tmp_path).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::error", "::error", "::notice"]
    assert lines[0].startswith(f"::error title=mhc-fuzz%3A {ran.findings[0].title.replace(':', '%3A')}::")
    assert lines[3] == "::notice title=mhc-fuzz::2 more findings: see the summary of the job"
    assert len(annotations(ran, 5, tmp_path).splitlines()) == 5
    assert annotations(replace(ran, findings=()), 5, tmp_path) == ""


def test_a_known_finding_is_not_shown_and_a_fault_is(ran: Run, tmp_path: Path) -> None:
    fault = FaultRecord(implementation="tir", message="no memory", seen=1).__dict__
    known = replace(
        ran, findings=[replace(one, known="known") for one in ran.findings], meta={**ran.meta, "faults": [fault]}
    )
    (line,) = annotations(known, 5, tmp_path).splitlines()
    assert line.startswith("::error title=mhc-fuzz%3A fault of the harness::")
    assert "no memory" in line


def test_text_of_a_kernel_ends_no_line_and_adds_no_property(tmp_path: Path) -> None:
    run = read(tmp_path, hostile(tmp_path))
    text = annotations(run, 5, tmp_path)
    assert text.count("\n") == len(run.new_findings) == 1
    head, _, message = text.partition("::")[2].partition("::")
    assert head.count(",") == 0
    assert "\x1b" not in text
    assert "%0A" in message
    assert "\r" not in text
    found = replace(run.findings[0], replay="100%\n::error::x,y")
    assert "100%25%0A::error::x,y" in annotations(replace(run, findings=[found]), 1, tmp_path)
    assert HOSTILE not in text
    (tmp_path / "a,b.py").write_text("IMPL = 1\n", encoding="utf-8")
    named = replace(found, finding=replace(found.finding, spec=f"{tmp_path}/a,b.py:IMPL"))
    assert annotations(replace(run, findings=[named]), 1, tmp_path).startswith("::error file=a%2Cb.py,line=1,title=")


def test_an_implementation_is_found_in_its_file_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "checkout"
    (root / "project" / "src" / "pkg").mkdir(parents=True)
    monkeypatch.chdir(root / "project")
    source = "raise SystemExit('imported')\n\nOTHER = 1\nIMPL: object = (\n    2)\n"
    for name in ("norm.py", "src/pkg/__init__.py", "src/pkg/kernels.py", "../../outside.py"):
        Path(name).write_text(source, encoding="utf-8")
    Path("broken.py").write_text("def :", encoding="utf-8")
    assert defined_in("norm.py:IMPL", root) == ("project/norm.py", 4)
    assert defined_in("norm.py:IMPL[matmul=tf32]", root) == ("project/norm.py", 4)
    assert defined_in("norm.py:OTHER", root) == ("project/norm.py", 3)
    assert defined_in("norm.py:IMPORTED", root) == ("project/norm.py", 1)
    assert defined_in("pkg.kernels:IMPL", root) == ("project/src/pkg/kernels.py", 4)
    assert defined_in("pkg:IMPL", root) == ("project/src/pkg/__init__.py", 4)
    for spec in ("../../outside.py:IMPL", "broken.py:IMPL", "gone.py:IMPL", "no.such:IMPL", "golden", ":IMPL", "a\0.py:X"):
        assert defined_in(spec, root) is None, spec


def test_a_summary_that_is_too_large_is_cut() -> None:
    assert summary("short") == "short"
    cut = summary("é" * (1 << 20))
    assert len(cut.encode()) < 1 << 20
    assert cut.endswith("The rest is in summary.md of the run's folder.\n")


def test_the_verb_appends_the_summary_and_prints_annotations(
    ran: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.md"
    job.write_text("before\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(job))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert (ran.folder / FILE).is_file()
    result = CliRunner().invoke(main, ["report", str(ran.folder), "--github-summary", "--annotations", "2"])
    assert result.exit_code == 1, result.output
    assert result.output.count("::error ") == 2
    text = job.read_text(encoding="utf-8")
    assert text.startswith("before\n# ")
    assert text.count("\n# ") == 1
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    result = CliRunner().invoke(main, ["report", str(ran.folder), "--github-summary"])
    assert result.exit_code == 2
    assert "$GITHUB_STEP_SUMMARY names no file" in result.output
