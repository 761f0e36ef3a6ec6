"""Each rule of the error-carrying numbers against its line in docs/tolerances.md, worked out by hand: no more, no less."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds import addends, elementary, reassociation, repeated_terms
from mhc.oracles.bounds.aten.registry import narrowed
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.quantum import product_quantum, quantum_of, representable
from mhc.oracles.bounds.rounding import (
    all_finite,
    ceiling,
    half_subnormal,
    magnitude,
    nan_to_inf,
    overflow_threshold,
    unit_roundoff,
)
from mhc.oracles.bounds.underflow_number import UnderflowNumber

U = 2.0**-24
TINY = 2.0**-150
LOST = 4 * TINY  # HEADROOM times: an intermediate may be formed a few times smaller
"""Half of float32's smallest subnormal."""
F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16


def t(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def n(value: Any, error: Any = 0.0, *, finite: bool = True, dtype: torch.dtype = F32) -> ErrorNumber:
    """A number with that error, and the flags that fit it; `finite` False takes the slower way."""
    value, error = torch.as_tensor(value, dtype=F64), torch.as_tensor(error, dtype=F64)
    error = error.expand(value.shape)
    finite = finite and all_finite(value) and all_finite(error)
    return ErrorNumber(value, error, dtype, finite=finite, errorless=not bool(error.any()))


def close(got: Tensor, wanted: Any) -> bool:
    return torch.allclose(got, torch.as_tensor(wanted, dtype=F64), rtol=1e-13, atol=0.0)


RULES: dict[str, tuple[Callable[[Any, Any], Any], float, float]] = {
    # of a = 3 with error 1/2 and b = 5 with error 1/4: the value, and its error in full
    "a + b": (lambda a, b: a + b, 8, 0.75 + U * 8.75),
    "a - b": (lambda a, b: a - b, -2, 0.75 + U * 2.75),
    "-a": (lambda a, b: -a, -3, 0.5),
    "a + 1": (lambda a, b: a + 1, 4, 0.5 + U * 4.5),
    "1 - a": (lambda a, b: 1 - a, -2, 0.5 + U * 2.5),
    "a * b": (lambda a, b: a * b, 15, 3.375 + U * 18.375),  # 3/4 + 5/2 + 1/8
    "a * 7": (lambda a, b: a * 7, 21, 3.5 + U * 24.5),
    "a * 4": (lambda a, b: a * 4, 12, 2.0),
    "a / 4": (lambda a, b: a / 4, 0.75, 0.125),
    "a / 7": (lambda a, b: a / 7, 3 / 7, 0.5 / 7 + 4 * U * 3.5 / 7),
    "a / -7": (lambda a, b: a / -7, -3 / 7, 0.5 / 7 + 4 * U * 3.5 / 7),
    "a**2": (lambda a, b: a.square(), 9, 3.25 + U * 12.25),
    "a**1": (lambda a, b: a**1, 3, 0.5),
    "rsqrt": (lambda a, b: (a + 1).rsqrt(), 0.5, 0.0),  # below
    "bfloat16": (lambda a, b: a.to(BF16), 3, 0.5 + 3.5 / 256 + 2.0**-134),
    "float16": (lambda a, b: a.to(F16), 3, 0.5 + 3.5 / 2048 + 2.0**-25),
    "float64": (lambda a, b: a.to(F64), 3, 0.5),
}


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("rule", [name for name in RULES if name != "rsqrt"])
def test_a_rule_gives_its_error_exactly(rule: str, finite: bool) -> None:
    function, value, error = RULES[rule]
    got = function(n(t(3.0), 0.5, finite=finite), n(t(5.0), 0.25, finite=finite))
    assert close(got.value, [value])
    assert close(got.error, [error])
    assert got.dtype == {"bfloat16": BF16, "float16": F16, "float64": F64}.get(rule, F32)


@pytest.mark.parametrize("finite", [True, False])
def test_without_errors_a_product_is_rounded_once_and_a_constant_is_what_it_is_held_as(finite: bool) -> None:
    exact = n(t(3.0), finite=finite)
    assert close((exact * n(t(5.0), finite=finite)).error, [15 * U])
    assert close((exact * n(t(5.0), 0.25, finite=finite)).error, [0.75 + U * 15.75])
    assert close((n(t(5.0), 0.25, finite=finite) * exact).error, [0.75 + U * 15.75])
    tenth = abs(float(torch.tensor(0.1)) - 0.1)
    assert close((exact + 0.1).error, [tenth + U * (3.1 + tenth)])
    assert (exact * 0.5).error.tolist() == [0.0]
    assert close((exact * 3).error, [9 * U])
    cubed = 9 * U * 3  # of the square's error; then one rounding more
    assert close((exact**3).error, [cubed + U * (27 + cubed)])


@pytest.mark.parametrize("finite", [True, False])
def test_elementary_functions_have_nine_roundings(finite: bool) -> None:
    assert close(n(t(4.0), finite=finite).rsqrt().error, [9 * U * 0.5])
    moved = 3**-0.5 - 0.5
    assert close(n(t(4.0), 1.0, finite=finite).rsqrt().error, [moved + 9 * U * (0.5 + moved)])
    assert n(t(4.0), 4.0, finite=finite).rsqrt().error.isinf().all(), "it may be 0"
    assert n(t(4.0), 3.999, finite=finite).rsqrt().error.isfinite().all()
    assert close(n(t(0.0), finite=finite).sigmoid().error, [9 * U * 0.5 + 2.0**-126])
    slope, value = 1 / (1 + math.exp(-2)) / (1 + math.exp(2)), 1 / (1 + math.exp(-2))
    moved = slope * math.expm1(0.25 + 2 * U * 2)
    assert close(n(t(2.0), 0.25, finite=finite).sigmoid().error, [moved + 9 * U * (value + moved)])
    assert close(n(t(0.0), 50.0, finite=finite).sigmoid().error, [1 + 9 * U * 1.5])


@pytest.mark.parametrize("finite", [True, False])
def test_sums_and_matrix_products_have_lambda_roots_of_their_length(finite: bool) -> None:
    root = 6 * math.sqrt(3) * U
    terms = n(t(1.0, -2.0, 4.0), t(0.1, 0.2, 0.3), finite=finite)
    assert close(terms.sum(-1).value, 3)
    assert close(terms.sum(-1).error, 0.6 + root * 7.6)
    mean = 0.6 + root * 7.6
    assert close(terms.mean(-1).error, mean / 3 + 4 * U * (1 + mean / 3))
    row, column = n([[1.0, -2.0, 4.0]], finite=finite), n([[3.0], [5.0], [7.0]], finite=finite)
    assert close((row @ column).value, [[21.0]])
    assert close((row @ column).error, [[root * 41]])
    row, column = n([[1.0, -2.0, 4.0]], 0.5, finite=finite), n([[3.0], [5.0], [7.0]], 0.25, finite=finite)
    moved = 0.25 * 7 + 0.5 * 15 + 0.5 * 0.25 * 3
    assert close((row @ column).error, [[moved + root * (41 + moved)]])


def test_an_exponential_below_the_normal_range_may_be_0() -> None:
    for function in (elementary.exp, lambda a: elementary.softmax(a, 0)):
        found = function(n(t(0.0, -85.0, -88.0, -1000.0)))
        assert (found.error[1:3] >= 2.0**-126).all()
        assert float(found.error[2]) < 1.1 * 2.0**-126
        assert float(found.error[3]) < 2.0**-140, "what is 0 in float64 too is 0"
    assert float(elementary.sqrt(n(t(2.0**-100))).error) < 2.0**-60


@pytest.mark.parametrize("exponent", [-4.0, -3.0, -2.0, -1.5, -1.0, -0.5])
def test_a_power_has_no_bound_where_its_argument_may_be_0(exponent: float) -> None:
    found = elementary.power(n(t(0.5, 0.5, 0.5, 0.0), t(0.4375, 0.5, 9.0, 0.0)), exponent)
    assert found.error.isinf().tolist() == [False, True, True, False]
    assert float(found.error[0]) >= 0.0625**exponent - 0.5**exponent


@pytest.mark.parametrize("exponent", [5.0, 6.0, -2.0, -3.0])
def test_a_power_bounds_what_an_argument_of_either_sign_may_become(exponent: float) -> None:
    value, error = t(0.5, -0.5, 2.0, -2.0), t(0.125, 0.125, 1.0, 1.0)
    wanted = torch.maximum(*(((value + end) ** exponent - value**exponent).abs() for end in (error, -error)))
    assert torch.allclose(elementary.power(n(value, error), exponent).error, wanted, rtol=1e-4)
    if exponent > 0:
        found = elementary.power(n(t(0.5, -0.5), 2.0), exponent).error
        assert torch.allclose(found, t(*[2.5**exponent - 0.5**exponent] * 2), rtol=1e-4), "it may have the other sign"


@pytest.mark.parametrize("finite", [True, False])
def test_what_falls_below_the_normal_range_costs_half_a_subnormal(finite: bool) -> None:
    small = n(t(2.0**-80), finite=finite)
    assert close((small * n(t(3 * 2.0**-62), finite=finite)).error, [3 * 2.0**-166 + LOST])
    assert close((small * 3.0).error, [U * 3 * 2.0**-80 + LOST])
    row, column = n([[2.0**-80, 2.0**-80]], finite=finite), n([[2.0**-62], [2.0**-62]], finite=finite)
    assert close((row @ column).error, [[6 * math.sqrt(2) * U * 2.0**-141 + 12 * LOST]])
    assert (n(t(0.0), finite=finite) * n(t(2.0), finite=finite)).error.tolist() == [0.0]


def test_a_small_product_in_another_order_is_multiplied_by_its_other_factors() -> None:
    product = n(t(2.0**10)) * n(t(3.0))  # 1 + 2^10 for the next factor
    small = product * n(t(2.0**-100))
    moved = product.error * 2.0**-100
    assert close(small.error, moved + U * (3 * 2.0**-90 + moved) + 1025 * LOST)
    both = product * (n(t(2.0**-100)) * n(t(2.0)))  # 1025 and 3
    factor = U * 2.0**-99 + LOST
    moved = product.error * (2.0**-99 + factor) + 3072 * factor
    assert close(both.error, moved + U * (both.value + moved) + 1025 * 3 * LOST)
    summed = (product + 1.0) * n(t(2.0**-100))  # 1025 and 1
    moved = (product + 1.0).error * 2.0**-100
    assert close(summed.error, moved + U * (summed.value + moved) + 1026 * LOST)
    joined = torch.cat([product, n(t(1.0))], 0) * n(t(2.0**-100, 2.0**-100))  # type: ignore[list-item]
    assert close(joined.error[1:], [U * 2.0**-100 + 1 * LOST])
    moved = product.error * 2.0**-100
    assert close(joined.error[:1], moved + U * (3 * 2.0**-90 + moved) + 1025 * LOST)


@pytest.mark.parametrize(
    ("gamma", "phi", "unsure"), [(2.0**-75, 2.0**-75, True), (2.0**-74, 2.0**-75, False), (2.0**-75, 0.0, False)]
)
def test_infinity_times_a_product_that_may_round_to_zero_has_no_certain_class(
    gamma: float, phi: float, unsure: bool
) -> None:
    """(x gamma) phi is infinite, and x (gamma phi) NaN where gamma phi rounds to 0."""

    def number(*values: float) -> ErrorNumber:
        return ErrorNumber.exact(t(*values), torch.float32)

    for x in (math.inf, -math.inf):
        weighted, last = number(x, 1.0) * number(gamma, 1.0), number(phi, 1.0)
        for product in (weighted * last, last * weighted):
            assert product.error.isinf().tolist() == [unsure, False]
        for rows, columns in ((weighted, last), (last, weighted)):
            one = rows.reshape(1, 2) @ columns.reshape(2, 1)
            assert one.error.isinf().tolist() == [[unsure]]
        summed = (weighted + 1.0) * last
        assert not summed.error.isinf().any(), "a sum is not taken apart"


def test_factors_of_underflow() -> None:
    def later(*values: float) -> reassociation.Reassociated:
        return lambda: t(*values)

    def told(one: reassociation.Reassociated) -> list[float]:
        assert one is not None
        return one().tolist()

    assert told(reassociation.of_product(t(-5.0, 1.0), t(2.0, math.inf))) == [6, -1], "infinite: -min"
    assert told(reassociation.of_product(t(0.0, math.nan, -math.inf), t(math.inf, math.inf, math.inf))) == [1, 1, 1]
    matrix = reassociation.of_matrix_product(torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 5.0], [-4.0, 6.0]]))
    assert told(matrix) == [[2 + 3 + 7, 2 + 3 + 11]]  # type: ignore[comparison-overlap]
    phi = torch.tensor([[3.0, math.inf, 1.0], [4.0, 1.0, 1.0]])
    matrix = reassociation.of_matrix_product(torch.tensor([[0.5, -2.0], [0.0, 7.0]]), phi)
    assert told(matrix) == [[2 + 2.5 + 7, -0.5, 2 + 2.5 + 2], [16, 2 + 7 + 1, 11]]
    matrix = reassociation.of_matrix_product(phi.mT, torch.tensor([[0.5, 0.0], [-2.0, 7.0]]))
    assert told(matrix) == [[11.5, 16], [-0.5, 10], [6.5, 11]]  # type: ignore[comparison-overlap]
    assert reassociation.of_sum(None, None) is None
    assert told(reassociation.of_sum(later(3.0), None)) == [4]
    assert told(reassociation.of_sum(None, later(3.0))) == [4]
    assert told(reassociation.of_sum(later(2.0), later(3.0))) == [5]
    assert reassociation.in_product(None, None) is None
    assert told(reassociation.in_product(later(3.0), None)) == [3]
    assert told(reassociation.in_product(None, later(5.0))) == [5]
    assert told(reassociation.in_product(later(3.0), later(5.0))) == [15]
    rows, columns = (lambda: torch.tensor([[1.0, 2.0]])), (lambda: torch.tensor([[3.0], [5.0]]))
    assert told(reassociation.in_matrix_product(rows, columns, 6)) == [[78]]  # type: ignore[comparison-overlap]
    assert told(reassociation.in_matrix_product(rows, None, 6)) == [[18]]  # type: ignore[comparison-overlap]
    assert told(reassociation.in_matrix_product(None, columns, 6)) == [[48]]  # type: ignore[comparison-overlap]
    assert reassociation.in_matrix_product(None, None, 6) is None
    assert reassociation.moved(None, torch.neg) is None
    assert told(reassociation.moved(later(3.0), torch.neg)) == [-3]
    assert reassociation.joined([(None, t(1.0))], torch.cat) is None
    assert told(reassociation.joined([(None, t(7.0)), (later(3.0), t(2.0))], torch.cat)) == [1, 3]


