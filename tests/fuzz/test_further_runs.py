"""A check, by its further runs: what they are judged by, and which of their faults are told, each once."""

from dataclasses import replace
from typing import Any

import pytest

from mhc import load
from mhc.declared import Declared
from mhc.fuzz.check import check as check_
from mhc.fuzz.check.check import check, further
from mhc.fuzz.check.level import Level
from mhc.fuzz.check.timing import Timing
from mhc.global_state import Change
from mhc.observation import Failure, Observation
from mhc.oracles.trial import Gate, Plan, Run, Trial
from mhc.oracles.verdict import Status, Verdict, failed, passed
from tests.fuzz.test_checking import CASE, MANUAL, gate_of, trial_of
from tests.support.helpers import altered, scaled_case

ALIASED: dict[str, Any] = {"aliased": (("dx", "x"),)}
CHANGED: dict[str, Any] = {"changes": (Change(stage="forward", setting="the default dtype", how=""),)}
WRITTEN: dict[str, Any] = {"written": ("x",)}
RAISED: dict[str, Any] = {"failure": Failure(stage="forward", type="ValueError", message="no", traceback="")}


@pytest.fixture
def rerun(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is different in the observation of each further run, by its label."""
    different: dict[str, Any] = {}

    def made(implementation: Any, run: Run) -> Observation:
        return replace(trial_of().observation, **different.get(run.label, {}))

    monkeypatch.setattr(check_, "rerun", made)
    return different


def told(verdicts: list[Verdict]) -> list[tuple[str, str]]:
    """The failures, and what could not be judged, in order."""
    return [(one.oracle, one.subject if one.status is Status.FAIL else one.message) for one in verdicts if one.message]


def test_a_side_effect_of_further_runs_is_told_once_and_hides_nothing(rerun: dict[str, Any]) -> None:
    rerun |= {"a": ALIASED, "b": {**ALIASED, **CHANGED}, "c": CHANGED}
    verdicts = further(MANUAL, trial_of(), [gate_of("a"), gate_of("b", "c"), gate_of("a", "c")])
    assert [(one.oracle, one.subject) for one in verdicts if one.status is Status.FAIL] == [
        ("aliasing", "dx"),
        ("effects", "the default dtype"),
    ]
    assert [one.subject for one in verdicts if one.oracle == "mine"] == ["a", "a,b,c", "a,b,c"]


def test_what_the_first_run_did_already_is_not_told_again(rerun: dict[str, Any]) -> None:
    rerun |= {"a": {**ALIASED, **CHANGED}}
    trial = trial_of()
    first = replace(trial, observation=replace(trial.observation, **ALIASED))
    verdicts = further(MANUAL, first, [gate_of("a")])
    assert [one.oracle for one in verdicts if one.status is Status.FAIL] == ["effects"]


def test_a_run_with_a_fault_of_its_own_is_not_judged_and_its_fault_is_told_once(rerun: dict[str, Any]) -> None:
    rerun |= {"a": WRITTEN, "b": RAISED}
    verdicts = further(MANUAL, trial_of(), [gate_of("a"), gate_of("a"), gate_of("b"), gate_of("c", "b"), gate_of("c")])
    assert told(verdicts) == [
        ("memory", "inputs"),
        ("liveness", "forward"),
        ("mine", "its run failed"),
    ]
    assert [one.subject for one in verdicts if one.oracle == "mine" and one.status is Status.PASS] == ["a", "a,b,c"]


def test_faults_of_probes_are_the_gates_affair(rerun: dict[str, Any]) -> None:
    rerun |= {"a": {**ALIASED, **RAISED}}
    seen: list[Any] = []

    def judge(observed: Any) -> list[Verdict]:
        seen.append(observed["a"].failure)
        return [passed("mine", "probed")]

    def plan(trial: Trial) -> Plan:
        run = Run(label="a", inputs=trial.inputs, saved=trial.reference.saved)
        return Plan(runs=[run], judge=judge, probes=True)

    verdicts = further(MANUAL, trial_of(), [Gate(name="mine", plan=plan)])
    assert [one.subject for one in verdicts if one.oracle == "mine"] == ["probed"]
    assert not [one for one in verdicts if one.status is Status.FAIL]
    assert seen == [RAISED["failure"]]


def test_each_run_counts_once_with_its_time(rerun: dict[str, Any]) -> None:
    rerun |= {label: {"seconds": {"forward": 2.0, "backward": 1.0}} for label in "abc"}
    heard: list[int | str] = []
    clock = Timing(on_run=heard.append, on_ran=lambda: heard.append("ran"))
    further(MANUAL, trial_of(), [gate_of("a", "b"), gate_of("b", "c")], clock)
    assert heard == [1, "ran", 2, "ran", 3, "ran"]
    assert clock.running == 9.0


def test_what_a_first_run_shared_or_changed_hides_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    for depth in (Level.DRAWN, Level.CLEAN, Level.FULL):
        for different, judged in ((ALIASED, True), (CHANGED, True), (WRITTEN, depth is Level.FULL), (RAISED, False)):
            observed = replace(trial_of().observation, **different)
            monkeypatch.setattr(check_, "observe", lambda *_, seen=observed, **__: seen)
            monkeypatch.setattr(check_, "GATES", (Gate(name="mine", plan=lambda trial: [passed("mine", "asked")]),))
            verdicts = check(MANUAL, CASE, "cpu", depth).verdicts
            assert any(one.oracle == "mine" for one in verdicts) is judged, (depth, different)


# ---- what an implementation declares


def recomputing(**fields: Any) -> Any:
    """`manual` with a gradient that is much too large, and with what it declares."""
    wrong = altered(load("manual"), backward=lambda returned, _: (returned[0] * 1.5, *returned[1:]))
    return replace(wrong, name="mine", **fields)


def test_gradients_are_allowed_what_the_implementation_declares() -> None:
    bounds = []
    for recomputes in (False, True):
        implementation, case = recomputing(recomputes_forward=recomputes), scaled_case(B=1, S=1, n=1, D=1, dtype="float32")
        verdicts = check(implementation, case, "cpu", Level.PLAIN)
        (wrong,) = [one for one in verdicts.failures if (one.oracle, one.subject) == ("bound", "dx")]
        bounds.append(float(wrong.message.split("bound ")[1].split(";")[0].split()[0]))
    assert bounds[0] < bounds[1], "the forward's error is in them"


def test_gates_with_tolerances_of_their_own_hear_what_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Declared] = []

    def plan(trial: Trial) -> list[Verdict]:
        heard.append(trial.declared)
        return []

    monkeypatch.setattr(check_, "GATES", (Gate(name="mine", plan=plan),))
    for recomputes in (False, True):
        check(replace(MANUAL, recomputes_forward=recomputes), CASE, "cpu", Level.FULL)
    assert heard == [Declared(), Declared(recomputes_forward=True)]


def test_failures_are_those_that_fail() -> None:
    wrong = failed("bound", "dx", "value", "dx[0] = 1")
    assert check_.Judgement(CASE, [passed("bound", "h_in"), wrong]).failures == [wrong]


def test_an_error_of_the_harness_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError("a tensor of three elements has no fourth")

    monkeypatch.setattr(check_, "tolerances", broken)
    with pytest.raises(RuntimeError, match="no fourth"):
        check(MANUAL, CASE, "cpu", Level.PLAIN)


def test_errors_are_not_measured_unless_asked_for() -> None:
    assert all(one.errors is None for one in check(MANUAL, CASE, "cpu", Level.PLAIN).verdicts)
