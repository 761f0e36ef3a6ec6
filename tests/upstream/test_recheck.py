"""Exported repros on another version: which are healed, still failing, or changed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mhc.fuzz.cli.main import main
from mhc.upstream.releases.interpreters import Interpreters
from mhc.upstream.releases.recheck import CHANGED, HEALED, STILL, UNKNOWN, find, read, recheck
from mhc.upstream.releases.releases import release
from tests.support.fake_interpreters import FAILS, OTHER, PASSES, exported, interpreter, sometimes


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["recheck", *map(str, arguments)])


@pytest.mark.parametrize(
    ("body", "fate", "said", "status"),
    [
        (FAILS, STILL, "still failing: 3 of 3 runs reproduce", 0),
        (PASSES, HEALED, "healed: 0 of 3 runs reproduce", 1),
        (OTHER, CHANGED, "changed: 0 of 3 runs reproduce; exit 2, OTHER: TypeError: no such argument", 1),
        ("", CHANGED, "changed: 1 of 3 runs reproduce", 1),
    ],
)
def test_fates(body: str, fate: str, said: str, status: int, tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    python = interpreter(tmp_path, "0.1.15", body or sometimes(tmp_path / "count", "2"))
    done = run(folder, "--python", python)
    assert done.exit_code == status, done.output
    assert f"{folder} (tilelang 0.1.8 -> 0.1.15)\n    {said}\n1 {fate}\n" == done.output


def test_what_could_not_run_is_neither(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    python = interpreter(tmp_path, "0.1.15", FAILS, trial="echo 'OSError: libz3'; exit 1")
    done = run(folder, "--python", python)
    assert done.exit_code == 3
    assert "could not run: no trivial program runs (c): OSError: libz3" in done.output


def test_all_exported_folders_below_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is healed is told by exit status 1, whatever the others are; one that could not run by 3."""
    monkeypatch.chdir(tmp_path)
    for name, to, own in (("a/one", "tilelang", "0.1.8"), ("b", "tilelang", "0.1.9"), ("c", "triton", "3.7.1")):
        exported(tmp_path / "fuzz_reports" / name, to=to, own=own, repro=name)
    by_name = f'if grep -q one "$1"; then {PASSES}; else {FAILS}; fi'
    python = interpreter(tmp_path, "0.1.15", by_name)
    done = run("--python", python, "--to", "tilelang")
    assert done.exit_code == 1
    assert done.output.endswith("1 still failing, 1 healed\n")
    assert "triton" not in done.output
    both = run("--python", python)
    assert both.exit_code == 2
    assert "has no triton" in " ".join(both.output.split())


def test_a_release_in_an_environment_of_its_own(tmp_path: Path) -> None:
    given = Interpreters(tmp_path, {"0.1.15": interpreter(tmp_path, "0.1.15", PASSES)}, makes=False)
    fate, _ = recheck(read(exported(tmp_path / "out")), release("tilelang", "0.1.15"), given, seconds=5)
    assert fate == HEALED
    fate, gone = recheck(read(tmp_path / "out"), release("tilelang", "0.1.14"), given, seconds=5)
    assert (fate, gone.summary) == (UNKNOWN, "no interpreter was given")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either --version or --python"),
        (["--version", "0.1.9", "--python", __file__], "give either --version or --python"),
        (["--version", "0.1.9rc1"], "must be numbers with dots"),
        (["--version", "0.1.9", "--to", "torch"], "no exported folder"),
    ],
)
def test_usage(arguments: list[str], said: str, tmp_path: Path) -> None:
    exported(tmp_path / "out")
    done = run(tmp_path, *arguments)
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())


def test_a_version_is_of_one_dsl(tmp_path: Path) -> None:
    exported(tmp_path / "one")
    exported(tmp_path / "two", to="triton", own="3.7.1")
    done = run(tmp_path, "--version", "0.1.15")
    assert done.exit_code == 2
    assert "name one with --to" in " ".join(done.output.split())


def test_what_export_did_not_write_is_said(tmp_path: Path) -> None:
    folder = exported(tmp_path / "out")
    (folder / "repro.py").unlink()
    done = run(tmp_path, "--version", "0.1.15")
    assert done.exit_code == 2
    assert "is no exported folder" in " ".join(done.output.split())


@pytest.mark.parametrize(("devices", "needs"), [([], "c"), (["a GPU"], "cuda")])
def test_folders_of_before_needs_were_told(devices: list[str], needs: str, tmp_path: Path) -> None:
    path = exported(tmp_path / "out") / "export.json"
    document = json.loads(path.read_text())
    del document["needs"]
    document["environment"]["devices"] = devices
    path.write_text(json.dumps(document))
    assert [one.needs for one in find([tmp_path])] == [needs]