@pytest.mark.parametrize(
    ("sizes", "wanted"), [((2.0**-60,), False), ((2.0**-61,), True), ((0.0, 1.0), False), ((0.0, 2.0**-61), True)]
)
def test_what_is_near_underflow(sizes: tuple[float, ...], wanted: bool) -> None:
    assert reassociation.near(t(*sizes), min(sizes)) is wanted


def test_three_terms_and_four_may_be_added_in_any_order() -> None:
    assert close(((n(t(1.0)) + n(t(-1.0))) + n(t(8.0))).error, [17 * U])  # |8|, and 9 - 0
    assert close((n(t(8.0)) + (n(t(1.0)) + n(t(-1.0)))).error, [17 * U])
    assert close((n(t(8.0)) - (n(t(1.0)) + n(t(-1.0)))).error, [17 * U])
    assert close((-(n(t(1.0)) + n(t(-1.0))) + n(t(-8.0))).error, [17 * U])
    four = (n(t(1.0)) + n(t(2.0))) + (n(t(3.0)) + n(t(4.0)))  # |10|, and 2 * 10 - 3 - 7
    assert close(four.error, [10 * U + U * (20 + 10 * U)])
    assert close((n(t(1.0)) + n(t(2.0))).error, [3 * U])
    assert close(((n(t(5.0)) + n(t(2.0))) + n(t(1.0))).error, [7 * U + U * (9 + 7 * U)])  # |8|, and 8 - 7


