"""The built-in operators that are plain PyTorch functions: their references, and the implementations that come with them."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import mhc
from mhc import Case, default_case, load, materialise, observe, reference
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.operator import OPERATORS, Role
from mhc.oracles.verdict import Status
from mhc.recipe import Recipe
from mhc.registry import BUILT_IN

PLAIN = [one for one in BUILT_IN if one.operator != "mhc_pre"]
IN_PYTORCH = [one for one in PLAIN if ".triton" not in one.name]
"""The others are tested in test_triton_family.py."""
SIZES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "attention": ({"B": 2, "Hkv": 2, "G": 3, "S": 9, "D": 8}, {"S": 1, "D": 3}),
    "rope": ({"B": 2, "S": 5, "H": 3, "R": 8}, {"R": 1}),
    **dict.fromkeys(("rms_norm", "layer_norm", "swiglu", "geglu"), ({"B0": 3, "B1": 5, "D": 40}, {"D": 1})),
    "cross_entropy": ({"T": 6, "V": 40}, {"T": 1, "V": 1}),
    "linear_cross_entropy": ({"T": 6, "V": 40, "D": 9}, {"T": 1, "V": 1, "D": 1}),
    "topk_softmax": ({"T": 6, "K": 4, "rest": 9}, {"T": 1, "K": 1, "rest": 0}),
    "fp8_block_quant": ({"T": 3, "D": 200}, {"T": 1, "D": 1}),
    "mhc_layer": ({"B": 1, "S": 3, "n": 4, "C": 8}, {"n": 1, "C": 1}),
    "softmax": ({"B0": 3, "B1": 5, "V": 40}, {"V": 1}),
    **dict.fromkeys(("mhc_post", "mhc_post_transposed"), ({"B0": 2, "B1": 3, "n": 4, "C": 24}, {"n": 1, "C": 1})),
    **{name: ({"B0": 2, "B1": 3, "n": 4}, {"n": 1}) for name in OPERATORS if name.startswith("mhc_sinkhorn")},
}


def columns_then_rows(logits: Tensor) -> Tensor:
    """Sinkhorn on one matrix after the other, by scaling vectors: M = diag(r) exp(logits) diag(c)."""
    found = []
    for one in logits.flatten(0, -3).exp():
        r = torch.ones(len(one), dtype=one.dtype)
        for _ in range(20):
            c = 1 / (r @ one)
            r = 1 / (one @ c)
        found.append(r[:, None] * one * c)
    return torch.stack(found).reshape(logits.shape)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE as a product of complex numbers."""
    turned = torch.complex(*x.chunk(2, -1)) * torch.complex(cos, sin).unsqueeze(-2)
    return torch.cat([turned.real, turned.imag], -1)


ELSEWHERE: Mapping[str, Callable[..., Tensor]] = {
    "rms_norm": lambda x, weight, eps: functional.rms_norm(x, weight.shape, weight, eps),
    "layer_norm": lambda x, weight, bias, eps: functional.layer_norm(x, weight.shape, weight, bias, eps),
    "cross_entropy": lambda x, target: -(x.log_softmax(-1) * (target.unsqueeze(-1) == torch.arange(x.shape[-1]))).sum(-1),
    "linear_cross_entropy": lambda x, weight, target: functional.cross_entropy(x @ weight.T, target, reduction="none"),
    "softmax": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "swiglu": lambda a, b: a * a.sigmoid() * b,
    "geglu": lambda a, b: functional.gelu(a, approximate="tanh") * b,
    "rope": rotated,
    "attention": lambda q, k, v, bias: functional.scaled_dot_product_attention(
        q, k, v, bias + torch.full_like(bias, -torch.inf).triu(1), enable_gqa=True
    ),
    "mhc_post": lambda x, f, h, r: torch.einsum("abij,abjc->abic", r, x) + torch.einsum("abi,abc->abic", h, f),
    "mhc_post_transposed": lambda x, f, h, r: torch.einsum("abji,abjc->abic", r, x) + torch.einsum("abi,abc->abic", h, f),
    "mhc_sinkhorn": columns_then_rows,
    "mhc_sinkhorn_te": lambda logits: columns_then_rows(logits.mT).mT,
}
"""The same functions written in other ways."""


def wide(operator: str, **sizes: Any) -> tuple[Any, list[Tensor]]:
    inputs = materialise(default_case(operator=operator, dtype="float64", **sizes))
    given = [inputs.tensors[spec.name] for spec in OPERATORS[operator].inputs]
    return inputs, [one for one in given if one is not None]


def test_every_operator_is_checked() -> None:
    assert {one.operator for one in PLAIN} == set(SIZES)
    assert {f"{name}.golden" for name in SIZES} <= {one.name for one in PLAIN}
    assert all(one.name.startswith(f"{one.operator}.") for one in PLAIN)


@pytest.mark.parametrize("operator", ELSEWHERE)
def test_the_reference_is_the_function_that_it_is_called_after(operator: str) -> None:
    inputs, given = wide(operator, **SIZES[operator][0])
    wanted = ELSEWHERE[operator](*given, **inputs.case.scalars)
    torch.testing.assert_close(reference(inputs).outputs["y"], wanted, rtol=1e-12, atol=1e-13)


