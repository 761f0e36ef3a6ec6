"""Export of a finding: its verification by itself, what is refused, and what is written."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc import default_case
from mhc.case import Case
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles.verdict import Status, Verdict
from mhc.upstream import export as exporting
from mhc.upstream.cli import export
from mhc.upstream.diagnose.attribution import Attribution, Elsewhere
from mhc.upstream.diagnose.neighbours import neighbours, peers
from mhc.upstream.issue import text
from mhc.upstream.verify import ExportError, Outcome, confirmed, run
from tests.support.exports import finding, program, repro
from tests.support.needs import needs_tilelang

WRONG = 'print("x: expected 1.0, actual 2.0, bound 0.1"); print("REPRODUCED"); raise SystemExit(1)'


def export_to(folder: Path, finding: Finding, *arguments: str) -> Result:
    path = folder / "finding.json"
    path.write_text(finding.to_json(), encoding="utf-8")
    return CliRunner().invoke(export.export_verb, [str(path), "--to", "tilelang", *arguments])


def test_what_a_repro_must_not_lean_on_cannot_be_imported(tmp_path: Path) -> None:
    outcome = run(repro(tmp_path, f"import mhc\n{WRONG}"))
    assert not outcome.reproduced
    assert "ModuleNotFoundError: mhc is not there for a repro" in outcome.output
    assert run(repro(tmp_path, WRONG)).reproduced


def test_caches_are_empty_and_a_run_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    text = f"""
    import os
    for name in ("TRITON_CACHE_DIR", "TILELANG_CACHE_DIR", "MHC_CACHE", "HOME"):
        assert not os.listdir(os.environ[name]), name
        open(os.path.join(os.environ[name], "left"), "w").close()
    {WRONG}
    """
    assert [run(repro(tmp_path, text)).reproduced for _ in range(2)] == [True, True]
    assert not (tmp_path / "left").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('NOT REPRODUCED')", "exit 0, NOT REPRODUCED"),
        ("print('OTHER: TypeError: no'); raise SystemExit(2)", "exit 2, OTHER: TypeError: no"),
        ("raise TypeError('another reason')", "exit 1, TypeError: another reason"),
        ("print('REPRODUCED')", "exit 0, REPRODUCED"),
    ],
)
def test_a_program_that_does_not_reproduce_or_for_another_reason_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="run 1 of 3 of its program by itself: " + said):
        confirmed(repro(tmp_path, text))


def test_each_of_three_runs_must_reproduce(tmp_path: Path) -> None:
    count = tmp_path / "count"
    text = f"""
    with open({str(count)!r}, "a+") as file:
        file.write("x"); file.seek(0); runs = len(file.read())
    if runs == 3:
        print("NOT REPRODUCED"); raise SystemExit(0)
    {WRONG}
    """
    with pytest.raises(ExportError, match="run 3 of 3"):
        confirmed(repro(tmp_path, text))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The text of the program that export makes, its only entry; nothing else runs but that."""
    text = [WRONG]
    monkeypatch.setattr(exporting, "make", lambda *_: program(text[0]))
    monkeypatch.setattr(exporting, "generated", lambda *_: "dx[0] = 1;")
    monkeypatch.setattr(exporting, "schedules", lambda *_: [])
    monkeypatch.setattr(exporting, "peers", lambda *_: [Elsewhere("golden", passes=True, formula=True)])
    outcomes = {"-O0": Outcome(1, "", "REPRODUCED", "")}
    monkeypatch.setattr(exporting, "attribute", lambda repro, tried, elsewhere: Attribution(outcomes, elsewhere))
    monkeypatch.setattr(exporting, "shortened", lambda program, repro, _: (program, confirmed(repro)))
    around = [
        Elsewhere("as found", passes=False, how="x = 2"),
        Elsewhere("D = 2", passes=True),
    ]
    monkeypatch.setattr(exporting, "neighbours", lambda *_: around)
    return text


