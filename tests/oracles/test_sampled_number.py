"""Sampled tolerances: where they replace a composed bound, what they allow, and how verdicts name them."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc import Implementation, default_case, operator
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.replay_table import replay_table
from mhc.oracles.bounds import elementary, sampled_number, together
from mhc.oracles.bounds.deviation_number import deviation_of_sum
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import Reading, RepeatedReader, read
from mhc.oracles.bounds.sampled_number import SampledNumber, sampled, sampled_deviations
from mhc.oracles.judge import outcomes
from mhc.oracles.verdict import Status
from tests.oracles.test_reading import numbers, ratio, results, upstream_of
from tests.support.references import REFERENCES, normal, sinkhorn


def kind_of(alike: bool = True, base: type[SampledNumber] = SampledNumber) -> type[SampledNumber]:
    """A class of numbers of one run."""
    own = {"operations": itertools.count(), "alike": alike, "divisors": sampled_number.Divisors(), "__slots__": ()}
    return type("Run", (base,), own)


@operator(x="[T, n, n] float32", n=(1, 8))
def declared_sinkhorn(x: Tensor) -> Tensor:
    return sinkhorn(x)


def test_an_iteration_whose_composed_bound_is_infinite_has_a_sampled_one() -> None:
    generator = torch.Generator().manual_seed(3)
    for scale in (1.0, 8.0):
        x = normal(generator, 60, 4, 4, scale=scale)
        upstream = normal(generator, 60, 4, 4)
        composed = read(sinkhorn, [x], {}, [upstream])
        assert bool(composed.outputs[0].error.isinf().any())
        found, changed = sampled(partial(read, sinkhorn, [x], {}, [upstream]), composed)
        assert changed == {0, 1}
        for tensor, number in zip(results(sinkhorn, [x], upstream), numbers(found), strict=True):
            assert ratio(tensor, number) < 1
            assert float((number.error / number.value.abs().clamp(min=1e-3)).median()) < 3000 * 2**-24
        for wrong in (partial(sinkhorn, iterations=6), lambda x: sinkhorn(x.mT).mT):
            assert ratio(results(wrong, [x], upstream)[0], found.outputs[0]) > 1


def test_runs_that_cannot_be_together_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the batch had added up until it failed is forgotten."""
    generator = torch.Generator().manual_seed(3)
    x, upstream = normal(generator, 6, 4, 4), normal(generator, 6, 4, 4)

    def tolerance() -> list[Tensor]:
        reader = RepeatedReader(sinkhorn, [x], {}, [upstream])
        found, changed = sampled(reader, reader(ErrorNumber))
        assert changed == {0, 1}
        return [number.error for number in numbers(found)]

    found, uniform, failed = tolerance(), sampled_number._uniform, []

    def fails(value: Tensor, operation: int, **named: bool) -> Tensor:
        if together.run_numbers() is not None and operation > 40:
            failed.append(operation)
            raise ValueError("no batching rule")
        return uniform(value, operation, **named)

    monkeypatch.setattr(sampled_number, "_uniform", fails)
    for one, other in zip(found, tolerance(), strict=True):
        assert torch.allclose(one, other, rtol=1e-9)
    assert len(failed) == 1, "a batch that failed is not tried again"


def two_passes(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).square().sum(-1) / x.shape[-1]


def element_by_element(x: Tensor) -> Tensor:
    """Welford's variance."""
    mean = total = torch.zeros(x.shape[:-1])
    for count, one in enumerate(x.unbind(-1), 1):
        off = one - mean
        mean = mean + off / count
        total = total + off * (one - mean)
    return total / x.shape[-1]


def of_two_parts(x: Tensor) -> Tensor:
    """Chan's variance."""
    parts = x.chunk(2, -1)
    off = parts[0].mean(-1) - parts[1].mean(-1)
    return (two_passes(parts[0]) + two_passes(parts[1]) + off * off / 2) / 2


def over_two_axes(x: Tensor) -> Tensor:
    v = x.reshape(24, 2, -1)
    return (v - v.sum((1, 2))[:, None, None] / x.shape[-1]).square().mean((1, 2))