def test_what_partial_sums_may_come_to() -> None:
    def number(value: float, *inside: float) -> ErrorNumber:
        """Return a number that is said to be a sum of others, one after the other."""
        first, *rest = (n(t(one)) for one in inside or (value,))
        for one in rest:
            first.addends = addends.of_sum(first, one)
        first.value = t(value)
        return first

    def beyond(a: ErrorNumber, b: ErrorNumber) -> float:
        return float(addends.of_sum(a, b)().beyond)

    assert beyond(number(3, 1, 2), number(4)) == 7 - 3
    assert beyond(number(3, 5, -2), number(-4)) == 6 - 3
    assert beyond(number(4), number(3, 1, 2)) == 7 - 3
    assert beyond(number(3, 1, 2), number(7, 3, 4)) == 2 * 10 - 10
    assert beyond(number(9, 4, 5), number(-1)) == 0
    assert beyond(number(3, 1, 2), number(0)) == 0, "adding 0 rounds nothing"
    assert beyond(number(1, 0, 1), number(0)) == 0
    assert beyond(number(10, 1, 2, 3, 4), number(5)) == 3 * 15 - 2 * 10 - 10, "each partial sum counts once"
    assert beyond(number(4, 1, 1, 1, 1), number(-1)) == 3 * 4 - 2 * 4 - 4
    many = number(64, *[1] * 64)
    assert abs(beyond(many, number(1)) - (6 * 63**0.5 * 65 - 6 * 62**0.5 * 64 - 64)) < 1e-9
    assert beyond(number(math.inf, math.inf, 2), number(1)) == 1
    assert beyond(number(-math.inf, -math.inf, 2), number(1)) == beyond(number(math.nan, math.nan, 2), number(1)) == 1
    assert float(addends.magnitudes(addends.of_sum(number(-1.0), number(2.0, -3.0, 5.0)))) == 9
    assert addends.moved(None, torch.neg) is addends.negated(None) is None
    of_two = number(-1, 1, -2).addends
    negative, double = addends.negated(of_two), addends.moved(of_two, lambda one: one * 2)
    assert negative is not None
    assert double is not None
    assert [[float(part) for part in one()] for one in (negative, double)] == [[2, -1, 2, 0, 0], [2, -4, 4, 0, 0]]
    both = addends.of_sum(number(1.0), n(torch.ones(2, 1, dtype=F64)))()
    assert [one.shape for one in both[:3]] == [(2, 1)] * 3


