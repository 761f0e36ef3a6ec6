"""Sampled tolerances: where they replace a composed bound, what they allow, and how verdicts name them."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from mhc import Implementation, default_case, operator
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.fuzz.cli.replay_table import replay_table
from oracles.bounds.error_number import ErrorNumber
from oracles.bounds.reading import read
from oracles.bounds.sampled_number import SampledNumber, sampled
from oracles.judge import outcomes
from oracles.verdict import Status
from tests.oracles.test_reading import numbers, ratio, results, upstream_of
from tests.support.references import REFERENCES, normal, sinkhorn


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
    moved = SampledNumber.exact(value, torch.float32) * 1.1
    relative = moved.value / value
    assert float(relative[0]) == pytest.approx(float(relative[1]), rel=1e-15)
    assert float(relative[0]) == pytest.approx(float(relative[2]), rel=1e-15)
    assert abs(float(relative[0] - relative[3])) > 2.0**-40


def test_moves_are_up_as_often_as_down() -> None:
    value = normal(torch.Generator().manual_seed(1), 4000).double().abs()
    relative = (SampledNumber.exact(value, torch.float32) * 1.1).value / value / 1.1 - 1
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


def test_what_leaves_the_range_of_its_dtype_has_no_sampled_tolerance() -> None:
    def overflows(x: Tensor) -> Tensor:
        return sinkhorn(x) * 3e38 * 3.0 * 1e-38

    x = torch.ones(2, 2, 4, 4) * torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1)
    found, _ = sampled(partial(read, overflows, [x], {}, []), read(overflows, [x], {}))
    assert bool(found.outputs[0].error.isinf().all())


@pytest.mark.parametrize("number", [ErrorNumber, SampledNumber])
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
