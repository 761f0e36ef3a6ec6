"""The error-carrying numbers: every operation's bound holds for real float32 rounding, and is not absurdly slack."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from mhc.oracles.bounds import elementary
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import read
from mhc.oracles.bounds.repeated_terms import longest
from mhc.oracles.bounds.rounding import LAMBDA, overflow_threshold, unit_roundoff

FLOAT32 = torch.float32


def held(value: Tensor, relative: float, sign: Tensor) -> tuple[Tensor, ErrorNumber]:
    """Float32 numbers `relative` away from float64 ones, and the error-carrying numbers that say so."""
    moved = (value + sign * relative * value.abs()).to(FLOAT32)
    return moved, ErrorNumber(value, (moved.double() - value).abs(), FLOAT32)


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide by a size": lambda a, b: a / 7,
    "halve": lambda a, b: a / 2,
    "complement": lambda a, b: 1 - a,
    "add a scalar": lambda a, b: a + 1e-6,
    "cube": lambda a, b: a**3,
    "sum": lambda a, b: a.sum(-1),
    "mean": lambda a, b: a.mean(-1),
    "matmul": lambda a, b: a @ b.mT,
    "rsqrt": lambda a, b: (a.square() + 1e-6).rsqrt(),
    "sigmoid": lambda a, b: a.sigmoid(),
    "bfloat16": lambda a, b: (a * b).to(torch.bfloat16),
    "float16": lambda a, b: (a * b).to(torch.float16),
    "cat": lambda a, b: torch.cat([a, b], -1),
    "indexing": lambda a, b: a[..., 1:].unsqueeze(-1).reshape(-1) * 2,
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("relative", [0.0, 1e-6, 1e-2])
def test_the_bound_holds(name: str, scale: float, relative: float) -> None:
    generator = torch.Generator().manual_seed(len(name))
    for length in (2, 33, 1000):
        draws = [torch.randn(4, length, dtype=torch.float64, generator=generator) * scale for _ in range(2)]
        signs = [torch.randn(4, length, dtype=torch.float64, generator=generator).sign() for _ in range(2)]
        (a, na), (b, nb) = (held(draw, relative, sign) for draw, sign in zip(draws, signs, strict=True))
        got, number = OPERATIONS[name](a, b), OPERATIONS[name](na, nb)
        assert torch.equal(number.value, OPERATIONS[name](*draws).double()) or name in {"bfloat16", "float16"}
        assert number.dtype == got.dtype
        assert ((got.double() - number.value).abs() <= number.error).all()


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in {"cat", "indexing"}])
def test_the_bound_is_not_slack(name: str) -> None:
    """Without input errors it allows no more than 60 * sqrt(L) units of the largest term."""
    length = 64
    a, b = (torch.rand(4, length, dtype=torch.float64) + 0.5 for _ in range(2))
    numbers = (ErrorNumber.exact(a.to(FLOAT32).double(), FLOAT32), ErrorNumber.exact(b.to(FLOAT32).double(), FLOAT32))
    number = OPERATIONS[name](*numbers)
    assert (number.error <= 60 * math.sqrt(length) * unit_roundoff(number.dtype) * number.value.abs().max()).all()
    assert (number.error > 0).all() or name == "halve"


@pytest.mark.parametrize(
    ("x_scale", "left_scale", "right_scale"), [(-130, 0, -8), (-130, -2, 0), (-130, 20, 10), (-60, -80, 0)]
)
def test_products_below_the_normal_range_may_be_taken_in_another_order(
    x_scale: int, left_scale: int, right_scale: int
) -> None:
    """A sum of x (a b) as one of (a^T x) b; at the first scales a bound of the written order alone is 4 times too narrow."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        shapes = ((3, 5), (3, 24), (24, 5))
        scales = (x_scale, left_scale, right_scale)
        x, a, b = (torch.randn(shape, generator=generator) * 2.0**scale for shape, scale in zip(shapes, scales, strict=True))
        numbers = [ErrorNumber.exact(one.double(), FLOAT32) for one in (x, a, b)]
        allowed = (numbers[0] * (numbers[1] @ numbers[2])).sum(0)
        for got in (((a.mT @ x) * b).sum(0), (x * (a @ b)).sum(0)):
            assert ((got.double() - allowed.value).abs() <= allowed.error).all()


