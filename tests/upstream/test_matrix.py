"""A repro on a list of releases: states, bisection, and what is written."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc.fuzz.cli.main import main
from mhc.upstream.releases import releases
from mhc.upstream.releases.interpreters import Interpreters, Unavailable
from mhc.upstream.releases.matrix import Matrix, Row, State, bisect, changes, enough
from mhc.upstream.releases.matrix_report import sentences
from mhc.upstream.releases.releases import release
from mhc.upstream.verify import Outcome
from tests.support.fake_interpreters import (
    FAILS,
    HANGS,
    OTHER,
    PASSES,
    READY,
    exported,
    interpreter,
    sometimes,
)

FAILED, PASSED = Outcome(1, "", "REPRODUCED", ""), Outcome(0, "", "NOT REPRODUCED", "")

GONE_WRONG = Outcome(2, "", "OTHER: no", "")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def matrix(folder: Path, **bodies: str) -> Result:
    """The verb on fake interpreters, by release; `v9` stands for 0.1.9."""
    pythons = [
        f"--python=0.1.{name[1:]}={interpreter(folder.parent / 'bin', f'0.1.{name[1:]}', body)}"
        for name, body in bodies.items()
    ]
    return run("matrix", folder, "--seconds", 60, *pythons)


@pytest.mark.parametrize(
    ("outcomes", "reason", "state"),
    [
        ((FAILED, FAILED), "", State.FAILS),
        ((PASSED, PASSED), "", State.PASSES),
        ((PASSED, FAILED), "", State.FLAKY),
        ((FAILED, GONE_WRONG), "", State.OTHER),
        ((Outcome(None, "", "", ""), PASSED), "", State.OTHER),
        ((), "does not import", State.SKIPPED),
        ((), "", State.UNTRIED),
    ],
)
def test_states(outcomes: tuple[Outcome, ...], reason: str, state: State) -> None:
    assert Row(version="1", outcomes=outcomes, reason=reason).state is state


def row(version: str, kind: str) -> Row:
    outcomes = {"f": (FAILED,), "p": (PASSED,), "o": (GONE_WRONG,), "k": (PASSED, FAILED)}.get(kind, ())
    return Row(version=version, outcomes=outcomes, reason="no" if kind in "so" else "")


def rows(kinds: str) -> list[Row]:
    return [row(str(index), kind) for index, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ("fff", ["Fails on all that say anything, 0 to 2."]),
        ("sps", ["Passes on 1, the only one that says anything."]),
        ("so", ["No release says whether it is there."]),
        ("pkf", ["Broken: 0 is the last good one, 1 the first bad one."]),
        ("fsop", ["Healed: 0 is the last that fails, 3 the first that passes (1, 2 between them say nothing)."]),
        (
            "pfp",
            [
                "Broken: 0 is the last good one, 1 the first bad one.",
                "Healed: 1 is the last that fails, 2 the first that passes.",
            ],
        ),
        (
            "f.fp",
            [
                "Healed: 2 is the last that fails, 3 the first that passes.",
                "Bisected: 1 are between two that agree, and were not run.",
            ],
        ),
    ],
)
def test_between_which_releases_it_changed(kinds: str, said: list[str]) -> None:
    assert sentences(rows(kinds)) == said


@pytest.mark.parametrize(
    ("kinds", "inside", "run", "found"),
    [
        ("ffffffffpppppppp", "", 6, [("7", "8")]),
        ("pppppppppppppppk", "", 6, [("14", "15")]),
        ("ffffffffffffffff", "", 2, []),
        ("ppppffffffpppppp", "6", 8, [("3", "4"), ("9", "10")]),
        ("sfffssspppppppps", "", 9, [("3", "7")]),
        ("ssssssss", "", 8, []),
        ("fssssssp", "", 8, [("0", "7")]),
        ("f", "", 1, []),
    ],
)
def test_bisection(kinds: str, inside: str, run: int, found: list[tuple[str, str]]) -> None:
    every = {one.version: one for one in rows(kinds)}
    seen: dict[str, State] = {}

    def visit(version: str) -> State:
        return seen.setdefault(version, every[version].state)

    bisect(list(every), visit, set(filter(None, [inside])))
    assert len(seen) == run
    made = [one if one.version in seen else Row(version=one.version) for one in every.values()]
    assert [(one.before.version, one.after.version) for one in changes(made)] == found


def test_what_fails_now_and_then_needs_more_runs_to_be_healed(tmp_path: Path) -> None:
    assert [enough(rate) for rate in (1.0, 0.9, 2 / 3, 1 / 3)] == [3, 3, 5, 12]
    folder = exported(tmp_path / "out")
    done = matrix(folder, v8=sometimes(tmp_path / "count", "1|3"), v9=PASSES, v10=FAILS)
    assert done.exit_code == 0, done.output
    told = {one["version"]: one for one in json.loads((folder / "matrix.json").read_text())["rows"]}
    assert (told["0.1.8"]["state"], told["0.1.8"]["reproduced"], told["0.1.8"]["runs"]) == ("flaky", 2, 3)
    assert (told["0.1.9"]["state"], told["0.1.9"]["runs"]) == ("passes", 5)
    assert (told["0.1.10"]["state"], told["0.1.10"]["runs"]) == ("fails", 3)


def test_bisection_begins_with_the_finding_s_own_release(tmp_path: Path) -> None:
    """Its ends agree: without the release in the middle that fails, nothing would be found."""
    folder = exported(tmp_path / "out")
    pythons = [
        f"--python=0.1.{minor}={interpreter(tmp_path / 'bin', f'0.1.{minor}', FAILS if minor in (7, 8) else PASSES)}"
        for minor in range(13)
    ]
    done = run("matrix", folder, *pythons)
    assert done.exit_code == 1
    assert "Broken: 0.1.6 is the last good one, 0.1.7 the first bad one." in done.output
    assert "Healed: 0.1.8 is the last that fails, 0.1.9 the first that passes." in done.output
    states = [one["state"] for one in json.loads((folder / "matrix.json").read_text())["rows"]]
    assert states.count("not run") == 5
    assert run("matrix", folder, "--no-bisect", *pythons).exit_code == 1
    assert "not run" not in (folder / "matrix.md").read_text()


@pytest.mark.parametrize(
    ("version", "body", "trial", "state", "reason"),
    [
        ("0.1.9", FAILS, READY, State.FAILS, ""),
        ("0.1.9", OTHER, READY, State.OTHER, "exit 2, OTHER: TypeError: no such argument"),
        pytest.param("0.1.9", HANGS, READY, State.OTHER, "no end in its time", marks=pytest.mark.slow),
        ("0.1.10", FAILS, READY, State.SKIPPED, "has tilelang 0.1.10"),
        (
            "0.1.9",
            FAILS,
            "echo 'OSError: libz3.so'; exit 1",
            State.SKIPPED,
            "no trivial program runs (c): OSError: libz3.so",
        ),
        ("0.1.9", FAILS, HANGS, State.SKIPPED, "no trivial program runs (c)"),
    ],
)
def test_one_release(version: str, body: str, trial: str, state: State, reason: str, tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    python = interpreter(tmp_path, version, body, trial=trial)
    given = Interpreters(tmp_path, {"0.1.9": python}, makes=False)
    seconds = 1.5 if HANGS in {body, trial} else 60.0  # what answers must be able to on a busy machine
    made = Matrix(folder / "repro.py", "tilelang", "c", given, seconds=seconds).row(release("tilelang", "0.1.9"))
    assert made.state is state
    assert reason in made.reason


def test_the_matrix_comes_into_the_issue(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    done = matrix(folder, v8=FAILS, v9=OTHER, v10=FAILS)
    assert done.exit_code == 0, done.output
    issue = (folder / "issue.md").read_text()
    assert "## Versions\n\nFails on all that say anything, 0.1.8 to 0.1.10.\n" in issue
    assert "| 0.1.9 | something else: exit 2, OTHER: TypeError: no such argument | 0 of 3 |  | torch 2.0 |" in issue
    assert "gh issue create" in issue
    assert "## Known issues\n\nFrom the issues known on" in issue or "None of the issues known on" in issue


def test_what_is_healed_is_not_to_be_filed(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    done = matrix(folder, v8=FAILS, v9=PASSES, v10=OTHER)
    assert done.exit_code == 1, done.output
    assert "Healed: 0.1.8 is the last that fails, 0.1.9 the first that passes." in done.output
    issue = (folder / "issue.md").read_text()
    assert "Not to be filed: it passes on 0.1.9, the newest release that says anything.\n" in issue
    assert "gh issue create" not in issue


def test_the_program_is_that_of_the_newest_release_that_fails(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    takes_no_is_cpu = f'if grep -q is_cpu "$1"; then {OTHER}; else {FAILS}; fi'
    assert matrix(folder, v8=FAILS, v12=takes_no_is_cpu).exit_code == 0
    assert (folder / "repro-0.1.12.py").read_text() == "T.Kernel(1)\n"
    issue = (folder / "issue.md").read_text()
    assert "```python\nT.Kernel(1)\n```" in issue
    assert "This is `repro-0.1.12.py`" in issue
    assert "from 0.1.12 on, `T.Kernel` takes no `is_cpu` any more" in issue
    assert matrix(folder, v8=FAILS, v9=FAILS).exit_code == 0
    assert not (folder / "repro-0.1.12.py").exists()
    assert "```python\nT.Kernel(1, is_cpu=True)\n```" in (folder / "issue.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--python", "0.1.9"], "--python must be VERSION=PATH, with a file, was '0.1.9'"),
        (["--python", "0.1.9=/nowhere/python"], "with a file, was '0.1.9=/nowhere/python'"),
        (["--releases", "newest"], "version must be numbers with dots"),
    ],
)
def test_usage(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = run("matrix", exported(tmp_path / "out"), *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_folder_that_export_did_not_write_is_refused(tmp_path: Path) -> None:
    done = run("matrix", tmp_path)
    assert done.exit_code == 2
    assert "is no exported folder" in " ".join(done.output.split())


def test_only_given_interpreters_are_run_unless_releases_are_named(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    assert matrix(folder, v9=FAILS).exit_code == 0
    assert [one["version"] for one in json.loads((folder / "matrix.json").read_text())["rows"]] == ["0.1.9"]


def test_a_registry_that_cannot_be_asked_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(to: str) -> str:
        raise Unavailable("no route")

    monkeypatch.setattr("mhc.upstream.cli.releases.newest", silent)
    monkeypatch.setattr(Interpreters, "python", lambda *_: interpreter(tmp_path / "bin", "0.1.15", FAILS))
    folder = exported(tmp_path / "out", own="0.1.15")
    assert run("matrix", folder).exit_code == 0
    assert "Whether there is a newer release was not asked: no route." in (folder / "issue.md").read_text()


def test_no_releases_of_torch_are_listed(tmp_path: Path) -> None:
    assert releases.RELEASES["torch"] == ()
    folder = exported(tmp_path / "out", to="torch")
    document = json.loads((folder / "export.json").read_text())
    (folder / "export.json").write_text(json.dumps({**document, "needs": "cpu"}))
    done = run("matrix", folder)
    assert done.exit_code == 2
    assert "give interpreters with --python" in " ".join(done.output.split())
