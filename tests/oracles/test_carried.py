"""What plain code may do with tensors that carry numbers: write into its own, and nothing that no rule reads."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds.carried import Carried, UnreadableReference
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import read

X = torch.tensor([0.3, -0.7, 1.9, 2.3])
OUTSIDE = torch.zeros(4)


def output(function: Callable[..., Tensor], *given: Tensor) -> ErrorNumber:
    number = read(function, given or [X], {}).outputs[0]
    assert isinstance(number, ErrorNumber)
    return number


def number(carried: Any) -> Any:
    return carried.number


def same(one: ErrorNumber, other: ErrorNumber) -> bool:
    return torch.equal(one.value, other.value) and torch.equal(one.error, other.error) and one.dtype == other.dtype


@pytest.mark.parametrize(
    ("writing", "plain"),
    [
        (lambda x: (x * 3).add_(1.0), lambda x: x * 3 + 1.0),
        (lambda x: (x * 3).mul_(x), lambda x: x * 3 * x),
        (lambda x: (x * 3).sub_(x, alpha=2), lambda x: torch.sub(x * 3, x, alpha=2)),
        (lambda x: (x * 3).exp_(), lambda x: (x * 3).exp()),
        (lambda x: (x * 3).clamp_(min=0.5), lambda x: (x * 3).clamp(min=0.5)),
    ],
)
def test_a_tensor_of_its_own_is_written_as_a_new_one_would_be(
    writing: Callable[..., Tensor], plain: Callable[..., Tensor]
) -> None:
    assert same(output(writing), output(plain))


def test_what_is_written_into_a_narrow_tensor_is_rounded_to_it() -> None:
    narrow = X.bfloat16()
    found = output(lambda x, w: (x * 3).add_(w), narrow, X)
    assert found.dtype == torch.bfloat16
    assert same(found, output(lambda x, w: (x * 3 + w).to(torch.bfloat16), narrow, X))


REFUSED: dict[str, Callable[..., Tensor]] = {
    "a tensor from outside": lambda x: OUTSIDE.mul_(x * 3),
    "a tensor that is given for the result": lambda x: torch.add(x, 1.0, out=torch.zeros_like(x)),
}


def reshaped_under_a_view(x: Tensor) -> Tensor:
    """Changes the shape of a tensor of which there is a view."""
    y = (x * 3).reshape(1, 4)
    rest = y[:, 1:]
    y.squeeze_(0)
    return rest


@pytest.mark.parametrize("name", [*REFUSED, "a tensor with a view"])
def test_what_others_may_see_is_not_written(name: str) -> None:
    with pytest.raises(UnreadableReference, match="it writes into a tensor; return a new tensor instead"):
        output(REFUSED.get(name, reshaped_under_a_view))


def test_a_rule_that_does_not_apply_says_why() -> None:
    def bits(x: Tensor) -> Tensor:
        return (x * 1.1).view(torch.int32)

    line = bits.__code__.co_firstlineno + 1
    with pytest.raises(UnreadableReference) as raised:
        output(bits)
    said = str(raised.value)
    assert said.startswith("aten.view.dtype")
    assert f"test_carried.py:{line}: no rule derives its error bound; write it with operations that" in said
    assert said.endswith("(the bits of numbers that have an error as another dtype)")


def test_a_quotient_is_rounded_down_or_toward_zero() -> None:
    x: Any = Carried(ErrorNumber(X.double(), torch.tensor([0.0, 0.125, 0.0, 0.25]).double(), torch.float32))
    for mode, wanted, errors in (("floor", [0, -2, 3, 4], [0, 0, 0, 1]), ("trunc", [0, -1, 3, 4], [0, 0, 0, 1])):
        found = x.div(0.5, rounding_mode=mode).number
        assert (found.value.tolist(), found.error.tolist()) == (wanted, errors), mode
    assert (x / 0.5).number.value.tolist() == (X.double() * 2).tolist()


def test_a_new_tensor_is_exact_and_where_it_is_asked_for() -> None:
    x: Any = Carried(ErrorNumber(X.double(), torch.full((4,), 0.5).double(), torch.float32))
    created: list[tuple[Any, float]] = [
        *((torch.full_like(x, 3.0), 3.0), (torch.ones_like(x), 1.0), (torch.zeros_like(x), 0.0)),
        *((x.new_full((2, 3), 3.0), 3.0), (x.new_ones(2), 1.0), (x.new_zeros(2, dtype=torch.float16), 0.0)),
    ]
    for one, value in created:
        assert one.number.value.unique().tolist() == [value]
        assert not one.number.error.any()
        assert one.number.dtype == one.dtype
    assert [one.shape for one, _ in created] == [(4,), (4,), (4,), (2, 3), (2,), (2,)]
    assert [one.dtype for one, _ in created[-2:]] == [torch.float32, torch.float16]
    whole = torch.ones_like(x, dtype=torch.int64, device="meta")
    assert (whole.dtype, whole.device.type) == (torch.int64, "meta")
    unsure = x > 0.5
    assert number(torch.ones_like(unsure)).value.tolist() == [True] * 4
    assert torch.zeros_like(unsure, dtype=torch.float32).tolist() == [0.0] * 4


def test_lists_are_read_and_returned() -> None:
    pieces = output(lambda x: torch.cat(list(reversed(x.split([1, 3])))))
    assert pieces.value.tolist() == X.double()[[1, 2, 3, 0]].tolist()
    assert not pieces.error.any()
    several = read(lambda x: x.chunk(2), [X], {}).outputs
    assert [one.value.tolist() for one in several] == [X[:2].tolist(), X[2:].tolist()]


def test_what_has_no_gradient_has_none() -> None:
    index = torch.tensor([1, 0, 2, 3])
    dy = torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = read(lambda x, at, w: x[at] * w, [X, index, X], {}, [dy], constant=[2])
    assert [one is None for one in found.gradients] == [False, True, True]
    assert found.gradients[0] is not None
    assert found.gradients[0].value.tolist() == (dy.double() * X.double())[[1, 0, 2, 3]].tolist()
    assert read(lambda x, w: x * 2, [X, X], {}, [dy]).gradients[1] is None, "it takes no part"
    assert read(lambda x: x * 2, [X], {}).gradients == (None,)
    two = read(lambda x: (x * 2, x * 4), [X], {}, [None, dy]).gradients[0]
    assert two is not None
    assert two.value.tolist() == (4 * dy).tolist(), "an output without an upstream gradient adds nothing"
    assert read(lambda x, absent: x * 2 if absent is None else x, [X, None], {}).outputs[0].value.tolist() == [
        *(2 * X.double()).tolist()
    ]


EMPTY: Mapping[str, Callable[[Any], Any]] = {
    **{name: partial(getattr(torch, name), dim=-1) for name in ("sum", "mean", "var", "softmax", "log_softmax")},
    **{name: partial(getattr(torch, name), dim=-1) for name in ("logsumexp", "cumsum", "amax", "amin")},
    **{name: getattr(torch, name) for name in ("exp", "log", "rsqrt", "sigmoid", "sqrt", "sign", "isnan")},
    **{"a * b": lambda a: a * a, "a / b": lambda a: a / a, "a + 1": lambda a: a + 1, "a**1.5": lambda a: a**1.5},
    **{"a > b": lambda a: a > a.flip(0), "matmul": lambda a: a @ torch.ones(3, 2)},
    **{"layer_norm": lambda a: torch.nn.functional.layer_norm(a, (3,)), "where": lambda a: torch.where(a > 0, a, 0.0)},
}


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize("name", EMPTY)
def test_a_tensor_without_elements_is_read(name: str) -> None:
    wanted = EMPTY[name](torch.zeros(0, 3))
    found = EMPTY[name](Carried(ErrorNumber.exact(torch.zeros(0, 3).double(), torch.float32)))
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