@pytest.mark.parametrize("length", [16, 100])
@pytest.mark.parametrize("variance", [two_passes, over_two_axes, lambda x: torch.var_mean(x, -1, correction=0)[0]])
def test_a_variance_may_be_made_element_by_element_but_not_of_squares(
    variance: Callable[[Tensor], Tensor], length: int
) -> None:
    """Where the mean is 1,000 deviations away, that is off by 1,000 roundings, and a mean of squares by 1,000,000."""
    x = 1 + 2.0**-10 * normal(torch.Generator().manual_seed(3), 24, length)
    found, changed = sampled(partial(read, variance, [x], {}, []), read(variance, [x], {}))
    assert changed == {0}
    for right in (two_passes, element_by_element, of_two_parts):
        assert ratio(right(x), found.outputs[0]) < 0.5
    assert ratio(x.square().mean(-1) - x.mean(-1).square(), found.outputs[0]) > 10
    assert float((found.outputs[0].error / found.outputs[0].value).median()) < 50 * 2**10 * 2**-24


def test_a_variance_beside_one_that_is_not_finite_may_be_made_element_by_element() -> None:
    x = 1 + 2.0**-10 * normal(torch.Generator().manual_seed(3), 24, 64)
    x[0, 5] = math.inf
    number = sampled(partial(read, two_passes, [x], {}, []), read(two_passes, [x], {}))[0].outputs[0]
    assert ratio(element_by_element(x)[1:], number[1:]) < 0.5
    assert ratio((x.square().mean(-1) - x.mean(-1).square())[1:], number[1:]) > 10


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention; a first row whose only key has all of the weight."""
    hidden = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool, device=q.device).triu(1)
    output: Tensor = (q @ k.T).masked_fill(hidden, -math.inf).softmax(-1) @ v
    return output


def computed_twice(q: Tensor, k: Tensor, v: Tensor, dy: Tensor, error: float = 0.0) -> tuple[Tensor, ...]:
    """Return the gradients as flash attention does: the logits of the forward are products of scaled q, the others not."""
    hidden = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(1)
    total = ((q * 1.4427) @ k.T / 1.4427).masked_fill(hidden, -math.inf).logsumexp(-1, keepdim=True) + error
    p = ((q @ k.T).masked_fill(hidden, -math.inf) - total).exp()
    ds = p * (dy @ v.T - (dy * (p @ v)).sum(-1, keepdim=True))
    return ds @ k, ds.T @ q, p.T @ dy


def test_the_backward_of_attention_may_compute_the_logits_anew() -> None:
    """Their roundings do not cancel in what it divides by the forward's sum, as they do in one softmax."""
    generator = torch.Generator().manual_seed(3)
    q, k, v, dy = (normal(generator, 12, 16, scale=scale) for scale in (16.0, 4.0, 1.0, 1.0))
    found, changed = sampled(partial(read, attention, [q, k, v], {}, [dy]), read(attention, [q, k, v], {}, [dy]))
    assert changed, "the composed bound is wide"
    for error, right in ((0.0, True), (2.0**-10, False)):
        ratios = [
            ratio(one, number) for one, number in zip(computed_twice(q, k, v, dy, error), numbers(found)[1:], strict=True)
        ]
        assert (max(ratios) < 1) == right, ratios


def test_an_iteration_in_the_logarithmic_domain_keeps_its_sampled_tolerance() -> None:
    def iterated(x: Tensor) -> Tensor:
        for _ in range(20):
            x = x.log_softmax(-1).log_softmax(-2)
        return x.exp()

    x, upstream = (normal(torch.Generator().manual_seed(seed), 6, 4, 4) for seed in (3, 4))
    found, changed = sampled(partial(read, iterated, [x], {}, [upstream]), read(iterated, [x], {}, [upstream]))
    assert changed == {0, 1}
    for tensor, number in zip(results(iterated, [x], upstream), numbers(found), strict=True):
        assert bool(number.error.isfinite().all())
        assert ratio(tensor, number) < 1


def test_no_sampled_tolerance_is_above_the_composed_bound() -> None:
    x = 1 + 2.0**-10 * normal(torch.Generator().manual_seed(3), 24, 3)
    composed = read(two_passes, [x], {})
    found, changed = sampled(partial(read, two_passes, [x], {}, []), composed)
    assert changed == {0}
    assert bool((found.outputs[0].error <= composed.outputs[0].error).all())


