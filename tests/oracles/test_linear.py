"""Which elements of a gradient must double with the upstream gradient, and what the gate says of the others."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mhc import Case, Implementation, default_case, load, materialise, observe, reference
from mhc.case import with_tensor
from mhc.declared import Declared
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import linear
from mhc.oracles.bound import tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.linear import LABEL
from mhc.oracles.trial import Plan, Trial
from mhc.oracles.verdict import Status, Verdict
from tests.support.helpers import scaled_case

CASE = scaled_case(B=1, S=2, n=2, D=3, dtype="float32")
NEGLIGIBLE = 2.0**-40 * 2.0**-24
"""Of a float32 number."""


def trial_of(case: Case = CASE, implementation: Implementation = MANUAL) -> Trial:
    inputs = materialise(case)
    right = reference(inputs)
    seen = observe(implementation, inputs, right.saved)
    return Trial(inputs=inputs, reference=right, allowed=tolerances(inputs, right), observation=seen)


def judged(
    monkeypatch: pytest.MonkeyPatch,
    before: float,
    after: float | None,
    *,
    error: float = 0.0,
    exact: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Verdict:
    """The verdict on a gradient of one element, in which underflow may change float64's `exact` by `error`."""

    def number(value: float) -> Tensor:
        return torch.tensor([value], dtype=torch.float64)

    change = ErrorNumber(number(before if exact is None else exact), number(error), dtype)
    monkeypatch.setattr(linear, "_changes", lambda trial: {"dx": change})
    trial = trial_of()
    first = replace(trial.observation, gradients={"dx": number(before).to(dtype)})
    later = replace(first, gradients={"dx": None if after is None else number(after).to(dtype)})
    plan = linear.plan(replace(trial, observation=first))
    assert isinstance(plan, Plan)
    (verdict,) = plan.judge({LABEL: later})
    return verdict


def test_only_the_backward_runs_again() -> None:
    plan = linear.plan(trial_of())
    assert isinstance(plan, Plan)
    (run,) = plan.runs
    assert run.stages == ("backward",)
    for spec in CASE.table.drawn:
        before, after = trial_of().inputs.tensors[spec.name], run.inputs.tensors[spec.name]
        assert before is not None
        assert after is not None
        assert torch.equal(after, before * 2 if spec in CASE.table.upstream else before)


def test_upstream_gradients_that_overflow_when_doubled_are_not_doubled() -> None:
    declared = default_case(operator="softmax", dtype="float32", B0=2, V=3)
    for case, applies in (
        (with_tensor(replace(CASE, dtype="float16"), "dh_in", literals=(((0, 0, 0), 32768.0),)), False),
        (with_tensor(replace(CASE, dtype="float32"), "dh_in", literals=(((0, 0, 0), 32768.0),)), True),
        (with_tensor(declared, "dy", literals=(((0, 0), 2.0**125),)), False),
        (with_tensor(declared, "dy", literals=(((0, 0), 2.0**100),)), True),
    ):
        plan = linear.plan(trial_of(case, MANUAL if case.operator == "mhc_pre" else load("softmax.golden")))
        assert isinstance(plan, Plan) == applies


def test_an_element_must_double_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, 1.5, 3.0).status is Status.PASS
    wrong = judged(monkeypatch, 1.5, 3.0 + 2.0**-22)
    assert (wrong.oracle, wrong.subject, wrong.status, wrong.symptom) == ("gradient", "dx", Status.FAIL, "not linear")
    assert wrong.message == "upstream doubled: dx[0] = 3.00000024, twice the gradient 3"
    assert judged(monkeypatch, 1.5, math.nan).status is Status.FAIL
    assert judged(monkeypatch, 1.5, None).message == "not returned"


@pytest.mark.parametrize(("share", "status"), [(0.99, Status.FAIL), (1.01, Status.NOT_APPLICABLE)])
def test_a_change_of_a_fraction_of_a_digit_is_negligible(
    share: float, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(monkeypatch, 3.0, 5.0, error=share * 3 * NEGLIGIBLE).status is status
    assert judged(monkeypatch, 3.0, 5.0, exact=2.0, error=share * 2 * NEGLIGIBLE).status is status, "of the smaller one"
    assert judged(monkeypatch, 3.0, 5.0, exact=4.0, error=share * 3 * NEGLIGIBLE).status is status
    unjudged = judged(monkeypatch, 3.0, 5.0, exact=0.0)
    assert unjudged.message == "underflow may change every element"


def test_what_is_at_the_ends_of_its_dtype_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    least, most = torch.finfo(torch.float16).smallest_normal, torch.finfo(torch.float16).max
    for value, status in ((least, Status.NOT_APPLICABLE), (least * 1.5, Status.FAIL)):
        assert judged(monkeypatch, value, value, dtype=torch.float16).status is status
    for value, status in ((most / 2, Status.FAIL), (most, Status.NOT_APPLICABLE), (math.inf, Status.NOT_APPLICABLE)):
        assert judged(monkeypatch, value, 1.0, exact=2.0, dtype=torch.float16).status is status


def test_elements_that_share_their_memory_are_doubled_once() -> None:
    for shape, strides in (((4, 3), (0, 1)), ((3, 4), (1, 0)), ((4, 3), (3, 1)), ((2, 2), (0, 0))):
        tensor = torch.ones(12).as_strided(shape, strides)
        linear._double(tensor)
        assert (tensor == 2).all(), strides


def test_a_factor_may_be_subnormal_in_the_precision_that_is_declared() -> None:
    case = CASE
    for name in ("dh_in", "dh_post", "dh_res"):
        case = with_tensor(case, name, scale=2.0**-20)
    trial = trial_of(case)
    plain, tf32, half = (
        linear._changes(replace(trial, declared=Declared(matmul=name)))["dphi"] for name in ("float32", "tf32", "float16")
    )
    assert torch.equal(plain.error, tf32.error), "its exponents are those of float32"
    assert float(half.error.min()) > 1e20 * float(plain.error.max())
