"""Numbers with a declared precision of the factors of matrix products, and terms that repeat, worked out by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds import elementary, repeated_terms
from mhc.oracles.bounds.error_number import TF32, ErrorNumber
from mhc.oracles.bounds.quantum import quantum_of
from mhc.oracles.bounds.reading import with_factors
from mhc.oracles.bounds.rounding import ceiling

U = 2.0**-24
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def factor(value: Any, error: Any = 0.0, *, precision: str, dtype: torch.dtype = F32, quantum: float = 0.0) -> ErrorNumber:
    value = torch.as_tensor(value, dtype=torch.float64)
    error = torch.as_tensor(error, dtype=torch.float64).expand(value.shape)
    return with_factors(ErrorNumber, precision)(value, error, dtype, quantum)


def product_error(value: Any, error: Any = 0.0, **options: Any) -> Tensor:
    """The error that a product with 1 has beside its own rounding."""
    one = factor([[1.0]], precision=options["precision"], dtype=options.get("dtype", F32))
    found = factor([[value]], error, **options) @ one
    own = 6 * U
    beside: Tensor = (found.error - own * abs(value)) / (1 + own)
    return beside


def close(got: Tensor, wanted: float) -> bool:
    return torch.allclose(got, torch.full_like(got, wanted), rtol=1e-7, atol=1e-40)


def test_a_factor_in_tf32_is_cut_off_after_11_digits() -> None:
    assert TF32 == 2.0**-10
    for digit in (11, 12, 22, 23):
        value = 1 + 2.0**-digit
        assert close(product_error(value, precision="tf32"), TF32 * value), digit
    for digit in (1, 9, 10):
        assert close(product_error(1 + 2.0**-digit, precision="tf32"), 0.0), "it has these digits"
    small = 2.0**-130 * (1 + 2.0**-15)
    found = float(product_error(small, precision="tf32")) * 2.0**136
    assert 0.99 < found < 1.01, "a subnormal number has fewer digits"
    assert close(product_error(-1.0, 0.25, precision="tf32"), 0.25 + TF32 * 1.25), "what is held may have more digits"
    assert close(product_error(1 + 2.0**-12, precision="float32"), 0.0)


@pytest.mark.parametrize(("precision", "digits", "lost"), [("bfloat16", 8, 2.0**-134), ("float16", 11, 2.0**-25)])
def test_a_factor_in_a_narrow_dtype_is_rounded_to_it(precision: str, digits: int, lost: float) -> None:
    one = 2.0**-digits + lost  # of the other factor, which is 1
    for error in (0.0, 0.5):
        own = error + (3 + error) * 2.0**-digits + lost
        assert close(product_error(3.0, error, precision=precision), own * (1 + one) + 3 * one)
    narrow = getattr(torch, precision)
    for share, beyond in ((0.9, False), (1.01, True)):
        value = ceiling(narrow) * share
        found = factor([[value]], precision=precision) @ factor([[2.0**-20]], precision=precision)
        assert bool(found.error.isinf().all()) is beyond, share
    rows = factor([[ceiling(narrow) * 0.9], [ceiling(narrow) * 1.01]], precision=precision)
    assert (rows @ factor([[2.0**-20]], precision=precision)).error.isinf().tolist() == [[False], [True]]


def test_factors_of_another_dtype_are_as_they_are() -> None:
    for precision in ("tf32", "float16"):
        one = factor([[1.0]], precision=precision, dtype=BF16)
        third = factor([[1 / 3]], precision=precision, dtype=BF16)
        plain = factor([[1 / 3]], precision="float32", dtype=BF16) @ factor([[1.0]], precision="float32", dtype=BF16)
        assert torch.equal((third @ one).error, plain.error)


def test_what_a_narrow_dtype_holds_is_exact_where_a_quantum_is_known() -> None:
    for value, exact in ((2.5, True), (257.0, False)):
        row = torch.tensor([[value]], dtype=torch.float64)
        one = factor(row, precision="bfloat16", quantum=quantum_of(row))
        found = one @ factor([[1.0]], precision="bfloat16", quantum=1.0)
        assert bool((found.error == 0).all()) is exact
        assert found.quantum == (quantum_of(row) if exact else 0.0)


@pytest.mark.parametrize("at", [0, 1, 100, 101])
def test_a_row_that_repeats_is_known_by_the_first_two_or_the_middle_two(at: int) -> None:
    rows = torch.arange(200.0).reshape(-1, 1).repeat(1, 3) + 1
    assert repeated_terms.repeated(rows, 0) is None
    repeats = [at, *range(110, 190)]
    rows[repeats] = 0.5
    found = repeated_terms.repeated(rows, 0)
    assert found is not None
    assert found.tolist() == [[81.0] * 3]
    rows[at] = 999.0
    assert repeated_terms.repeated(rows, 0) is None, "other rows are not looked for"


def test_more_than_64_repeats_count() -> None:
    rows = torch.arange(200.0).reshape(-1, 1).repeat(1, 3) + 1
    rows[:64] = 0.5
    assert repeated_terms.repeated(rows, 0) is None
    rows[150] = 0.5
    found = repeated_terms.repeated(rows, 0)
    assert found is not None
    assert found.tolist() == [[65.0] * 3]


def test_a_row_repeats_where_more_than_half_of_its_nonzero_elements_do() -> None:
    rows = torch.arange(200.0).reshape(-1, 1).repeat(1, 4) + 1
    rows[:80] = torch.tensor([0.5, 0.25, 0.75, 0.0])
    rows[1:80, 1] = 1000 + torch.arange(79.0)
    found = repeated_terms.repeated(rows, 0)
    assert found is not None, "two of three, as the fourth is zero"
    assert found.tolist() == [[80.0, 1.0, 80.0, 1.0]]
    rows[1:80, 2] = 2000 + torch.arange(79.0)
    assert repeated_terms.repeated(rows, 0) is None, "one of three"


def test_a_sum_of_more_than_36_terms_may_have_repeats() -> None:
    for length in (36, 37):
        alike = torch.full((length,), 0.1, dtype=torch.float64)
        found = repeated_terms.of_sum(alike, 0, F32)
        assert float(torch.as_tensor(found)) == pytest.approx(min(length, 6 * math.sqrt(length) * math.sqrt(length)))


def test_a_flag_of_finite_numbers_is_not_set_where_one_is_not() -> None:
    """A sum's magnitudes leave out what is not finite, so that they do not show it."""
    wild = ErrorNumber.exact(torch.tensor([math.inf, 1.0, math.nan], dtype=torch.float64), F32)
    tame = ErrorNumber.exact(torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64), F32)
    into = torch.tensor([0, 0, 1])

    def gathered(number: ErrorNumber) -> ErrorNumber:
        return elementary.gathered_sum(number, lambda tensor: torch.zeros(2).double().index_add(0, into, tensor))

    functions: tuple[Callable[[ErrorNumber], ErrorNumber], ...] = (
        lambda a: elementary.cumulative(a, 0),
        gathered,
        lambda a: elementary.softmax(a, 0),
        lambda a: elementary.log_softmax(a, 0),
        lambda a: elementary.logsumexp(a, 0),
        lambda a: a.sum(0).unsqueeze(0),
        lambda a: a.unsqueeze(0) @ a.unsqueeze(1),
        elementary.log,
        elementary.reciprocal,
    )
    for function in functions:
        found = function(wild)
        assert not (found.finite and not bool(found.value.isfinite().all()))
        assert bool((found.error[~found.value.isfinite()] == 0).all()), "of what was given, it is certain"
        assert bool((found * 1.5).error[~found.value.isfinite()].eq(0).all())
        assert bool(function(tame).error.isfinite().all())
    nothing, everything = torch.zeros(3).double(), torch.full((3,), math.inf).double()
    assert [one.lost(amount).finite for one, amount in ((tame, nothing), (wild, nothing), (tame, everything))] == [
        *(True, False, False)
    ]
    cumulated, added = elementary.cumulative(tame, 0), gathered(tame)
    assert cumulated.finite
    assert added.finite
    assert torch.equal(cumulated.error, 3 * U * torch.tensor([2.0, 3.0, 6.0], dtype=torch.float64))
    assert float(added.error[0]) == pytest.approx(2 * U * 3.0)
    assert float(added.error[1]) < 1e-40, "one term is not rounded"
    many = ErrorNumber.exact(torch.ones(49, dtype=torch.float64), F32)
    whole = elementary.gathered_sum(many, lambda tensor: tensor.sum().reshape(1))
    assert float(whole.error) == pytest.approx(6 * 7 * U * 49)
    assert float(elementary.cumulative(many, 0).error[-1]) == pytest.approx(6 * 7 * U * 49)
