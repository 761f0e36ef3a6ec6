"""Readings of functions that write into parts of their own tensors: the part and the whole both show what is there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds.deviation_number import DeviationNumber
from mhc.oracles.bounds.reading import read

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(3))
W = torch.randn(4, 2, generator=torch.Generator().manual_seed(4))


def several_views(x: Tensor) -> tuple[Tensor, ...]:
    """Writes into views of views, and through another view of the same elements."""
    y = x * 3
    rest = y[1:]
    few = rest.view(-1)[2:7]
    few.mul_(2)
    y[0, 0] = 7.0
    rest[0].add_(y[0])
    y.t()[1] = y.t()[2] + 1
    return y * 1, rest * 1, few * 1


def by_column(x: Tensor, w: Tensor) -> Tensor:
    out = x.new_zeros(3, 4, 2)
    for column in range(4):
        out[:, column] = x[:, column : column + 1] @ w[column : column + 1]
    out[1:, ::2] *= 0.5
    return out


def recurrent(x: Tensor) -> tuple[Tensor, Tensor]:
    state, states = torch.zeros(3), torch.empty(3, 4)
    for step in range(4):
        state = state * 0.5 + x[:, step]
        states[:, step] = state
    return states, state


def into_bfloat16(x: Tensor) -> Tensor:
    y = torch.zeros(3, 4, dtype=torch.bfloat16)
    y[:2] = x[:2] * 1.1
    y[2, 1:3] += x[2, 1:3]
    return y


def from_itself(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1:] = y[:, :-1] + y[:, 1:]
    y[0] = y[1]
    return y


def where_a_mask_says(x: Tensor) -> Tensor:
    y = x * 1
    y[x > 0] = 0.5
    y[torch.tensor([0, 2])] += 1.0
    y[..., None][0, 0, 0] = 3.0
    return y


def into_booleans(x: Tensor) -> Tensor:
    kept = x * 1.5 > 0.0
    kept[:, 1] = True
    kept[0] = ~kept[1]
    return torch.where(kept, x, -x)


def a_diagonal(x: Tensor) -> Tensor:
    y = x[:, :3] * 1.1
    y.diagonal().add_(5.0)
    return y


def of_other_strides(x: Tensor) -> Tensor:
    y = x.t() * 2
    y[1:3, :2].mul_(1.1)
    y.t().reshape(-1)[0] = 9.0
    return y.pow_(2)


def strided(x: Tensor) -> Tensor:
    y = x * 2
    y.as_strided((2, 2), (4, 1), 1).zero_()
    return y + x.detach().clone().fill_(2.0)


READ = [several_views, recurrent, into_bfloat16, from_itself, where_a_mask_says, into_booleans, a_diagonal]
READ += [of_other_strides, strided]


@pytest.mark.parametrize("function", [*READ, by_column], ids=lambda one: one.__name__)
def test_outputs_and_gradients_are_those_of_pytorch(function: Callable[..., Any]) -> None:
    given = [X, W] if function is by_column else [X]
    leaves = [one.clone().requires_grad_() for one in given]
    results = function(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    upstream = [torch.linspace(-1, 2, one.numel()).reshape(one.shape).to(one.dtype) for one in results]
    found = read(function, given, {}, upstream)
    pairs = [*zip(found.outputs, results, strict=True)]
    pairs += zip(found.gradients, torch.autograd.grad(results, leaves, upstream), strict=True)
    for number, tensor in pairs:
        assert (number.dtype, number.shape) == (tensor.dtype, tensor.shape)
        assert bool(((number.value - tensor.detach().double()).abs() <= number.error).all())
        narrow = tensor.dtype == torch.bfloat16 or function is into_bfloat16
        assert bool((number.error <= (0.01 if narrow else 1e-6) * (1 + 8 * number.value.abs().max())).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loop_over_rows_has_the_gradients_of_the_whole(dtype: torch.dtype) -> None:
    """Autograd adds up as many gradients as there are rows; all but one are 0 in each element."""

    def looped(x: Tensor, w: Tensor) -> Tensor:
        y = torch.empty_like(x)
        for row in range(len(x)):
            y[row] = x[row] * w[row]
        return y

    x, w = (torch.randn(40, 3, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (1, 2))
    rows, whole = (read(one, [x, w], {}, [torch.ones(40, 3, dtype=dtype)]) for one in (looped, torch.mul))
    for one, other in zip((*rows.outputs, *rows.gradients), (*whole.outputs, *whole.gradients), strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one.value, other.value)
        assert bool((one.error <= other.error * 1.01 + 1e-44).all())


def test_both_parts_of_a_standard_deviation_are_written() -> None:
    def written(x: Tensor) -> Tensor:
        y = torch.zeros(2, 4)
        y[0] = x[0] * 1.1
        y[1] = (x[1:] * x[0, :1]).sum(0)
        return y

    def stacked(x: Tensor) -> Tensor:
        return torch.stack((x[0] * 1.1, (x[1:] * x[0, :1]).sum(0)))

    one, other = (read(each, [X], {}, number=DeviationNumber).outputs[0] for each in (written, stacked))
    for part in ("value", "error", "shared"):
        assert torch.equal(getattr(one, part).expand(2, 4), getattr(other, part).expand(2, 4)), part
