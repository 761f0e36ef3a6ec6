"""Whether a bug of the past is found: by a finding on what it makes wrong, in the release before."""

import dataclasses
import json
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

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


ENDS = 50


class Campaign:
    """A process that finds one more thing with its second look, and ends after `ENDS` of them."""

    def __init__(self, words: list[str], *, env: dict[str, str], stdout: IO[str], **_: Any) -> None:
        assert words[1:5] == ["-m", "mhc.fuzz", "--impl", "pack:sum"]
        assert env["PYTHONPATH"].startswith("1.0:")
        self.stdout, self.looks, self.signals, self.returncode = stdout, 0, list[int](), 1
        campaigns.append(self)

    def __enter__(self) -> "Campaign":
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.write(f"# {6 * self.looks} cases in {self.looks} s on cpu, 1 findings\n")

    def poll(self) -> int | None:
        self.looks += 1
        return 1 if self.looks == ENDS else None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self, seconds: float) -> None:
        pass

    def kill(self) -> None:
        pass


campaigns: list[Campaign] = []


def searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fail: set[tuple[str, str]]
) -> tuple[history.Search, list[str]]:
    """Return what a search finds where `fail` are the releases with the cases that fail in them, and what it replayed."""
    replayed = list[str]()

    def failing(site: Path, kernel: str, file: Path) -> set[str]:
        assert kernel == "pack:sum"
        case = json.loads(file.read_text())
        replayed.append(f"{site.name} {case}")
        return {"y", "dx"} if (site.name, case) in fail else {"inputs"}

    monkeypatch.setattr(subprocess, "Popen", Campaign)
    monkeypatch.setattr(history, "LOOK", 0.01)
    monkeypatch.setattr(history, "failing", failing)
    monkeypatch.setattr(history, "findings", lambda _: FINDINGS if campaigns[-1].looks > 1 else FINDINGS[1:])
    return history.search(MENDED, Path("1.0"), Path("1.1"), 1.0, 7, tmp_path / "out"), replayed


def test_a_bug_is_found_by_a_case_whose_output_is_wrong_in_the_first_release_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, replayed = searched(monkeypatch, tmp_path, {("1.0", "smaller"), ("1.0", "drawn")})
    assert found.summary == "found: bound y"
    assert replayed[:2] == ["1.1 smaller", "1.0 smaller"]
    assert "1.1 other" not in replayed, "it is a finding on another output"
    assert 0 < found.cases < 6 * ENDS
    assert campaigns[-1].signals == [signal.SIGINT], "the campaign is not needed any more"


def test_the_case_as_drawn_finds_a_bug_where_the_smaller_one_shows_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, _ = searched(monkeypatch, tmp_path, {("1.0", "smaller"), ("1.1", "smaller"), ("1.0", "drawn")})
    assert found.summary == "found: bound y"


def test_a_bug_that_is_missed_says_what_came_of_each_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missed, replayed = searched(monkeypatch, tmp_path, {("1.0", "smaller"), ("1.1", "smaller")})
    assert missed.summary == "not found: bound y does not fail again; bound y fails in the later release too"
    assert (missed.cases, len(replayed)) == (6 * ENDS, 3), "each case is replayed once"
    assert campaigns[-1].signals == []
    assert history.Search(others={"algebra dx"}).summary == "not found: no finding on its outputs; algebra dx on others"


def test_a_campaign_that_does_not_run_is_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Refused(Campaign):
        def __exit__(self, *_: object) -> None:
            self.stdout.write("Usage: ...\nError: --impl pack:sum: not available\n")

    monkeypatch.setattr(history, "LOOK", 0.0)
    monkeypatch.setattr(subprocess, "Popen", Refused)
    with pytest.raises(click.ClickException, match=r"^Error: --impl pack:sum: not available$"):
        history.search(MENDED, Path("1.0"), Path("1.1"), 1.0, 7, tmp_path / "out")


