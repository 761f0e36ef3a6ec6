"""The exact gate, and numbers with a quantum."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mhc import Case, materialise, observe, reference
from mhc.case import with_tensor
from mhc.declared import Declared
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles import exact
from mhc.oracles.bound import tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.quantum import quantum_of
from mhc.oracles.trial import Trial
from mhc.oracles.verdict import Status
from tests.support.helpers import altered, failing, gate_symptoms, gate_verdicts, judged, scaled_case, with_layout


def trial_of(case: Case) -> Trial:
    inputs = materialise(case)
    right = reference(inputs)
    allowed, seen = tolerances(inputs, right), observe(MANUAL, inputs, right.saved)
    return Trial(inputs=inputs, reference=right, allowed=allowed, observation=seen)


def short_of_one_term(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
    """The last column's share of h_mix is lost."""
    x, phi, gamma = arguments[0].float(), arguments[1], arguments[4]
    K = phi.shape[1]
    last = x.reshape(*x.shape[:2], K)[..., -1:] * (1 if gamma is None else gamma.reshape(K)[-1])
    return (*out[:4], out[4] - last * phi[:, -1], out[5])


def test_one_term_of_many_thousands() -> None:
    """Too small for the bound where the terms are many."""
    case = scaled_case(B=1, S=1, n=1, D=50_000, dtype="float32", scalars={"norm_eps": 1e-6})
    wrong = altered(MANUAL, forward=short_of_one_term)
    assert "h_mix" not in failing(judged(wrong, case)[2])
    assert ("exact", "h_mix", "inexact") in gate_symptoms(exact.GATE, wrong, case)
    assert ("exact", "h_mix", "value") in gate_symptoms(exact.GATE, wrong, scaled_case(B=1, S=1, n=1, D=5, dtype="float32"))
    assert not gate_symptoms(exact.GATE, MANUAL, case)


@pytest.mark.parametrize(("D", "few"), [(1, True), (5, False)])
def test_a_message_has_the_inputs_where_they_are_few(D: int, few: bool) -> None:
    wrong = altered(MANUAL, forward=short_of_one_term)
    verdicts = gate_verdicts(exact.GATE, wrong, scaled_case(B=1, S=1, n=1, D=D, dtype="float32"))
    (message,) = [one.message for one in verdicts if one.subject == "h_mix" and one.status is Status.FAIL]
    assert ("; on inputs of the gate's own, of few digits" in message, ": x = [" in message) == (True, few)


def test_what_is_exact_for_a_backward_that_uses_what_was_saved() -> None:
    verdicts = gate_verdicts(exact.GATE, MANUAL, scaled_case(B=2, S=3, n=4, D=8, dtype="float32"))
    passed = {one.subject for one in verdicts if one.status is Status.PASS}
    assert {"h_mix", "dx", "dphi", "dalpha", "dbias", "dgamma"} <= passed
    assert {one.oracle for one in verdicts} == {"exact"}


@pytest.mark.parametrize(
    ("values", "quantum"),
    [
        ([1.0, -3.0], 1.0),
        ([0.75, 2.0], 0.25),
        ([0.0], math.inf),
        ([0.0, 96.0], 32.0),
        ([1.0, math.nan], 0.0),
        ([2**-60], 2**-60),
    ],
)
def test_grain(values: list[float], quantum: float) -> None:
    assert quantum_of(torch.tensor(values, dtype=torch.float64)) == quantum


@given(st.lists(st.integers(-(2**11), 2**11), min_size=1, max_size=64), st.integers(0, 5))
def test_a_sum_within_its_digits_has_no_error_and_floats_agree(terms: list[int], exponent: int) -> None:
    value = torch.tensor(terms, dtype=torch.float64) * 2.0**-exponent
    number = ErrorNumber.exact(value, torch.float32, with_quantum=True)
    total, product = number.sum(0), (number * number).sum(0)
    assert not total.error.any()
    assert float(value.float().flip(0).cumsum(0)[-1]) == float(total.value)
    fits = float(value.square().sum()) <= product.quantum * 2**24 if product.quantum else False
    assert not fits or not product.error.any()


def test_digits_that_do_not_fit_have_an_error() -> None:
    large = torch.tensor([2.0**24, 1.0], dtype=torch.float64)
    assert ErrorNumber.exact(large, torch.float32, with_quantum=True).sum(0).error > 0
    narrow = ErrorNumber.exact(torch.tensor([257.0], dtype=torch.float64), torch.float32, with_quantum=True)
    assert narrow.to(torch.bfloat16).error > 0
    assert (
        not ErrorNumber.exact(torch.tensor([256.0], dtype=torch.float64), torch.float32, with_quantum=True)
        .to(torch.bfloat16)
        .error
    )


def test_the_bound_knows_no_grain_unless_it_is_asked_to() -> None:
    _, allowed, _ = judged(MANUAL, scaled_case(B=1, S=2, n=2, D=4, dtype="float32"))
    assert all((one.error > 0).all() for one in allowed.outputs.values())
    assert all(one.quantum == 0 for one in allowed.gradients.values())


def test_a_backward_that_recomputes_the_forward_is_not_exact() -> None:
    """What it recomputes has roundings that the saved tensors, as they are given, have not."""
    (run,) = exact.plan(trial_of(scaled_case(B=1, S=2, n=2, D=4, dtype="float32"))).runs  # type: ignore[union-attr]
    saved, recomputed = (
        exact.promised(run.inputs, reference(run.inputs), declared=Declared(recomputes_forward=flag))
        for flag in (False, True)
    )
    assert (saved.gradients["dx"].error == 0).any()
    assert recomputed.gradients["dx"].error.isinf().all()
    for one in (*saved.results.values(), *recomputed.results.values()):
        assert set(one.error.flatten().tolist()) <= {0.0, math.inf}


def test_inputs_have_few_digits_and_the_case_s_own_seeds_and_layouts() -> None:
    case = with_layout(scaled_case(B=2, S=3, n=2, D=4, dtype="float32"), "x", offset=3)
    case = with_tensor(with_tensor(case, "x", seed=77), "dh_in", rows=2)
    (run,) = exact.plan(trial_of(case)).runs  # type: ignore[union-attr]
    x, dh_in = run.inputs.case.tensors["x"], run.inputs.case.tensors["dh_in"]
    assert (x.seed, x.layout.offset, dh_in.rows) == (77, 3, 2)
    assert x.kind == case.table.exact_recipes["x"].kind
    assert dict(run.inputs.case.scalars) == dict(case.table.exact_scalars)
    assert run.saved.keys() == reference(run.inputs).saved.keys()
