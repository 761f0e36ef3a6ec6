"""What the judge makes of verdicts and of results that are missing."""

from dataclasses import replace

import pytest
import torch

from mhc import Implementation, Refused, default_case, materialise, observe, operator, reference
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.bound import Tolerances, tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.judge import (
    AS_FIRST,
    JUDGED,
    NOT_RETURNED,
    NOTHING,
    SAMPLED,
    agree,
    judge,
    judge_missing,
    labelled,
    outcomes,
)
from mhc.oracles.verdict import Status, Verdict, failed, not_applicable, passed


def test_verdicts_by_a_sampled_tolerance_are_labelled() -> None:
    allowed = Tolerances(outputs={}, gradients={}, sampled=frozenset({"y"}))
    given = [
        passed("bound", "y", ratio=0.5),
        failed("bound", "y", "value", "y[0] = 1"),
        not_applicable("bound", "y", "no elements"),
        failed("bound", "z", "value", "z[0] = 1"),
    ]
    right, wrong, nothing, other = labelled(given, allowed)
    assert (right.sampled, right.message, right.ratio) == (True, "", 0.5)
    assert (wrong.sampled, wrong.message) == (True, "y[0] = 1 (sampled)")
    assert (nothing, other) == (given[2], given[3])


def test_outcomes_tell_what_was_judged() -> None:
    def told(*verdicts: Verdict) -> dict[str, str]:
        return outcomes(verdicts)

    nothing = not_applicable("bound", "y", "no elements")
    assert told(passed("bound", "y")) == told(failed("nonfinite", "y", "class", "")) == {"y": JUDGED}
    assert told(*labelled([passed("bound", "y")], Tolerances(outputs={}, gradients={}, sampled=frozenset({"y"})))) == {
        "y": SAMPLED
    }
    assert told(nothing) == {"y": NOTHING}
    assert told(passed("nonfinite", "y"), nothing) == told(nothing, passed("nonfinite", "y")) == {"y": JUDGED}
    wanted = ErrorNumber.exact(torch.ones(1).double(), torch.float32)
    assert told(judge_missing("bound", "y", None, wanted)) == {"y": NOT_RETURNED}
    assert told(judge_missing("bound", "y", None, None)) == {}, "it must be None, and is"
    assert told(passed("memory", "y"), passed("pair", "z")) == {}, "other gates judge something else"


def test_a_result_that_is_missing_or_not_wanted() -> None:
    wanted = ErrorNumber.exact(torch.ones(1).double(), torch.float32)
    for tolerance in (None, wanted):
        verdict = judge_missing("gate", "y", torch.ones(1), tolerance)
        assert (verdict.status, verdict.symptom) == (Status.FAIL, "unwanted")
        assert verdict.message == "y was returned, where it must be None"
    assert judge_missing("gate", "y", None, wanted).message == "not returned"
    assert judge_missing("gate", "y", None, None).message == "absent in this case"


@operator(x="[T] storage", w="[T] storage optional", T=(1, 8), scaled=(False, True))
def maybe_scaled(x: torch.Tensor, w: torch.Tensor | None, *, scaled: bool) -> torch.Tensor:
    return x * w if scaled and w is not None else x * 1.0


@pytest.mark.parametrize(
    ("dw", "present", "fails"),
    [
        (torch.zeros(2), True, False),
        (None, True, False),
        (torch.tensor([0.0, 1e-30]), True, True),
        (torch.zeros(2), False, True),
    ],
)
def test_the_gradient_of_an_input_that_the_function_leaves_out_is_none_or_zeros(
    dw: torch.Tensor | None, present: bool, fails: bool
) -> None:
    made = Implementation(
        name="made",
        operator=maybe_scaled,
        forward=lambda x, w, *, scaled: x.clone(),
        backward=lambda x, dy, w, *, scaled: (dy.clone(), dw),
    )
    absent = frozenset[str]() if present else frozenset({"w"})
    inputs = materialise(default_case(operator=made.table.name, T=2, dtype="float32", absent=absent))
    true = reference(inputs)
    verdicts = judge(observe(made, inputs, true.saved), tolerances(inputs, true))
    wrong = [one for one in verdicts if one.status is Status.FAIL]
    assert [(one.subject, one.symptom) for one in wrong] == ([("dw", "unwanted")] if fails else [])


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_stage_that_is_missing_leaves_its_results_unjudged(stage: str) -> None:
    inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype="float32"))
    right = reference(inputs)
    allowed = tolerances(inputs, right)
    seen = observe(MANUAL, inputs, right.saved, stages=(stage,))
    missing = allowed.gradients if stage == "forward" else allowed.outputs
    word = {"forward": "no backward", "backward": "no forward"}[stage]
    found = [one for one in judge(seen, allowed) if one.message == word]
    assert [one.subject for one in found] == [*missing]
    assert {(one.oracle, one.status, one.symptom) for one in found} == {("bound", Status.NOT_APPLICABLE, NOT_RETURNED)}


