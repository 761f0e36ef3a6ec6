"""A reading that is repeated from its tape is the reading of the function, bit for bit."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import Reading, RepeatedReader, read
from mhc.oracles.bounds.sampled_number import Divisors, SampledNumber, UnmovedNumber
from tests.oracles.test_aten_rules import CASES, EXAMPLES, parts
from tests.oracles.test_reading import upstream_of
from tests.support.references import REFERENCES

X = torch.linspace(-2.0, 3.0, 24).reshape(4, 6)
NO_GRADIENT = {"angle", "copy"}
"""Operations whose gradient cannot be read."""


def moved(reader: Callable[[type[ErrorNumber]], Reading]) -> list[Reading]:
    """Readings as `sampled` makes them."""
    divisors, found = Divisors(), []
    for at, base in enumerate((SampledNumber, UnmovedNumber)):
        divisors.start()
        own = {"operations": itertools.count(at << 32), "alike": at == 0, "divisors": divisors}
        found.append(reader(type("Run", (base,), {"__slots__": (), **own})))
    return found


def held(one: Any) -> list[Tensor]:
    """What an output or gradient holds."""
    if isinstance(one, ErrorNumber):
        return [one.value, one.error]
    return [one] if isinstance(one, Tensor) else []


def compare(function: Callable[..., Any], arguments: Sequence[Any], upstream: Sequence[Any] = ()) -> RepeatedReader:
    """Compare what is repeated with what is read, and return the reader."""
    repeated = RepeatedReader(function, arguments, {}, upstream)
    if repeated(ErrorNumber).decided:
        return repeated
    again, anew = moved(repeated), moved(lambda number: read(function, arguments, {}, upstream, number))
    for one, other in zip(again, anew, strict=True):
        assert (one.decided, len(one.outputs)) == (other.decided, len(other.outputs))
        pairs = zip([*one.outputs, *one.gradients], [*other.outputs, *other.gradients], strict=True)
        assert all(
            torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
            for mine, theirs in pairs
            for a, b in zip(held(mine), held(theirs), strict=True)
        )
    return repeated


def example(name: str, at: int) -> tuple[Callable[..., Any], list[Tensor], Sequence[Any]]:
    """An operation with operands, and gradients of its results where it has gradients."""
    function, draws = EXAMPLES[name][at]
    generator = torch.Generator().manual_seed(5)
    values = [draw(generator).float() for draw in draws]
    results = parts(function(*(one.clone().requires_grad_() for one in values)))
    upstream = [torch.full_like(one, 0.7) if one.requires_grad and not one.is_complex() else None for one in results]
    backward = name not in NO_GRADIENT and any(one is not None for one in upstream)
    return function, values, upstream if backward else ()


@pytest.mark.parametrize(("name", "at"), CASES)
def test_an_operation_is_repeated_as_it_was_read(name: str, at: int) -> None:
    compare(*example(name, at))


def compare_together(function: Callable[..., Any], arguments: Sequence[Any], upstream: Sequence[Any]) -> None:
    """Compare runs together with the same runs one by one."""
    reader = RepeatedReader(function, arguments, {}, upstream)
    if reader(ErrorNumber).decided or not reader._recorded.repeatable:  # type: ignore[union-attr]
        return

    def kind(at: int, divisors: Divisors) -> type[SampledNumber]:
        divisors.start()
        own = {"operations": itertools.count(at << 32), "alike": at % 2 == 0, "divisors": divisors, "in_parts": True}
        return type("Run", (SampledNumber,), {"__slots__": (), **own})

    alone, batch = Divisors(), Divisors()
    one_by_one = [reader(kind(at, alone)) for at in range(3)]
    found = reader.together(kind(0, batch), range(3))
    assert found is not None
    pairs = zip([*found.outputs, *found.gradients], *([*run.outputs, *run.gradients] for run in one_by_one), strict=True)
    for together, *runs in pairs:
        for stacked, each in zip(held(together), zip(*map(held, runs), strict=True), strict=True):
            assert torch.allclose(stacked, torch.stack(each), rtol=1e-11, atol=1e-12, equal_nan=True)
    assert alone.apart == batch.apart
    for place, (total, squares, number) in alone._sums.items():
        theirs = batch._sums[place]
        assert number == theirs[2]
        assert torch.allclose(total, theirs[0], rtol=1e-9, equal_nan=True)
        assert torch.allclose(squares, theirs[1], rtol=1e-9, equal_nan=True)


@pytest.mark.parametrize(("name", "at"), CASES)
def test_an_operation_does_the_same_in_runs_together(name: str, at: int) -> None:
    function, values, upstream = example(name, at)
    if all(one.numel() for one in values):
        compare_together(function, values, upstream)


@pytest.mark.parametrize("name", REFERENCES)
def test_a_function_does_the_same_in_runs_together(name: str) -> None:
    function, draw = REFERENCES[name].function, REFERENCES[name].arguments
    arguments = draw(torch.Generator().manual_seed(3), torch.float32)
    compare_together(function, arguments, [upstream_of(function, arguments, torch.Generator().manual_seed(4))])


def test_views_and_writes_are_repeated() -> None:
    def scan(x: Tensor) -> Tensor:
        result, state = torch.zeros_like(x), torch.zeros(6)
        for row in range(4):
            state = 0.9 * state + x[row]
            result[row] = state
        result[:, 1:3].mul_(2.0)
        return result.t().contiguous()

    repeated = compare(scan, [X], [torch.ones(6, 4)])
    assert repeated._recorded is not None
    assert repeated._recorded.repeatable


def test_integers_and_constants_are_repeated() -> None:
    def rotate(x: Tensor) -> Tensor:
        angle = torch.arange(6) / 7
        return x * angle.cos() + x.roll(1, -1) * torch.full((6,), 0.3)

    repeated = compare(rotate, [X], [torch.ones(4, 6)])
    assert repeated._recorded is not None
    assert repeated._recorded.repeatable


def test_a_plain_tensor_that_is_written_into_is_not_repeated() -> None:
    def gather(x: Tensor) -> Tensor:
        index = torch.zeros(2, dtype=torch.long)
        first = x[index]
        index += 1
        return first - x[index]

    repeated = compare(gather, [X])
    assert repeated._recorded is not None
    assert not repeated._recorded.repeatable