@pytest.mark.parametrize(
    ("function", "runs"),
    [(two_passes, 26), (sinkhorn, 13), (lambda x: sinkhorn(x) - sinkhorn(x)[0].sum(), 13)],
)
def test_runs_are_made_in_parts_where_as_many_elements_meet_a_sum_as_are_in_it(
    function: Callable[[Tensor], Tensor], runs: int
) -> None:
    x = 1 + 2.0**-10 * normal(torch.Generator().manual_seed(3), 3, 2, 4, 4)
    kinds: list[Any] = []

    def reader(kind: type[ErrorNumber]) -> Reading:
        kinds.append(kind)
        return read(function, [x], {}, [], kind)

    assert sampled(reader, read(function, [x], {}))[1]
    assert [kind.in_parts for kind in kinds] == [False] * 13 + ([True] * 12 + [False]) * (runs > 13)


def test_in_a_run_in_parts_each_element_meets_a_mean_that_is_rounded_by_itself() -> None:
    kind = kind_of()
    kind.in_parts = True
    row = kind.exact(spread(3000).reshape(1, -1), F32)
    mean = row.mean(-1)
    for off in (row - mean.unsqueeze(-1), -(mean.reshape(1, 1) - row)):
        moved = (off.value - (row.value - row.value.mean())) / row.value.mean() / U
        assert float(moved.std()) == pytest.approx(3000**0.5, rel=0.05)
        assert abs(float(moved.mean())) < 0.1 * 3000**0.5
    one = (mean - 1.0).value - (row.value.mean() - 1.0)
    assert float(one.abs()) > 0
    assert one.shape == (1,)


def test_a_sampled_tolerance_is_the_same_each_time_whatever_the_generator() -> None:
    x, upstream = torch.randn(2, 4, 4), torch.ones(2, 4, 4)
    composed = read(sinkhorn, [x], {}, [upstream])
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        found.append(sampled(partial(read, sinkhorn, [x], {}, [upstream]), composed)[0].outputs[0].error)
    assert torch.equal(*found)


def test_equal_elements_are_moved_alike() -> None:
    """Their roundings are equal, and add up in a sum: with moves of their own they would add up to a 16th of that."""
    value = torch.tensor([0.3, -0.3, 0.6, 0.7], dtype=torch.float64)
    moved = kind_of().exact(value, torch.float32) * 1.1
    relative = moved.value / value
    assert float(relative[0]) == pytest.approx(float(relative[1]), rel=1e-15)
    assert float(relative[0]) == pytest.approx(float(relative[2]), rel=1e-15)
    assert abs(float(relative[0] - relative[3])) > 2.0**-40


def test_moves_are_up_as_often_as_down() -> None:
    value = normal(torch.Generator().manual_seed(1), 4000).double().abs()
    relative = (kind_of().exact(value, torch.float32) * 1.1).value / value / 1.1 - 1
    assert abs(float(relative.mean())) < 0.1 * float(relative.std())
    assert float(relative.min()) < -0.9 * float(relative.max())


@pytest.mark.parametrize(
    ("function", "row"),
    [
        (lambda x: x * x.square().mean(-1, keepdim=True).rsqrt(), [1e-40, 0.0]),  # its square is 0 in float32
        (lambda x: (x * 0.1 * 10.0 - x).square().log(), [0.3, 0.9]),  # 0 but for rounding
    ],
)
def test_nothing_is_sampled_after_a_division_by_what_may_be_zero(function: Callable[..., Tensor], row: list[float]) -> None:
    x = torch.tensor([row, [3.0 + at for at in range(len(row))]])
    found, _ = sampled(partial(read, function, [x], {}, []), read(function, [x], {}))
    assert bool(found.outputs[0].error[0].isinf().all())


@pytest.mark.parametrize("name", REFERENCES)
def test_a_composed_bound_that_is_tight_stays(name: str) -> None:
    one, generator = REFERENCES[name], torch.Generator().manual_seed(5)
    arguments = one.arguments(generator, torch.float32)
    upstream = upstream_of(one.function, arguments, generator)
    reader = partial(read, one.function, arguments, {}, [upstream])
    assert not sampled(reader, reader())[1]