@pytest.mark.parametrize("count", [21, 33])
@pytest.mark.parametrize("given", [False, True])
def test_a_mean_below_the_normal_range_may_be_multiplied_last(count: int, *, given: bool) -> None:
    """A mean of r x as r times the mean of x; a bound of the written order alone is twice too narrow."""
    x, r = torch.full((count,), 1.47e-39), torch.tensor(316.0)
    terms = ErrorNumber.exact(r.double(), FLOAT32) * ErrorNumber.exact(x.double(), FLOAT32)
    summed, size = terms.sum(0), ErrorNumber.exact(torch.tensor(count).double(), FLOAT32)
    allowed = elementary.quotient(summed, size) if given else summed / count
    for got in (r * (x.sum() / count), r * (x / count).sum(), (r * x).sum() / count):
        assert abs(got.double() - allowed.value) <= allowed.error


@pytest.mark.parametrize("equal", [True, False])
def test_the_two_sums_of_a_product_may_be_exchanged(equal: bool) -> None:
    """sum_k x_k (a_k @ b) as (sum_k x_k a_k) @ b, term by term, where a_k @ b is almost 0 and the sums of x_k a_k are not.

    A bound of the written order alone is 63 times too narrow for equal terms, and 2 times for others.
    """
    generator = torch.Generator().manual_seed(0)
    count, inner, width = 4096, 3, 16
    b = torch.randn(inner, width, generator=generator)
    shares = torch.rand(inner, generator=generator) + 0.5
    b[-1] = -((b[:-1].double() * shares[:-1, None].double()).sum(0) / shares[-1].double()).float()
    x = (torch.rand(1 if equal else count, width, generator=generator) + 0.5).expand(count, width).contiguous()
    a = ((1 if equal else torch.rand(count, 1, generator=generator) + 0.5) * shares).expand(count, inner).contiguous()
    numbers = [ErrorNumber.exact(one.double(), FLOAT32) for one in (x, a, b)]
    allowed = (numbers[0] * (numbers[1] @ numbers[2])).reshape(count, width).sum(0)
    exchanged = torch.zeros(inner, width)
    for row, term in zip(a, x, strict=True):
        exchanged = exchanged + row[:, None] * term
    for got in ((exchanged * b).sum(0), (x * (a @ b)).sum(0)):
        assert ((got.double() - allowed.value).abs() <= allowed.error).all()
    written = (numbers[1] @ numbers[2]).error.mul(x.double()).sum(0)
    assert ((exchanged * b).sum(0).double() - allowed.value).abs().max() > written.max() or not equal


