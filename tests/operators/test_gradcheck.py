"""The golden forward and the manual backward, proved by finite differences in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from mhc import Case, Implementation, mhc_forward_pre, mhc_pre, mhc_pre_backward_manual
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from tests.support.helpers import ON_CPU, edited_formula, leaves, observed, scaled_case

# Large enough that a term forgotten with them shows in a finite difference.
SCALARS: Any = {"norm_eps": 1e-3, "hc_eps": 0.125}

WRONG_BACKWARDS = {
    "an extra inv_rms**2 in dinv_rms": {"inv_rms**3 / K": "inv_rms**5 / K"},
    "dh_mix for dt in dinv_rms": {"(dt * h_mix).sum(-1)": "(dh_mix * h_mix).sum(-1)"},
    "hc_eps left in the derivative": {"s = h_pre - hc_eps": "s = h_pre"},
    "h_post without its 2 in the derivative": {"(1 - h_post / 2)": "(1 - h_post)"},
    "alpha's entries swapped": {"alpha[1] * dh_post2, alpha[2]": "alpha[2] * dh_post2, alpha[1]"},
    "no inv_rms in dphi": {"dh_mix.reshape(N, M).mT": "dt.reshape(N, M).mT"},
    "gamma forgotten in dx": {"dvec = dvec_mm if gamma is None else dvec_mm * gamma.reshape(K)": "dvec = dvec_mm"},
    "gamma in dgamma": {"(flat * dvec_mm).reshape(N, K)": "(flat * dvec).reshape(N, K)"},
    "dbias for one token only": {"dbias = dgate.reshape(N, M).sum(0)": "dbias = dgate.reshape(N, M)[0]"},
    "h_res transposed": {"dh_res2 = dh_res.reshape(B, S, n * n)": "dh_res2 = dh_res.mT.reshape(B, S, n * n)"},
}


def small_case(n: int, gamma: bool, **fields: Any) -> Case:
    """Every parameter random, none 0 or 1; D odd; x at 0.1, where a wrong power of inv_rms shows."""
    absent = frozenset() if gamma else frozenset({"gamma"})
    return scaled_case(B=1, S=2, n=n, D={1: 7, 2: 5, 3: 3}.get(n, 1), dtype="float64", absent=absent, **fields)


class Manual(torch.autograd.Function):
    """The golden forward with a manual backward, to be checked against finite differences."""

    @staticmethod
    def forward(ctx: Any, backward: Callable[..., Any], *inputs: Tensor | None) -> Any:
        h_in, h_post, h_res, *saved = mhc_forward_pre(*inputs, outflag=True, **SCALARS)  # type: ignore[arg-type]
        ctx.run = backward
        ctx.save_for_backward(*inputs, *saved, h_post)
        return h_in, h_post, h_res

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        x, phi, alpha, bias, gamma, *saved = ctx.saved_tensors
        gradients = ctx.run(x, phi, alpha, bias, *saved, *upstream, gamma, **SCALARS)
        return None, *gradients


def manual(backward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*inputs: Tensor) -> Any:
        padded = (*inputs, None) if len(inputs) == 4 else inputs
        return Manual.apply(backward, *padded)  # type: ignore[no-untyped-call]

    return run


@pytest.mark.parametrize("gamma", [True, False], ids=["gamma", "nogamma"])
@pytest.mark.parametrize("n", range(1, 7))
def test_golden_forward(n: int, gamma: bool) -> None:
    """All six outputs, in all of the arguments."""
    assert gradcheck(lambda *inputs: mhc_forward_pre(*inputs, outflag=True, **SCALARS), leaves(small_case(n, gamma)))


@pytest.mark.parametrize("gamma", [True, False], ids=["gamma", "nogamma"])
@pytest.mark.parametrize("n", range(1, 7))
def test_manual_backward(n: int, gamma: bool) -> None:
    assert gradcheck(manual(mhc_pre_backward_manual), leaves(small_case(n, gamma)))


@pytest.mark.parametrize(
    "implementation",
    [  # the interpreter takes a second for each derivative
        pytest.param(one, id=one.name, marks=pytest.mark.slow if one.env else ())
        for one in ON_CPU
        if one.backward is not None
    ],
)
def test_entry(implementation: Implementation) -> None:
    """`mhc_pre` on every implementation that can run float64 here."""
    case = small_case(2 if implementation.env else 3, gamma=True)
    refusal = implementation.refusal(case, "cpu")
    if refusal is not None:
        pytest.skip(f"{implementation.name}: {refusal.reason}")
    assert gradcheck(lambda *inputs: mhc_pre(*inputs, impl=implementation, **SCALARS), leaves(case))


@pytest.mark.parametrize("gamma", [True, False], ids=["gamma", "nogamma"])
@pytest.mark.parametrize("n", [1, 2, 5, 16])
@pytest.mark.parametrize("x_scale", [1e-3, 0.1, 1.0, 30.0])
def test_manual_equals_autograd_to_float64_rounding(n: int, x_scale: float, gamma: bool) -> None:
    absent = frozenset() if gamma else frozenset({"gamma"})
    case = scaled_case(x_scale, B=2, S=3, n=n, D=7, dtype="float64", absent=absent)
    hand, autograd = (observed(implementation, case) for implementation in (MANUAL, GOLDEN))
    for name, gradient in hand.gradients.items():
        other = autograd.gradients[name]
        if gradient is None:
            assert name == "dgamma"
            assert other is None
            assert not gamma
            continue
        assert other is not None
        # sums of at most M + K products of order one, each rounded: a hundred roundings of the largest element
        largest = float(other.abs().max())
        assert largest > 0
        assert float((gradient - other).abs().max()) <= 100 * torch.finfo(torch.float64).eps * largest, name


@pytest.mark.parametrize("name", WRONG_BACKWARDS)
def test_gradcheck_fails_on_a_wrong_backward(name: str) -> None:
    wrong = edited_formula(WRONG_BACKWARDS[name])
    with pytest.raises(GradcheckError):
        gradcheck(manual(wrong.backward), leaves(small_case(2, gamma=True)))