def test_a_long_sum_is_read_as_quickly_as_a_short_one() -> None:
    """What is known of its terms does not grow with them."""
    total = n(torch.ones(1 << 12, dtype=F64)) * n(t(2.0))
    for _ in range(1500):
        total = total + n(torch.ones(1 << 12, dtype=F64)) * n(t(2.0))
    assert total.addends is not None
    assert total.reassociated is not None
    assert float(total.addends().number[0]) == 1501
    assert total.reassociated()[0] == 1501 * (1 + 2), "a chain of any length"


LIMITS: dict[torch.dtype, tuple[float, float, float, float]] = {
    # unit roundoff, half the smallest subnormal, threshold of overflow, largest magnitude that anything is promised of
    F32: (2.0**-24, 2.0**-150, (2 - 2.0**-24) * 2.0**127, (2 - 2.0**-23) * 2.0**125),
    BF16: (2.0**-8, 2.0**-134, (2 - 2.0**-8) * 2.0**127, (2 - 2.0**-7) * 2.0**125),
    F16: (2.0**-11, 2.0**-25, 65520.0, 16376.0),
    F64: (2.0**-53, 5e-324, math.inf, (2 - 2.0**-52) * 2.0**1021),
}


def test_what_was_given_is_in_no_doubt_whatever_its_sign() -> None:
    """Of 17,000 in float16 nothing would be promised, as a result: its steps may have overflowed."""
    given = ErrorNumber.exact(t(-17000.0, 3.0), F16)
    for function in (elementary.absolute, lambda one: -one, lambda one: one[:1]):
        assert not narrowed(function(given), F32).error.any()
    computed = ErrorNumber(t(-17000.0, 3.0), t(0.0, 0.0), F16)
    assert narrowed(elementary.absolute(computed), F32).error.isinf().tolist() == [True, False]


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_what_a_dtype_rounds(dtype: torch.dtype) -> None:
    functions = (unit_roundoff, half_subnormal, overflow_threshold, ceiling)
    assert tuple(function(dtype) for function in functions) == LIMITS[dtype]