@needs_tilelang
def test_export_writes_a_folder_and_says_what_would_file_it(made: list[str], tmp_path: Path) -> None:
    result = export_to(tmp_path, finding("tilelang-c", "dx"))
    assert result.exit_code == 0, result.output
    folder = tmp_path / "finding-tilelang"
    assert (folder / "repro.py").read_text() == WRONG
    document = json.loads((folder / "export.json").read_text())
    assert {"finding", "case", "to", "spec", "symptom", "created", "environment"} <= set(document)
    assert document["needs"] == "c"
    assert Case.from_json(json.dumps(document["case"])) == default_case()
    issue = (folder / "issue.md").read_text()
    assert issue.startswith("# [BUG][Fuzzer][wrong-code] wrong value: x, a kernel\n")
    for part in (
        "3 of 3 runs in fresh processes with empty caches; deterministic",
        "with D = 2 it passes",
        "| as found | **fails** | x = 2 |",
        "| D = 2 | passes |  |",
        "the program is the first suspect",
        "| golden | passes |",
        "dx[0] = 1;",
        "Not to be filed: the program is the first suspect (see Attribution).",
    ):
        assert part in issue
    assert "gh issue create" not in issue
    document["attribution"]["suspect"] = "compiler"
    (folder / "export.json").write_text(json.dumps(document))
    text.write(folder)
    issue = (folder / "issue.md").read_text()
    assert "Not to be filed" not in issue
    wanted = "gh issue create --repo tile-ai/tilelang --title '[BUG][Fuzzer][wrong-code] wrong value: x, a kernel'"
    assert wanted in issue
    document["symptom"] = "raises InternalError"
    assert text.title(document).startswith("[BUG][Fuzzer][ice-on-valid-code] raises InternalError: x")


@needs_tilelang
def test_a_refusal_says_what_it_saw_and_leaves_nothing(made: list[str], tmp_path: Path) -> None:
    made[0] = "print('saw this'); print('NOT REPRODUCED')"
    result = export_to(tmp_path, finding("tilelang-c", "dx"))
    assert result.exit_code == 1
    assert "refused: run 1 of 1 of its program by itself: exit 0, NOT REPRODUCED" in result.output
    assert "saw this" in result.output
    assert not (tmp_path / "finding-tilelang").exists()


@needs_tilelang
def test_a_folder_that_is_there_is_not_written_to(made: list[str], tmp_path: Path) -> None:
    result = export_to(tmp_path, finding("tilelang-c", "dx"), "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "is there already" in result.output


@needs_tilelang
def test_a_fault_of_the_harness_is_not_a_refusal(made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise HarnessError("out of paper")

    monkeypatch.setattr(exporting, "neighbours", broken)
    assert export_to(tmp_path, finding("tilelang-c", "dx")).exit_code == 3


def test_a_run_that_does_not_end_is_no_reproduction(tmp_path: Path) -> None:
    outcome = run(repro(tmp_path, "import time; time.sleep(60)"), seconds=1)
    assert outcome == Outcome(None, "", "", "")
    assert not outcome.reproduced


def test_neighbours_differ_in_one_thing_and_say_where_it_passes() -> None:
    """A stub in place of worker processes: it fails from D = 2 on, and refuses float64."""
    wrong = Verdict(oracle="bound", subject="dx", status=Status.FAIL, symptom="value", message="dx = 2")
    fine = Verdict(oracle="bound", subject="dx", status=Status.PASS)
    refused = Verdict(oracle="refusal", subject="case", status=Status.PASS)

    class Stub:
        retired = False

        def start(self, case: Case, depth: Level) -> None:
            self.case = case

        def finish(self) -> list[Verdict]:
            return [refused if self.case.dtype == "float64" else wrong if self.case.sizes["D"] > 1 else fine]

        def stop(self) -> None:
            pass

    case = default_case(D=2, scalars={"norm_eps": 0.5, "hc_eps": 1e-6})
    made = neighbours(finding("tilelang-c", "dx", case=case), lambda _: Stub())
    assert made[0] == Elsewhere("as found", passes=False, how="dx = 2")
    by = {one.what: one.passes for one in made}
    assert by["D = 1"]
    assert not by["D = 3"]
    assert not by["norm_eps = 1e-06"]
    assert "dtype = float64" not in by
    assert "dtype = float16" in by


@pytest.mark.slow
def test_peers_pass_where_the_finding_s_implementation_is_at_fault(tmp_path: Path) -> None:
    found = finding("mhc.oracles.mutants.load:c_post_without_its_2", "h_post")
    passing = {one.what for one in peers(found, "cpu", tmp_path / "log") if one.passes}
    assert {"golden", "manual"} <= passing
