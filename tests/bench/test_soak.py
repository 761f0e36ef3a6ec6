"""The soak: when legs end, what is read from a store, and that each statement about them can fail."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mhc.bench.cli import main
from mhc.bench.soak import run
from mhc.bench.soak.report import _lost, expected, render, statements
from mhc.bench.soak.run import Leg, Plan, Snapshot, command, marked
from mhc.oracles.mutants.misbehaving.catalogue import MISBEHAVING

PLAN = Plan(
    names=("aborts", "patches_torch", "returns_leaves"),
    seconds=60.0,
    workers=2,
    kills=2,
    seed=7,
    device="cpu",
    folder=Path("soak"),
)
ABORTS = "aborts: process: SIGABRT (liveness)"
AFTER = Snapshot(
    findings={ABORTS: ("aborts", "liveness", "SIGABRT")},
    counts={"aborts checked": 5.0},
    cases={"golden": 40, "manual": 40, "aborts": 5},
    seconds=60.0,
)
LEG = Leg(
    end=None,
    status=1,
    seconds=62.0,
    late=1.0,
    printed=frozenset({ABORTS}),
    dropped=frozenset(),
    output="FOUND aborts\n",
    errors="",
    left=(),
    reported=True,
    after=AFTER,
)


def test_kills_are_drawn_by_the_seed_and_some_are_not_sigkill() -> None:
    many = replace(PLAN, kills=40)
    ends = many.ends()
    assert ends == many.ends() != replace(many, seed=8).ends()
    assert [at for at, _ in ends] == sorted(at for at, _ in ends)
    assert all(0 <= at < PLAN.seconds for at, _ in ends)
    assert {end for _, end in ends} == {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def test_a_leg_goes_on_with_the_run_and_its_whole_budget() -> None:
    first, other = command(PLAN, None), command(PLAN, Path("runs/one"))
    assert "mhc.oracles.mutants.load:aborts" in first
    assert first.count("--impl") == 5
    assert "--impl" not in other
    assert other[other.index("--resume") + 1] == "runs/one"
    for words in (first, other):
        assert words[words.index("--minutes") + 1] == "1"


def test_all_statements_hold_of_a_good_soak() -> None:
    gone = "manual: h_in: value (bound)"
    found = replace(LEG, printed=LEG.printed | {gone})
    dropped = replace(LEG, dropped=frozenset({gone}))
    assert [str(one) for one in statements(PLAN, [replace(found, dropped=dropped.dropped)]) if not one.holds] == []
    before = replace(found, after=replace(AFTER, findings={**AFTER.findings, gone: ("manual", "bound", "value")}))
    assert [*_lost([before, dropped])] == [], "it was taken back"
    assert [*_lost([before, LEG])] == [f"{gone} after leg 2"]
    killed = replace(LEG, end=signal.SIGKILL, status=-9, reported=False, left=("sleep 1000",))
    assert [str(one) for one in statements(PLAN, [killed, LEG]) if not one.holds] == []
    text = render(PLAN, [killed, LEG], command="python -m mhc.bench soak")
    assert "| 1 | SIGKILL | 62 | 1.0 | 85 | 1 | 1 x `sleep 1000` |" in text
    assert "| 2 | its time, status 1 | 62 | 1.0 | 85 | 1 | nothing |" in text
    assert "| aborts | 5 | liveness: SIGABRT | liveness: SIGABRT |" in text
    assert "FAILS" not in text


@pytest.mark.parametrize(
    ("statement", "changes", "store"),
    [
        ("lost", {}, {"findings": {}}),
        ("lost", {}, {"counts": {"aborts checked": 4.0}}),
        ("lost", {}, {"whole": False}),
        ("lost", {"printed": frozenset({ABORTS, "manual: dx: value (bound)"})}, {}),
        ("false", {}, {"findings": {**AFTER.findings, "manual: dx: value (bound)": ("manual", "bound", "value")}}),
        ("false", {}, {"findings": {**AFTER.findings, "aborts: ...": ("aborts", "bound", "value")}}),
        ("false", {}, {"findings": {**AFTER.findings, "leaves": ("returns_leaves", "bound", "value")}}),
        ("false", {}, {"faults": [("aborts", "KeyError: 1")]}),
        ("false", {}, {"faults": [("", "disk full")]}),
        ("false", {}, {"cases": {"golden": 40, "manual": 3}}),
        ("missed", {}, {"findings": {}}),
        ("ends within", {"late": 16.5}, {}),
        ("reports", {"reported": False}, {}),
        ("outlives", {"left": ("sleep 1000",)}, {}),
        ("status", {"status": 0}, {}),
        ("status", {"status": None}, {}),
        ("status", {"status": 3}, {}),
        ("status", {"status": 1}, {"faults": [("patches_torch", "RuntimeError: replaced")]}),
        ("printed", {"errors": "Traceback (most recent call last)\n"}, {}),
        ("printed", {"output": "FOUND \x1b]52;c;AAAA\x07\n"}, {}),
    ],
)
def test_each_statement_can_fail(statement: str, changes: dict[str, Any], store: dict[str, Any]) -> None:
    last = replace(LEG, **changes, after=replace(AFTER, **store))
    (found,) = [one for one in statements(PLAN, [LEG, last]) if statement in one.words]
    assert not found.holds
    assert str(found).startswith("FAILS: ")


def test_a_fault_of_what_may_cause_one_is_status_3_and_not_false() -> None:
    last = replace(LEG, status=3, after=replace(AFTER, faults=[("patches_torch", "RuntimeError: replaced")]))
    assert all(one.holds for one in statements(PLAN, [last]))


def test_what_is_expected_of_each_is_said() -> None:
    assert expected("golden") == expected("returns_leaves") == "nothing"
    assert expected("aborts") == "liveness: SIGABRT"
    assert expected("patches_torch") == "liveness: * or a fault or nothing"
    assert all(expected(name) for name in MISBEHAVING)


def test_processes_are_found_by_what_they_inherit() -> None:
    mark = f"test-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '100'])"],
        env={**os.environ, run._MARK: mark},
        start_new_session=True,
    )
    try:
        while "sleep 100" not in [words for _, words in marked(mark)]:
            assert process.poll() is None
        assert len(marked(mark)) == 2
        assert marked(f"{mark}0") == []
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hours", "1", "--minutes", "1"], "not both"),
        (["--only", "absent"], "no such one on cpu; known are raises_system_exit"),
        (["--only", "aborts", "--device", "cuda"], "no such one on cuda; known are cuda_index"),
        (["--out", "."], "is there already"),
    ],
)
def test_bad_usage_exits_2(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["soak", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_soak_of_seconds_is_killed_gone_on_with_and_told(tmp_path: Path) -> None:
    arguments = ["--minutes", "0.05", "--kills", "1", "--seed", "9", "--only", "raises_escapes", "--out"]
    done = CliRunner().invoke(main, ["soak", *arguments, str(tmp_path / "out")])
    assert done.exit_code in {0, 1}, done.output
    assert "leg 1: SIGKILL" in done.output
    assert "leg 2: its time, status " in done.output
    assert "holds: nothing lost" in done.output
    assert (
        (tmp_path / "out" / "leg-1.stdout").read_text(encoding="utf-8").startswith("checking golden, manual, raises_escapes")
    )