def test_classes_of_magnitudes() -> None:
    odd = t(-2.0, math.nan, math.inf, -math.inf)
    assert magnitude(odd).tolist() == [2, 0, 0, 0]
    assert nan_to_inf(t(2.0, math.nan, math.inf)).tolist() == [2, math.inf, math.inf]
    assert [all_finite(one) for one in (t(1.0, 2.0), t(1.0, math.nan), t(math.inf, 1.0), t(1.0, -math.inf), t())] == [
        *(True, False, False, False, True)
    ]


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_nothing_is_promised_within_a_factor_of_four_of_overflow(dtype: torch.dtype, finite: bool) -> None:
    limit = LIMITS[dtype][3]

    def held(value: float, error: float = 0.0) -> ErrorNumber:
        return ErrorNumber(t(value * limit), t(error * limit), dtype, finite=finite)

    for number in (held(0.98), held(-0.98), held(0.5, 0.48)):
        assert number.to(dtype).error.isfinite().all()
    for number in (held(1.01), held(-1.01), held(0.5, 0.51)):
        assert number.to(dtype).error.isinf().all()
    for number in (held(0.98), held(0.5, 0.24), held(0.9, 0.04)):  # the error of a result counts as its operand's does
        assert (number * 1.0).error.isfinite().all()
        assert (number + 0.0).error.isfinite().all()
    for number in (held(1.01), held(0.5, 0.26), held(0.9, 0.06)):
        assert (number * 1.0).error.isinf().all()
        assert (number + 0.0).error.isinf().all()
    pair = ErrorNumber(t(0.5 * limit, 1.01 * limit), t(0.0, 0.0), dtype, finite=finite)
    assert (pair * 1.0).error.isinf().tolist() == pair.to(dtype).error.isinf().tolist() == [False, True]
    edge = ErrorNumber(t(limit, 1.01 * limit), t(0.0, 0.0), dtype, finite=finite)
    assert edge.to(dtype).error.isinf().tolist() == [False, True]


def test_the_flags_are_told_truly() -> None:
    finite, wild = n(t(1.0), 0.5), ErrorNumber.exact(t(1.0, math.inf), F32)
    assert (wild.finite, wild.errorless) == (False, True)
    assert ErrorNumber.exact(t(1.0), F32).finite
    assert (finite + finite).finite
    assert not (wild * 2.0).finite
    assert (-finite).finite
    assert not (-finite).errorless
    exact = ErrorNumber.exact(t(1.0, 2.0), F32)
    assert all(one.errorless and one.finite for one in (exact[0], exact.reshape(2, 1), exact.unsqueeze(0), exact[None].mT))
    assert not finite.reshape(1).errorless
    assert (-ErrorNumber.exact(t(1.0), F32)).errorless
    assert finite.to(F64).finite
    assert finite.to(BF16).finite
    assert not (n(t(1.0)) + n(t(2.0))).errorless
    joined: Any = torch.cat([n(t(1.0)), n(t(2.0), 0.5)], 0)  # type: ignore[list-item]
    assert (joined.finite, joined.errorless, joined.quantum) == (True, False, 0.0)
    assert (joined * n(t(1.0, 1.0))).error[1] > 0.5
    for number in (n(t(4.0), 0.5).rsqrt(), n(t(4.0)).sigmoid(), n(t(4.0)).sum(-1), n(t(4.0)) / 7, n(t(4.0)) * 3, finite - 1):
        assert number.finite
        assert number.error.isfinite().all()
    assert ErrorNumber.exact(t(1.0), F32).to(F64).errorless
    assert [n(t(1.0))._coerce(one).errorless for one in (3, 0.1)] == [True, False]
    assert [n(t(1.0))._coerce(one).finite for one in (3, math.inf)] == [True, False]
    mixed: Any = torch.cat([wild, n(t(2.0), 0.5)], 0)  # type: ignore[list-item]
    assert not mixed.finite
    side: Any = torch.cat([n(t(1.0)[None]), n(t(2.0)[None])], -1)  # type: ignore[list-item]
    assert side.value.tolist() == [[1.0, 2.0]]


