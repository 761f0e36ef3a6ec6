"""A repro by itself: a fresh process that finds nothing of this project, and what it says."""

import json
import os
import sys
from pathlib import Path

import pytest

from mhc.upstream import verify
from mhc.upstream.verify import ExportError


def program(folder: Path, text: str) -> Path:
    path = folder / "repro.py"
    path.write_text(text, encoding="utf-8")
    return path


SAYS = 'print("x: expected 1.0, actual {}, bound 0.1"); print("REPRODUCED"); raise SystemExit(1)'


def test_a_repro_may_import_nothing_of_this_project(tmp_path: Path) -> None:
    for name in ("mhc", "oracles", "strategies", "tests", "mhc.fuzz"):
        outcome = verify.run(program(tmp_path, f"import {name}"))
        assert outcome.status == 1
        assert outcome.said == f"ModuleNotFoundError: {name.partition('.')[0]} is not there for a repro"
    assert verify.run(program(tmp_path, "import json")).status == 0


def test_a_repro_has_few_variables_and_empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MHC_SECRET", "1")
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    outcome = verify.run(
        program(tmp_path, "import json, os; print(json.dumps([dict(os.environ), os.listdir('.'), os.getcwd()]))"),
        variables={"MORE": "2"},
    )
    seen, files, folder = json.loads(outcome.output)
    assert "MHC_SECRET" not in seen
    assert (seen["MORE"], seen["LANG"], seen["PYTHONDONTWRITEBYTECODE"]) == ("2", "C", "1")
    caches = ("TRITON_CACHE_DIR", "TILELANG_CACHE_DIR", "TILELANG_TMP_DIR", "MHC_CACHE", "XDG_CACHE_HOME", "HOME", "TMPDIR")
    assert {Path(seen[name]).name for name in caches} == {name.lower() for name in caches}
    assert "PATH" in seen
    assert files == ["repro.py"]
    assert Path(folder).name == "work"
    assert not Path(folder).exists()
    for name in ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LANG", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        with verify.isolated() as (environment, place):
            assert name in environment
            assert all(Path(environment[cache]).is_dir() and Path(environment[cache]).parent == place for cache in caches)
            assert environment["PYTHONPATH"] == str(place)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with verify.isolated() as (environment, _):
        assert environment["CUDA_VISIBLE_DEVICES"] == "3"


@pytest.mark.parametrize(
    ("text", "status", "said", "values"),
    [
        (SAYS.format("2.0"), 1, "REPRODUCED", "x: expected 1.0, actual 2.0, bound 0.1"),
        ('print("NOT REPRODUCED")', 0, "NOT REPRODUCED", ""),
        ('print("OTHER: no"); import sys; print("e", file=sys.stderr); sys.exit(2)', 2, "OTHER: no", ""),
        ('print("NOT REPRODUCED"); import sys; print("e", file=sys.stderr); sys.exit(2)', 2, "NOT REPRODUCED", ""),
        ('print("REPRODUCED"); import sys; print("e", file=sys.stderr); sys.exit(1)', 1, "REPRODUCED", ""),
        ('print("hm"); raise SystemExit(3)', 3, "hm", ""),
        ('print("a"); print("OTHER: no"); import sys; print("e", file=sys.stderr); sys.exit(2)', 2, "OTHER: no", ""),
        ('import sys; print("hm"); print("first\\nlast", file=sys.stderr); sys.exit(3)', 3, "last", ""),
        ('import sys; print("fine"); print("warning", file=sys.stderr)', 0, "fine", ""),
        ("", 0, "", ""),
        ('print("a: expected 1"); print("b: expected 2"); print("end")', 0, "end", "b: expected 2"),
    ],
)
def test_what_a_repro_said(text: str, status: int, said: str, values: str, tmp_path: Path) -> None:
    outcome = verify.run(program(tmp_path, text))
    assert (outcome.status, outcome.said, outcome.values) == (status, said, values)
    assert outcome.reproduced is (said == "REPRODUCED" and status == 1)
    assert outcome.healed is (said == "NOT REPRODUCED" and status == 0)


def told(status: int | None, said: str, values: str = "") -> verify.Outcome:
    return verify.Outcome(status, "output", said, values)


def test_outcomes_in_words() -> None:
    assert str(told(None, "")) == "no end in its time"
    assert str(told(1, "REPRODUCED")) == "exit 1, REPRODUCED"
    assert str(told(0, "")) == "exit 0, nothing said"
    assert [told(*one).reproduced for one in ((1, "REPRODUCED"), (0, "REPRODUCED"), (1, "NOT REPRODUCED"))] == [
        *(True, False, False)
    ]
    assert [told(*one).healed for one in ((0, "NOT REPRODUCED"), (1, "NOT REPRODUCED"), (0, "REPRODUCED"))] == [
        *(True, False, False)
    ]
    same, other = told(1, "REPRODUCED", "2.0"), told(1, "REPRODUCED", "3.0")
    deterministic = "fresh processes with empty caches; deterministic: the same value each time"
    assert verify.rate([same, same, same]) == f"3 of 3 runs in {deterministic}"
    assert verify.rate([same, other]).endswith("values differ from run to run: a race")


def test_runs_end_with_the_first_that_does_not_reproduce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [told(1, "REPRODUCED"), told(0, "NOT REPRODUCED"), told(1, "REPRODUCED")]
    given: list[Path] = []

    def run(repro: Path) -> verify.Outcome:
        given.append(repro)
        return answers[len(given) - 1]

    monkeypatch.setattr(verify, "run", run)
    assert verify.verify(tmp_path) == answers[:2]
    assert given == [tmp_path, tmp_path]
    given.clear()
    answers[1] = answers[0]
    assert verify.verify(tmp_path) == answers
    given.clear()
    assert verify.confirmed(tmp_path, runs=2) == answers[:2]
    given.clear()
    long = "\n".join(f"line {number}" for number in range(20))
    answers[1] = verify.Outcome(2, long, "OTHER: x", "")
    with pytest.raises(ExportError) as caught:
        verify.confirmed(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == "run 2 of 3 of its program by itself: exit 2, OTHER: x"
    assert lines[1:] == [f"    line {number}" for number in range(8, 20)]
    assert (verify.RUNS, verify.SECONDS) == (3, 300.0)


def test_a_repro_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    outcome = verify.run(program(tmp_path, "import time; time.sleep(60)"), seconds=1.0)
    assert (outcome.status, outcome.output, outcome.said, outcome.values) == (None, "", "", "")
    quiet = verify.run(program(tmp_path, "import sys; print(sys.flags.optimize)"), python=(sys.executable, "-O"))
    assert quiet.said == "1"
