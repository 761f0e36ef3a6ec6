"""Bounds of sums and linear recurrences that a reference computes in a loop: right in any order, and no wider than that."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import Reading, read
from mhc.oracles.bounds.rounding import unit_roundoff

U = unit_roundoff(torch.float32)


def recurrence(a: Tensor, x: Tensor) -> Tensor:
    h, states = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        h = a[t] * h + x[t]
        states.append(h)
    return torch.stack(states)


def from_first(a: Tensor, x: Tensor) -> Tensor:
    """The same, whose first state is the first input."""
    states = [x[0]]
    for t in range(1, len(x)):
        states.append(x[t] + states[-1] * a[t])
    return torch.stack(states)


def in_place(a: Tensor, x: Tensor) -> Tensor:
    h, states = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        h.mul_(a[t]).add_(x[t])
        states.append(h.clone())
    return torch.stack(states)


def scan(a: Tensor, x: Tensor) -> Tensor:
    """The same states by an associative scan."""
    step = 1
    while step < len(x):
        x = torch.cat([x[:step], a[step:] * x[:-step] + x[step:]])
        a = torch.cat([a[:step], a[step:] * a[:-step]])
        step *= 2
    return x


def attention(q: Tensor, k: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """Linear attention with a decay, token by token."""
    state, rows = torch.zeros(q.shape[1], v.shape[1]), []
    for t in range(len(q)):
        state = a[t] * state + k[t, :, None] * v[t]
        rows.append(q[t] @ state)
    return torch.stack(rows)


def attention_at_once(q: Tensor, k: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """The same with all tokens in one chunk."""
    decay = torch.stack([torch.stack([a[j + 1 : i + 1].prod() * (j <= i) for j in range(len(q))]) for i in range(len(q))])
    return (q @ k.mT * decay) @ v


def cancelling(tokens: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Decays, and inputs whose states are far below their terms."""
    generator = torch.Generator().manual_seed(seed)
    a, x = torch.rand(tokens, 500, generator=generator), torch.randn(tokens, 500, generator=generator)
    for t in range(2, tokens, 3):
        x[t] = -a[t] * recurrence(a[:t], x[:t])[-1] * (1 + 1e-3 * x[t])
    return a, x


def number(reading: Reading) -> ErrorNumber:
    (output,) = reading.outputs
    assert isinstance(output, ErrorNumber)
    return output


def ratio(got: Tensor, wanted: ErrorNumber) -> float:
    return float(((got.double() - wanted.value).abs() / wanted.error).nan_to_num(0).max())


def attention_by_sums(q: Tensor, k: Tensor, v: Tensor, a: Tensor) -> Tensor:
    """Linear attention with a decay, whose products with the state are sums of products."""
    state, rows = torch.zeros(q.shape[1], v.shape[1]), []
    for t in range(len(q)):
        state = a[t] * state + k[t, :, None] * v[t]
        rows.append((q[t, :, None] * state).sum(0))
    return torch.stack(rows)


@pytest.mark.parametrize("function", [recurrence, from_first, in_place])
@pytest.mark.parametrize("tokens", [3, 5, 17, 64])
def test_a_recurrence_may_be_computed_as_a_scan(function: Callable[..., Tensor], tokens: int) -> None:
    a, x = cancelling(tokens, seed=tokens)
    bound = number(read(function, [a, x], {}))
    assert 0.1 < ratio(scan(a, x), bound) <= 1
    halves = torch.zeros(500)
    rounded = torch.stack([halves := (a[t] * halves + x[t]).half().float() for t in range(tokens)])
    assert ratio(rounded, bound) > 100


def test_so_may_its_gradients() -> None:
    a, x = cancelling(17, seed=1)
    upstream = torch.randn(17, 500, generator=torch.Generator().manual_seed(2))
    _, dx = read(recurrence, [a, x], {}, [upstream]).gradients
    assert dx is not None
    reverse = torch.cat([torch.zeros(1, 500), a.flip(0)[:-1]])
    assert ratio(scan(reverse, upstream.flip(0)).flip(0), dx) <= 1