def test_a_conversion_of_what_is_exact_is_exact() -> None:
    assert n(t(0.0)).to(BF16).error.tolist() == [0.0]
    assert ErrorNumber.exact(t(math.inf), F32).to(BF16).error.tolist() == [0.0]
    for number in (ErrorNumber.exact(t(math.inf), F32).to(F64), ErrorNumber.exact(t(math.inf), F32).rsqrt()):
        assert number.error.tolist() == [0.0]
    assert n(t(0.0), 0.5).to(BF16).error.tolist() == [0.5 + 0.5 / 256 + 2.0**-134]
    with_quantum = ErrorNumber.exact(t(256.0, 257.0), F32, with_quantum=True).to(BF16)
    assert with_quantum.error.tolist() == [0.0, 257 / 256 + 2.0**-134]
    assert ErrorNumber.stored(t(3.0), BF16).error.tolist() == [3 / 256]
    assert ErrorNumber.stored(t(3.0), BF16, with_quantum=True).error.tolist() == [0.0]


def test_infinity_meets_what_may_vanish() -> None:
    infinite = ErrorNumber.exact(t(math.inf), F32)
    for value, error, unsure in ((1.0, 0.5, False), (1.0, 1.0, True), (0.0, 0.0, False), (0.0, 1e-9, True)):
        number = ErrorNumber(t(value), t(error), F32)
        for product in (infinite * number, number * infinite):
            assert bool(product.error.isinf()) is unsure, (value, error)
        for product in (infinite[None] @ number[:, None], number[None] @ infinite[:, None]):
            assert bool(product.error.isinf()) is unsure, (value, error)


def test_grains() -> None:
    assert product_quantum(0.5, 0.25) == 0.125
    assert product_quantum(0.0, 2.0) == product_quantum(2.0, 0.0) == 0.0
    assert product_quantum(0.0, math.inf) == product_quantum(math.inf, 0.0) == 0.0, "of zeros it is infinite"
    assert representable(t(2.0**24, 2.0**24 + 1), 1.0, F32).tolist() == [True, False]
    assert representable(t(2.0**23, 2.0**23 + 1), 0.5, F32).tolist() == [True, False]
    assert representable(t(0.0, 2.0**-140), 2.0**-150, F32).tolist() == [True, False]
    assert representable(t(0.0, 2.0**-140), 2.0**-149, F32).tolist() == [True, True]
    assert quantum_of(t(3.0, 12.0)) == 1
    a, b = (ErrorNumber.exact(t(value), F32, with_quantum=True) for value in (0.75, 2.5))
    assert [(a * b).quantum, (a + b).quantum, (a + 1).quantum, (a * 3).quantum, (a + 0.1).quantum] == [
        0.125,
        0.25,
        0.25,
        0.25,
        0.0,
    ]
    assert a.to(F64).quantum == 0.25
    assert (-a).quantum == 0.25
    row = ErrorNumber.exact(t(1.0, 3.0)[None], F32, with_quantum=True)
    assert ((row @ row.mT).quantum, row.sum(-1).quantum) == (1.0, 1.0)
    assert not (row @ row.mT).error.any()
    # magnitudes of all addends must fit, in whatever order they are added
    partly = ErrorNumber.exact(t(2.0**24, 1.0), F32, with_quantum=True) * 3
    assert partly.error[0] > 0
    assert (float(partly.error[1]), partly.quantum) == (0.0, 0.0)
    large, one = (ErrorNumber.exact(t(value), F32, with_quantum=True) for value in (2.0**23, 1.0))
    assert not ((large - large) + one).error.isnan().any()
    assert ((large - large) + one).error > 0
    assert not ((one - one) + large).error.any()


def test_rows_that_repeat_are_found_in_any_order() -> None:
    rows = torch.arange(1.0, 41.0).reshape(4, 10)
    assert repeated_terms.repeated(rows, 0) is None
    many = torch.cat([rows, rows.flip(0)] * 40)
    found = repeated_terms.repeated(many, 0)
    assert found is not None
    assert found.tolist() == [[80.0] * 10]
    assert repeated_terms.repeated(torch.cat([rows] * 64), 0) is None, "so few are inside"
    partly = torch.cat([rows] * 65)
    partly[4:, :4] += 0.5 + torch.arange(256.0)[:, None] / 512
    found = repeated_terms.repeated(partly.mT, 1)
    assert found is not None
    assert found.flatten().tolist() == [1.0] * 4 + [65.0] * 6
    partly[4:, 4] += 0.5 + torch.arange(256.0) / 512  # half of a row is not enough
    assert repeated_terms.repeated(partly, 0) is None
    assert repeated_terms.repeated(torch.zeros(600, 3), 0) is None
    assert repeated_terms.repeated(torch.ones(1, 3), 0) is None
    assert repeated_terms.repeated(torch.ones(0, 5), -1) is None
    apart = torch.arange(400.0).reshape(-1, 1).repeat(1, 3)
    apart[200::2] = 7.0
    found = repeated_terms.repeated(apart, 0)
    assert found is not None
    assert found.tolist() == [[101.0] * 3], "7 was there once before"


