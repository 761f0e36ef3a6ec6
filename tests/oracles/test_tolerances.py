"""How the tolerances of a case follow from its formula read on error-carrying numbers."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mhc import Implementation, default_case, materialise, operator, reference
from mhc.case import with_tensor
from mhc.operator import STORAGE_DTYPES
from mhc.oracles.bounds.deviation_number import DeviationNumber
from mhc.oracles.tolerances import Tolerances, read_formula, tolerances
from mhc.reference import condensed, widen


@pytest.mark.parametrize(("dtype", "own"), [("float64", 2.0), ("float32", 1 + 2.0**-29), ("bfloat16", 1 + 2.0**-29)])
def test_the_error_of_the_reference_itself_is_added(dtype: str, own: float) -> None:
    inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype=dtype))
    wanted = reference(inputs)
    storage, scalars = STORAGE_DTYPES[dtype], inputs.case.scalars
    formula = read_formula(inputs.case.table, widen(inputs), storage, scalars, saved=wanted.outputs).results
    found = tolerances(inputs, wanted).results
    assert found.keys() == formula.keys()
    for name, one in found.items():
        assert torch.equal(one.error, formula[name].error * own), name
        assert (one.dtype, one.finite) == (formula[name].dtype, formula[name].finite)


def test_without_saved_tensors_the_backward_gets_the_formula_s_own() -> None:
    inputs = materialise(default_case(B=1, S=2, n=2, D=3, dtype="float32"))
    table, wide, scalars = inputs.case.table, widen(inputs), inputs.case.scalars
    own = read_formula(table, wide, torch.float32, scalars)
    given = read_formula(table, wide, torch.float32, scalars, saved={name: one.value for name, one in own.outputs.items()})
    other = read_formula(
        table, wide, torch.float32, scalars, saved={name: one.value * 2 for name, one in own.outputs.items()}
    )
    for name, one in own.gradients.items():
        assert torch.equal(one.error, given.gradients[name].error), name
    assert not torch.equal(own.gradients["dx"].value, other.gradients["dx"].value)
    deviations = read_formula(table, wide, torch.float32, scalars, number=DeviationNumber)
    assert all(isinstance(one, DeviationNumber) for one in deviations.results.values())


def test_a_large_case_has_the_tolerances_of_its_representative_tokens() -> None:
    case = default_case(B=1, S=1024, n=2, D=64, dtype="float32")
    for name in ("dh_in", "dh_post", "dh_res"):
        case = with_tensor(case, name, rows=8)
    inputs = materialise(with_tensor(case, "x", period=16 * case.sizes["K"]))
    few = condensed(inputs)
    assert few is not None
    wanted = reference(inputs)
    found = tolerances(inputs, wanted)
    plain = materialise(replace(inputs.case, tensors={**inputs.case.tensors}))
    plain.__dict__["condensed"] = None
    whole = tolerances(plain, wanted)
    for name, one in found.outputs.items():
        assert one.error.shape == whole.outputs[name].error.shape
        assert torch.allclose(one.error, whole.outputs[name].error, rtol=1e-9, atol=0.0), name
    assert torch.allclose(found.gradients["dx"].error, whole.gradients["dx"].error, rtol=1e-9, atol=0.0)
    assert (found.gradients["dphi"].error <= whole.gradients["dphi"].error).all(), "of fewer terms that are not 0"


def test_a_map_changes_outputs_and_gradients_and_keeps_what_is_sampled() -> None:
    inputs = materialise(default_case(B=1, S=1, n=1, D=2, dtype="float32"))
    found = replace(tolerances(inputs, reference(inputs)), sampled=frozenset({"dx"}))
    seen: list[str] = []

    def negated(name: str, one: object) -> object:
        seen.append(name)
        return -one  # type: ignore[operator]

    changed: Tolerances = found.map(negated)  # type: ignore[arg-type]
    assert seen == [*found.outputs, *found.gradients] == [*changed.results]
    assert changed.sampled == found.sampled
    for name, one in changed.results.items():
        assert torch.equal(one.value, -found.results[name].value)


@operator(a="[S, S] float32", b="[S, 1] float32", S=(1, 8))
def solved(a: Tensor, b: Tensor) -> Tensor:
    y: Tensor = torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)
    return y


def test_a_class_is_open_where_what_a_bound_is_read_from_has_another_one_than_the_reference() -> None:
    """Substitution has 0 - inf / 2 + inf / 4, which is NaN; an inverse times b has -3/8 of an infinity."""
    made = Implementation(name="made", operator=solved, forward=solved)
    case = default_case(operator=made.table.name, S=3, dtype="float32")
    below = (((1, 0), 0.25), ((2, 0), 0.5), ((2, 1), 0.25))
    case = with_tensor(with_tensor(case, "a", kind="zero", literals=below), "b", kind="zero", literals=(((0, 0), math.inf),))
    inputs = materialise(case)
    true = reference(inputs)
    assert [str(one) for one in true.outputs["y"].flatten().tolist()] == ["inf", "-inf", "nan"]
    wanted = tolerances(inputs, true).outputs["y"]
    assert wanted.error.flatten().isinf().tolist() == [False, False, True]
