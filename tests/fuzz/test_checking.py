"""A check: which gates judge, what is run again, and where the time goes."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from mhc import Case, default_case, load, materialise, observe, reference
from mhc.case import with_tensor
from mhc.fuzz.check import check as check_
from mhc.fuzz.check.check import check, further
from mhc.fuzz.check.level import Level
from mhc.fuzz.check.timing import Timing
from mhc.implementation import Refused
from mhc.memory import FINITE_FILL, NAN_FILL
from mhc.operator import STAGES
from mhc.oracles import refusal
from mhc.oracles.bound import tolerances
from mhc.oracles.gates import GATES, RARE
from mhc.oracles.trial import Gate, Plan, Run, Trial
from mhc.oracles.verdict import Status, Verdict, not_applicable, passed
from tests.support.helpers import altered, symptoms

MANUAL = replace(load("manual"), name="mine")
CASE = default_case(B=2, S=3, n=2, D=4, dtype="float32")
MARK = "the gate was asked"


def asked(depth: Level, implementation: Any = MANUAL, case: Case = CASE, monkeypatch: Any = None) -> list[str]:
    """The variants of gates that were asked for a plan."""
    seen: list[str] = []

    def gate(name: str, drawn: bool) -> Gate:
        def plan(trial: Trial) -> list[Verdict]:
            del trial
            seen.append(name)
            return [not_applicable(name, "case", MARK)]

        return Gate(name=name, plan=plan, every=1 if drawn else 10**12)

    monkeypatch.setattr(check_, "GATES", (gate("drawn", True), gate("not drawn", False)))
    check(implementation, case, "cpu", depth)
    return seen


def test_a_rare_gate_judges_a_case_that_does_not_draw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "drawn", lambda *_: False)
    for at, gate in enumerate(RARE):
        verdicts = check(MANUAL, CASE, "cpu", rare=at).verdicts
        assert gate.name in {one.oracle for one in verdicts}
    names = {gate.name for gate in RARE}
    assert not names & {one.oracle for one in check(MANUAL, CASE, "cpu").verdicts}
    assert not names & {one.oracle for one in check(MANUAL, CASE, "cpu", rare=len(RARE)).verdicts}


def test_every_gate_that_judges_one_case_in_twelve_or_fewer_is_rare() -> None:
    assert {*RARE} == {gate for gate in GATES if gate.every >= 12}
    assert len(RARE) == 19


def test_a_device_that_is_lost_behind_a_call_is_a_finding_on_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel runs behind the call that starts it: its error may show in the harness, which is not to blame."""

    def lost(*arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(check_, "tolerances", lost)
    (verdict,) = check(MANUAL, CASE, "cpu", Level.PLAIN).verdicts
    assert (verdict.oracle, verdict.subject, verdict.symptom) == ("liveness", "process", "kernel crash")
    monkeypatch.setattr(check_, "tolerances", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check(MANUAL, CASE, "cpu", Level.PLAIN)


def test_a_supports_that_fails_when_asked_again_is_unsteady() -> None:
    asked_ = iter([Refused("not today")])

    def supports(case: Case) -> Any:
        return next(asked_)  # StopIteration the second time

    (verdict,) = check(replace(MANUAL, supports=supports), CASE, "cpu", Level.PLAIN).verdicts
    assert (verdict.oracle, verdict.status, verdict.symptom) == ("refusal", Status.FAIL, "unsteady")


def test_which_gates_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = altered(MANUAL, forward=lambda out, _: (out[0] + 1, *out[1:]))
    broken = altered(MANUAL, forward=lambda out, _: 1 / 0)
    for depth, implementation, wanted in (
        (Level.DRAWN, MANUAL, ["drawn"]),
        (Level.FULL, MANUAL, ["drawn", "not drawn"]),
        (Level.CLEAN, MANUAL, ["drawn", "not drawn"]),
        (Level.PLAIN, MANUAL, []),
        (Level.DRAWN, wrong, []),
        (Level.CLEAN, wrong, []),
        (Level.FULL, wrong, ["drawn", "not drawn"]),
        (Level.FULL, broken, []),
    ):
        assert asked(depth, implementation, monkeypatch=monkeypatch) == wanted, (depth, implementation.name)


def test_the_memory_gate_judges_a_wrong_value_where_that_is_asked_for() -> None:
    wrong = altered(MANUAL, forward=lambda out, _: (out[0] + 1, *out[1:]))
    judged = check(wrong, CASE, "cpu", Level.MEMORY)
    assert [one.status for one in judged.verdicts if (one.oracle, one.subject) == ("memory", "h_in")] == [Status.PASS]
    assert {(one.oracle, one.subject) for one in judged.failures} == {("bound", "h_in")}


def test_one_wrong_value_is_no_race_and_not_changed_by_other_calls() -> None:
    """Runs on the same inputs return the same bits; what else fails compares other inputs with float64."""
    wrong = altered(MANUAL, forward=lambda out, _: (out[0] + 1, *out[1:]))
    failures = check(wrong, CASE, "cpu", Level.FULL).failures
    assert ("bound", "value") in {(one.oracle, one.symptom) for one in failures}
    assert not {"race", "stale inputs", "changed by others"} & {one.symptom for one in failures}


def test_a_clock_hears_of_every_run_and_where_time_went() -> None:
    heard: list[int] = []
    ended: list[int] = []
    clock = Timing(on_run=heard.append, on_ran=lambda: ended.append(clock.runs))
    check(MANUAL, CASE, "cpu", Level.PLAIN, clock)
    assert heard == ended == [1]
    assert 0 < clock.running < clock.checking
    assert 0 < clock.reference < clock.checking
    check(MANUAL, CASE, "cpu", Level.FULL, clock)
    assert heard == list(range(1, len(heard) + 1))
    trial = trial_of()
    named = set()
    for gate in GATES:
        plan = gate.plan(trial)
        named |= {run.label for run in plan.runs} if isinstance(plan, Plan) else set()
    assert len(heard) == 2 + len(named), "one run a label"


def trial_of(case: Case = CASE, implementation: Any = MANUAL) -> Trial:
    inputs = materialise(case)
    wanted = reference(inputs)
    return Trial(
        inputs=inputs,
        reference=wanted,
        allowed=tolerances(inputs, wanted),
        observation=observe(implementation, inputs, wanted.saved),
        dtypes=implementation.dtypes,
    )


def test_errors_are_measured_where_they_are_asked_for() -> None:
    for measure in (True, False):
        verdicts = check(MANUAL, CASE, "cpu", Level.PLAIN, measure=measure).verdicts
        assert any(one.errors is not None for one in verdicts) is measure


def test_a_refused_schedule_is_dropped_and_only_its_own() -> None:
    case = replace(CASE, schedules={"mine": {"BLOCK": 8}, "other": {"BLOCK": 4}})
    judged = check(MANUAL, case, "cpu", Level.PLAIN)
    assert judged.verdicts[0] == refusal.unpinned("its schedule has no BLOCK = 8")
    assert judged.case == replace(case, schedules={"other": {"BLOCK": 4}})
    assert not judged.failures
    assert {one.oracle for one in judged.verdicts} > {"refusal", "bound"}
    odd = replace(MANUAL, supports=lambda case: Refused("odd"))
    assert check(odd, CASE, "cpu", Level.PLAIN).case is CASE
    wrong = check(altered(MANUAL, forward=lambda out, _: (out[0] + 1, *out[1:])), CASE, "cpu", Level.PLAIN)
    assert [one.subject for one in wrong.failures] == ["h_in"]


def gate_of(*labels: str, implementation: Any = MANUAL, judge: Any = None) -> Gate:
    def plan(trial: Trial) -> Plan:
        runs = [Run(label=label, inputs=trial.inputs, saved=trial.reference.saved) for label in labels]
        return Plan(runs=runs, judge=judge or (lambda observed: [passed("mine", ",".join(sorted(observed)))]))

    return Gate(name="mine", plan=plan)


def test_runs_of_one_label_are_made_once_and_their_own_faults_told_once() -> None:
    calls: list[int] = []

    def count(out: Any, _: Any) -> Any:
        calls.append(1)
        return out

    counted = altered(MANUAL, forward=count)
    trial = trial_of(implementation=counted)
    verdicts = further(counted, trial, [gate_of("a", "b"), gate_of("b", "c"), gate_of("a")])
    assert len(calls) == 1 + 3
    assert [one.subject for one in verdicts if one.oracle == "mine"] == ["a,b", "a,b,c", "a,b,c"]

    def fails(out: Any, _: Any) -> Any:
        calls.append(1)
        if len(calls) > 5:
            raise ValueError("second run")
        return out

    calls.clear()
    failing = altered(MANUAL, forward=fails)
    trial = trial_of(implementation=failing)
    calls.extend([1] * 5)
    verdicts = further(failing, trial, [gate_of("a"), gate_of("a")])
    assert symptoms(verdicts) == {("liveness", "forward", "raises ValueError")}
    assert [(one.oracle, one.message) for one in verdicts[1:]] == [("mine", "its run failed")]
    refusing = replace(MANUAL, supports=lambda case: Refused("not now"))
    (told,) = further(refusing, trial_of(), [gate_of("a")])
    assert (told.oracle, told.subject, told.status, told.message) == ("mine", "a", Status.NOT_APPLICABLE, "refused: not now")


def test_a_further_run_is_made_as_its_gate_asks_for_it() -> None:
    inputs = materialise(CASE)
    given: dict[str, Any] = {"label": "a", "inputs": inputs, "saved": reference(inputs).saved}
    unwritten = altered(MANUAL, forward=lambda out, _: (torch.empty_like(out[0]), *out[1:]))
    for stage in STAGES:
        assert list(check_.rerun(MANUAL, Run(**given, stages=(stage,))).seconds) == [stage]
    for fill, finite in ((NAN_FILL, False), (FINITE_FILL, True)):
        outputs = check_.rerun(unwritten, Run(**given, fill=fill)).outputs
        assert outputs["h_in"] is not None
        assert bool(outputs["h_in"].isfinite().all()) is finite


def test_only_a_run_with_late_inputs_has_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(check_, "new_stream", asked.append)
    trial = trial_of()
    for late in (False, True):
        check_.rerun(MANUAL, Run(label="a", inputs=trial.inputs, saved=trial.reference.saved, late=late))
        assert asked == [trial.inputs.device] * late


def test_a_run_that_loses_the_device_is_the_last() -> None:
    def lost(out: Any, _: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    verdicts = further(altered(MANUAL, forward=lost), trial_of(), [gate_of("a", "b"), gate_of("c")])
    assert symptoms(verdicts) == {("liveness", "forward", "illegal address")}
    assert len(verdicts) == 1


def test_the_same_case_is_judged_by_the_same_gates_everywhere() -> None:
    drawn = [gate.drawn(with_tensor(CASE, "x", seed=seed)) for seed in range(20) for gate in GATES]
    again = [gate.drawn(with_tensor(CASE, "x", seed=seed)) for seed in range(20) for gate in GATES]
    assert drawn == again


def test_further_runs_are_time_of_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    rerun = check_.rerun
    monkeypatch.setattr(check_, "rerun", lambda *given: replace(rerun(*given), seconds={"forward": 100.0}))
    clock = Timing()
    check(MANUAL, CASE, "cpu", Level.FULL, clock)
    assert clock.runs > 2
    assert 100 * (clock.runs - 1) <= clock.running < 100 * clock.runs