def test_nan_repeats_nothing_and_infinity_does() -> None:
    unknown = torch.ones(400, 3)
    unknown[:, :2] = torch.nan
    assert repeated_terms.repeated(unknown, 0) is None, "two of three are NaN, which equals nothing"
    assert repeated_terms.longest(unknown[:, :2], 0) is None
    unknown[:, 0] = torch.inf
    lengths = repeated_terms.longest(unknown, 0)
    assert lengths is not None
    assert lengths.tolist() == [[400.0, 1.0, 400.0]]


def test_roundings_of_a_sum_with_runs() -> None:
    alike = torch.full((36,), 0.1, dtype=F64)
    assert repeated_terms.of_sum(alike, 0, F32) == 36
    assert close(torch.as_tensor(repeated_terms.of_sum(torch.full((49,), 0.1, dtype=F64), 0, F32)), 49)
    pairs = torch.arange(50, dtype=F64).repeat_interleave(2) + 1
    assert close(torch.as_tensor(repeated_terms.of_sum(pairs, 0, F32)), 6 * math.sqrt(200))
    assert repeated_terms.of_sum(torch.arange(100.0), 0, F32) == 60
    a, b = (torch.arange(1.0, 101.0).div(many, rounding_mode="floor").add(1).double() for many in (4, 2))
    both = repeated_terms.of_products(a[None], -b[:, None], F32)
    assert close(torch.as_tensor(both), [[6 * math.sqrt(200)]])
    assert repeated_terms.of_products(a[None], torch.arange(100.0)[:, None], F32) == 60
    assert repeated_terms.of_products(torch.arange(100.0)[None], b[:, None], F32) == 60
    signs = 1 - 2 * (torch.arange(64.0) % 2)
    assert close(torch.as_tensor(repeated_terms.of_products(signs[None], signs[:, None], F32)), [[64.0]])
    batch = torch.stack([signs[:, None], torch.arange(64.0)[:, None]])
    assert close(torch.as_tensor(repeated_terms.of_products(signs.expand(2, 1, 64), batch, F32)), [[[64.0]], [[48.0]]])
    in_turn = (torch.arange(4000, dtype=F64) + 0.1).repeat(100)
    assert close(torch.as_tensor(repeated_terms.of_sum(in_turn, 0, F32)), 6 * math.sqrt(400_000 * 100))
    assert close(
        torch.as_tensor(repeated_terms.of_products(in_turn[None], in_turn[:, None], F32)), [[6 * math.sqrt(400_000 * 100)]]
    )
    assert repeated_terms.of_products(in_turn[None], torch.arange(400_000.0)[:, None], F32) == 6 * math.sqrt(400_000)
    assert repeated_terms.longest(torch.ones(1, 1), -1) is None
    assert repeated_terms.longest(torch.ones(0, 5), -1) is None
    assert repeated_terms.longest(torch.zeros(1, 5), -1) is None
    for count in (2, 10, 11):
        run = repeated_terms.longest(torch.full((count,), 3.0), 0)
        assert run is not None
        assert run.tolist() == [count]
    two = repeated_terms.longest(torch.tensor([3.0, 3.0]), 0)
    assert two is not None
    assert two.tolist() == [2.0]


def test_runs_reach_the_tolerance_of_sums_and_products() -> None:
    alike = torch.full((64,), 0.1, dtype=F64)
    total = 64 * 0.1
    assert close(n(alike).sum(0).error, 64 * U * total)
    assert close((n(alike[None]) @ n(torch.ones(64, 1, dtype=F64))).error, [[64 * U * total]])
    pairs = torch.arange(50, dtype=F64).repeat_interleave(2) + 1
    assert close(n(pairs).sum(0).error, 6 * math.sqrt(200) * U * float(pairs.sum()))


