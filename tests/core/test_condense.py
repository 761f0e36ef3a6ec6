"""Condensed inputs: what is read over a few tokens is what is read over all of them."""

from dataclasses import replace

import torch

from mhc import Case, default_case, materialise, reference
from mhc.case import with_sizes, with_tensor
from mhc.condense import LEAST, condense
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.inputs import Inputs, edited
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.oracles.bound import tolerances
from mhc.oracles.verdict import Status
from mhc.reference import condensed

HOST = torch.device("cpu")
PERIOD = 7


def large(dtype: str = "bfloat16", **sizes: int) -> Case:
    """Many tokens of which seven differ, and a gradient in at most five rows of each upstream tensor."""
    case = with_sizes(default_case(B=2, S=600, n=4, D=16, dtype=dtype), **sizes)
    case = with_tensor(case, "x", period=PERIOD * case.sizes["K"])
    for name in ("dh_in", "dh_post", "dh_res"):
        case = with_tensor(case, name, rows=5)
    return case


def whole(inputs: Inputs) -> Inputs:
    """The same inputs, to be judged as they are."""
    copy = edited(inputs, {})
    copy.__dict__["condensed"] = None
    return copy


def test_it_keeps_every_token_with_a_gradient_and_one_of_each_kind() -> None:
    inputs = materialise(large())
    few = condense(inputs, HOST)
    assert few is not None
    x = inputs.tensors["x"]
    assert x is not None
    tokens = x.reshape(1200, 64)
    active = torch.zeros(1200, dtype=torch.bool)
    for name in ("dh_in", "dh_post", "dh_res"):
        tensor = inputs.tensors[name]
        assert tensor is not None
        active |= (tensor.reshape(1200, -1) != 0).any(1)
    assert 5 <= int(active.sum()) <= 15
    assert set(active.nonzero().flatten().tolist()) <= set(few.chosen.tolist())
    assert len(few.chosen) == int(active.sum()) + PERIOD
    assert torch.equal(tokens[few.chosen][few.stands_for], tokens)
    assert len(few.chosen) == few.inputs.case.sizes["N"]
    assert few.chosen[few.stands_for[active]].tolist() == active.nonzero().flatten().tolist(), "each stands for itself"


def test_reference_and_rows_of_tolerances_are_those_of_the_whole() -> None:
    inputs = materialise(large())
    assert condensed(inputs) is not None
    plain = whole(inputs)
    one, other = reference(inputs), reference(plain)
    for name, value in {**one.outputs, **one.gradients}.items():
        wanted = {**other.outputs, **other.gradients}[name]
        assert value is not None
        assert wanted is not None
        assert torch.allclose(value, wanted, rtol=1e-12, atol=1e-12), name
    for name, saved in one.saved.items():
        assert torch.allclose(saved, other.saved[name], rtol=1e-6), name
    sharp, wide = tolerances(inputs, one), tolerances(plain, other)
    for name, number in {**sharp.outputs, **sharp.gradients}.items():
        beside = {**wide.outputs, **wide.gradients}[name]
        assert number.shape == beside.shape, name
        assert bool((number.error <= beside.error * (1 + 1e-9)).all()), name
        if name not in {"dphi", "dalpha", "dbias", "dgamma"}:  # sums over tokens: fewer terms, less error
            assert torch.allclose(number.error, beside.error, rtol=1e-9), name


def test_what_is_small_or_differs_everywhere_is_judged_whole() -> None:
    assert condense(materialise(large(S=60)), HOST) is None, f"below {LEAST} elements"
    dense = with_tensor(large(), "x", period=0)
    assert condense(materialise(dense), HOST) is None, "no two tokens are alike"
    assert condense(materialise(with_tensor(large(), "dh_in", rows=0)), HOST) is None, "every token has a gradient"


def test_tokens_that_differ_in_a_sign_are_told_apart() -> None:
    """In float64 a sign is the highest bit of 64, which a product modulo 2**64 loses all but one parity of."""
    case = default_case(B=1, S=14000, n=1, D=5, dtype="float64")
    case = with_tensor(case, "x", kind="sign")
    for name in ("dh_in", "dh_post", "dh_res"):
        case = with_tensor(case, name, kind="zero")
    inputs = materialise(case)
    few = condense(inputs, HOST)
    assert few is not None
    assert len(few.chosen) == 2**5
    assert torch.equal(inputs.storages["x"].nan_to_num(), materialise(case).storages["x"].nan_to_num()), "x is not written"
    x = inputs.tensors["x"]
    assert x is not None
    assert torch.equal(x[0][few.chosen][few.stands_for], x[0])


def test_a_nan_in_a_token_without_a_gradient_reaches_the_sums() -> None:
    case = with_tensor(large(), "x", literals=(((1, 300, 2, 3), float("nan")),))
    inputs = materialise(case)
    assert condensed(inputs) is not None
    found = reference(inputs)
    assert found.gradients["dphi"] is not None
    assert bool(found.gradients["dphi"].isnan().any())
    assert torch.equal(found.gradients["dphi"].isnan(), reference(whole(inputs)).gradients["dphi"].isnan())  # type: ignore[union-attr]


def test_right_implementations_pass_every_gate_on_a_large_case() -> None:
    for implementation in (MANUAL, GOLDEN):
        for dtype in ("float32", "float16"):
            verdicts = check(implementation, large(dtype=dtype), "cpu", Level.FULL).verdicts
            assert [one for one in verdicts if one.status is Status.FAIL] == []


def test_one_wrong_token_in_thousands_is_found() -> None:
    def forward(x: torch.Tensor, *arguments: object, **keywords: object) -> tuple[torch.Tensor, ...]:
        h_in, *rest = MANUAL.forward(x, *arguments, **keywords)  # type: ignore[misc]
        h_in = h_in.clone()
        h_in[1, 431, 7] += 1
        return (h_in, *rest)

    verdicts = check(replace(MANUAL, name="wrong", forward=forward), large(), "cpu", Level.PLAIN).verdicts
    assert [(one.oracle, one.subject) for one in verdicts if one.status is Status.FAIL] == [("bound", "h_in")]
    assert "h_in[1, 431, 7]" in next(one.message for one in verdicts if one.status is Status.FAIL)
