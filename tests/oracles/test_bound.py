"""The bound gate and the judge: what they must catch, and what they must let pass."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from mhc import Implementation, default_case, materialise, reference
from mhc.case import with_tensor
from mhc.declared import Declared
from mhc.operators.mhc_pre.torch.implementations import MANUAL
from mhc.oracles.bound import judge_tensor, measure, tolerances
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.judge import judge
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.edit import implementation
from mhc.oracles.verdict import Status
from mhc.recipe import Recipe
from tests.support.helpers import edited_formula, failing, judged, observed, scaled_case

WRONG_FORMULAS: dict[str, dict[str, str]] = {
    "rms of x*gamma": {"(flat.square().mean(-1)": "(weighted.square().mean(-1)"},
    "eps outside the root": {"(flat.square().mean(-1) + norm_eps).rsqrt()": "flat.square().mean(-1).rsqrt() + norm_eps"},
    "rms from bfloat16 squares": {"flat.square().mean(-1)": "flat.square().bfloat16().float().mean(-1)"},
    "half-reduced sum of squares": {"flat.square().mean(-1)": "(flat.square().mean(-1) / 2)"},
    "h_post without its 2": {".sigmoid() * 2": ".sigmoid() * 1"},
    "hc_eps on h_post": {".sigmoid() * 2": ".sigmoid() * 2 + hc_eps"},
    "alpha's entries swapped": {"alpha[1] * t[..., n : 2 * n]": "alpha[2] * t[..., n : 2 * n]"},
    "h_res transposed": {".reshape(B, S, n, n)  # raw": ".reshape(B, S, n, n).mT  # raw"},
    "gamma ignored": {"weighted = flat if gamma is None else flat * gamma.reshape(K)\n\n": "weighted = flat\n\n"},
    "gamma column-major": {"flat * gamma.reshape(K)\n\n": "flat * gamma.mT.reshape(K)\n\n"},
    "reduction in bfloat16": {"(h_pre.unsqueeze(-1) * v).sum(-2)": "(h_pre.unsqueeze(-1) * v).bfloat16().sum(-2)"},
    "bfloat16 projection": {"weighted @ phi.mT": "(weighted.bfloat16() @ phi.bfloat16().mT).float()"},
    "last column dropped": {"weighted @ phi.mT": "weighted[..., :-1] @ phi[:, :-1].mT"},
    "extra inv_rms**2 in dinv_rms": {"inv_rms**3 / K": "inv_rms**5 / K"},
    "bfloat16 gradient of the gates": {
        "dh_mix = dt * inv_rms.unsqueeze(-1)": "dh_mix = (dt * inv_rms.unsqueeze(-1)).bfloat16().float()"
    },
    "dbias twice": {"dbias = dgate.reshape(N, M).sum(0)": "dbias = 2 * dgate.reshape(N, M).sum(0)"},
    "no inv_rms in dgamma": {"(flat * dvec_mm)": "(flat * dvec_mm / inv_rms.unsqueeze(-1))"},
    "all-zero dx": {"return Backward(dx.to(x.dtype)": "return Backward(0 * dx.to(x.dtype)"},
    "last row of dphi": {
        "dphi = dh_mix.reshape(N, M).mT": "dphi = (torch.arange(M) < M - 1).float()[:, None] * dh_mix.reshape(N, M).mT"
    },
}


def with_formula(formula: Any) -> Implementation:
    """The manual implementation with another formula in its place."""
    return replace(MANUAL, forward=formula.forward, backward=formula.backward)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WRONG_FORMULAS)
def test_a_wrong_formula_fails(name: str, dtype: str) -> None:
    case = scaled_case(0.1, B=2, S=8, n=4, D=32, dtype=dtype, scalars={"norm_eps": 1e-3, "hc_eps": 1e-3})
    wrong = edited_formula(WRONG_FORMULAS[name])
    assert failing(judged(with_formula(wrong), case)[2]), name
    assert not failing(judged(MANUAL, case)[2])


@pytest.mark.parametrize("name", ["clean_gamma_out_of_dphi", "clean_dgamma_from_psi"])
def test_an_infinite_parameter_may_be_taken_out_of_a_sum(name: str) -> None:
    """Infinity where the formula has the NaN of inf - inf."""
    tensor, at = {"clean_gamma_out_of_dphi": ("gamma", (0, 1)), "clean_dgamma_from_psi": ("phi", (6, 1))}[name]
    case = with_tensor(default_case(B=2, S=3, n=2, D=3, dtype="float32"), tensor, literals=((at, math.inf),))
    wanted = reference(materialise(case))
    assert any(bool(one.isnan().any()) for one in wanted.gradients.values() if one is not None)
    assert not failing(judged(implementation(ALL[name]), case)[2])


@pytest.mark.parametrize(("scale", "failing_one"), [(2.0**-61, set()), (2.0**-60, {"dgamma"})])
def test_only_a_product_that_may_underflow_may_make_nan_of_an_infinite_sum(scale: float, failing_one: set[str]) -> None:
    """dgamma as phi psi, with psi = x dh_mix, is infinity times what rounds to 0 where the formula has x times infinity."""
    case = scaled_case(0.0, B=1, S=1, n=1, D=1, dtype="float32")
    for name, recipe in {
        "x": Recipe(kind="constant", scale=scale),
        "phi": Recipe(kind="zero", literals=(((2, 0), math.inf),)),
        "alpha": Recipe(kind="zero", literals=(((2,), 1.0),)),
        "dh_res": Recipe(kind="constant", scale=2.0**-99),
    }.items():
        case = replace(case, tensors={**case.tensors, name: recipe})
    clean = implementation(ALL["clean_dgamma_from_psi"])
    observation, allowed, verdicts = judged(clean, case)
    assert not failing(verdicts)
    spoilt = replace(observation, gradients={**observation.gradients, "dgamma": torch.full((1, 1), math.nan)})
    assert failing(judge(spoilt, allowed)) == failing_one


def test_one_element_just_beyond_its_bound_fails_and_just_inside_passes() -> None:
    observation, allowed, _ = judged(MANUAL, scaled_case(B=1, S=2, n=2, D=5, dtype="float32"))
    for name, wanted in {**allowed.outputs, **allowed.gradients}.items():
        right = wanted.value.float()
        at = (0,) * right.dim()
        for factor, status in ((0.9, Status.PASS), (1.2, Status.FAIL)):
            moved = right.double()
            moved[at] = wanted.value[at] + factor * wanted.error[at]
            verdict = judge_tensor(name, moved, wanted)
            assert verdict.status is status, name
            assert verdict.ratio == pytest.approx(factor, rel=1e-6)
    assert observation.case.dtype == "float32"


def test_a_failure_says_where_got_wanted_and_bound() -> None:
    wanted = ErrorNumber(torch.tensor([[1.0, 0.28]], dtype=torch.float64), torch.full((1, 2), 0.004).double(), torch.float32)
    verdict = judge_tensor("dx", torch.tensor([[1.0, 0.31]]), wanted)
    assert verdict.message == "dx[0, 1] = 0.310000002, float64 0.28, bound 0.004"
    assert verdict.symptom == "value"
    assert judge_tensor("dx", torch.zeros(1, 2), wanted).symptom == "all zero"


def test_what_cannot_be_judged_is_not_a_pass() -> None:
    empty = ErrorNumber.exact(torch.empty(0, 3, dtype=torch.float64), torch.float32)
    assert judge_tensor("h_in", torch.empty(0, 3), empty).status is Status.NOT_APPLICABLE
    beyond = ErrorNumber.exact(torch.tensor([1e30], dtype=torch.float64), torch.float32).square()
    assert judge_tensor("h_in", torch.tensor([1.0]), beyond).status is Status.NOT_APPLICABLE


def test_a_gradient_that_must_be_none_fails_when_it_is_there() -> None:
    case = default_case(B=1, S=1, n=1, D=2, absent=frozenset({"gamma"}))
    observation, allowed, _ = judged(MANUAL, case)
    spoilt = replace(observation, gradients={**observation.gradients, "dgamma": torch.zeros(1, 2)})
    assert failing(judge(spoilt, allowed)) == {"dgamma"}
    missing = replace(observation, gradients={**observation.gradients, "dx": None})
    (verdict,) = [verdict for verdict in judge(missing, allowed) if verdict.subject == "dx"]
    assert (verdict.status, verdict.message) == (Status.NOT_APPLICABLE, "not returned")


def test_a_written_input_and_an_exception_fail() -> None:
    observation, allowed, _ = judged(MANUAL, default_case(B=1, S=1, n=1, D=2))
    assert failing(judge(replace(observation, written=("x",)), allowed)) == {"inputs"}

    def boom(*_: Any, **__: Any) -> Any:
        raise RuntimeError("first line\nsecond line")

    broken = observed(replace(MANUAL, forward=boom), observation.case)
    (verdict,) = [verdict for verdict in judge(broken, allowed) if verdict.status is Status.FAIL]
    assert (verdict.oracle, verdict.subject, verdict.symptom) == ("liveness", "forward", "raises RuntimeError")
    line = boom.__code__.co_firstlineno + 1
    assert verdict.message == f"forward raised RuntimeError: first line (test_bound.py, line {line})"


def test_the_tolerance_of_a_backward_that_recomputes_is_wider() -> None:
    inputs = materialise(scaled_case(B=2, S=4, n=2, D=64, dtype="float32"))
    wanted = reference(inputs)
    given, recomputed = (tolerances(inputs, wanted, declared=Declared(recomputes_forward=flag)) for flag in (False, True))
    for name, number in given.gradients.items():
        assert torch.equal(number.value, recomputed.gradients[name].value), name
        assert (recomputed.gradients[name].error >= number.error * 0.999).all(), name
    assert (recomputed.gradients["dalpha"].error > 1.5 * given.gradients["dalpha"].error).all()


def test_float64_is_judged_as_tightly() -> None:
    case = with_tensor(scaled_case(B=1, S=2, n=2, D=9, dtype="float64"), "x", scale=0.3)
    observation, allowed, verdicts = judged(MANUAL, case)
    assert not failing(verdicts)
    dx = observation.gradients["dx"]
    assert dx is not None
    spoilt = replace(observation, gradients={**observation.gradients, "dx": dx * (1 + 1e-12)})
    assert failing(judge(spoilt, allowed)) == {"dx"}


def test_integers_without_a_tolerance_are_not_judged() -> None:
    value = torch.tensor([3.0, 5.0], dtype=torch.float64)
    nothing, half, every = (
        ErrorNumber(value, torch.tensor(error, dtype=torch.float64), torch.float32)
        for error in ([math.inf, math.inf], [math.inf, 0.0], [0.0, 0.0])
    )
    wrong = torch.tensor([3, 6])
    assert judge_tensor("at", torch.tensor([4, 5]), half).status is Status.PASS, "rounding decides the first"
    assert judge_tensor("at", wrong, nothing).message == "no element has a finite tolerance"
    for wanted in (half, every):
        assert judge_tensor("at", torch.tensor([3, 5]), wanted).status is Status.PASS
        verdict = judge_tensor("at", wrong, wanted)
        assert (verdict.status, verdict.symptom, verdict.message) == (Status.FAIL, "value", "at[1] = 6, expected 5")


def test_what_is_measured_of_a_tensor() -> None:
    infinite = math.inf
    value = torch.tensor([1.0, 2.0, infinite, 4.0], dtype=torch.float64)
    wanted = ErrorNumber(value, torch.tensor([0.5, 0.25, 0.0, infinite], dtype=torch.float64), torch.float32)
    got = torch.tensor([1.25, 2.25, infinite, 5.0])
    found = measure(got, wanted)
    assert (found.largest, found.mean, found.bound) == (1.0, 0.5, 0.25), "of finite ones; the bound of the worst judged"
    assert (found.judged, found.elements) == (2, 4)
    nothing = measure(torch.tensor([math.nan] * 4), wanted)
    assert (nothing.largest, nothing.mean, nothing.bound, nothing.judged) == (None, None, None, 0)