def test_underflow_alone() -> None:
    """A product that is surely normal, by 2^24, has no change; any other one half a subnormal times 2^24."""

    def held(value: float, error: float = 0.0, dtype: torch.dtype = F32) -> UnderflowNumber:
        return UnderflowNumber(t(value), t(error), dtype)

    margin = 2.0**24
    assert (held(2.0**-102) * held(1.0)).error.tolist() == [0.0]
    assert (held(2.0**-102) * held(0.99)).error.tolist() == [margin * TINY]
    assert (held(0.0) * held(1.0)).error.tolist() == [0.0]
    assert (held(1.0, 2.0**-100) * held(1.0)).error.tolist() == [2.0**-100]
    assert (held(2.0**-101, 2.0**-102) * held(1.0)).error.tolist() == [2.0**-102]
    assert (held(2.0**-101, 2.0**-101) * held(1.0)).error.tolist() == [2.0**-101 + margin * TINY]
    assert (held(1.0) * 0.1).error.tolist() == [0.0]
    assert (held(1.0) * 0.1).value.tolist() == [0.1]
    assert (held(1.0) + held(2.0)).error.tolist() == [0.0]
    assert ((held(1.0) + held(2.0)) + held(3.0)).error.tolist() == [0.0]
    most = (2 - 2.0**-23) * 2.0**125
    assert (held(most) * held(1.0)).error.tolist() == [0.0]
    assert held(2.0**-20, 2.0**-20).to(F16).error.tolist() == [2.0**-20 + 2.0**-25]
    total = UnderflowNumber(t(1.0, 2.0), t(0.0, 0.0), F32).sum(0)
    assert float(total.error) == margin * TINY
    assert float(UnderflowNumber(t(0.0, 0.0), t(0.0, 0.0), F32).sum(0).error) == 0.0
    row = UnderflowNumber(t(1.0, 2.0)[None], t(0.0, 0.0)[None], F32)
    assert (row @ row.mT).error.tolist() == [[12 * margin * TINY]]
    assert (held(2.0**126) * held(1.0)).error.isinf().all()
    assert (held(2.0**124) * held(1.0)).error.isfinite().all()
    assert held(2.0**-14).to(F16).error.tolist() == [0.0]
    assert held(2.0**-14, 2.0**-30).to(F16).error.tolist() == [2.0**-30 + 2.0**-25]
    assert held(2.0**-15).to(F16).error.tolist() == [2.0**-25]
    assert held(0.0).to(F16).error.tolist() == [0.0]
    assert held(0.0, 2.0**-60).to(F16).error.tolist() == [2.0**-60 + 2.0**-25]
    assert held(20000.0).to(F16).error.isinf().all()
    assert held(16376.0).to(F16).error.tolist() == [0.0], "the largest of which anything is promised"
    given = UnderflowNumber.exact(t(most, most * 1.01), F32)
    assert given.error.tolist() == [0.0, math.inf], "its double may overflow"
    assert held(16000.0).to(F16).error.tolist() == [0.0]
    with pytest.raises(TypeError, match="the formula must convert first"):
        held(1.0) + held(1.0, dtype=F16)


def test_what_multiplies_the_underflow_of_a_product_is_that_of_the_factors_that_have_one() -> None:
    one, two = (lambda: torch.tensor(3.0)), (lambda: torch.tensor(5.0))
    assert reassociation.in_product(None, None) is None
    assert reassociation.in_product(one, None) is one
    assert reassociation.in_product(None, two) is two
    both = reassociation.in_product(one, two)
    assert both is not None
    assert float(both()) == 15


def test_a_product_with_a_sum_in_one_factor_is_distributed_over_its_terms() -> None:
    a, b = torch.tensor(-3.0), torch.tensor(5.0)
    terms = lambda: torch.tensor(7.0)  # noqa: E731
    assert reassociation.distributed(None, None, a, b) is None
    for left, right, wanted in ((terms, None, 35.0), (None, terms, 21.0), (terms, terms, 49.0)):
        found = reassociation.distributed(left, right, a, b)
        assert found is not None
        assert float(found()) == wanted


@pytest.mark.parametrize("scale", [4.0, 0.5, -2.0, 2])
@pytest.mark.parametrize("finite", [True, False])
def test_a_product_by_a_power_of_two_has_no_error_where_nothing_underflows(scale: float, finite: bool) -> None:
    least = 4 * 2.0**-126  # a few times smaller an intermediate may be
    value = t(0.3125, least / min(1.0, abs(scale)), 0.75 * least, 0.75 * least / abs(scale), 0.0, 1.0)
    a = n(value, t(0.0, 0.0, 0.0, 0.0, 0.0, 0.25), finite=finite)
    for product in (a * scale, scale * a, a / (1 / scale)):
        assert torch.equal(product.value, value * scale)
        assert product.error.tolist() == [0.0, 0.0, LOST, LOST, 0.0, 0.25 * abs(scale) + LOST]
        assert not product.errorless
    exact = n(t(0.3125, -3.0), finite=finite) * scale
    assert (exact.error.tolist(), exact.errorless) == ([0.0, 0.0], True)
    assert n(t(2.0**125)).__mul__(4.0).error.isinf().all(), "it may overflow"


def test_a_power_of_two_in_another_order_of_factors_may_underflow() -> None:
    a = n(t(0.75))
    assert ((a * 0.5) * 4.0).error.tolist() == [0.0]
    small = n(t(2.0**-30)) * 2.0**100
    assert float((small * 2.0**-98).error) > 0, "2^-30 2^-98 is subnormal, and what is lost of it multiplied by 2^100"
    assert float((n(t(3.0)) * n(t(5.0)) * 4.0).error) > 4 * 15 * U * 0.99
    total = n(t(1.0)) + n(t(0.0))
    assert float((total * 0.5).error) > 0, "each term may be multiplied first"
    assert float((a * 2.0**-127).error) > 0
    assert float((a * 2.0**-140).error) > 0, "a unit may read a subnormal factor as 0"