def test_float64_loses_digits_below_its_normal_range_too() -> None:
    """Half of its smallest subnormal is 0 in float64, with which the bound would ask for exact products."""
    a = 0.5 + torch.rand(50, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    product = ErrorNumber.exact(a * 1e-160, torch.float64) * ErrorNumber.exact(a * 1e-158, torch.float64)
    assert float(product.value.abs().max()) < 1e-317
    assert float(product.error.min()) >= 5e-324


@pytest.mark.parametrize("length", [645, 4096, 32768])
def test_a_loop_over_equal_terms_stays_inside(length: int) -> None:
    """Each addition rounds the same way: LAMBDA sqrt(L) is not enough, and is what terms get that differ."""
    terms = torch.full((length,), 0.1)
    one_by_one = float(np.cumsum(terms.numpy())[-1])
    summed = ErrorNumber.exact(terms.double(), FLOAT32).sum(-1)
    product = ErrorNumber.exact(terms.double()[None], FLOAT32) @ ErrorNumber.exact(torch.ones(length, 1).double(), FLOAT32)
    assert abs(one_by_one - float(summed.value)) <= float(summed.error)
    assert abs(one_by_one - float(product.value)) <= float(product.error)
    usual = LAMBDA * length**0.5 * unit_roundoff(FLOAT32) * float(summed.value)
    assert (abs(one_by_one - float(summed.value)) > usual) is (length >= 4096)
    apart = terms.double() * (1 + torch.arange(length) / length)
    other = ErrorNumber.exact(apart, FLOAT32).sum(-1)
    assert float(other.error) == pytest.approx(LAMBDA * length**0.5 * unit_roundoff(FLOAT32) * float(other.value), rel=1e-6)


def test_runs_are_found_in_what_is_held_and_in_products() -> None:
    """Equal tokens come out of a float64 product with other last digits; factors that alternate together stay equal."""
    generator = torch.Generator().manual_seed(5)
    row = torch.randn(1, 8, generator=generator, dtype=torch.float64)
    tokens = row * (1 + 2.0**-51 * (torch.arange(20001, dtype=torch.float64) % 3))[:, None]  # as BLAS may round them
    assert longest(tokens, 0) is None
    terms = ErrorNumber(tokens, torch.zeros_like(tokens), FLOAT32)
    one_by_one = torch.from_numpy(np.cumsum(tokens.float().numpy(), axis=0)[-1]).double()
    total = terms.sum(0)
    beyond = (one_by_one - total.value).abs() / total.error
    assert 0.02 < float(beyond.max()) <= 1
    signs = 1 - 2 * (torch.arange(4096) % 2).double()
    product = ErrorNumber.exact((signs * 0.3)[None], FLOAT32) @ ErrorNumber.exact((signs * 0.7)[:, None], FLOAT32)
    loop = float(np.cumsum((torch.full((4096,), 0.3) * 0.7).numpy())[-1])
    assert abs(loop - float(product.value)) <= float(product.error)
    assert float(product.error) > 4 * LAMBDA * 64 * unit_roundoff(FLOAT32) * 0.21 * 4096


def test_runs_are_of_neighbours_that_are_equal_and_not_zero() -> None:
    rows = torch.tensor([[1.0, 1, 1, 2, 2, 0, 0, 0, 0, 3], [1, 2, 2, 4, 5, 5, 5, 5, 9, 9], [0, 0, 0, 0, 0, 0, 0, 0, 0, 7]])
    found = longest(rows, -1)
    assert found is not None
    assert found.tolist() == [[3.0], [4.0], [1.0]]
    across = longest(rows.mT, 0)
    assert across is not None
    assert across.tolist() == [[3.0, 4.0, 1.0]]
    assert longest(torch.arange(9.0)[None], -1) is None


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1)])
def test_three_terms_may_be_added_in_any_order(signs: tuple[int, int]) -> None:
    """Where the formula cancels first, another order rounds a large number once more than it does."""
    generator = torch.Generator().manual_seed(3)
    near, large = (torch.randn(100, 100, generator=generator) for _ in range(2))
    a, b, c = near * 1e-5, signs[0] * near * 1e-5 * 1.03, signs[1] * large
    numbers = [ErrorNumber.exact(term.double(), FLOAT32) for term in (a, b, c)]
    allowed = ((numbers[0] + numbers[1]).reshape(-1) + numbers[2].reshape(-1)).reshape(100, 100)
    orders = [(a + b) + c, a + (b + c), (a + c) + b]
    worst = max(float(((order.double() - allowed.value).abs() / allowed.error).max()) for order in orders)
    assert 0.5 < worst <= 1
    rounded_once = ErrorNumber.exact((a + b).double(), FLOAT32) + numbers[2]
    assert float((orders[1].double() - rounded_once.value).abs().div(rounded_once.error).max()) > 1


@given(st.floats(-100, 100) | st.floats(-3000, 3000), st.floats(0, 1) | st.floats(0, 4000))
@example(-1024.0, 2000.0)
def test_sigmoid_moves_at_most_as_far_as_it_says(value: float, error: float) -> None:
    a = torch.tensor([value], dtype=torch.float64)
    number = ErrorNumber(a, torch.tensor([error], dtype=torch.float64), FLOAT32).sigmoid()
    for moved in (a - error, a + error):
        assert (moved.sigmoid() - number.value).abs() <= number.error


def test_a_share_of_zero_may_become_the_whole_softmax() -> None:
    """exp(-1000) is 0 in float64; with an error of 2000 its share may be 1, and the other one 0."""
    value, error = (torch.tensor([given], dtype=torch.float64) for given in ([0.0, -1000.0], [0.0, 2000.0]))
    number = ErrorNumber(value, error, FLOAT32)
    assert bool((elementary.softmax(number, -1).error >= 1).all())
    assert float(elementary.logsumexp(number, -1).error.min()) >= 1000
    assert float(elementary.log_softmax(number, -1).error.min()) >= 1000


def test_zero_is_exact_and_absent_products_round_nothing() -> None:
    zero = ErrorNumber.exact(torch.zeros(3, dtype=torch.float64), FLOAT32)
    for number in (zero * zero, zero + zero, zero.sum(-1), zero * 3.7, zero.to(torch.bfloat16)):
        assert not number.error.any()


def test_nothing_is_promised_near_overflow_and_it_stays_so() -> None:
    large = ErrorNumber.exact(torch.tensor([1e30, 1.0], dtype=torch.float64), FLOAT32)
    squared = large.square()
    assert squared.error.isinf().tolist() == [True, False]
    for number in (squared.rsqrt(), squared * 0.0, squared - squared, squared.sigmoid(), squared.to(torch.bfloat16)):
        assert number.error.isinf().tolist() == [True, False]
    assert squared.sum(0).error.isinf()
    ones = ErrorNumber.exact(torch.ones(2, 1, dtype=torch.float64), FLOAT32)
    assert (squared.unsqueeze(0) @ ones).error.isinf().all()


