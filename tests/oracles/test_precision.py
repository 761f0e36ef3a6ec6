"""The precision gate, and numbers that carry a standard deviation."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Case, Implementation, default_case, materialise, operator, reference
from mhc.case import with_tensor
from mhc.declared import AS_REFERENCE
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.oracles import precision
from mhc.oracles.bounds.deviation_number import DeviationNumber, TruncatingDeviationNumber
from mhc.oracles.bounds.rounding import unit_roundoff
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.edit import implementation
from mhc.oracles.mutants.precision import CLEAN_PRECISION, PRECISION
from mhc.oracles.precision import TERMS, UNLIKELY, allowed, judge_tensor, made
from mhc.oracles.trial import Gate
from mhc.oracles.verdict import Status
from tests.support.helpers import altered, failing, gate_symptoms, gate_verdicts, judge_all, judged, scaled_case, with_layout

FLOAT32 = torch.float32
U = unit_roundoff(FLOAT32)
CPU = torch.device("cpu")


def test_only_this_gate_sees_18_digits() -> None:
    case = scaled_case(B=1, S=2, n=1, D=512, dtype="float32")
    failures = [one for one in judge_all(implementation(ALL["digits_18_projection"]), case) if one.status is Status.FAIL]
    assert {(one.oracle, one.symptom) for one in failures} == {("precision", "imprecise")}
    assert "h_mix" in {one.subject for one in failures}


def test_tf32_at_a_size_that_hides_it_from_the_bound() -> None:
    case = scaled_case(1.0, B=1, S=2, n=4, D=4096, dtype="bfloat16")
    wrong = implementation(ALL["tf32_projection_wide"])
    assert not failing(judged(wrong, case)[2])
    assert ("precision", "h_mix", "imprecise") in gate_symptoms(precision.GATE, wrong, case)


def test_where_all_tokens_are_rounded_alike_a_correct_kernel_passes() -> None:
    """One column: x * inv_rms is 1 or -1 in every token, and so is the error of what follows."""
    case = default_case(B=1, S=234, n=1, D=1, dtype="float32", absent=frozenset({"gamma"}))
    for seed, (name, kind) in enumerate(
        (("x", "normal"), ("phi", "normal"), ("alpha", "column_scaled"), ("bias", "constant"))
    ):
        case = with_tensor(case, name, kind=kind, seed=35081 + seed)
    assert not gate_symptoms(precision.GATE, MANUAL, case)
    repeated = precision.repetitions(torch.tensor([1.0, 1.0 + 2**-30, -1.0]))
    assert sorted(repeated.tolist()) == [1, 2]
    one = torch.ones(234, dtype=torch.float64)
    assert allowed(0 * one, one, repeated=torch.ones(234)) == allowed(0 * one, one)
    assert allowed(0 * one, one, repeated=torch.tensor([234])) == pytest.approx(allowed(one, one), rel=0.01)


SIZES = {"wide": (2, 1, 4096), "long": (2048, 1, 16)}


EXACT = ("tf32_squares_wide", "bfloat16")  # in which TF32 changes nothing
LEVELS = [(one, dtype) for one in PRECISION for dtype in ("float32", "bfloat16") if (one.name, dtype) != EXACT]


@pytest.mark.parametrize(("mutant", "dtype"), LEVELS, ids=lambda value: getattr(value, "name", value))
def test_every_level_is_found_at_true_size(mutant: Any, dtype: str) -> None:
    S, n, D = SIZES.get(mutant.name.rsplit("_", 1)[-1], (2, 1, 64))
    assert gate_symptoms(precision.GATE, implementation(mutant), default_case(B=1, S=S, n=n, D=D, dtype=dtype))


def test_of_a_case_that_keeps_few_rows_every_row_is_judged() -> None:
    case = with_tensor(default_case(B=1, S=64, n=1, D=8, dtype="float32"), "x", rows=2)
    for inputs, rows in ((materialise(case, CPU), 2), (made(case, CPU), 64)):
        x = inputs.tensors["x"]
        assert x is not None
        assert int(torch.count_nonzero(x.abs().sum(-1))) == rows


@pytest.mark.parametrize("mutant", CLEAN_PRECISION, ids=lambda mutant: mutant.name)
def test_another_order_is_as_precise(mutant: Any) -> None:
    for case in (default_case(B=1, S=40, n=4, D=150, dtype="float32"), default_case(B=1, S=3, n=1, D=1100)):
        verdicts = gate_verdicts(precision.GATE, implementation(mutant), case)
        assert {one.status for one in verdicts} == {Status.PASS}
        assert len(verdicts) == len(case.table.outputs) + len(case.table.gradients)


def test_a_backward_that_recomputes_the_forward_passes() -> None:
    verdicts = gate_verdicts(precision.GATE, GOLDEN, default_case(B=2, S=9, n=3, D=70, dtype="float32"))
    assert {one.status for one in verdicts} == {Status.PASS}


@operator(x="[T] float32")
def tripled(x: Tensor) -> Tensor:
    return 3 * x


def test_what_is_plainly_wrong_on_the_gates_inputs_is_no_loss_of_precision() -> None:
    one = Implementation(name="one", operator=tripled, function=lambda x: 3 * x + (x != 0))
    drawn = (default_case(operator=str(one.operator), T=T, dtype="float32") for T in range(1, 99))
    case = next(case for case in (with_tensor(case, "x", kind="zero") for case in drawn) if precision.GATE.drawn(case))
    (wrong,) = (one for one in gate_verdicts(precision.GATE, one, case) if one.status is Status.FAIL)
    assert wrong.symptom == "imprecise"
    assert wrong.other is not None
    assert wrong.other.tensors["x"].kind == "normal"
    judgement = check(one, case, "cpu", Level.DRAWN)
    assert judgement == check(one, wrong.other, "cpu", Level.PLAIN)
    assert {(one.oracle, one.symptom) for one in judgement.failures} == {("bound", "value")}
    case = scaled_case(B=1, S=2, n=1, D=512, dtype="float32")
    verdicts = gate_verdicts(precision.GATE, implementation(ALL["digits_18_projection"]), case)
    others = {one.other for one in verdicts if one.status is Status.FAIL}
    assert others == {None}, "the gate puts zeros among the inputs of mhc_pre, which no case has"


def test_what_it_does_not_judge() -> None:
    for S, dtype in ((3, "float64"), (0, "float32")):
        (verdict,) = gate_verdicts(precision.GATE, MANUAL, default_case(B=1, S=S, n=2, D=5, dtype=dtype))
        assert verdict.status is Status.NOT_APPLICABLE
    nothing = DeviationNumber.exact(torch.ones(3, dtype=torch.float64), FLOAT32)
    assert judge_tensor("y", torch.zeros(3), nothing).status is Status.NOT_APPLICABLE
    beyond = DeviationNumber(torch.full((3,), 65515.0).double(), torch.ones(3).double(), torch.float16)
    assert judge_tensor("y", torch.full((3,), torch.inf), beyond).status is Status.NOT_APPLICABLE


def test_a_failure_says_how_far_and_of_how_many() -> None:
    value = 1 + torch.arange(100) / 128  # numbers that differ, so that their errors are their own
    wanted = DeviationNumber(value.double(), torch.full((100,), 0.25).double(), FLOAT32)
    got = value.clone()
    got[7] = 11.0546875
    verdict = judge_tensor("y", got, wanted)
    assert (verdict.oracle, verdict.symptom, verdict.ratio) == ("precision", "imprecise", None)
    assert verdict.message == (
        "y[7] = 11.0546875, float64 1.0546875, bound 0.372; error / standard deviation of 100 elements: 4, at most 1.49"
    )
    got[7] = torch.nan
    assert judge_tensor("y", got, wanted).status is Status.FAIL
    got[7] = value[7]
    assert judge_tensor("y", got, wanted).status is Status.PASS


def test_the_limit_is_the_tail_of_what_is_independent() -> None:
    many, one = torch.ones(10**6).double(), torch.ones(1).double()
    assert allowed(0 * many, many) == pytest.approx(1 + math.sqrt(UNLIKELY / 10**6), rel=1e-3)
    assert allowed(0 * one, one) == pytest.approx(math.sqrt(1 + 2 * math.sqrt(UNLIKELY) + 2 * UNLIKELY))
    assert allowed(many, many) == pytest.approx(allowed(0 * one, one), rel=1e-3)  # one error in a million places
    generator = torch.Generator().manual_seed(0)
    for elements in (1, 10, 100):
        errors = torch.randn(20000, elements, generator=generator, dtype=torch.float64)
        rms = errors.square().mean(-1).sqrt()
        assert 0.5 < float(rms.max()) / allowed(torch.zeros(elements).double(), torch.ones(elements).double()) < 1


def test_its_inputs_leave_short_sums_and_no_copies() -> None:
    case = with_layout(default_case(B=2, S=300, n=2, D=500, dtype="float32"), "x", expand=(0,), offset=3)
    case = with_tensor(case, "x", kind="constant", scale=1e9, literals=(((0, 0, 0, 0), math.nan),))
    inputs = made(replace(case, scalars={"norm_eps": 7.0}), CPU)
    x, upstream = inputs.tensors["x"], inputs.tensors["dh_res"]
    assert x is not None
    assert upstream is not None
    assert (x.flatten(0, 1).flatten(1) != 0).sum(-1).float().mean() == pytest.approx(TERMS, abs=1)
    assert float((x.flatten(0, 1) != 0).sum(0).min()) >= 1  # every column is used by some token
    assert (upstream.flatten(2) != 0).any(-1).sum() == pytest.approx(TERMS, abs=1)
    assert not torch.equal(x[0], x[1])
    assert float(x.abs().max()) < 10
    assert x.storage_offset() == 3
    assert inputs.case.scalars == case.table.scalars


def test_a_large_case_is_judged_more_often() -> None:
    gate = Gate(name="g", plan=lambda trial: [], every=10**9, every_large=1)
    small, large = (default_case(B=1, S=1, n=1, D=size) for size in (1023, 1024))
    assert (gate.drawn(small), gate.drawn(large)) == (False, True)
    assert not replace(gate, every_large=None).drawn(large)


# ---- the rules, against float32 itself ----


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(FLOAT32)


def exact(value: Tensor) -> DeviationNumber:
    return DeviationNumber.exact(value.double(), FLOAT32)


def in_sequence(terms: Tensor) -> Tensor:
    """A float32 sum over the last dimension, one term after the other."""
    total = torch.zeros_like(terms[..., 0])
    for term in terms.unbind(-1):
        total = total + term
    return total


def rms(got: Tensor, number: DeviationNumber) -> float:
    return float(((got.double() - number.value) / number.deviation).square().mean().sqrt())


ELEMENTWISE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "cube": lambda a, b: a**3,
    "three terms": lambda a, b: a + (b + a * b),
    "divide by a size": lambda a, b: a / 7,
    "rsqrt": lambda a, b: (a.square() + 1).rsqrt(),
    "sigmoid": lambda a, b: a.sigmoid(),
    "bfloat16": lambda a, b: (a * b).to(torch.bfloat16),
}
LOOSE = {"divide by a size": 0.1, "rsqrt": 0.02, "sigmoid": 0.02, "cube": 0.3, "three terms": 0.3}
"""What bounds stand in for, and what is added as if it depended on each other, may be so far below 1."""


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_operation_s_rounding(name: str) -> None:
    a, b = drawn(20000), drawn(20000, seed=1)
    number = ELEMENTWISE[name](exact(a), exact(b))
    assert LOOSE.get(name, 0.5) < rms(ELEMENTWISE[name](a, b), number) < 1


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "cube", "rsqrt", "sigmoid"])
def test_what_operands_errors_make(name: str) -> None:
    a, b = drawn(20000).double(), drawn(20000, seed=1).double()
    errors = [1e-4 * drawn(20000, seed=seed).double() for seed in (2, 3)]
    numbers = [DeviationNumber(one, torch.full_like(one, 1e-4), FLOAT32) for one in (a, b)]
    got = ELEMENTWISE[name](a + errors[0], b + errors[1])
    assert 0.6 < rms(got, ELEMENTWISE[name](*numbers)) < 1.02


@pytest.mark.parametrize("length", [2, 16, 300])
@pytest.mark.parametrize("order", ["random", "large terms first", "small terms first", "one sign", "with zeros"])
def test_a_sum_in_any_order(length: int, order: str) -> None:
    terms = drawn(4000, length)
    scale = torch.logspace(0, -3, length)
    match order:
        case "large terms first":
            terms = terms * scale
        case "small terms first":
            terms = terms * scale.flip(0)
        case "one sign":
            terms = terms.abs()
        case "with zeros":
            terms = terms * (torch.arange(length) % 4 == 1)
    number = exact(terms).sum(-1)
    if order == "with zeros" and length == 2:  # one term is left, which nothing rounds
        assert float(number.deviation.max()) < 1e-43
        assert torch.equal(in_sequence(terms).double(), number.value)
        return
    assert (0.3 if order == "random" else 0.05) < rms(in_sequence(terms), number) < 0.95


@pytest.mark.parametrize("length", [1, 16, 300])
def test_a_matrix_product(length: int) -> None:
    a, b = drawn(60, length), drawn(length, 70, seed=1)
    number = exact(a) @ exact(b)
    assert 0.2 < rms(in_sequence(a.unsqueeze(1) * b.mT), number) < 0.95
    ea, eb = (1e-4 * drawn(*one.shape, seed=seed).double() for seed, one in ((2, a), (3, b)))
    moved = DeviationNumber(a.double(), torch.full(a.shape, 1e-4).double(), FLOAT32) @ DeviationNumber(
        b.double(), torch.full(b.shape, 1e-4).double(), FLOAT32
    )
    assert 0.5 < rms((a.double() + ea) @ (b.double() + eb), moved) < 1.05
    assert float((moved.shared / moved.deviation).min()) > 0.9


def test_an_error_that_elements_share_is_known_as_such() -> None:
    row = DeviationNumber(torch.ones(5, 1).double(), torch.full((5, 1), 1e-3).double(), FLOAT32)
    product = row * exact(drawn(5, 200).abs())
    assert float((product.shared / product.deviation).min()) > 0.99
    total = product.sum(-1)  # of one sign: what they share adds up, it does not average out
    assert total.deviation / total.value == pytest.approx(1e-3, rel=1e-2)
    onward = product @ exact(drawn(200, 6).abs())
    assert onward.deviation / onward.value == pytest.approx(1e-3, rel=1e-2)
    parts: Any = [product, exact(drawn(5, 3))]
    both: Any = torch.cat(parts, -1)
    assert torch.equal(both[:, :200].shared, product.shared)
    assert not both[:, 200:].shared.any()
    assert torch.equal((-both.reshape(-1)).shared, both.shared.reshape(-1))


def test_saved_tensors_have_no_error_of_their_own() -> None:
    stored = DeviationNumber.stored(torch.tensor([1 / 3], dtype=torch.float64), FLOAT32)
    assert float(stored.value) == float(torch.tensor(1 / 3, dtype=FLOAT32))
    assert not stored.deviation.any()
    assert DeviationNumber.exact(torch.tensor([1 / 3]).double(), FLOAT32).to(torch.bfloat16).error > 1e-4


def toward_zero(value: Tensor) -> Tensor:
    """Float64 cut to float32."""
    near = value.float()
    return torch.where(near.double().abs() > value.abs(), torch.nextafter(near, torch.zeros_like(near)), near)


def test_an_accumulator_that_truncates() -> None:
    a, b = drawn(60, 16), drawn(16, 70, seed=1)
    total = torch.zeros(60, 70)
    for one, other in zip(a.mT, b, strict=True):
        total = toward_zero(total.double() + one.double().unsqueeze(-1) * other.double())
    assert rms(total, exact(a) @ exact(b)) > 0.8
    truncating = [TruncatingDeviationNumber.exact(one.double(), FLOAT32) for one in (a, b)]
    assert rms(total, truncating[0] @ truncating[1]) < 0.5
    assert rms(total, truncating[0] @ truncating[1]) > 0.01


def test_an_output_that_is_not_finite_fails() -> None:
    def infinite(out: tuple[Any, ...], arguments: tuple[Any, ...]) -> Any:
        del arguments
        return (*out[:4], out[4] * torch.inf, out[5])

    case: Case = default_case(B=1, S=2, n=1, D=4, dtype="float32")
    assert ("precision", "h_mix", "imprecise") in gate_symptoms(precision.GATE, altered(MANUAL, forward=infinite), case)


def test_the_limit_goes_by_the_part_of_the_error_that_is_shared() -> None:
    shared, spread = torch.full((100,), 0.5).double(), torch.full((100,), 4.0).double()
    assert allowed(shared, spread) == pytest.approx(allowed(shared / 4, spread / 4))
    assert allowed(shared, spread) < allowed(spread, spread)


def test_what_it_promises_of_each_element_is_its_limit() -> None:
    inputs = materialise(with_tensor(default_case(B=1, S=8, n=2, D=6, dtype="float32"), "x", kind="zero_rows"))
    wanted = reference(inputs)
    bounds = precision.promised(inputs, wanted, declared=AS_REFERENCE)
    numbers = precision.deviations(inputs, wanted, declared=AS_REFERENCE)
    for name, one in {**bounds.outputs, **bounds.gradients}.items():
        spread = numbers[name].deviation
        judged = spread > 0
        assert judged.any()
        assert one.error[judged].isfinite().all()
        assert (one.error[~judged] == math.inf).all()
        assert name != "h_in" or not judged.all(), "a row of zeros has no rounding error"
        assert (one.error[judged] > spread[judged]).all()


def test_what_is_rounded_below_the_normal_range_is_off_by_half_a_subnormal() -> None:
    least = 2.0**-149
    tiny = DeviationNumber.exact(torch.tensor([3 * least, 0.0]).double(), FLOAT32)
    for result in (tiny / 5.0, tiny * DeviationNumber.exact(torch.tensor([0.3, 0.3]).double(), FLOAT32)):
        assert float(result.error[0]) >= least / 2
        assert float(result.error[1]) == 0, "0 is exact"


def test_a_gradient_that_is_absent_has_no_limit() -> None:
    inputs = materialise(default_case(B=1, S=3, n=2, D=4, dtype="float32", absent=frozenset({"gamma"})))
    bounds = precision.promised(inputs, reference(inputs), declared=AS_REFERENCE)
    assert set(bounds.gradients) == {"dx", "dphi", "dalpha", "dbias"}
    assert set(bounds.outputs) == {spec.name for spec in inputs.case.table.outputs}


def test_eight_deviations_must_fit_below_overflow() -> None:
    for deviation, status in ((4.9, Status.PASS), (5.1, Status.NOT_APPLICABLE)):  # 65480 + 8 * 5 is where float16 ends
        wanted = DeviationNumber(torch.tensor([65480.0]).double(), torch.tensor([deviation]).double(), torch.float16)
        assert judge_tensor("y", torch.tensor([65480.0]), wanted).status is status


def test_inputs_have_the_scale_of_a_model() -> None:
    case = default_case(B=1, S=400, n=4, D=64, dtype="float32")
    wanted = {spec.name: 2.0 ** case.table.usual_exponents(case.sizes).get(spec.name, 0) for spec in case.table.inputs}
    assert len(set(wanted.values())) > 1
    inputs = made(with_tensor(case, "phi", scale=8.0), CPU)
    for name, scale in wanted.items():
        assert inputs.case.tensors[name].scale == scale, name
        tensor = inputs.tensors[name]
        assert tensor is not None
        assert tensor.numel() < 100 or float(tensor[tensor != 0].std()) == pytest.approx(scale, rel=0.3), name


def test_each_column_is_used_by_some_token_also_where_groups_are_a_power_of_two() -> None:
    x = made(default_case(B=1, S=64, n=1, D=512, dtype="float32"), CPU).tensors["x"]
    assert x is not None
    kept = x.reshape(64, 512) != 0
    assert kept.any(0).all()
    assert (kept.sum(-1) == TERMS).all()
    assert (kept.reshape(64, TERMS, 64).sum(-1) == 1).all(), "one of each group"
    assert len({tuple(row.nonzero().flatten().tolist()) for row in kept}) == 64, "no two tokens keep the same"