@pytest.mark.parametrize(
    ("verdict", "wrong"),
    [
        ({"status": "fail", "subject": "y", "symptom": "wrong value"}, {"y"}),
        ({"status": "pass", "subject": "y", "symptom": ""}, set()),
        ({"status": "fail", "subject": "y", "symptom": "wrong after others"}, set()),
    ],
)
def test_what_is_wrong_in_a_replay_is_read_of_the_case_itself(
    verdict: dict[str, str], wrong: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert env["PYTHONPATH"].startswith(f"{tmp_path / 'site'}:")
        assert command[3:] == ["replay", "--json", "--impl", "pack:sum", "a.json"]
        return subprocess.CompletedProcess(command, len(wrong), f"a warning\n{json.dumps(verdict)}\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert history.failing(tmp_path / "site", "pack:sum", Path("a.json")) == wrong


@pytest.mark.parametrize("slow", [False, True])
def test_a_case_that_is_not_judged_again_finds_nothing(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if slow:
            raise subprocess.TimeoutExpired(command, history.REPLAY)
        return subprocess.CompletedProcess(command, 2, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    said = "takes more than 600 seconds" if slow else "is not judged: exit status 2"
    assert history.outcome(MENDED, Path("a.json"), Path("1.0"), Path("1.1")) == said


def test_a_bug_that_cannot_be_run_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def search(mended: Mended, *_: Any) -> history.Search:
        if mended is MENDED:
            raise click.ClickException("--impl pack:sum: exit status 3\ntraceback")
        return history.Search(9, 12.3, [("bound y", history.FOUND)])

    other = dataclasses.replace(MENDED, what="a product")
    monkeypatch.setattr(history, "MENDED", (MENDED, other))
    monkeypatch.setattr(history, "installed", lambda *_: tmp_path)
    monkeypatch.setattr(history, "search", search)
    shown = CliRunner().invoke(history.history, ["--folder", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "| not run: --impl pack:sum: exit status 3 | 0 | 0 |" in shown.output
    assert "| pack 1.0, 1.1 | found: bound y | 9 | 12 |" in shown.output
    assert "1 of 2 found." in shown.output


def test_more_bugs_at_a_time_than_cores_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(history, "installed", lambda *_: tmp_path)
    shown = CliRunner().invoke(history.history, ["--folder", str(tmp_path), "--jobs", "100000"])
    assert (shown.exit_code, "--jobs 100000: there are " in shown.output) == (2, True)


def test_each_bug_names_a_kernel_and_what_it_computes() -> None:
    kernels = {name: one for library in adapters.MODULES for name, one in adapters.kernels(library).items()}
    for one in RECORDS:
        table = kernels[one.kernel].table
        there = {spec.name for spec in (*table.outputs, *table.gradients)}
        assert {*one.subjects} - {"forward", "backward", "process", "inputs"} <= there, one.issue


def test_findings_are_read_with_their_cases(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    finding = {"fingerprint": {"oracle": "bound", "subject": "y"}, "case": {"T": 1}}
    (tmp_path / "run" / "1.json").write_text(json.dumps(finding))
    (tmp_path / "run" / "2.json").write_text(json.dumps({**finding, "drawn": {"case": {"T": 5}}}))
    (tmp_path / "run" / "3.json").write_text('{"finger')
    raw, small = ('{"T": 1}',), ('{"T": 1}', '{"T": 5}')
    assert history.findings(tmp_path) == [history.Finding("bound", "y", raw), history.Finding("bound", "y", small)]


def test_a_release_without_init_goes_before_the_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: Any) -> None:
        where = Path(command[command.index("--target") + 1])
        (where / "pack").mkdir(parents=True)
        (where / "pack-1.0.dist-info").mkdir()

    monkeypatch.setattr(subprocess, "run", run)
    where = history.installed("pack", "1.0", tmp_path)
    assert [file.relative_to(where) for file in where.rglob("*.py")] == [Path("pack/__init__.py")]
