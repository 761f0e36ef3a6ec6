"""`python -m mhc.bench minimal`: what it writes, how it goes on after an interruption, and its exit status."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc.bench.cli import main
from mhc.bench.minimal import Minimal, median, render
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles.mutants.record import Mutant
from tests.fuzz.test_search import one_hot, plain

NAMES = ("half_the_squares", "res_transposed")
FOUND = Minimal(
    name="half_the_squares",
    base="manual",
    cases=4,
    fingerprint="h_in: value (bound)",
    case=plain({"x": one_hot(0, 0, 0, 1)}, D=2).json,
    message="h_in[0, 0, 0] = 1",
    before=13,
    after=2,
    checks=29,
    seconds=7.2,
    reproduced=3,
    runs=3,
)
MISSED = Minimal(name="res_transposed", base="manual", cases=5)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The mutants that were minimised: one is found, the other is not."""
    names: list[str] = []

    def one(mutant: Mutant, *_: object) -> Minimal:
        names.append(mutant.name)
        return FOUND if mutant.name == FOUND.name else MISSED

    monkeypatch.setattr("mhc.bench.minimal._one", one)
    return names


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["minimal", "--cases", "1", *map(str, arguments)])


def test_a_run_that_was_cut_short_goes_on_where_it_stopped(tmp_path: Path, asked: list[str]) -> None:
    path = tmp_path / "state.json"
    assert run("--state", path, "--only", NAMES[0]).exit_code == 0
    done = run("--state", path, *(word for name in NAMES for word in ("--only", name)))
    assert f"{NAMES[0]} | " in done.output
    assert asked == list(NAMES)
    run("--state", path, "--seed", 1, "--only", NAMES[0])
    assert asked == [*NAMES, NAMES[0]], "other cases are another run"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_the_page_shows_the_case_and_what_is_not_zero_in_it() -> None:
    page = render([FOUND, MISSED], command="python -m mhc.bench minimal", cases=5, seed=0)
    row = "| half_the_squares | h_in: value (bound) | B=1 S=1 n=1 D=2 float32 | x (1) | 13 | 2 | 29 | 7 | 3/3 |"
    assert row in page.splitlines()
    assert "The median smallest case has 2 elements of x (the goal: at most 64)" in page
    assert "- res_transposed (manual): none of 5 cases fails" in page
    assert "Not yet run: " in page
    assert median([FOUND, MISSED]) == 2


@pytest.mark.parametrize(("after", "code"), [(64, 0), (65, 1)])
def test_the_median_decides_the_exit_status(monkeypatch: pytest.MonkeyPatch, after: int, code: int) -> None:
    result = Minimal(name="half_the_squares", base="manual", case=FOUND.case, after=after, runs=3, reproduced=3)
    monkeypatch.setattr("mhc.bench.minimal._one", lambda *_: result)
    assert run("--only", "half_the_squares").exit_code == code


def test_a_fault_of_the_harness_exits_3_and_stands_in_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise HarnessError("out of paper")

    monkeypatch.setattr("mhc.bench.minimal._first", broken)
    result = run("--only", "half_the_squares")
    assert result.exit_code == 3
    assert "- half_the_squares (manual): fault of the harness: out of paper" in result.output


def test_bad_usage_exits_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--only nobody: no such mutant" in run("--only", "nobody").output
    monkeypatch.chdir(tmp_path)
    result = run("--only", "half_the_squares", "--write")
    assert result.exit_code == 2
    assert "there is no folder docs/results" in result.output