@pytest.mark.parametrize("function", [attention, attention_by_sums])
def test_a_state_that_is_multiplied_may_be_summed_over_tokens(function: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(48, width, generator=generator) for width in (2, 2, 200))
    a = torch.rand(48, generator=generator)
    for t in range(1, 48, 2):
        k[t], v[t] = k[t - 1], -a[t] * v[t - 1] * (1 + 1e-6 * v[t])
    bound = number(read(function, [q, k, v, a], {}))
    assert ratio(function(q, k, v, a), bound) <= 1
    assert 0.1 < ratio(attention_at_once(q, k, v, a), bound) <= 1


def test_terms_that_have_decayed_do_not_count() -> None:
    x = torch.randn(400, 200, generator=torch.Generator().manual_seed(4))
    bound = number(read(recurrence, [torch.full_like(x, 0.5), x], {}))
    assert float((bound.error[-1] / (U * x.abs().max())).max()) < 60


def test_products_of_factors_may_vanish_beside_infinity_or_overflow() -> None:
    a, x = torch.full((40, 3), 1e-3), torch.ones(40, 3)
    x[20, 0], a[:, 1] = torch.inf, 1e3
    x[:, 1] = 1e-30
    bound = number(read(recurrence, [a, x], {}))
    assert scan(a, x)[-1, :2].isfinite().logical_not().all()
    assert bool(bound.error[-1, :2].isinf().all())
    assert bool(bound.error[:20, 0].isfinite().all())
    assert bool(bound.error[:, 2].isfinite().all())


@pytest.mark.parametrize(
    "function",
    [
        lambda s, c: s * (1 - s),
        lambda s, c: s * (1 - s) + c,
        lambda s, c: (s - c) * s + c,
        lambda s, c: s + c * (s - s.mean()),
    ],
)
def test_no_other_product_of_a_sum_is_formed_term_by_term(function: Callable[..., Tensor]) -> None:
    s, c = torch.tensor([1 - 2.0**-20, 1.0]), torch.tensor([2.0**-30, 2.0**-20])
    bound = number(read(function, [s, c], {}))
    assert bound.state is None or not bound.state.repeats


def test_the_bound_of_a_sum_in_a_loop_grows_as_that_of_a_sum() -> None:
    def loop(x: Tensor) -> Tensor:
        total = x[0]
        for k in range(1, len(x)):
            total = total + x[k]
        return total

    x = torch.randn(256, 100, generator=torch.Generator().manual_seed(5))
    in_loop, at_once = (number(read(each, [x], {})) for each in (loop, lambda x: x.sum(0)))
    assert bool((in_loop.error < at_once.error).all())
    assert ratio(x.flip(0).cumsum(0)[-1], in_loop) <= 1


def test_gradients_of_rows_one_by_one_are_those_of_all_at_once() -> None:
    generator = torch.Generator().manual_seed(6)
    x, upstream = torch.randn(5, 7, generator=generator), torch.randn(5, 7, generator=generator)

    def gradient(function: Callable[[Tensor], Tensor]) -> ErrorNumber:
        (found,) = read(function, [x], {}, [upstream]).gradients
        assert found is not None
        return found

    at_once = gradient(lambda x: x.exp() * 0.3)
    for by_rows in (
        lambda x: torch.stack([x[t].exp() * 0.3 for t in range(5)]),
        lambda x: torch.cat([x[:2].exp() * 0.3, x[2:].exp() * 0.3]),
        lambda x: torch.stack([x[:, at].exp() * 0.3 for at in range(7)], 1),
    ):
        assert torch.equal(gradient(by_rows).value, at_once.value)
        assert torch.equal(gradient(by_rows).error, at_once.error)
    twice = gradient(lambda x: torch.stack([x[t].exp() * 0.3 for t in (0, 1, 1, 1, 4)]))
    assert bool((twice.value[1] != at_once.value[1]).all())
    assert not twice.value[2:4].any()
    assert not twice.error[2:4].any()
    assert bool((twice.error[1] > 2 * U * twice.value[1].abs()).all())
