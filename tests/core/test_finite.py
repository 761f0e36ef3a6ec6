"""Tensors that are declared as finite (`finite=` of `mhc.declaration.operator`): neither NaN nor infinity is drawn."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from torch import Tensor

from mhc import Case, DeclarationError, Implementation, default_case, materialise, operator
from mhc.case import with_tensor
from mhc.case_json import CaseError
from mhc.operator import OPERATORS
from mhc.operator_json import encode_operator, known_operator
from mhc.oracles import isolation
from mhc.strategies.cases import cases
from tests.support.helpers import gate_symptoms


def scaled(x: Tensor, mask: Tensor, at: Tensor) -> Tensor:
    return (x.float() + mask).softmax(-1).to(x.dtype) * at[:, None]


NOTATION: dict[str, Any] = {"x": "[T, D]", "mask": "[T, D] float32 constant", "at": "[T] int32 in 0..3", "tokens": "T"}
ALL = operator(name="all_finite", finite=True, **NOTATION)(scaled)
SOME = operator(name="some_finite", finite=("x",), **NOTATION)(scaled)
RIGHT = Implementation(name="right_finite", operator=ALL, function=scaled)
Implementation(name="right_some", operator=SOME, function=scaled)


@settings(max_examples=150, deadline=None)
@given(cases(operator="all_finite"))
def test_no_tensor_is_drawn_that_is_not_finite(case: Case) -> None:
    for name, tensor in materialise(case).tensors.items():
        assert tensor is not None
        assert bool(tensor.isfinite().all()), name


def twice(x: Tensor) -> Tensor:
    return 2 * x


NARROW = operator(name="finite_and_narrow", finite=True, x="[T] in 0.125..8")(twice)
Implementation(name="right_narrow", operator=NARROW, function=twice)


def test_a_range_without_outliers_has_its_ends_in_their_place() -> None:
    seen: set[float] = set()

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(cases(operator="finite_and_narrow"))
    def look(case: Case) -> None:
        seen.update(value for _, value in case.tensors["x"].literals)

    look()
    assert {0.125, 8.0} <= seen


def test_only_named_tensors_are_finite() -> None:
    specs = SOME.argument_specs
    assert [name for name, spec in specs.items() if spec.finite] == ["x"]
    assert [name for name, spec in ALL.argument_specs.items() if spec.finite] == ["x", "mask", "dy"]
    assert not any(spec.finite for spec in ALL.gradients)
    assert "masked" in specs["mask"].kinds
    assert "masked" not in specs["x"].kinds


def test_what_overflows_is_the_largest_number() -> None:
    case = with_tensor(default_case(operator="all_finite", dtype="float16", T=2, D=3), "x", scale=2.0**20)
    case = with_tensor(case, "dy", literals=(((0, 1), 3e38),))
    tensors = materialise(case).tensors
    assert tensors["x"] is not None
    assert tensors["dy"] is not None
    assert float(tensors["x"].abs().max()) == 65504.0
    assert float(tensors["dy"][0, 1]) == 65504.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_case_with_another_value_is_refused(value: float) -> None:
    case = default_case(operator="all_finite", T=2, D=3)
    with pytest.raises(CaseError, match=r"tensors\.x\.literals\[0\]: must be finite, was"):
        with_tensor(case, "x", literals=(((0, 0), value),))
    assert with_tensor(default_case(operator="some_finite", T=2, D=3), "mask", literals=(((0, 0), value),))


def test_a_case_says_what_is_finite() -> None:
    document = json.loads(json.dumps(encode_operator(ALL)))
    assert {one["name"]: one.get("finite", False) for one in document["inputs"]} == {"x": True, "mask": True, "at": False}
    assert document["outputs"][0]["finite"] is True
    assert known_operator(document) == "all_finite"
    assert OPERATORS["all_finite"].description != replace(ALL, inputs=SOME.inputs).description


def test_a_large_number_takes_the_place_of_a_nan_in_isolation() -> None:
    def leaks(x: Tensor, mask: Tensor, at: Tensor) -> Tensor:
        return scaled(x, mask, at) + 2.0**-20 * x.sum()

    case = with_tensor(default_case(operator="all_finite", dtype="float32", T=3, D=4), "x", kind="normal")
    assert not gate_symptoms(isolation.GATE, RIGHT, case)
    wrong = Implementation(name="leaks", operator=ALL, function=leaks)
    assert gate_symptoms(isolation.GATE, wrong, case) == {("isolation", "y", "leak")}


def test_finite_names_tensors_of_numbers() -> None:
    for names in (("z",), ("at",), "x"):
        with pytest.raises(DeclarationError, match="finite must name some of dy, mask, x, was"):
            operator(name="no_finite", finite=names, **NOTATION)(scaled)