def test_what_is_0_in_each_run_keeps_its_composed_bound() -> None:
    """Its gradient by the maximum is minus that by k: kernels that leave both out have errors that do not cancel."""

    def shifted(k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        e = (k - torch.maximum(k, torch.full_like(k, -50.0))).exp()
        for _ in range(20):  # of which a composed bound is far too wide
            m = m / m.sum(-1, keepdim=True)
            m = m / m.sum(-2, keepdim=True)
        return (e * v + 2.0) / (e + 1.0) + m

    k, v, m = torch.tensor([0.3, -1.7, 2.9]), torch.tensor([0.7, 1.3, -0.2]), torch.rand(3, 3) + 0.1
    reader = partial(read, shifted, [k, v, m], {}, [torch.tensor([[1.0, 3.0, -2.0]] * 3)])
    composed = reader(number=ErrorNumber)
    found, changed = sampled(lambda kind: reader(number=kind), composed)
    dk = found.gradients[0]
    assert changed
    assert dk is not None
    assert not dk.value.any()
    assert bool((dk.error > 1e-8).all())


def test_what_leaves_the_range_of_its_dtype_has_no_sampled_tolerance() -> None:
    def overflows(x: Tensor) -> Tensor:
        return sinkhorn(x) * 3e38 * 3.0 * 1e-38

    x = torch.ones(2, 2, 4, 4) * torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1)
    found, _ = sampled(partial(read, overflows, [x], {}, []), read(overflows, [x], {}))
    assert bool(found.outputs[0].error.isinf().all())


def test_where_squares_of_deviations_leave_the_range_of_float64_the_composed_bound_stays() -> None:
    def small(x: Tensor, scale: float) -> Tensor:
        return sinkhorn(x) * scale

    x = torch.ones(2, 2, 4, 4, dtype=torch.float64) * torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1)
    for scale, finite in ((1e-100, True), (1e-200, False)):
        function = partial(small, scale=scale)
        found, changed = sampled(partial(read, function, [x], {}, []), read(function, [x], {}))
        assert bool(found.outputs[0].error.isfinite().all()) is bool(changed) is finite


@pytest.mark.parametrize("number", [ErrorNumber, kind_of()])
def test_what_may_overflow_in_a_narrow_dtype_is_in_doubt_in_a_sampled_run_too(number: type[ErrorNumber]) -> None:
    def scores(x: Tensor) -> Tensor:
        return ((x * x) * 0.25).softmax(-1)

    x = torch.tensor([255.9, 1.0]).half()  # 255.9 squared is below float16's largest number by less than its headroom
    assert bool(read(scores, [x], {}, number=number).outputs[0].error.isinf().all())


def test_where_rounding_decides_a_comparison_nothing_is_sampled() -> None:
    def branches(x: Tensor) -> Tensor:
        m = sinkhorn(x)
        return torch.where(m > 0.25, m, -m)

    x = torch.ones(2, 4, 4)
    found, changed = sampled(partial(read, branches, [x], {}, []), read(branches, [x], {}))
    assert not changed
    assert bool(found.outputs[0].error.isinf().any())


def test_a_verdict_with_a_sampled_tolerance_says_so() -> None:
    impls = [
        Implementation(name="one", operator=declared_sinkhorn, function=function)
        for function in (sinkhorn, partial(sinkhorn, iterations=6))
    ]
    case = default_case(operator="declared_sinkhorn", T=5, n=4, dtype="float32")
    right, wrong = (check(impl, case, "cpu", Level.PLAIN, measure=True) for impl in impls)
    of_bound = [one for one in right.verdicts if one.oracle == "bound"]
    assert [(one.subject, one.status, one.sampled) for one in of_bound] == [
        ("y", Status.PASS, True),
        ("dx", Status.PASS, True),
    ]
    assert set(outcomes(right.verdicts).values()) == {"judged by sampling"}
    assert "PASS, sampled" in replay_table(case, "one", right.verdicts)
    assert any(one.subject == "y" and one.sampled and one.message.endswith("(sampled)") for one in wrong.failures)


