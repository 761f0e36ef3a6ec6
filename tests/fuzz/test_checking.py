"""A check, and what is made of its verdicts: gates that judge, fingerprints, findings, the ledger, repros by themselves."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mhc import Case, default_case, load, materialise, observe, reference
from mhc.case import with_tensor
from mhc.case_json import CaseError
from mhc.fuzz.check import check as check_
from mhc.fuzz.check.check import check, further, taken
from mhc.fuzz.check.level import Depth
from mhc.fuzz.check.timing import Clock
from mhc.fuzz.findings.condition import Condition
from mhc.fuzz.findings.finding import (
    Finding,
    Reduction,
    finding,
    fingerprint,
    from_document,
    read_against,
    read_case,
    read_finding,
)
from mhc.fuzz.findings.fingerprint import Fingerprint
from mhc.fuzz.findings.known_issues import Known, Outcome, expected, identified, known, outcome
from mhc.fuzz.worker.protocol import Failure
from mhc.implementation import Refused
from mhc.upstream import verify
from mhc.upstream.verify import ExportError
from oracles import refusal
from oracles.bound import tolerances
from oracles.gates import GATES
from oracles.trial import Gate, Plan, Run, Trial
from oracles.verdict import Status, Verdict, failed, not_applicable, passed
from tests.support.helpers import altered, symptoms

MANUAL = replace(load("manual"), name="mine")
CASE = default_case(B=2, S=3, n=2, D=4, dtype="float32")
MARK = "the gate was asked"


# ---- a check


def asked(depth: Depth, implementation: Any = MANUAL, case: Case = CASE, monkeypatch: Any = None) -> list[str]:
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


def test_a_device_that_is_lost_behind_a_call_is_a_finding_on_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel runs behind the call that starts it: its error may show in the harness, which is not to blame."""

    def lost(*arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(check_, "tolerances", lost)
    (verdict,) = check(MANUAL, CASE, "cpu", Depth.PLAIN)
    assert (verdict.oracle, verdict.subject, verdict.symptom) == ("liveness", "process", "kernel crash")
    monkeypatch.setattr(check_, "tolerances", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check(MANUAL, CASE, "cpu", Depth.PLAIN)


def test_a_supports_that_fails_when_asked_again_is_unsteady() -> None:
    asked_ = iter([Refused("not today")])

    def supports(case: Case) -> Any:
        return next(asked_)  # StopIteration the second time

    (verdict,) = check(replace(MANUAL, supports=supports), CASE, "cpu", Depth.PLAIN)
    assert (verdict.oracle, verdict.status, verdict.symptom) == ("refusal", Status.FAIL, "unsteady")


def test_which_gates_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = altered(MANUAL, forward=lambda out, _: (out[0] + 1, *out[1:]))
    broken = altered(MANUAL, forward=lambda out, _: 1 / 0)
    for depth, implementation, wanted in (
        (Depth.DRAWN, MANUAL, ["drawn"]),
        (Depth.FULL, MANUAL, ["drawn", "not drawn"]),
        (Depth.CLEAN, MANUAL, ["drawn", "not drawn"]),
        (Depth.PLAIN, MANUAL, []),
        (Depth.DRAWN, wrong, []),
        (Depth.CLEAN, wrong, []),
        (Depth.FULL, wrong, ["drawn", "not drawn"]),
        (Depth.FULL, broken, []),
    ):
        assert asked(depth, implementation, monkeypatch=monkeypatch) == wanted, (depth, implementation.name)


def test_a_clock_hears_of_every_run_and_where_time_went() -> None:
    heard: list[int] = []
    clock = Clock(on_run=heard.append)
    check(MANUAL, CASE, "cpu", Depth.PLAIN, clock)
    assert heard == [1]
    assert 0 < clock.running < clock.checking
    assert 0 < clock.reference < clock.checking
    check(MANUAL, CASE, "cpu", Depth.FULL, clock)
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
    )


def test_errors_are_measured_where_they_are_asked_for() -> None:
    for measure in (True, False):
        verdicts = check(MANUAL, CASE, "cpu", Depth.PLAIN, measure=measure)
        assert any(one.errors is not None for one in verdicts) is measure


def test_a_refused_schedule_is_dropped_and_only_its_own() -> None:
    def supports(case: Case) -> Any:
        return Refused("too large") if case.schedules.get("mine") else True

    picky = replace(MANUAL, supports=supports)
    case = replace(CASE, schedules={"mine": {"BLOCK": 8}, "other": {"BLOCK": 4}})
    told = [refusal.unpinned("too large")]
    assert dict(taken(picky, case, told).schedules) == {"other": {"BLOCK": 4}}
    assert taken(picky, case, []) is case
    assert taken(picky, case, [not_applicable("refusal", "case", "odd")]) is case
    assert taken(picky, case, [not_applicable("memory", "schedule", "odd")]) is case


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


def test_a_run_that_loses_the_device_is_the_last() -> None:
    def lost(out: Any, _: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    verdicts = further(altered(MANUAL, forward=lost), trial_of(), [gate_of("a", "b"), gate_of("c")])
    assert symptoms(verdicts) == {("liveness", "forward", "illegal address")}
    assert len(verdicts) == 1


# ---- fingerprints and findings


PRINT = Fingerprint(operator="mhc_pre", implementation="mine", oracle="bound", subject="dx", symptom="value")


def test_a_fingerprint_is_all_that_it_says() -> None:
    assert PRINT.document == {
        **{"operator": "mhc_pre", "implementation": "mine", "oracle": "bound", "subject": "dx", "symptom": "value"}
    }
    assert len(PRINT.id) == 8
    assert int(PRINT.id, 16) >= 0
    ids = {
        PRINT.id,
        *(
            replace(PRINT, **{name: "other"}).id  # type: ignore[arg-type]
            for name in (*PRINT.document, "against")
        ),
    }
    assert len(ids) == 7
    condition = Condition(dtypes=("float16",))
    confined = replace(PRINT, outside=(condition,), against="golden")
    assert confined.document["outside"] == [{"dtypes": ("float16",)}]
    assert Fingerprint.read(json.loads(json.dumps(confined.document))) == confined
    assert Fingerprint.read(PRINT.document) == PRINT
    assert str(confined) == "mine: dx: value (bound with golden), not: float16"
    verdict = failed("bound", "dx", "value", "")
    assert PRINT.fits(verdict, CASE)
    assert not PRINT.fits(replace(verdict, status=Status.PASS), CASE)
    for change in ({"oracle": "algebra"}, {"subject": "dphi"}, {"symptom": "all zero"}, {"against": "golden"}):
        assert not PRINT.fits(replace(verdict, **change), CASE)  # type: ignore[arg-type]
    with_golden = replace(verdict, against="golden")
    assert confined.fits(with_golden, CASE)
    assert not confined.fits(with_golden, replace(CASE, dtype="float16"))


def test_a_finding_as_a_file(tmp_path: Path) -> None:
    failure = Failure(oracle="bound", subject="dx", symptom="value", message="dx[0] = 1", against="golden")
    reduction = Reduction(elements_before=9, elements=3, checks=5, seconds=1.5, reproduced=2, runs=4)
    made = replace(finding("mine.py:IMPL", MANUAL, CASE, failure, "golden.py:IMPL"), reduction=reduction)
    path = tmp_path / "finding.json"
    path.write_text(made.to_json(), encoding="utf-8")
    assert read_finding(path) == replace(made, variables={})
    assert read_case(path) == (CASE, "mine.py:IMPL")
    assert read_against(path) == "golden.py:IMPL"
    document = json.loads(made.to_json())
    assert list(document) == [*("fingerprint", "implementation", "against", "message", "reduction", "environment", "case")]
    assert made.to_json().startswith('{\n  "fingerprint"')
    bare = replace(made, against=None, reduction=None)
    assert "against" not in bare.document
    assert bare.document["reduction"] is None
    path.write_text(bare.to_json(), encoding="utf-8")
    assert read_against(path) is None
    assert read_finding(path).reduction is None
    path.write_text(CASE.to_json(), encoding="utf-8")
    assert read_case(path) == (CASE, None)
    assert read_against(path) is None
    with pytest.raises(CaseError, match=r"^fingerprint: missing"):
        read_finding(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(CaseError, match="is not JSON"):
        read_case(path)
    for name, value in (("fingerprint", {"operator": "x"}), ("reduction", {"elements": 1})):
        with pytest.raises(CaseError, match="has other fields than expected"):
            from_document({**document, name: value})
    with pytest.raises(CaseError, match=r"^case\.|^n|^D|schema"):
        from_document({**document, "case": {}})
    assert made.hung is False
    assert replace(made, fingerprint=replace(made.fingerprint, symptom="hang")).hung
    assert (reduction.rate, reduction.stable) == (0.5, False)
    assert replace(reduction, reproduced=4).stable
    assert replace(reduction, reproduced=0, runs=0).rate == 0.0
    assert not replace(reduction, reproduced=0, runs=0).stable
    verdict = failed("bound", "dx", "value", "m")
    assert fingerprint(MANUAL, CASE, verdict).outside == ()
    condition = Condition(dtypes=("float16",))
    assert fingerprint(MANUAL, CASE, replace(failure, outside=(condition,))).outside == (condition,)
    environment = replace(made, variables={"SOME_VARIABLE": "7"}).document["environment"]
    assert environment["variables"]["SOME_VARIABLE"] == "7"


# ---- the ledger


def entry(where: Condition | None = None, **fields: Any) -> Known:
    print_ = fields.pop("fingerprint", PRINT)
    reason = "the compiler is wrong"
    return Known(fingerprint=print_, fixture=f"{print_.id}.json", issue="#1", reason=reason, where=where, **fields)


def test_an_entry_says_enough() -> None:
    with pytest.raises(ValueError, match="reason must say why"):
        replace(entry(), reason="compiler wrong")
    assert replace(entry(), reason="it is so").reason
    for fixture in (f"x{PRINT.id}.json", f"{PRINT.id}.txt"):
        with pytest.raises(ValueError, match="fixture must be"):
            replace(entry(), fixture=fixture)
    assert replace(entry(), fixture=f"{PRINT.id}-more.json").fixture


def test_what_is_known_depends_on_the_case() -> None:
    half, wide = Condition(dtypes=("float16",)), Condition(least=(("D", 9),))
    narrow = replace(CASE, dtype="float16")
    one, two = entry(half), entry(wide)
    assert identified(PRINT, narrow, (one,)) == PRINT
    assert identified(PRINT, CASE, (one,)) == replace(PRINT, outside=(half,))
    assert identified(PRINT, CASE, (one, two)) == replace(PRINT, outside=(half, wide))
    assert identified(PRINT, CASE, ()) == PRINT
    assert identified(PRINT, CASE, (entry(),)) == PRINT
    assert known(PRINT, narrow, (one, two)) is one
    assert known(PRINT, CASE, (one, two)) is None
    assert known(PRINT, replace(CASE, D=9), (one, two)) is two
    beyond = replace(PRINT, outside=(half,))
    rest = entry(fingerprint=beyond)
    assert known(PRINT, CASE, (one, rest)) is rest
    assert outcome(PRINT, CASE, True, (one, rest)) is Outcome.KNOWN
    assert outcome(PRINT, CASE, True, (one,)) is Outcome.BROKEN
    assert outcome(PRINT, CASE, False, (one,)) is Outcome.CLEAN
    assert outcome(PRINT, narrow, False, (one,)) is Outcome.MENDED
    assert {one_ for one_ in Outcome if one_.fails} == {Outcome.BROKEN, Outcome.MENDED}
    assert one.covers(narrow)
    assert not one.covers(CASE)
    assert entry().covers(CASE)
    assert expected(one.fixture, "mine", (one,)) is one
    assert expected(one.fixture, "other", (one,)) is None
    assert expected("x.json", "mine", (one,)) is None
    assert str(one) == "known: mine: dx: value (bound), where float16: the compiler is wrong (#1)"


# ---- repros by themselves


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


def test_the_same_case_is_judged_by_the_same_gates_everywhere() -> None:
    drawn = [gate.drawn(with_tensor(CASE, "x", seed=seed)) for seed in range(20) for gate in GATES]
    again = [gate.drawn(with_tensor(CASE, "x", seed=seed)) for seed in range(20) for gate in GATES]
    assert drawn == again
    assert isinstance(Finding(fingerprint=PRINT, spec="", variables={}, case=CASE, message="").to_json(), str)


def test_further_runs_are_time_of_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    rerun = check_.rerun
    monkeypatch.setattr(check_, "rerun", lambda *given: replace(rerun(*given), seconds={"forward": 100.0}))
    clock = Clock()
    check(MANUAL, CASE, "cpu", Depth.FULL, clock)
    assert clock.runs > 2
    assert 100 * (clock.runs - 1) <= clock.running < 100 * clock.runs