def test_agreement_has_one_verdict_on_each_result_under_the_gate_s_name() -> None:
    inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype="float32"))
    right = reference(inputs)
    allowed, seen = tolerances(inputs, right), observe(MANUAL, inputs, right.saved)
    verdicts = agree("gate", "apart", seen, allowed)
    assert [one.subject for one in verdicts] == [*seen.outputs, *seen.gradients]
    assert {(one.oracle, one.status) for one in verdicts} == {("gate", Status.PASS)}
    zero = allowed.map(lambda _, one: ErrorNumber(one.value + 1, one.error, one.dtype))
    for one in agree("gate", "apart", seen, zero):
        assert (one.oracle, one.status, one.symptom) == ("gate", Status.FAIL, "apart")
        assert one.message.startswith(f"apart: {one.subject}[")


def test_of_a_refused_case_the_refusal_alone_is_told() -> None:
    inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype="float32"))
    right = reference(inputs)
    picky = replace(MANUAL, supports=lambda case: Refused("odd D"))
    seen = observe(picky, inputs, right.saved)
    assert seen.refused is not None
    (verdict,) = judge(seen, tolerances(inputs, right))
    assert (verdict.oracle, verdict.status) == ("refusal", Status.NOT_APPLICABLE)


def test_verdicts_say_nothing_that_they_were_not_given() -> None:
    for verdict in (passed("o", "s"), failed("o", "s", "", ""), not_applicable("o", "s", "")):
        assert (verdict.oracle, verdict.subject, verdict.symptom, verdict.message) == ("o", "s", "", "")
        assert (verdict.ratio, verdict.errors, verdict.against, verdict.sampled) == (None, None, "", False)
    assert (passed("o", "s", ratio=0.5).ratio, failed("o", "s", "", "", ratio=2.0).ratio) == (0.5, 2.0)


def test_a_result_that_is_as_wrong_as_in_the_first_run_says_nothing_more() -> None:
    inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype="float32"))
    right = reference(inputs)
    allowed, seen = tolerances(inputs, right), observe(MANUAL, inputs, right.saved)
    apart = allowed.map(lambda _, one: ErrorNumber(one.value + 1, one.error, one.dtype))
    assert {(one.status, one.message) for one in agree("gate", "apart", seen, apart, first=seen)} == {
        (Status.NOT_APPLICABLE, AS_FIRST)
    }
    outputs = {name: None if value is None else value.clone() for name, value in seen.outputs.items()}
    outputs["h_in"].view(-1)[0] += 1.5  # type: ignore[union-attr]
    moved = replace(seen, outputs=outputs)
    failing = [one.subject for one in agree("gate", "apart", moved, apart, first=seen) if one.status is Status.FAIL]
    assert failing == ["h_in"]
    assert {one.status for one in agree("gate", "apart", seen, allowed, first=moved)} == {Status.PASS}
    outputs["h_in"] = seen.outputs["h_in"] * (1 + 2**-22)  # type: ignore[operator,assignment]
    assert {one.status for one in agree("gate", "apart", moved, apart, first=seen)} == {Status.NOT_APPLICABLE}


def test_a_wrong_result_beside_a_right_one_of_the_first_run_fails() -> None:
    inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype="float32"))
    right = reference(inputs)
    seen = observe(MANUAL, inputs, right.saved)
    allowed = tolerances(inputs, right)
    outputs = dict(seen.outputs)
    number, value = allowed.outputs["h_in"], seen.outputs["h_in"]
    assert value is not None
    outputs["h_in"] = (number.value + 1.5 * number.error * (value.double() - number.value).sign()).float()
    (wrong,) = [one for one in agree("gate", "apart", replace(seen, outputs=outputs), allowed, first=seen) if one.symptom]
    assert (wrong.subject, wrong.symptom, wrong.status) == ("h_in", "apart", Status.FAIL)