F64, F32 = torch.float64, torch.float32
U, TINY = 2.0**-24, 2.0**-150


def t(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def number(value: Tensor, error: Any = 0.0, dtype: torch.dtype = F32) -> ErrorNumber:
    return ErrorNumber(value, torch.as_tensor(error, dtype=F64).expand(value.shape).clone(), dtype)


def moves(run: Callable[[ErrorNumber], ErrorNumber], value: Tensor, **options: Any) -> Tensor:
    """By how much an operation on exact numbers moves its result."""
    exact = run(ErrorNumber.exact(value, F32)).value
    return run(kind_of(**options).exact(value, F32)).value - exact


def spread(count: int = 4096) -> Tensor:
    return normal(torch.Generator().manual_seed(1), count, dtype=F64).abs() + 1.0


def test_one_rounding_moves_by_up_to_a_unit_and_a_sum_by_its_deviation() -> None:
    """A uniform move of up to h has a standard deviation of h / sqrt(3)."""
    value = spread()
    relative = moves(lambda a: a * 1.5, value) / (value * 1.5) / U
    assert 0.99 < float(relative.abs().max()) <= 1
    assert float(relative.std()) == pytest.approx(3**-0.5, rel=0.05)
    rows = spread(4096 * 16).reshape(4096, 16)
    relative = moves(lambda a: a.sum(-1), rows) / rows.sum(-1) / U
    assert float(relative.std()) == pytest.approx(16**0.5, rel=0.05), "sqrt(L), of a bound of LAMBDA sqrt(L)"
    relative = moves(lambda a: a.rsqrt(), value) / value.rsqrt() / U
    assert 8.9 < float(relative.abs().max()) <= 9.01
    narrow = moves(lambda a: a.to(torch.bfloat16), value) / value * 256
    assert 0.99 < float(narrow.abs().max()) <= 1.01
    assert not moves(lambda a: a.to(F64), value).any()
    assert not moves(lambda a: a * 0.5, value).abs().gt(1e-40).any()
    softmax = moves(lambda a: elementary.softmax(a, -1), rows) / rows.softmax(-1) / U
    units = 18 + 24 + float(rows.logsumexp(-1).mean())
    assert float(softmax.std()) == pytest.approx(units / 6, rel=0.2), "more than two functions: as a sum"


def test_larger_numbers_to_which_one_is_added_move_alike_between_two_powers_of_two() -> None:
    """-7.9 + 0.1 is rounded as -7.8 + 0.1 is: the errors of a row of 2,683 such sums had a mean of a quarter of a unit."""
    value, by = 4.2 + 3.6 * torch.rand(4096, generator=torch.Generator().manual_seed(1), dtype=F64), -0.1015625

    def relative(value: Tensor, by: float, **options: Any) -> Tensor:
        return moves(lambda a: a + by, value, **options) / (value + by) / U

    alike = relative(torch.cat([value, value / 4]), by)
    assert float(alike[:4096].std()) < 1e-3 * float(alike.abs().max())
    assert abs(float(alike[0] - alike[-1])) > 1e-3, "between others by another unit"
    for some in (relative(value, by, alike=False), relative(value, 9.5)):  # the digits of the smaller ones decide
        assert float(some.std()) == pytest.approx(3**-0.5, rel=0.05)


def test_moves_of_equal_elements_are_alike_in_every_other_run_only() -> None:
    value = torch.full((4096,), 0.3, dtype=F64) * torch.tensor([1.0, -4.0]).repeat(2048)
    alike = moves(lambda a: a * 1.1, value) / value
    assert float(alike.std()) < 1e-3 * float(alike.abs().max())
    apart = moves(lambda a: a * 1.5, value, alike=False) / value / 1.5 / U
    assert float(apart.std()) == pytest.approx(3**-0.5, rel=0.05)


def test_each_operation_has_moves_of_its_own() -> None:
    value, one = spread(), kind_of()
    first, second = (one.exact(value, F32) * 1.5 for _ in range(2))
    a, b = ((x.value / value / 1.5 - 1) / U for x in (first, second))
    assert abs(float((a * b).mean())) < 0.05
    again = kind_of().exact(value, F32) * 1.5
    assert torch.equal(again.value, first.value), "the same in each run of the same number"


def test_trailing_digits_do_not_change_a_move() -> None:
    """Machines differ in the last bits of float64."""
    value = spread(64)
    near = value * (1 + 2.0**-50)
    before, after = (moves(lambda a: a * 1.5, one) / U for one in (value, near))
    assert int((before - after).abs().lt(1e-6).sum()) >= 60


def test_hashes_are_of_64_bits_with_a_sign() -> None:
    """splitmix64, twice its finaliser's half: a change here is a change of every sampled tolerance."""
    found = [sampled_number._mixed(at) for at in (0, 1, 2**40)]
    assert all(-(2**63) <= one < 2**63 for one in found)
    assert len({one & 0xFFFF for one in (sampled_number._mixed(at) for at in range(256))}) > 250
    table = sampled_number._table(torch.device("cpu"))
    assert (table.shape, table.dtype) == ((4096,), F64)
    assert float(table.abs().max()) <= 1
    assert abs(float(table.mean())) < 0.03
    assert float(table.std()) == pytest.approx(3**-0.5, rel=0.03)


def test_what_is_not_finite_is_not_moved_and_stays_in_doubt() -> None:
    value = t(1.0, math.inf, math.nan, 3e38)
    found = kind_of().exact(value, F32) * 1.1
    assert found.error.tolist() == [0.0, 0.0, 0.0, math.inf]
    assert found.value[0] != 1.1
    assert math.isinf(float(found.value[1]))
    assert math.isnan(float(found.value[2]))
    assert (found * 1.1).error.tolist() == [0.0, 0.0, 0.0, math.inf]
    assert not found.finite
    assert (kind_of().exact(t(1.0), F32) * 1.1).finite


def divided(runs: Sequence[Tensor], last: Tensor) -> Tensor:
    """Where a divisor may be 0 that has had these values."""
    divisors = sampled_number.Divisors()
    for one in runs:
        divisors.start()
        divisors.add(divisors.divide(), one)
        divisors.add(divisors.divide(), torch.ones_like(one))
    divisors.start()
    found = divisors.may_vanish(divisors.divide(), last)
    assert not divisors.may_vanish(divisors.divide(), torch.ones_like(last)).any(), "the next one"
    return found


def test_a_divisor_within_eight_deviations_may_be_zero() -> None:
    for times, wanted in ((7.9, True), (8.1, False), (-7.9, True), (-8.1, False)):
        value = t(times)
        runs = [value + sign for _ in range(sampled_number.RUNS // 2) for sign in (1.0, -1.0)]
        assert divided(runs, value).tolist() == [wanted], "the standard deviation is 1"
    steady = [t(2.0, 0.0, math.inf)] * sampled_number.RUNS
    assert divided(steady, steady[0]).tolist() == [False, False, False]
    assert divided([t(3.0)] * sampled_number.RUNS, t(0.0)).tolist() == [True]
    for function in (lambda a: a.rsqrt(), elementary.reciprocal, elementary.log):
        one = kind_of()
        function(one.exact(t(2.0), F32))
        assert len(one.divisors._sums) == 1


@pytest.mark.parametrize("product", [torch.mul, torch.matmul])
def test_infinity_times_what_may_be_zero_promises_nothing(product: Any) -> None:
    values = t(1e-30, 1e-3).unsqueeze(-1)
    infinity = torch.full((1, 1) if product is torch.matmul else (2, 1), -math.inf).double()
    for first in (False, True):

        def reader(kind: type[ErrorNumber], first: bool = first) -> Reading:
            small, endless = kind.exact(values, F32) * kind.exact(values, F32), kind.exact(infinity, F32)
            if product is torch.mul:
                return Reading((endless * small if first else small * endless,), (), False)
            row = kind.exact(values.T, F32) * kind.exact(values.T, F32)
            return Reading((endless @ row if first else small @ endless,), (), False)

        *_, (result,) = [run.outputs for run in sampled_number._runs(reader, SampledNumber)]
        assert result.error.flatten().tolist() == [math.inf, 0.0]
    seen_once = sampled_number.Divisors()
    seen_once.add(seen_once.multiply(), t(1.0))
    assert seen_once.may_vanish(("multiplication", 1), t(1.0, math.inf)).tolist() == [True, False]


def test_a_doubt_stays_beside_a_product_with_infinity() -> None:
    def reader(kind: type[ErrorNumber]) -> Reading:
        tiny, as_tiny = (kind.exact(t(1e-30, 1e-30), F32) * kind.exact(t(1e-30, 1e-30), F32) for _ in range(2))
        ratio = elementary.quotient(tiny, as_tiny)
        return Reading((ratio, ratio * kind.exact(t(math.inf, 1.0), F32)), (), False)

    *_, (ratio, product) = [run.outputs for run in sampled_number._runs(reader, SampledNumber)]
    assert ratio.error.tolist() == product.error.tolist() == [math.inf, math.inf]


def test_the_last_run_has_no_moves() -> None:
    value = spread(16)
    one = kind_of(base=sampled_number.UnmovedNumber)
    assert torch.equal((one.exact(value, F32) * 1.1).value, value * 1.1)
    reader_kinds: list[Any] = []

    def reader(kind: type[ErrorNumber]) -> Reading:
        reader_kinds.append(kind)
        return Reading((kind.exact(value, F32) * 1.1,), (), False)

    list(sampled_number._runs(reader, SampledNumber))
    assert [issubclass(kind, sampled_number.UnmovedNumber) for kind in reader_kinds] == [False] * 12 + [True]
    assert [kind.alike for kind in reader_kinds] == [True, False] * 6 + [True]
    starts = [next(kind.operations) for kind in reader_kinds]
    assert [start >> 32 for start in starts] == list(range(13))
    assert len({id(kind.divisors) for kind in reader_kinds}) == 1


class Scripted:
    """A reader whose runs are off by given amounts, in units of the error of one rounding of 1."""

    def __init__(self, *offsets: Any) -> None:
        self.offsets, self.runs = offsets, 0

    def __call__(self, kind: type[ErrorNumber]) -> Reading:
        offset = self.offsets[self.runs % len(self.offsets)] if self.runs < sampled_number.RUNS else 0.0
        self.runs += 1
        return Reading((kind(t(1.0, 1.0) + U * torch.as_tensor(offset, dtype=F64), t(0.0, 0.0), F32),), (), False)


def tolerance(*offsets: Any, composed: Any = 1e9) -> tuple[list[float], int]:
    """The tolerance, in those units, that runs with these offsets give in place of a composed bound, and how many ran."""
    reader = Scripted(*offsets)
    found, _ = sampled(reader, Reading((number(t(1.0, 1.0), composed * U),), (), False))
    return (found.outputs[0].error / U).tolist(), reader.runs


def test_a_tolerance_is_eight_deviations_of_an_element_and_of_its_row_and_a_rounding() -> None:
    # of a row whose elements are all off by s: s^2, of the row s^2, and the mean of the row's s^2
    for s in (1.0, 5.0):
        found, runs = tolerance(s, -s)
        assert found == pytest.approx([8 * 3**0.5 * s + 1] * 2)
        assert runs == sampled_number.RUNS + 1
    # of (s, 0): the row's is s^2/2; what may be missed of an element is at most 16 times its own, that is 0
    (one, other), _ = tolerance(t(4.0, 0.0), t(-4.0, 0.0))
    assert one == pytest.approx(8 * (16 + 8 + 8) ** 0.5 + 1)
    assert other == pytest.approx(8 * 8**0.5 + 1)
    # of (s, s/100): 16 times its own is less than the mean
    (_, other), _ = tolerance(t(4.0, 0.04), t(-4.0, -0.04))
    mean = (16 + 0.0016) / 2
    assert other == pytest.approx(8 * (0.0016 + mean + 16 * 0.0016) ** 0.5 + 1)


def test_a_composed_bound_stays_where_it_is_not_thirty_times_the_sampled_one() -> None:
    of_three = 8 * 3**0.5 * 3 + 1
    assert tolerance(3.0, -3.0, composed=29.9 * of_three)[0] == pytest.approx([29.9 * of_three] * 2)
    assert tolerance(3.0, -3.0, composed=30.1 * of_three)[0] == pytest.approx([of_three] * 2)
    assert tolerance(3.0, composed=29.9)[1] == 0, "at least one rounding: no run is needed"
    assert tolerance(3.0, composed=math.inf)[0] == pytest.approx([of_three] * 2)
    assert tolerance(3.0, -3.0, composed=t(math.inf, 1e9))[0] == pytest.approx([of_three] * 2)
    assert tolerance(300.0, composed=3000.0) == ([3000.0, 3000.0], 1), "one run shows that it is not far"


def test_outputs_and_gradients_are_told_apart() -> None:
    def reader(kind: type[ErrorNumber]) -> Reading:
        one = [kind(t(1.0) + U * (-1) ** next(count), t(0.0), F32) for _ in range(2)]
        return Reading((one[0], torch.ones(1)), (None, one[1]), False)

    count = itertools.count()
    composed = Reading((number(t(1.0), 1e9 * U), torch.ones(1)), (None, number(t(1.0), U)), False)
    found, changed = sampled(reader, composed)
    assert changed == {0}
    assert (len(found.outputs), len(found.gradients)) == (2, 2)
    assert found.gradients[0] is None
    assert found.gradients[1] is composed.gradients[1]
    other = Reading(composed.outputs[1:], (None, composed.outputs[0]), False)
    found, changed = sampled(lambda kind: Reading((torch.ones(1),), (None, reader(kind).outputs[0]), False), other)
    assert changed == {2}
    assert found.gradients[1] is not None
    assert float(found.gradients[1].error) < 100 * U
    assert sampled(reader, Reading(composed.outputs, composed.gradients, True))[1] == frozenset()


def test_deviations_are_those_of_runs_with_sums_in_any_order() -> None:
    terms = spread(4096 * 3).reshape(4096, 3)
    for truncates, wanted in ((False, False), (True, True)):
        kinds: list[Any] = []

        def reader(kind: type[ErrorNumber], kinds: list[Any] = kinds) -> Reading:
            kinds.append(kind)
            return Reading((kind.exact(terms, F32).sum(-1), torch.ones(1)), (), False)

        one, nothing = sampled_deviations(reader, reader(ErrorNumber), truncates=truncates)
        assert nothing is None
        assert one is not None
        assert all(kind.truncates is wanted for kind in kinds[1:-1])
        own = deviation_of_sum(terms.sum(-1), terms.square().sum(-1), t(3.0), F32, products=0.0, truncates=truncates)
        whole = float((one / own).square().mean()) ** 0.5
        assert 1.3 < whole < 2.2, "of an element, of its row pooled, and what 12 runs may have missed"


@pytest.mark.parametrize("truncates", [False, True])
def test_products_of_matrices_are_moved_by_their_deviation(truncates: bool) -> None:
    a, b = spread(4096 * 3).reshape(4096, 3), spread(3).reshape(3, 1)
    base = type("Kind", (sampled_number.SampledDeviationNumber,), {"truncates": truncates, "__slots__": ()})
    one = kind_of(base=base)
    moved = (one.exact(a, F32) @ one.exact(b, F32)).value - a @ b
    squares = a.square() @ b.square()
    own = deviation_of_sum(a @ b, squares, t(3.0), F32, products=squares, truncates=truncates)
    assert float((moved / own).std()) == pytest.approx(1.0, rel=0.05)
    assert float((moved / own).abs().max()) == pytest.approx(3**0.5, rel=0.01)


@pytest.mark.parametrize("truncates", [False, True])
def test_terms_that_are_zero_round_nothing_in_a_sampled_sum(truncates: bool) -> None:
    terms = torch.stack([spread(4096), *(t(one).expand(4096) for one in (0.0, 0.0, 1.0))], -1)
    base = type("Kind", (sampled_number.SampledDeviationNumber,), {"truncates": truncates, "__slots__": ()})
    moved = kind_of(base=base).exact(terms, F32).sum(-1).value - terms.sum(-1)
    own = deviation_of_sum(terms.sum(-1), terms.square().sum(-1), t(2.0), F32, products=0.0, truncates=truncates)
    assert float((moved / own).std()) == pytest.approx(1.0, rel=0.05)
    assert float((moved / own).abs().max()) == pytest.approx(3**0.5, rel=0.01)