def test_an_input_near_overflow_is_beyond_promise_but_not_a_narrow_one() -> None:
    large = ErrorNumber.exact(torch.tensor([2e38, 6e4], dtype=torch.float64), FLOAT32)
    assert large.to(FLOAT32).error.isinf().tolist() == [True, False]
    half = ErrorNumber.exact(torch.tensor([6e4], dtype=torch.float64), torch.float16)
    assert not half.to(FLOAT32).error.any()
    assert half.to(FLOAT32).to(torch.float16).error.isfinite().all()


def test_a_nan_or_infinity_that_was_given_is_exact() -> None:
    given_ones = ErrorNumber.exact(torch.tensor([math.nan, math.inf, 2.0], dtype=torch.float64), FLOAT32)
    for number in (given_ones * 3.3, given_ones + 1e-6, given_ones.rsqrt(), given_ones.sigmoid(), given_ones**3):
        assert number.value[0].isnan()
        assert not number.error[~number.value.isfinite()].any()
        assert number.error.isfinite().all()
    assert [float(one[1]) for one in (given_ones.rsqrt().value, given_ones.rsqrt().error)] == [0, 0]
    assert float(given_ones.sigmoid().error[1]) == pytest.approx(9 * 2.0**-24, rel=1e-6), "of 1: its own rounding alone"


def test_infinity_times_what_may_have_become_zero_is_not_promised() -> None:
    """A sigmoid of 1e-30 beside an hc_eps of 1e-6 is 0 in float32: infinity times it may be NaN there."""
    infinite = ErrorNumber.exact(torch.tensor([math.inf], dtype=torch.float64), FLOAT32)
    sigmoid = ErrorNumber.stored(torch.tensor([1e-6 + 1e-30], dtype=torch.float64), FLOAT32) - 1e-6
    sure = ErrorNumber.stored(torch.tensor([0.3], dtype=torch.float64), FLOAT32)
    zero = ErrorNumber.exact(torch.zeros(1, dtype=torch.float64), FLOAT32)
    products: tuple[Callable[[Any, Any], Any], ...] = (
        lambda a, b: a * b,
        lambda a, b: b * a,
        lambda a, b: a.unsqueeze(0) @ b.unsqueeze(1),
    )
    for product in products:
        assert product(infinite, sigmoid).error.isinf().all()
        assert not product(infinite, sure).error.any()
        assert not product(infinite, zero).error.any()  # NaN, exactly


def test_mixed_dtypes_are_an_error() -> None:
    one = torch.ones(1, dtype=torch.float64)
    with pytest.raises(TypeError, match="the formula must convert first"):
        ErrorNumber.exact(one, torch.bfloat16) + ErrorNumber.exact(one, FLOAT32)
    with pytest.raises(TypeError, match="sigmoid does not take error-carrying numbers"):
        torch.sigmoid(ErrorNumber.exact(one, FLOAT32))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_overflow_threshold(dtype: torch.dtype) -> None:
    limit = torch.tensor(overflow_threshold(dtype), dtype=torch.float64)
    assert limit.to(dtype).isinf()
    below = torch.nextafter(limit, torch.tensor(0.0, dtype=torch.float64))
    exact = below.to(torch.float32) if dtype != torch.float32 else below  # the 16-bit casts go by way of float32
    if exact.double() == below:
        assert below.to(dtype).isfinite()
    assert torch.tensor(torch.finfo(dtype).max, dtype=torch.float64).to(dtype).isfinite()


@pytest.mark.parametrize(
    "mean",
    [
        lambda x: x.mean(-1),
        lambda x: x.sum(-1) / x.shape[-1],
        lambda x: x.sum(-1) * (1 / x.shape[-1]),
        lambda x: x.mean((-2, -1), keepdim=True)[..., 0, 0],
    ],
)
@pytest.mark.parametrize("length", [1, 2, 4, 49])
def test_a_mean_of_more_than_two_is_not_exact(mean: Callable[[Tensor], Tensor], length: int) -> None:
    """A kernel may update it with each element, as Welford's variance does, even where the sum is 0."""
    x = torch.zeros(1, length)
    x[0, 0], x[0, -1] = 1.0, -1.0
    (found,) = read(lambda x: mean(x) + 0, [x], {}, with_quantum=True).outputs
    assert bool((found.error == 0).all()) == (length <= 2)


def test_a_mean_of_squares_is_exact() -> None:
    x = torch.ones(2, 64)
    (found,) = read(lambda x: x.square().mean(-1) + x.pow(2).sum(-1) / 64, [x], {}, with_quantum=True).outputs
    assert found.error.tolist() == [0.0, 0.0]
