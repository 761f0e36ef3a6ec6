"""Each rule of the numbers of the precision gate against its line in `mhc.oracles.bounds.deviation_number`, by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds.aten.registry import narrowed
from mhc.oracles.bounds.deviation_number import DeviationNumber, TruncatingDeviationNumber, deviation_of_sum
from mhc.oracles.bounds.error_number import ErrorNumber

F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
U, TINY = 2.0**-24, 2.0**-150
UNIFORM = U / math.sqrt(3)


def t(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def d(value: Any, error: Any = 0.0, shared: Any = 0.0, terms: int = 1, dtype: torch.dtype = F32) -> DeviationNumber:
    value = torch.as_tensor(value, dtype=F64)
    error = torch.as_tensor(error, dtype=F64).expand(value.shape)
    return DeviationNumber(value, error, dtype, shared=torch.as_tensor(shared, dtype=F64), terms=terms)


def parts(number: ErrorNumber) -> tuple[Tensor, Tensor]:
    assert isinstance(number, DeviationNumber)
    return number.error, number.shared.expand(number.shape)


def close(got: Tensor, *wanted: float) -> bool:
    return torch.allclose(got.flatten(), t(*wanted), rtol=1e-9, atol=0.0)


A, B = d(t(3.0), 0.5, 0.125), d(t(-5.0), 0.25, 0.0625)
ROWS, COLUMN = d(t(3.0, 7.0), 0.5, 0.125), d(torch.tensor(-5.0), 0.25, 0.0625)
"""Of another shape: its error is shared by all elements."""
WIDTH = math.sqrt(9 + 25)


def test_a_sum_of_two_adds_the_deviations() -> None:
    error, shared = parts(A + B)
    assert close(error, math.hypot(0.75, UNIFORM * WIDTH))
    assert close(shared, 0.1875)
    assert close(parts(A - B)[0], math.hypot(0.75, UNIFORM * 8))
    assert close(parts(A + 2.0)[0], math.hypot(0.5, UNIFORM * 5))
    assert close(parts(d(t(3.0)) + d(t(-5.0)))[0], UNIFORM * WIDTH)
    error, shared = parts(ROWS + COLUMN)
    assert close(shared, 0.4375, 0.4375)
    assert close(error, math.hypot(0.5, UNIFORM * WIDTH), math.hypot(0.5, UNIFORM * math.sqrt(74)))
    more = d(t(3.0), terms=3) + d(t(-5.0), terms=2)
    assert more.terms == 5
    assert close(more.error, UNIFORM * 2 * WIDTH)
    assert (A * B).terms == 1
    assert ((-more).terms, more.to(BF16).terms, more.mapped(torch.clone).terms) == (5, 5, 5)


def test_a_product_multiplies_the_deviations_by_the_other_factor() -> None:
    error, shared = parts(A * B)
    own = UNIFORM * 15 + TINY
    assert close(error, math.hypot(5 * 0.5 + 3 * 0.25, own))
    assert close(shared, 5 * 0.125 + 3 * 0.0625)
    assert close(parts(d(t(3.0)) * d(t(5.0)))[0], own)
    assert parts(d(t(0.0)) * d(t(5.0)))[0].tolist() == [0.0]
    assert close(parts(A * 4.0)[0], math.hypot(2.0, TINY))
    assert close(parts(d(t(3.0)) * 4.0)[0], TINY)
    error, shared = parts(ROWS * COLUMN)
    assert close(shared, 0.625 + 3 * 0.3125, 0.625 + 7 * 0.3125)
    assert close(error, math.hypot(2.5, own), math.hypot(2.5, UNIFORM * 35 + TINY))
    assert [close(one.value, wanted) for one, wanted in ((A + B, -2), (A - B, 8), (A * B, -15), (A / -7.0, -3 / 7))] == [
        True
    ] * 4
    error, shared = parts(A / -7.0)
    assert close(error, math.hypot(0.5 / 7, 2 * U * 3 / 7 + TINY))
    assert close(shared, 0.125 / 7)
    assert close(parts(d(t(3.0)) / 4.0)[0], TINY)


@pytest.mark.parametrize("kind", [DeviationNumber, TruncatingDeviationNumber])
def test_a_sum_of_many_adds_squares_and_what_is_shared(kind: type[DeviationNumber]) -> None:
    value, error, shared = t(1.0, -2.0, 4.0, 0.0), t(0.5, 0.25, 0.125, 0.0625), t(0.1, 0.2, 0.3, 0.0)
    found = kind(value, error, F32, shared=shared).sum(0)
    own = UNIFORM * math.sqrt(2 * (21 / 4 + 9))
    if kind is TruncatingDeviationNumber:
        own = U * math.sqrt(2 / 3 * (21 / 4 + 9) + (6 * 3) ** 2 * (21 / 4 + 9))
    own += 6 * 3 * TINY
    assert float(found.value) == 3
    assert close(found.error, math.hypot(math.sqrt(float(error.square().sum())), own))
    assert close(found.shared, math.hypot(math.sqrt(0.14), 0.1 - 0.2 + 0.3))
    assert close(kind(value, 0 * error, F32).sum(0).error, own)


def test_a_matrix_product_adds_squares_and_what_is_shared() -> None:
    a, b = t(1.0, -2.0)[None], t(3.0, 5.0)[:, None]
    found = d(a) @ d(b)
    squares = 9 + 100
    own = U * math.sqrt(((squares / 4 + 49) + squares) / 3) + 12 * TINY
    assert found.value.tolist() == [[-7.0]]
    assert close(found.error, own)
    assert not found.shared.any()
    e, f = t(0.5, 0.25)[None], t(0.125, 0.0625)[:, None]
    of_a = 0.25 * 9 + 0.0625 * 25 + (0.5 * 3 - 0.25 * 5) ** 2
    of_b = 0.125**2 + 4 * 0.0625**2 + (0.125 - 2 * 0.0625) ** 2
    assert close((d(a, e) @ d(b)).shared, math.sqrt(of_a))
    assert close((d(a) @ d(b, f)).shared, math.sqrt(of_b))
    both = d(a, e) @ d(b, f)
    assert close(both.shared, math.sqrt(of_a + of_b))
    assert close(both.error, own)
    assert close((d(a, 0.0, e) @ d(b)).shared, math.sqrt(of_a)), "shared by others, and by one"
    assert close((d(a, e * 0.6, e * 0.8) @ d(b)).shared, math.sqrt(of_a))
    first = t(0.5, 0.0)[None]
    for some in (d(a, first), d(a, 0.0, first)):
        assert close((some @ d(b)).shared, math.sqrt(2 * (0.5 * 3) ** 2)), "of one element alone"
    for some in (d(b, first.T), d(b, 0.0, first.T)):
        assert close((d(a) @ some).shared, math.sqrt(2 * 0.5**2))


def test_functions_multiply_by_their_slope() -> None:
    a = d(t(4.0), 0.5, 0.125)
    error, shared = parts(a.rsqrt())
    assert close(error, math.hypot(0.5 / 16, 9 * U * 0.5))
    assert close(shared, 0.125 / 16)
    value = 1 / (1 + math.exp(-4))
    slope = value * (1 - value)
    assert close(d(t(4.0)).sigmoid().error, U * (9 * value + 8 * slope) + 2.0**-126)
    assert close(d(t(-200.0)).sigmoid().error, 2.0**-126), "what is below may be flushed"
    assert close(a.sigmoid().value, value)
    assert close(a.rsqrt().value, 0.5)
    error, shared = parts(a.sigmoid())
    assert torch.allclose(error, t(math.hypot(0.5 * slope, U * (9 * value + 8 * slope))), rtol=1e-9)
    assert torch.allclose(shared, t(0.125 * slope), rtol=1e-9)


def test_a_conversion_rounds_to_a_narrower_dtype_only() -> None:
    narrow = A.to(BF16)
    assert close(narrow.error, math.hypot(0.5, 3 / math.sqrt(3) / 256 + 2.0**-134))
    assert close(narrow.shared.expand(1), 0.125)
    assert (narrow.dtype, A.to(F64).dtype) == (BF16, F64)
    assert A.to(F64).error.tolist() == A.to(F32).error.tolist() == [0.5]
    stored = DeviationNumber.stored(t(1.0, 1 / 3), F16, with_quantum=True)
    assert (stored.value.tolist(), stored.error.tolist()) == ([1.0, float(torch.tensor(1 / 3, dtype=F16))], [0.0, 0.0])


def test_moves_keep_both_parts() -> None:
    number = d(t(3.0, 7.0), t(0.5, 0.25), t(0.125, 0.0625), terms=3)
    moved = number[1:]
    assert (moved.value.tolist(), moved.error.tolist()) == ([7.0], [0.25])
    assert moved.shared.tolist() == [0.0625]  # type: ignore[attr-defined]
    assert (-number).shared.tolist() == [0.125, 0.0625]
    joined = DeviationNumber.joined([number, d(t(1.0), 0.5, 0.25)], torch.cat)
    assert joined.shared.tolist() == [0.125, 0.0625, 0.25]
    assert (joined.error.tolist(), joined.terms) == ([0.5, 0.25, 0.5], 3)
    assert close(number.deviation, math.hypot(0.5, 0.125), math.hypot(0.25, 0.0625))


def test_one_term_is_not_rounded_in_a_sum() -> None:
    def of(count: float, products: float = 0.0, *, truncates: bool = False) -> float:
        arguments = t(3.0), t(8.0), t(count), F32
        return float(deviation_of_sum(*arguments, products=products, truncates=truncates))

    assert math.isclose(of(1), 6 * TINY)
    assert of(0) == 0.0
    assert math.isclose(of(3), UNIFORM * math.sqrt(2 * 11) + 18 * TINY)
    assert math.isclose(of(3, 5.0), UNIFORM * math.sqrt(2 * 11 + 5) + 18 * TINY)
    assert math.isclose(of(3, truncates=True), U * math.sqrt(2 * 11 / 3 + 324 * 11) + 18 * TINY)


def test_what_may_have_overflowed_in_a_narrow_dtype_is_in_doubt() -> None:
    number = d(t(300.0, 17000.0), 0.5, dtype=F16)  # of 17,000 nothing is promised
    assert narrowed(number, F32).error.isinf().tolist() == [False, True]
    assert not narrowed(DeviationNumber.exact(t(17000.0), F16), F32).error.any(), "it was given"
