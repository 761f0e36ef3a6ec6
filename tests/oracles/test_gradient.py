"""The gradient gate: autograd, additivity, linearity."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from mhc import Implementation, default_case, materialise, observe, reference
from mhc.case import with_tensor
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.oracles import gradient
from mhc.oracles.bound import tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.underflow_number import UnderflowNumber
from mhc.oracles.trial import Plan, Trial
from mhc.oracles.verdict import Status
from mhc.reference import condensed
from tests.support.helpers import altered, edited_formula, failing, gate_symptoms, gate_verdicts, judged, nudged, scaled_case

GATES = {gate.variant: gate for gate in gradient.GATES}
CASE = scaled_case(B=2, S=3, n=3, D=5, dtype="float32")


def with_wrong_reference(implementation: Implementation, edit: dict[str, str], monkeypatch: Any) -> Implementation:
    """Reference and implementation with the same mistake in the backward formula."""
    wrong = edited_formula(edit)
    monkeypatch.setitem(CASE.table.__dict__, "backward", wrong.backward)
    return replace(implementation, backward=wrong.backward)


def test_a_mistake_that_reference_and_implementation_share_fails(monkeypatch: Any) -> None:
    wrong = with_wrong_reference(MANUAL, {"inv_rms**3 / K": "inv_rms**5 / K"}, monkeypatch)
    assert not failing(judged(wrong, CASE)[2])
    assert gate_symptoms(GATES["autograd"], wrong, CASE) == {("gradient", "dx", "not the derivative")}


def test_the_right_ones_pass() -> None:
    for implementation in (MANUAL, GOLDEN):
        for gate in gradient.GATES:
            verdicts = gate_verdicts(gate, implementation, CASE)
            assert not [one for one in verdicts if one.status is Status.FAIL]
            assert {one.subject for one in verdicts if one.status is Status.PASS} >= {"dphi", "dalpha", "dbias", "dgamma"}


def test_a_sum_that_forgets_where_it_began_fails() -> None:
    """dbias of the first call is carried into the next."""
    kept: list[torch.Tensor] = []

    def carried(out: tuple[Any, ...], _: Any) -> Any:
        kept.append(out[3])
        return (*out[:3], out[3] if len(kept) < 3 else out[3] + kept[1], out[4])

    wrong = altered(MANUAL, backward=carried)
    assert gate_symptoms(GATES["additive"], wrong, CASE) == {("gradient", "dbias", "not additive")}


def test_each_part_has_a_token_and_both_have_all() -> None:
    cuts = set()
    for seed in range(24):
        case = with_tensor(CASE, "x", seed=seed)
        inputs = materialise(case)
        wanted = reference(inputs)
        seen = observe(MANUAL, inputs, wanted.saved)
        plan = gradient.additive(
            Trial(inputs=inputs, reference=wanted, allowed=tolerances(inputs, wanted), observation=seen)
        )
        assert isinstance(plan, Plan)
        assert {run.stages for run in plan.runs} == {("backward",)}
        given = [run.inputs.tensors["x"] for run in plan.runs]
        parts = [one.reshape(-1, 3, 5) for one in given if one is not None]
        whole = inputs.tensors["x"]
        assert whole is not None
        assert torch.equal(torch.cat(parts), whole.reshape(-1, 3, 5))
        cuts.add(len(parts[0]))
    assert cuts == {1, 2, 3, 4, 5}


def test_an_upstream_that_is_clipped_fails() -> None:
    """Far inside the bound for the case itself, and for the doubled one."""

    def clipped(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        dh_res = arguments[10]
        return (nudged(out[0]) if float(dh_res.abs().max()) > 4 else out[0], *out[1:])

    wrong = altered(MANUAL, backward=clipped)
    assert not failing(judged(wrong, CASE)[2])
    assert gate_symptoms(GATES["upstream doubled"], wrong, CASE) == {("gradient", "dx", "not linear")}


def test_what_is_not_finite_or_underflows_is_not_judged() -> None:
    spoilt = with_tensor(CASE, "x", literals=(((0, 0, 0, 0), math.nan),))
    for variant in ("autograd", "upstream doubled"):
        (verdict,) = gate_verdicts(GATES[variant], MANUAL, spoilt)
        assert verdict.status is Status.NOT_APPLICABLE
    tiny = CASE
    for name in ("dh_in", "dh_post", "dh_res"):
        tiny = with_tensor(tiny, name, scale=2.0**-130)
    verdicts = gate_verdicts(GATES["upstream doubled"], MANUAL, tiny)
    assert {one.status for one in verdicts} == {Status.NOT_APPLICABLE}


def test_what_would_overflow_when_doubled_is_not_judged() -> None:
    for dtype, value in (("float32", 3e38), ("float16", 6e4)):
        case = scaled_case(B=2, S=2, n=2, D=3, dtype=dtype)
        huge = with_tensor(case, "dh_in", literals=(((0, 1, 0), value),))
        assert not gate_symptoms(GATES["upstream doubled"], MANUAL, huge)


def test_a_gradient_held_below_the_normal_range_is_not_judged() -> None:
    """dx of float16 around its smallest normal number, 6e-5, where large terms cancel: float64 above, float32 below."""
    case = default_case(B=1, S=64, n=14, D=5, dtype="float16", scalars={"norm_eps": 0.125})
    changes = {
        "alpha": "sparse",
        "bias": "constant",
        "gamma": "row_scaled",
        "dh_in": "column_scaled",
        "dh_post": "cancelling",
    }
    for at, spec in enumerate(case.table.drawn):
        case = with_tensor(case, spec.name, kind=changes.get(spec.name, "normal"), seed=2599 + at)
    case = with_tensor(case, "phi", scale=0.125)
    assert not gate_symptoms(GATES["upstream doubled"], MANUAL, case)


def test_underflow_alone_is_counted() -> None:
    small, one = (
        UnderflowNumber(torch.tensor([value], dtype=torch.float64), torch.zeros(1, dtype=torch.float64), torch.float32)
        for value in (2.0**-120, 1.0)
    )
    assert not (one * one).error
    assert not (one * 0.1).error
    assert (small * one).error > 0
    assert not (small + one).error
    pair = one.reshape(1, 1)[[0, 0]]
    assert (pair.mT @ pair).error > 0  # which product is small is not known
    assert not one.to(torch.float16).error
    assert small.to(torch.float16).error > 0


def test_without_a_backward_it_does_not_apply() -> None:
    forward_only = replace(MANUAL, backward=None)
    for gate in gradient.GATES:
        (verdict,) = gate_verdicts(gate, forward_only, default_case(B=1, S=2, n=1, D=2, dtype="float32"))
        assert verdict.status is Status.NOT_APPLICABLE


def test_a_parameter_that_the_formula_does_not_use_has_no_derivative(monkeypatch: Any) -> None:
    right = CASE.table.forward

    def without_gamma(*given: Any, **scalars: float) -> Any:
        return right(*(None if one is given[4] else one for one in given), **scalars)

    monkeypatch.setitem(CASE.table.__dict__, "forward", without_gamma)
    assert ("gradient", "dgamma", "unwanted") in gate_symptoms(GATES["autograd"], MANUAL, CASE)


def test_a_derivative_that_is_not_finite_has_no_tolerance() -> None:
    wanted = torch.tensor([1.0, math.inf, math.nan], dtype=torch.float64)
    for finite in (True, False):
        one = ErrorNumber(torch.ones(3).double(), torch.full((3,), 0.5).double(), torch.float16, finite=finite)
        found = gradient._derived(wanted, one)
        assert found.error.tolist() == [0.5, math.inf, math.inf]
        assert (found.value is wanted, found.dtype, found.finite) == (True, torch.float16, False)
        assert gradient._derived(torch.zeros(3).double(), one).error.tolist() == [0.5] * 3


def test_parts_that_are_stored_in_a_narrow_dtype_are_rounded_relative_to_themselves() -> None:
    number = ErrorNumber(torch.zeros(2).double(), torch.full((2,), 0.25).double(), torch.bfloat16)
    one, other = torch.tensor([64.0, math.inf]).bfloat16(), torch.tensor([-65.0, 1.0]).bfloat16()
    found = gradient._stored_twice(number, one, other)
    assert found.error.tolist() == [0.25 + 2 * 129 / 256 + 3 * 2.0**-134, math.inf]
    assert found.value is number.value
    for missing in ((None, other), (one, None), (None, None)):
        assert gradient._stored_twice(number, *missing) is number
        assert gradient._add(*missing) is None
    added = gradient._add(torch.tensor([2.0**24]), torch.tensor([1.0]))
    assert added is not None
    assert added.tolist() == [2.0**24 + 1]


def test_a_gradient_that_one_part_lacks_is_not_judged() -> None:
    calls: list[int] = []

    def short(out: tuple[Any, ...], _: Any) -> Any:
        calls.append(1)
        return (*out[:3], None if len(calls) == 3 else out[3], out[4])

    verdicts = gate_verdicts(GATES["additive"], altered(MANUAL, backward=short), CASE)
    assert {one.subject: one.status for one in verdicts}["dbias"] is Status.NOT_APPLICABLE
    assert Status.FAIL not in {one.status for one in verdicts}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_sums_over_parts_of_a_case_in_each_dtype_add_up(dtype: str) -> None:
    verdicts = gate_verdicts(GATES["additive"], MANUAL, scaled_case(B=2, S=5, n=2, D=4, dtype=dtype))
    assert {one.subject for one in verdicts if one.status is Status.PASS} == {"dphi", "dalpha", "dbias", "dgamma"}
    assert Status.FAIL not in {one.status for one in verdicts}


def test_why_it_does_not_apply() -> None:
    double, single = (scaled_case(B=1, S=S, n=2, D=3, dtype=dtype) for S, dtype in ((3, "float64"), (1, "float32")))
    for variant, case, reason in (
        ("autograd", double, "no reference is more precise; gradcheck judges float64"),
        ("autograd", with_tensor(CASE, "x", literals=(((0, 0, 0, 0), math.inf),)), "not finite everywhere"),
        ("additive", single, "fewer than two tokens"),
    ):
        (verdict,) = gate_verdicts(GATES[variant], MANUAL, case)
        assert (verdict.subject, verdict.status, verdict.message) == (variant, Status.NOT_APPLICABLE, reason)
    two = gate_verdicts(GATES["additive"], MANUAL, scaled_case(B=1, S=2, n=2, D=3, dtype="float32"))
    assert {one.status for one in two} == {Status.PASS}


def test_a_large_case_is_differentiated_by_its_representative_tokens() -> None:
    case = scaled_case(B=1, S=512, n=2, D=64, dtype="float32", absent=frozenset({"gamma"}))
    for name in ("dh_in", "dh_post", "dh_res"):
        case = with_tensor(case, name, rows=4)
    case = with_tensor(case, "x", period=16 * case.sizes["K"])
    assert condensed(materialise(case)) is not None
    for variant in ("autograd", "upstream doubled"):
        verdicts = gate_verdicts(GATES[variant], MANUAL, case)
        judged_ones = {one.subject: one.status for one in verdicts if one.status is not Status.NOT_APPLICABLE}
        assert judged_ones == dict.fromkeys(("dx", "dphi", "dalpha", "dbias"), Status.PASS)
    wrong = altered(MANUAL, backward=lambda out, _: (out[0] * 1.01, *out[1:]))
    assert gate_symptoms(GATES["autograd"], wrong, case) == {("gradient", "dx", "not the derivative")}
