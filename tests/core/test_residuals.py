"""Outputs without one right value: they are judged by their residual (`Operator.residuals`)."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import mhc.oracles.tolerances
from mhc import DeclarationError, Implementation, default_case, materialise, observe, operator, reference
from mhc.fuzz.check.check import check
from mhc.inputs import Inputs
from mhc.oracles import pair
from mhc.oracles.tolerances import ByResidual, tolerances
from mhc.oracles.verdict import Status
from mhc.recipe import Recipe
from mhc.registry import built_in


def not_the_largest(x: Tensor, index: Tensor) -> Tensor:
    """Return how far an element lies below the largest of its row."""
    return x.float().gather(-1, index.clamp(0, x.shape[-1] - 1).unsqueeze(-1))[..., 0] - x.float().amax(-1)


@operator(x="[T, D] storage constant", tokens="T", residuals={"y": not_the_largest})
def largest(x: Tensor) -> Tensor:
    return x.float().max(-1).indices


def last_largest(x: Tensor) -> Tensor:
    return x.shape[-1] - 1 - x.float().flip(-1).max(-1).indices


def smallest(x: Tensor) -> Tensor:
    return x.float().min(-1).indices


FIRST = Implementation(name="first", operator=largest, function=largest.function)
LAST = Implementation(name="last", operator=largest, function=last_largest)
GOLDEN = built_in("fp8_block_quant")["fp8_block_quant.golden"]
WRONG = Implementation(name="smallest", operator=largest, function=smallest)


@pytest.mark.parametrize("tokens", [7, 4000])  # the second is judged on few of its tokens
def test_each_of_several_right_values_passes_and_a_wrong_one_fails(tokens: int) -> None:
    case = default_case(operator="largest", T=tokens, D=40)
    case = replace(case, tensors={"x": Recipe(kind="sign", period=0 if tokens == 7 else 80)})
    inputs = materialise(case)
    x = inputs.tensors["x"]
    assert x is not None
    assert not torch.equal(last_largest(x), largest.forward(x)[0])
    judged = check(LAST, case, "cpu").verdicts
    assert ("bound", "y", Status.PASS) in {(one.oracle, one.subject, one.status) for one in judged}
    assert not [one for one in judged if one.status is Status.FAIL]
    wrong = [one for one in check(WRONG, case, "cpu").verdicts if one.status is Status.FAIL]
    assert {(one.oracle, one.subject) for one in wrong} == {("bound", "y")}
    assert wrong[0].message.startswith("residual: y[")


def test_of_a_large_case_it_is_where_the_tokens_are_that_stand_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tokens are judged on the host, though all of them are on a GPU: there the output's rows go too."""
    asked: list[int] = []

    def judging_device(inputs: Inputs) -> torch.device:
        asked.append(inputs.case.sizes["T"])
        return torch.device("cpu")

    case = default_case(operator="largest", T=4000, D=40)
    inputs = materialise(replace(case, tensors={"x": Recipe(kind="sign", period=80)}))
    wanted = reference(inputs)
    allowed = tolerances(inputs, wanted).outputs["y"]
    monkeypatch.setattr(mhc.oracles.tolerances, "judging_device", judging_device)
    assert isinstance(allowed, ByResidual)
    got = observe(FIRST, inputs, wanted.saved).outputs["y"]
    assert got is not None
    allowed.residual(got)
    assert asked
    assert max(asked) < 4000


def test_two_implementations_may_differ_in_it() -> None:
    inputs = materialise(replace(default_case(operator="largest", T=7, D=40), tensors={"x": Recipe(kind="sign")}))
    wanted = reference(inputs)
    allowed = tolerances(inputs, wanted)
    sides = [pair.Side(observation=observe(one, inputs, wanted.saved), allowed=allowed) for one in (FIRST, LAST)]
    assert [one.status for one in pair.judge(*sides)] == [Status.NOT_APPLICABLE]


def test_a_residual_of_no_output_is_no_declaration() -> None:
    with pytest.raises(DeclarationError, match=r"residuals must name some of y, was \['z'\]"):
        operator(x="[T, D] storage constant", residuals={"z": not_the_largest})(smallest)


def test_a_float64_is_rounded_to_float8_by_way_of_float32() -> None:
    """Between the codes 1 and 1.125: above their middle, and in float32 at it, which goes to the even one."""
    case = default_case(operator="fp8_block_quant", T=1, D=2, dtype="float64")
    case = replace(case, tensors={"x": Recipe(literals=(((0, 0), 448.0), ((0, 1), 1.0625 * (1 + 1e-10))))})
    assert not check(GOLDEN, case, "cpu").failures
    below = replace(case, tensors={"x": Recipe(literals=(((0, 0), 448.0), ((0, 1), 1.0625 * (1 + 1e-6))))})
    wrong = replace(GOLDEN, forward=lambda x: (torch.tensor([[448.0, 1.0]]).double(), x[:, :1] / 448))
    assert {one.subject for one in check(replace(wrong, function=None), below, "cpu").failures} == {"y0"}
