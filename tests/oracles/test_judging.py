"""What gates make of observations that are made up: just inside of what is allowed, just outside, and what is not judged."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Case, default_case, materialise, observe, reference
from mhc.case import with_tensor
from mhc.declared import AS_REFERENCE
from mhc.observation import Failure, Observation
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import algebra, bound, determinism, exact, gradient, isolation, linear, liveness, memory, nonfinite, pair
from mhc.oracles import tolerances as tolerance_module
from mhc.oracles.bound import Tolerances, tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.rounding import unit_roundoff
from mhc.oracles.judge import agree, judge, measured
from mhc.oracles.nonfinite import class_fits, judge_classes, surely_finite, surely_in_range
from mhc.oracles.reindex import shuffled
from mhc.oracles.trial import Gate, Plan, Trial, same_bits
from mhc.oracles.verdict import Status, Verdict, failed, passed
from tests.support.helpers import scaled_case

PASS, FAIL, NONE = Status.PASS, Status.FAIL, Status.NOT_APPLICABLE
CASE = scaled_case(B=2, S=3, n=3, D=5, dtype="float32")
F32 = torch.float32


def number(*pairs: tuple[float, float], dtype: torch.dtype = F32, finite: bool = False) -> ErrorNumber:
    """Values and errors."""
    value, error = (torch.tensor([one[at] for one in pairs], dtype=torch.float64) for at in (0, 1))
    return ErrorNumber(value, error, dtype, finite=finite)


def values(*got: float) -> Tensor:
    return torch.tensor(got, dtype=torch.float64)


def trial_of(case: Case = CASE) -> Trial:
    """What `manual` did with a case."""
    inputs = materialise(case)
    wanted = reference(inputs)
    return Trial(
        inputs=inputs,
        reference=wanted,
        allowed=tolerances(inputs, wanted),
        observation=observe(MANUAL, inputs, wanted.saved),
    )


def planned(gate: Gate, trial: Trial) -> Plan:
    plan = gate.plan(trial)
    assert isinstance(plan, Plan)
    return plan


def said(verdicts: list[Verdict]) -> dict[str, Status]:
    return {one.subject: one.status for one in verdicts}


# ---- one tensor


@pytest.mark.parametrize(
    ("value", "error", "fits"),
    [
        # float16 overflows from 65520 on; may it be finite, +inf, -inf, NaN?
        (1.0, 0.5, (True, False, False, False)),
        (65500.0, 19.0, (True, False, False, False)),
        (65500.0, 20.0, (True, True, False, False)),
        (65540.0, 20.0, (False, True, False, False)),
        (65540.0, 21.0, (True, True, False, False)),
        (-65500.0, 20.0, (True, False, True, False)),
        (-65540.0, 20.0, (False, False, True, False)),
        (-65540.0, 21.0, (True, False, True, False)),
        (0.0, 1e6, (True, True, True, False)),
        (math.inf, 0.0, (False, True, False, False)),
        (-math.inf, 0.0, (False, False, True, False)),
        (math.nan, 0.0, (False, False, False, True)),
    ],
)
def test_which_classes_a_reference_may_have(value: float, error: float, fits: tuple[bool, ...]) -> None:
    wanted = number((value, error), dtype=torch.float16)
    assert tuple(bool(class_fits(values(got), wanted)) for got in (7.0, math.inf, -math.inf, math.nan)) == fits


def test_the_common_case_is_told_without_a_mask() -> None:
    one = values(1.0)
    assert surely_finite(one, number((1.0, 0.5), finite=True))
    assert not surely_finite(one, number((1.0, 0.5)))
    assert not surely_finite(values(math.nan), number((1.0, 0.5), finite=True))
    for sign in (1, -1):
        assert not surely_finite(one, number((sign * 65519.0, 1.0), dtype=torch.float16, finite=True))
        assert surely_finite(one, number((sign * 65519.0, 0.5), dtype=torch.float16, finite=True))
        assert surely_in_range(number((sign * 65519.0, 0.5), dtype=torch.float16))
        assert not surely_in_range(number((sign * 65519.0, 1.0), dtype=torch.float16))


@pytest.mark.parametrize("finite", [True, False])
def test_an_element_is_judged_by_its_own_tolerance(finite: bool) -> None:
    wanted = number((1.0, 0.25), (10.0, 4.0), (0.0, 0.0), finite=finite)
    for got, status, ratio in (
        ((1.25, 10.0, 0.0), PASS, 1.0),
        ((1.0, 6.5, 0.0), PASS, 0.875),
        ((1.125, 12.0, 0.0), PASS, 0.5),
        ((1.2501, 10.0, 0.0), FAIL, 1.0004),
        ((0.7, 10.0, 0.0), FAIL, 1.2),
        ((1.0, 14.5, 0.0), FAIL, 1.125),
        ((1.0, 10.0, 1e-300), FAIL, math.inf),
    ):
        verdict = bound.judge_tensor("h", values(*got), wanted)
        assert (verdict.status, verdict.oracle) == (status, "bound")
        assert verdict.ratio == pytest.approx(ratio)
        both = bound.judge_class_and_magnitude("h", values(*got), wanted)
        assert [one.status for one in both] == [PASS, status]
        assert [one.oracle for one in both] == ["nonfinite", "bound"]
        assert both[1].ratio == verdict.ratio
    message = bound.judge_tensor("h", values(1.1, 15.0, 0.0), wanted).message
    assert message == "h[1] = 15, float64 10, bound 4"
    assert bound.judge_tensor("h", values(0.0, 0.0, 0.0), wanted).symptom == "all zero"
    assert bound.judge_tensor("h", values(9.0, 0.0, 0.0), wanted).symptom == "value"


def test_what_has_no_promise_is_not_judged() -> None:
    wanted = number((1.0, math.inf), (2.0, 0.5))
    assert bound.judge_tensor("h", values(100.0, 2.25), wanted).status is PASS
    assert bound.judge_tensor("h", values(1.0, 3.0), wanted).status is FAIL
    assert judge_classes("h", values(math.nan, 2.0), wanted).status is PASS
    found = judge_classes("h", values(1.0, math.nan), wanted)
    assert (found.status, found.symptom, found.message) == (FAIL, "class", "h[1] = nan, float64 2, bound 0.5")
    nothing = number((1.0, math.inf), (2.0, math.inf))
    for verdict in (bound.judge_tensor("h", values(1.0, 2.0), nothing), judge_classes("h", values(1.0, 2.0), nothing)):
        assert (verdict.status, verdict.message) == (NONE, "no element has a finite tolerance")
    odd = bound.judge_tensor("h", values(math.nan), number((1.0, 0.5)))
    assert (odd.status, odd.message) == (NONE, "no element is finite in both")
    # a wrong class is no magnitude: 70000 may be infinite in float16 alone
    assert bound.judge_tensor("h", values(1.0), number((70000.0, 1.0), dtype=torch.float16)).status is NONE
    empty = ErrorNumber(torch.empty(0, 2), torch.empty(0, 2), F32)
    assert [one.message for one in bound.judge_class_and_magnitude("h", torch.empty(0, 2), empty)] == ["no elements"] * 2


def test_errors_for_a_table() -> None:
    wanted = number((1.0, 0.5), (8.0, 16.0), (3.0, math.inf), (math.nan, 0.0))
    errors = bound.measure(values(1.25, 12.0, 4.0, math.nan), wanted)
    assert (errors.largest, errors.mean) == (4.0, (0.25 + 4 + 1) / 3)
    assert (errors.bound, errors.judged, errors.elements) == (0.5, 2, 4)
    none = bound.measure(values(math.nan), wanted=number((1.0, 0.5)))
    assert (none.largest, none.mean, none.bound, none.judged, none.elements) == (None, None, None, 0, 1)
    far = bound.measure(values(5.0, math.inf), number((1.0, math.inf), (2.0, 1.0)))
    assert (far.largest, far.mean, far.bound, far.judged) == (4.0, 4.0, None, 0)


def test_one_infinite_parameter_and_no_other_frees_a_sum_from_its_nan() -> None:
    given = {name: number((math.nan, 0.0), (1.0, 0.5)) for name in ("dphi", "dx")}

    def freed(name: str, value: float) -> dict[str, list[float]]:
        case = default_case(B=2, S=3, n=2, D=3, dtype="float32")
        at = (0,) * len(materialise(case).tensors[name].shape)  # type: ignore[union-attr]
        inputs = materialise(with_tensor(case, name, literals=((at, value),)))
        return {name: one.error.tolist() for name, one in tolerance_module._common_factors(inputs, given).items()}

    assert freed("gamma", math.inf) == freed("phi", -math.inf) == {"dphi": [math.inf, 0.5], "dx": [0.0, 0.5]}
    assert freed("gamma", math.nan) == freed("x", math.inf) == {"dphi": [0.0, 0.5], "dx": [0.0, 0.5]}
    without = materialise(default_case(B=1, S=1, n=1, D=1, absent=frozenset({"gamma"})))
    assert tolerance_module._common_factors(without, given) is given


def test_the_references_own_rounding_comes_on_top() -> None:
    """It matters for float64 alone, where the reference is no better than the implementation: twice as much."""
    for dtype, own in (("float64", 2.0), ("float32", 1 + 2.0**-29)):
        inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype=dtype))
        wanted = reference(inputs)
        allowed = tolerances(inputs, wanted)
        plain = bound.read_formula(
            inputs.case.table,
            {name: None if one is None else one.double().contiguous() for name, one in inputs.tensors.items()},
            inputs.tensors["x"].dtype,  # type: ignore[union-attr]
            inputs.case.scalars,
            saved=wanted.outputs,
        )
        for with_own, without in ((allowed.outputs, plain.outputs), (allowed.gradients, plain.gradients)):
            for name, one in without.items():
                assert torch.equal(with_own[name].error, one.error * own), name
        assert all(one.finite for one in allowed.outputs.values())


# ---- an observation


def test_missing_and_unwanted_results() -> None:
    trial = trial_of()
    observation = replace(
        trial.observation, outputs={"h_in": None, "more": values(1.0)}, gradients={"dnothing": None}, written=(), overrun=()
    )
    verdicts = judge(observation, trial.allowed)
    assert {one.subject: (one.status, one.symptom, one.message) for one in verdicts} == {
        "inputs": (PASS, "", ""),
        "results": (PASS, "", ""),
        "settings": (PASS, "", ""),
        "h_in": (NONE, "not returned", "not returned"),
        "more": (FAIL, "unwanted", "more was returned, where it must be None"),
        "dnothing": (NONE, "absent", "absent in this case"),
    }
    again = {one.subject: (one.oracle, one.status) for one in agree("algebra", "moved", observation, trial.allowed)}
    assert again == {"h_in": ("algebra", NONE), "more": ("algebra", FAIL), "dnothing": ("algebra", NONE)}


def test_a_gate_tells_of_class_and_magnitude_in_one_verdict() -> None:
    trial = trial_of()
    allowed = Tolerances(outputs={"h": number((1.0, 0.5), (2.0, 0.5))}, gradients={"d": number((1.0, 0.5))})

    def told(*got: float) -> tuple[Verdict, Verdict]:
        made = replace(trial.observation, outputs={"h": values(*got)}, gradients={"d": values(1.25)})
        one, other = agree("algebra", "moved", made, allowed)
        return one, other

    right, gradient_verdict = told(1.0, 2.25)
    assert (right.oracle, right.subject, right.status, right.ratio, right.symptom) == ("algebra", "h", PASS, 0.5, "")
    assert (gradient_verdict.subject, gradient_verdict.ratio) == ("d", 0.5)
    far, _ = told(1.0, 3.0)
    assert (far.status, far.symptom, far.message) == (FAIL, "moved", "moved: h[1] = 3, float64 2, bound 0.5")
    odd, _ = told(math.nan, 3.0)
    assert (odd.status, odd.symptom, odd.message) == (FAIL, "moved", "moved: h[0] = nan, float64 1, bound 0.5")


def test_the_bound_gates_verdicts_alone_say_how_far() -> None:
    trial = trial_of()
    verdicts = measured(judge(trial.observation, trial.allowed), trial.observation, trial.allowed)
    assert {one.oracle for one in verdicts if one.errors is not None} == {"bound"}
    assert {one.oracle for one in verdicts if one.errors is None} == {"memory", "nonfinite", "aliasing", "effects"}
    (dx,) = [one for one in verdicts if one.subject == "dx" and one.errors is not None]
    assert dx.errors is not None
    assert (dx.errors.elements, dx.errors.judged) == (90, 90)
    without = replace(trial.observation, outputs={"h_in": None}, gradients={"more": values(1.0)})
    assert not [one for one in measured(judge(without, trial.allowed), without, trial.allowed) if one.errors is not None]


def test_a_repeat_is_compared_bit_by_bit() -> None:
    base = trial_of().observation

    def with_outputs(outputs: Mapping[str, Tensor | None]) -> Observation:
        return replace(base, outputs=outputs, gradients={})

    nan, other = (torch.tensor([bits], dtype=torch.int32).view(F32) for bits in (0x7FC00000, 0x7FC00001))
    one = {"a": torch.tensor([0.0, 1.0]), "b": nan, "c": None, "d": torch.ones(1), "e": None, "f": torch.empty(0, 2)}
    two = {"a": torch.tensor([0.0, -1.0]), "b": other, "c": None, "d": None, "e": torch.ones(1), "f": torch.empty(0, 2)}
    found = determinism.compare("gate", with_outputs(one), with_outputs(two), "differs", "another run")
    assert [(v.subject, v.status, v.message) for v in found] == [
        ("a", FAIL, "a[1] = 1, and -1 in another run"),
        ("b", FAIL, "b[0] = nan, and nan in another run"),
        ("c", NONE, "not returned"),
        ("d", FAIL, "d is returned in one run and None in another run"),
        ("e", FAIL, "e is returned in one run and None in another run"),
        ("f", NONE, "no elements"),
    ]
    same = determinism.compare("gate", with_outputs({"b": nan}), with_outputs({"b": nan.clone()}), "differs", "")
    assert [(v.oracle, v.status) for v in same] == [("gate", PASS)]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
def test_bits_are_compared_whatever_the_size_of_an_element(dtype: torch.dtype) -> None:
    one = torch.tensor([0.0, 1.0, 2.0]).to(dtype)
    assert same_bits(one, one.clone()).tolist() == [True, True, True]
    assert same_bits(one, torch.tensor([0.0, 1.0, 3.0]).to(dtype)).tolist() == [True, True, False]
    assert same_bits(torch.tensor([0.0]), torch.tensor([-0.0])).tolist() == [False]


def test_what_two_runs_in_the_same_memory_change_is_not_the_memorys() -> None:
    trial = trial_of()
    plan = planned(memory.GATE, trial)
    assert [run.label for run in plan.runs] == ["repeat", "other poison"]
    assert [run.fill for run in plan.runs] == [0xFF, 0x40]
    assert plan.runs[0].inputs is trial.inputs
    band = plan.runs[1].inputs.storages["x"][: 8192 // 4]
    assert (band == torch.tensor([0x40404040], dtype=torch.int32).view(F32)).all()
    moved: dict[str, Any] = dict(trial.observation.outputs)
    moved["h_in"] = moved["h_in"] + 1
    changed = replace(trial.observation, outputs=moved)
    found = said(plan.judge({"repeat": trial.observation, "other poison": changed}))
    assert {name for name, status in found.items() if status is FAIL} == {"h_in"}
    found = said(plan.judge({"repeat": changed, "other poison": changed}))
    assert {name for name, status in found.items() if status is not PASS} == {"h_in"}
    assert found["h_in"] is NONE


def test_a_result_that_was_changed_since_is_told_with_its_place() -> None:
    base = trial_of().observation
    now = {name: one.clone() for name, one in base.returned.items()}
    now["h_post"][0, 1, 2] = 7.0
    (found,) = memory.judge_kept(replace(base, returned=now), ["repeat", "other"])
    was = float(base.outputs["h_post"][0, 1, 2])  # type: ignore[index]
    assert (found.subject, found.symptom) == ("h_post", "overwritten")
    assert found.message == f"h_post[0, 1, 2] = {was:.9g}, and 7 after later calls: repeat, other"
    assert memory.judge_kept(replace(base, returned=now), []) == []
    assert memory.judge_kept(base, ["repeat"]) == []
    beside = "beside phi: 1 element after its last"
    places = {"x": "x[0] = 1, was 0", "phi": beside, "dx": "1 element", "scratch": "a (3,)"}
    written = memory.judge(replace(base, written=("x", "phi"), overrun=("dx", "scratch"), places=places))
    assert [(one.subject, one.symptom, one.status, one.message) for one in written] == [
        ("inputs", "written", FAIL, f"wrote into its inputs: x[0] = 1, was 0; {beside}"),
        ("dx", "overrun", FAIL, "wrote beside dx: 1 element"),
        ("scratch", "overrun", FAIL, "wrote beside a (3,)"),
    ]
    assert memory.judge(replace(base, written=("phi",), places=places))[0].message == f"wrote {beside}"


# ---- gates that ask for another run


def moved_by(error: ErrorNumber, factor: float, times: float = 1.0, larger: float = 1.0) -> Tensor:
    """`times` the reference, with one element by `factor` of `larger` tolerances away."""
    value = error.value * times
    at = (error.error / (value.abs() + 1e-30)).argmax()  # where it can be seen best
    flat = value.reshape(-1).clone()
    flat[at] += factor * larger * error.error.reshape(-1)[at]
    return flat.reshape(value.shape)


SUMS = ("dphi", "dalpha", "dbias", "dgamma")


@pytest.mark.parametrize(("factor", "status"), [(0.99, PASS), (-0.99, PASS), (1.01, FAIL), (-1.01, FAIL)])
def test_repeated_tokens_are_allowed_two_roots_of_two_more(factor: float, status: Status) -> None:
    trial = trial_of()
    plan = planned({gate.variant: gate for gate in algebra.GATES}["repeated tokens"], trial)
    doubled = {name: moved_by(trial.allowed.gradients[name], factor, times=2.0, larger=2 * math.sqrt(2)) for name in SUMS}
    doubled["dx"] = moved_by(trial.allowed.gradients["dx"], factor).repeat(2, 1, 1, 1)
    outputs = {"h_in": moved_by(trial.allowed.outputs["h_in"], factor).repeat(2, 1, 1)}
    made = replace(trial.observation, outputs=outputs, gradients=doubled)
    found = plan.judge({"repeated tokens": made})
    assert said(found) == dict.fromkeys(("h_in", *SUMS, "dx"), status)
    assert {one.symptom for one in found} == {"repeated tokens" if status is FAIL else ""}
    assert [tuple(one.shape) for one in (plan.runs[0].inputs.tensors["x"],) if one is not None] == [(4, 3, 3, 5)]


@pytest.mark.parametrize(("factor", "status"), [(0.99, PASS), (1.01, FAIL)])
@pytest.mark.parametrize("variant", ["permuted tokens", "sliced tokens"])
def test_rows_move_with_their_tokens(variant: str, factor: float, status: Status) -> None:
    trial = trial_of()
    plan = planned({gate.variant: gate for gate in algebra.GATES}[variant], trial)
    rows, moved = trial.inputs.tensors["x"], plan.runs[0].inputs.tensors["x"]
    assert rows is not None
    assert moved is not None
    order = [next(at for at in range(6) if torch.equal(rows.reshape(6, -1)[at], row)) for row in moved.reshape(-1, 15)]
    assert order != list(range(6))
    assert len(set(order)) == len(order)

    def placed(name: str) -> Tensor:
        numbers = {**trial.allowed.outputs, **trial.allowed.gradients}
        one = numbers[name]
        shape = (*moved.shape[:2], *one.value.shape[2:])
        return (one.value + factor * one.error).reshape(6, -1)[order].reshape(shape)

    gradients = {"dx": placed("dx"), "dbias": moved_by(trial.allowed.gradients["dbias"], factor)}
    made = replace(trial.observation, outputs={"h_post": placed("h_post")}, gradients=gradients)
    judged = {"h_post", "dx", *(["dbias"] if variant == "permuted tokens" else [])}
    assert said(plan.judge({variant: made})) == dict.fromkeys(judged, status)


def test_slices_are_some_of_the_tokens_in_a_row() -> None:
    lengths = set()
    gate = {one.variant: one for one in algebra.GATES}["sliced tokens"]
    for seed in range(30):
        case = with_tensor(default_case(B=1, S=5, n=1, D=2, dtype="float32"), "x", seed=seed)
        trial = trial_of(case)
        rows, moved = trial.inputs.tensors["x"], planned(gate, trial).runs[0].inputs.tensors["x"]
        assert rows is not None
        assert moved is not None
        begins = [at for at in range(5) if torch.equal(rows[0, at : at + moved.shape[1]], moved[0])]
        assert len(begins) == 1
        lengths.add((begins[0], moved.shape[1]))
    assert lengths == {(0, 4), (1, 3), (2, 2), (3, 1), (4, 1)}


@pytest.mark.parametrize("variant", [one.name for one in CASE.table.relations])
def test_scaled_inputs_have_the_tolerance_of_their_own(variant: str) -> None:
    trial = trial_of()
    plan = planned({gate.variant: gate for gate in algebra.GATES}[variant], trial)
    (run,) = plan.runs
    wanted = reference(run.inputs)
    fresh = tolerances(run.inputs, wanted)
    for factor, status in ((0.98, {PASS}), (1.05, {FAIL, PASS})):
        made = replace(
            trial.observation,
            outputs={name: moved_by(one, factor) for name, one in fresh.outputs.items()},
            gradients={name: moved_by(one, factor) for name, one in fresh.gradients.items()},
        )
        found = plan.judge({variant: made})
        assert {one.status for one in found if one.subject in {"h_in", "dx", "dphi", "h_mix"}} <= status
        failing = [one for one in found if one.status is FAIL]
        allowed = {**fresh.outputs, **fresh.gradients}
        assert len(failing) == (sum(bool(allowed[one.subject].error.any()) for one in found) if factor > 1 else 0)
    assert torch.equal(run.saved["inv_rms"], wanted.saved["inv_rms"])


def test_the_reference_of_a_relation_is_the_cases_own_scaled() -> None:
    fresh, before = number((6.0, 0.5), finite=True), number((2.0, 0.25), finite=True)
    scaled = algebra._scale(fresh, before, 4.0)
    assert (float(scaled.value), float(scaled.error), scaled.finite) == (8.0, 0.5, True)
    assert float(algebra._scale(fresh, before, 2.0**200).value) == 2.0**201
    assert algebra._scale(fresh, None, 4.0) is fresh
    assert algebra._scale(fresh, before, None) is fresh
    wild = algebra._scale(
        number((1.0, 0.5), (1.0, 0.5), (1.0, math.inf), (1.0, 0.5)),
        number((1.0, 0.1), (math.inf, 0.1), (1.0, 0.1), (1.0, math.inf)),
        2.0,
    )
    assert wild.error.tolist() == [0.5, math.inf, math.inf, math.inf]
    assert wild.value.tolist() == [2.0, math.inf, 2.0, 2.0]


def test_shuffled_is_never_as_it_was() -> None:
    for seed in range(40):
        order = shuffled(with_tensor(CASE, "x", seed=seed), "tokens", 2)
        assert order.tolist() == [1, 0]
    assert shuffled(CASE, "tokens", 50).tolist() == shuffled(CASE, "tokens", 50).tolist()
    assert sorted(shuffled(CASE, "tokens", 50).tolist()) == list(range(50))
    one = shuffled(default_case(B=1, S=1, n=1, D=1), "tokens", 8)
    assert one.tolist() == [1, 0, 6, 7, 3, 2, 5, 4], "a saved case is judged as it was"
    assert shuffled(CASE, "tokens", 50).tolist() != shuffled(CASE, "streams", 50).tolist()


@pytest.mark.parametrize(("factor", "status"), [(0.99, PASS), (1.01, FAIL)])
def test_gradients_are_judged_against_the_derivative_within_the_bound(factor: float, status: Status) -> None:
    trial = trial_of()
    gate = next(one for one in gradient.GATES if one.variant == "autograd")
    plan = planned(gate, trial)
    assert not plan.runs
    gradients = {name: moved_by(one, factor) for name, one in trial.allowed.gradients.items()}
    moved = replace(trial, observation=replace(trial.observation, gradients=gradients))
    found = planned(gate, moved).judge({})
    assert said(found) == dict.fromkeys(("dx", *SUMS), status)
    assert {one.symptom for one in found} == {"not the derivative" if status is FAIL else ""}


def test_parts_add_up_within_the_tolerance_of_the_whole() -> None:
    trial = trial_of()
    gate = next(one for one in gradient.GATES if one.variant == "additive")
    plan = planned(gate, trial)
    first, other = plan.runs
    assert (first.label, other.label, first.stages) == ("first tokens", "other tokens", ("backward",))
    parts = [run.inputs.tensors["x"] for run in plan.runs]
    whole = trial.inputs.tensors["x"]
    assert whole is not None
    assert torch.equal(torch.cat([one for one in parts if one is not None], 1).reshape(6, -1), whole.reshape(6, -1))
    assert all(one is not None and one.shape[1] > 0 for one in parts)
    for factor, status in ((0.99, PASS), (1.01, FAIL)):
        half = {name: moved_by(trial.allowed.gradients[name], factor) / 2 for name in SUMS}
        observed = {
            run.label: replace(trial.observation, gradients={**half, "dx": trial.observation.gradients["dx"]})
            for run in plan.runs
        }
        found = plan.judge(observed)
        assert said(found) == dict.fromkeys(SUMS, status)
        assert {one.symptom for one in found} == {"not additive" if status is FAIL else ""}


def test_doubled_upstream_doubles_each_bit() -> None:
    trial = trial_of()
    plan = planned(linear.GATE, trial)
    (run,) = plan.runs
    for name in ("dh_in", "dh_post", "dh_res"):
        before, after = trial.inputs.tensors[name], run.inputs.tensors[name]
        assert before is not None
        assert after is not None
        assert torch.equal(after, before * 2)
    assert torch.equal(run.inputs.tensors["x"], trial.inputs.tensors["x"])  # type: ignore[arg-type]
    assert run.stages == ("backward",)
    doubled: dict[str, Any] = {name: one * 2 for name, one in trial.observation.gradients.items() if one is not None}

    def found(**changes: Any) -> dict[str, Status]:
        return said(plan.judge({run.label: replace(trial.observation, gradients={**doubled, **changes})}))

    assert found() == dict.fromkeys(("dx", *SUMS), PASS)
    for name in ("dx", *SUMS):
        moved = doubled[name].clone()
        flat = moved.view(-1)
        flat[-1] = torch.nextafter(flat[-1], torch.tensor(math.inf))
        assert found(**{name: moved}) == {**dict.fromkeys(("dx", *SUMS), PASS), name: FAIL}
    assert found(dx=None)["dx"] is NONE
    # what is held below the normal range, or may overflow, tells nothing
    tiny, huge = (torch.full_like(doubled["dx"], value) for value in (2.0**-127, 3e38))
    for before in (tiny, huge, torch.zeros_like(tiny)):
        base = replace(trial.observation, gradients={**trial.observation.gradients, "dx": before})
        odd = planned(linear.GATE, replace(trial, observation=base))
        changed = replace(base, gradients={**doubled, "dx": before * 3})
        assert said(odd.judge({run.label: changed}))["dx"] is NONE


@pytest.mark.parametrize(("held", "value"), [(1.0, 8.0), (8.0, 1.0), (-1024.0, -1024.0)])
def test_what_underflow_may_change_by_a_negligible_part_is_judged(
    held: float, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_of()
    dx = trial.observation.gradients["dx"]
    assert dx is not None
    before, now = torch.full_like(dx, held), torch.full_like(dx, 2.5 * held)
    limit = 2.0**-40 * unit_roundoff(dx.dtype) * min(abs(held), abs(value))
    for factor, wanted in ((0.99, FAIL), (1.01, NONE)):
        change = ErrorNumber(torch.full_like(dx, value).double(), torch.full_like(dx, limit * factor).double(), dx.dtype)
        monkeypatch.setattr(linear, "_changes", lambda _, change=change: {"dx": change})
        base = replace(trial, observation=replace(trial.observation, gradients={"dx": before}))
        plan = planned(linear.GATE, base)
        observed = {plan.runs[0].label: replace(trial.observation, gradients={"dx": now})}
        assert said(plan.judge(observed)) == {"dx": wanted}


def test_only_the_spoilt_tokens_rows_may_change() -> None:
    trial = trial_of()
    plan = planned(isolation.GATE, trial)
    (run,) = plan.runs
    x = run.inputs.tensors["x"]
    assert x is not None
    assert int(x.isnan().sum()) == 1
    token = tuple(x.isnan().nonzero()[0, :2].tolist())
    for tensor in run.saved.values():
        rows = tensor.isnan().reshape(2, 3, -1)
        assert rows[token].all()
        assert int(rows.any(-1).sum()) == 1
    assert not any(tensor.isnan().any() for tensor in trial.reference.saved.values())

    def observed(at: tuple[int, ...]) -> dict[str, Status]:
        outputs = {name: one.clone() for name, one in trial.observation.outputs.items() if one is not None}
        outputs["h_in"][at] += 1
        outputs["h_post"][token] = math.nan
        made = replace(trial.observation, outputs=outputs, gradients={**trial.observation.gradients, "dx": None})
        return said(plan.judge({run.label: made}))

    other = next((b, s) for b in range(2) for s in range(3) if (b, s) != token)
    by_token = ("h_in", "h_post", "h_res", "inv_rms", "h_mix", "h_pre")
    assert observed(token) == {**dict.fromkeys(by_token, PASS), "dx": NONE}
    assert observed(other) == {**dict.fromkeys(by_token, PASS), "h_in": FAIL, "dx": NONE}


def test_exact_inputs_allow_nothing() -> None:
    trial = trial_of(scaled_case(B=2, S=3, n=4, D=8, dtype="float32"))
    plan = planned(exact.GATE, trial)
    (run,) = plan.runs
    assert run.label == "exact inputs"
    wanted = exact.promised(run.inputs, reference(run.inputs), declared=AS_REFERENCE)
    assert {float(one) for number_ in wanted.gradients.values() for one in number_.error.reshape(-1)} <= {0.0, math.inf}
    dx = wanted.gradients["dx"].value
    right = replace(trial.observation, outputs={}, gradients={"dx": dx})
    assert said(plan.judge({run.label: right})) == {"dx": PASS}
    wrong = replace(trial.observation, outputs={}, gradients={"dx": dx * (1 + 2.0**-50)})
    (found,) = plan.judge({run.label: wrong})
    assert (found.status, found.symptom) == (FAIL, "inexact")
    assert found.message.startswith("inexact: dx[")
    (found,) = plan.judge({run.label: replace(wrong, gradients={"dx": dx + 1})})
    assert (found.oracle, found.status, found.symptom) == ("exact", FAIL, "value")
    assert found.message.startswith("value: dx[")
    seeds = [recipe.seed for recipe in trial.case.tensors.values()]
    assert seeds == [0, 1, 2, 3, 4, 5, 6, 7]


# ---- two implementations, and words


def test_pairs_are_judged_by_both_tolerances() -> None:
    narrow, wide = number((1.0, 0.25), (5.0, 0.25)), number((1.0, 0.5), (5.0, 0.5))

    def found(a: Tensor, b: Tensor, finite: bool = True) -> Verdict:
        sides = [ErrorNumber(one.value, one.error, F32, finite=finite) for one in (narrow, wide)]
        return pair.compare("h", (a, b), (sides[0], sides[1]), ("one", "other"))

    for finite in (True, False):
        assert found(values(0.75, 5.0), values(1.5, 5.0), finite).ratio == 1.0
        assert found(values(0.75, 5.0), values(1.5, 5.0), finite).status is PASS
        assert found(values(1.0, 4.75), values(1.0, 5.125), finite).ratio == 0.5
        far = found(values(1.0, 4.5), values(1.0, 5.5), finite)
        assert (far.status, far.message) == (FAIL, "h[1] = 4.5 one, 5.5 other, bound 0.25 + 0.5")
    assert found(values(1.0, math.nan), values(1.0, 5.0)).symptom == "class"
    assert found(values(1.0, math.inf), values(1.0, -math.inf)).symptom == "class"
    unsure = number((1.0, math.inf), (2.0, 0.25))
    odd = pair.compare("h", (values(math.nan, 2.0), values(1.0, 2.0)), (unsure, unsure), ("one", "other"))
    assert (odd.status, odd.ratio) == (PASS, 0.0)
    nothing, calm_one = number((1.0, math.inf)), number((1.0, 0.5), finite=True)
    for sides_ in ((nothing, calm_one), (calm_one, nothing)):
        assert pair.compare("h", (values(1.0), values(1.0)), sides_, ("one", "other")).status is NONE
    both_nan = number((math.nan, 0.0))
    agreed = pair.compare("h", (values(math.nan), values(math.nan)), (both_nan, both_nan), ("one", "other"))
    assert (agreed.status, agreed.ratio) == (PASS, None)


@pytest.mark.parametrize(
    ("type_", "message", "symptom"),
    [
        ("MemoryError", "", "out of memory"),
        ("RuntimeError", "DefaultCPUAllocator: out of memory", "out of memory"),
        ("RuntimeError", "exceeds the maximum allowed shared memory", "out of memory"),
        ("RuntimeError", "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address"),
        ("RuntimeError", "the launch timed out and was terminated", "launch timeout"),
        ("RuntimeError", "CUDA_ERROR_LAUNCH_TIMEOUT", "launch timeout"),
        ("RuntimeError", "an illegal instruction was encountered", "kernel crash"),
        ("RuntimeError", "device-side assert triggered", "kernel crash"),
        ("RuntimeError", "CUDA_ERROR_LAUNCH_FAILED", "kernel crash"),
        ("PTXASError", "fatal", "compile error"),
        ("InternalError", "Check failed while compiling", "compile error"),
        ("CalledProcessError", "nvcc", "compile error"),
        ("ValueError", "compile", "raises ValueError"),
    ],
)
def test_more_symptoms(type_: str, message: str, symptom: str) -> None:
    observation = trial_of(default_case(B=1, S=1, n=1, D=1)).observation
    failure = Failure(stage="forward", type=type_, message=message, traceback="")
    assert liveness.symptom(failure) == symptom
    gone = liveness.device_lost(replace(observation, failure=failure))
    assert gone is (symptom in {"illegal address", "launch timeout", "kernel crash"})
    assert not liveness.device_lost(observation)


def test_what_ends_a_process_is_told_in_numbers() -> None:
    assert liveness.hung(2.5).message == "no answer within 2.5 s"
    assert liveness.exceeded_memory(3.2 * 2**30, 2 * 2**30).message == "took 3.2 GiB, of 2.0 that it may"
    assert liveness.flooded_output(64 << 20).message == "wrote more than 64 MiB to standard output and error"
    assert liveness.closed_pipe(5).symptom == "closes its pipe"
    assert liveness.died("SIGSEGV").symptom == "SIGSEGV"
    silent = Failure(stage="forward", type="IndexError", message="", traceback="")
    (found,) = liveness.judge(replace(trial_of().observation, failure=silent))
    assert found.message == "forward raised IndexError: "


def test_verdicts_are_what_they_are_called() -> None:
    assert (passed("a", "b").status, passed("a", "b", ratio=0.5).ratio) == (PASS, 0.5)
    one = failed("a", "b", "c", "d", ratio=2.0)
    assert (one.oracle, one.subject, one.status, one.symptom, one.message, one.ratio) == ("a", "b", FAIL, "c", "d", 2.0)
    assert nonfinite.NAME == "nonfinite"
