"""Outputs without one right value: they are judged by their residual (`Operator.residuals`)."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mhc import DeclarationError, Implementation, default_case, materialise, observe, operator, reference
from mhc.fuzz.check.check import check
from mhc.recipe import Recipe
from oracles import pair
from oracles.bound import tolerances
from oracles.verdict import Status


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


def test_two_implementations_may_differ_in_it() -> None:
    inputs = materialise(replace(default_case(operator="largest", T=7, D=40), tensors={"x": Recipe(kind="sign")}))
    wanted = reference(inputs)
    allowed = tolerances(inputs, wanted)
    sides = [pair.Side(observation=observe(one, inputs, wanted.saved), allowed=allowed) for one in (FIRST, LAST)]
    assert [one.status for one in pair.judge(*sides)] == [Status.NOT_APPLICABLE]


def test_a_residual_of_no_output_is_no_declaration() -> None:
    with pytest.raises(DeclarationError, match=r"residuals must name some of y, was \['z'\]"):
        operator(x="[T, D] storage constant", residuals={"z": not_the_largest})(smallest)