def test_sinkhorns_of_liger_and_tilekernels_differ_in_iterations_and_from_the_paper_in_eps() -> None:
    logits = wide("mhc_sinkhorn", B0=40, B1=3, n=4)[1][0]
    scalars = {"mhc_sinkhorn_liger": {"eps": 1e-6}, "mhc_sinkhorn_tilekernels": {"eps": 1e-6}}
    found = {name: OPERATORS[name].forward(logits, **scalars.get(name, {}))[0] for name in SIZES if "sinkhorn" in name}
    paper, liger, tilekernels = (found[name] for name in ("mhc_sinkhorn", *scalars))
    assert float((paper.sum(-1) - 1).abs().max()) < 1e-12
    assert float((liger.sum(-2) - 1).abs().max()) < 2e-6
    assert 1e-7 < float((paper - liger).abs().max()) < float((liger - tilekernels).abs().max())
    m = logits.softmax(-1) + 1e-6
    m = m / (m.sum(-2, keepdim=True) + 1e-6)
    for _ in range(9):
        m = m / (m.sum(-1, keepdim=True) + 1e-6)
        m = m / (m.sum(-2, keepdim=True) + 1e-6)
    torch.testing.assert_close(tilekernels, m)


@pytest.mark.parametrize("operator", ["mhc_post", "mhc_sinkhorn"])
def test_a_backward_by_hand_is_the_derivative(operator: str) -> None:
    inputs, _ = wide(operator, B0=2, B1=3, n=5)
    right = reference(inputs)
    got = observe(load(f"{operator}.manual"), inputs, right.saved)
    assert got.failure is None
    for name, wanted in right.gradients.items():
        torch.testing.assert_close(got.gradients[name], wanted, rtol=1e-9, atol=1e-12, msg=name)


ITERATED = [one for one in IN_PYTORCH if one.operator == "mhc_layer" or "sinkhorn" in str(one.operator)]
"""Their bounds take a second a case or more: only fixed cases of them are judged here."""


@mhc.parametrize(*(one for one in IN_PYTORCH if one not in ITERATED), cases=3)
def test_drawn_cases_of_what_is_built_in() -> None:
    """Each dtype is drawn."""


DEAR = {"mhc_layer", *(name for name in OPERATORS if name.startswith("mhc_sinkhorn_"))}
"""Operators whose loops take the judge seconds."""


def _dear_ones_slow(one: Any) -> Any:
    return pytest.param(one, id=one.name, marks=pytest.mark.slow if one.operator in DEAR else ())


OTHER_DTYPES = [pytest.param(one, marks=pytest.mark.slow) for one in ("bfloat16", "float16", "float64")]


@pytest.mark.parametrize("dtype", ["float32", *OTHER_DTYPES])
@pytest.mark.parametrize("implementation", [*map(_dear_ones_slow, IN_PYTORCH)])
def test_what_is_built_in_passes(implementation: Any, dtype: str) -> None:
    if dtype not in implementation.dtypes:
        assert implementation.name == "softmax.torch"
        return
    if dtype != "float32" and "sinkhorn" in implementation.operator:
        assert all(spec.role is Role.ACCUMULATE for spec in implementation.table.drawn)  # its dtype is not the case's
        return
    for sizes in SIZES[implementation.operator]:
        case = default_case(operator=implementation.operator, dtype=dtype, **sizes)
        judged = check(implementation, case, "cpu").verdicts
        assert not [one for one in judged if one.status is Status.FAIL]
        assert "bound" in {one.oracle for one in judged if one.status is Status.PASS}


def test_parts_of_a_gradient_that_are_rounded_to_bfloat16_add_up() -> None:
    """Each part is rounded relative to itself: the parts here are larger than their sum."""
    tensors = {name: Recipe(seed=seed) for seed, name in enumerate(("x", "weight", "bias"))}
    case = Case(
        operator="layer_norm",
        dtype="bfloat16",
        sizes={"B0": 1, "B1": 200, "D": 5},
        tensors={**tensors, "dy": Recipe(kind="cancelling", scale=64.0)},
    )
    judged = check(load("layer_norm.golden"), case, "cpu", Level.FULL).verdicts
    assert [one for one in judged if one.oracle == "gradient" and one.status is Status.PASS]
    assert not [one for one in judged if one.status is Status.FAIL]


def test_experts_may_be_exchanged_within_their_bounds_alone() -> None:
    case = default_case(operator="topk_softmax", T=3, K=2, rest=2)
    inputs = materialise(case)
    p = OPERATORS["topk_softmax"].residuals["y1"]
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.0]]).double()
    buffer = inputs.tensors["buffer"][:1]  # type: ignore[index]
    for indices, right in (
        ([1, 2], True),
        ([2, 1], True),
        ([1, 0], False),
        ([1, 1], False),
        ([1, 4], False),
        ([-1, 2], False),
    ):
        assert bool((p(logits, buffer, torch.tensor([indices])) == 0).all()) is right
    assert bool((p(logits * torch.nan, buffer, torch.tensor([[3, 0]])) == 0).all())
    assert not bool((p(logits * torch.nan, buffer, torch.tensor([[4, 0]])) == 0).all())


def test_each_code_of_float8_is_right_between_the_middles_to_its_neighbours() -> None:
    residual = OPERATORS["fp8_block_quant"].residuals["y0"]
    x = torch.tensor([[448.0, 17.0, -17.0, 2.0**-10, 0.0]]).double()  # 17 lies between the codes 16 and 18
    for q, right in (
        ([448.0, 16.0, -18.0, 0.0, -0.0], True),
        ([448.0, 18.0, -16.0, 2.0**-9, 0.0], True),
        ([448.0, 17.0, -16.0, 0.0, 0.0], False),
        ([416.0, 16.0, -16.0, 0.0, 0.0], False),
        ([448.0, 16.0, 16.0, 0.0, 0.0], False),
        ([448.0, 16.0, -16.0, torch.nan, 0.0], False),
    ):
        assert bool((residual(x, torch.tensor([q]).double()) == 0).all()) is right, q
