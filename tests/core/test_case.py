"""A case as a record: JSON round trip, identity, validation that names the field, versions."""

import copy
import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from torch import Tensor

from mhc import Case, CaseError, Layout, Recipe, case_json, default_case, operator
from mhc.case import with_sizes, with_tensor
from mhc.operator import register
from mhc.strategies.cases import cases

FIXTURE = Path(__file__).parents[1] / "older_formats" / "case-schema-1.json"


@given(cases())
def test_json_round_trip(case: Case) -> None:
    again = Case.from_json(case.to_json())
    assert again == case
    assert hash(again) == hash(case)
    assert (again.json, again.id) == (case.json, case.id)
    assert pickle.loads(pickle.dumps(case)) == case


def test_non_finite_literals_are_strict_json() -> None:
    case = with_tensor(default_case(D=4), "x", literals=(((0, 0, 0, 1), float("nan")), ((0, 0, 0, 2), float("-inf"))))

    def no_constants(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    json.loads(case.to_json(), parse_constant=no_constants)
    assert str(Case.from_json(case.to_json()).tensors["x"].literals) == str(case.tensors["x"].literals)


def test_id_is_readable_and_tells_cases_apart() -> None:
    case = default_case(B=1, S=2, n=4, D=5, absent=frozenset({"gamma"}))
    assert case.id.startswith("pre-B1S2n4D5-bf16-nogamma-")
    assert with_tensor(case, "x", seed=99).id != case.id


@operator(x="[T]", offsets="[S1] int32 in 0..T+1 sorted", S1=(2, 9))
def cut_up(x: Tensor, offsets: Tensor) -> Tensor:
    return x * len(offsets)


def test_the_size_of_an_axis_whose_name_ends_in_a_digit_is_told_from_the_name() -> None:
    register(cut_up)
    case = default_case(operator="cut_up", T=3, S1=2, dtype="float32")
    assert case.id == f"cut_up-T3S1=2-fp32-{case.digest}"


def test_a_case_cannot_be_changed() -> None:
    case = default_case()
    with pytest.raises(AttributeError):
        case.dtype = "float32"  # type: ignore[misc]
    with pytest.raises(TypeError):
        case.tensors["x"] = Recipe()  # type: ignore[index]
    with pytest.raises(TypeError):
        case.sizes["n"] = 2  # type: ignore[index]


@operator(x="[*B, D] storage", w="[D] storage", tokens="*B", B=(2, 9), D=(1, 99))
def rows_of_any_shape(x: Tensor, w: Tensor) -> Tensor:
    return x * w


@operator(x="[T, D] float32", T=(700, 900), D=(0, 8))
def many_rows(x: Tensor) -> Tensor:
    return x * 2


def test_an_axis_without_a_size_has_one_or_its_least() -> None:
    register(many_rows)
    assert dict(default_case(operator="many_rows").sizes) == {"T": 700, "D": 1}


def test_a_case_has_the_axes_that_it_has_sizes_of() -> None:
    register(rows_of_any_shape)
    case = default_case(operator="rows_of_any_shape", B0=3, D=4)
    assert (case.axes, case.lead, case.token_count, case.shape) == (("B0", "D"), (3,), 3, "B0 = 3, D = 4")
    assert [case.may_have((size,)) for size in (1, 2, 9, 10)] == [False, True, True, False]
    two = default_case(operator="rows_of_any_shape", B0=3, B1=2, D=4)
    assert [two.may_have(sizes) for sizes in ((2, 2), (2, 1), (10, 2), (2, 10), (9, 9))] == [
        *(True, False, False, False, True)
    ]
    assert (two.lead, two.token_count) == ((3, 2), 6)
    assert dict(with_sizes(two, B1=5).sizes) == {"B0": 3, "B1": 5, "D": 4}


def edited(path: str, value: Any) -> str:
    """The JSON of a small case with one field replaced, by its path as error messages give it."""
    document = json.loads(default_case(B=2, S=3, n=2, D=4).to_json())
    *parents, last = path.split(".")
    place = document
    for name in parents:
        place = place.setdefault(name, {})
    place[last] = value
    return json.dumps(document)


BAD_FIELDS: dict[str, Any] = {
    "operator": "nosuch",
    "B": -1,
    "S": 1.5,
    "n": 17,
    "D": 0,
    "dtype": "float8",
    "colour": "red",
    "scalars.norm_eps": -1.0,
    "scalars.hc_eps": "nan",
    "scalars.beta": 1.0,
    "tensors": [],
    "tensors.y": {},
    "tensors.x": 3,
    "tensors.x.kind": "gaussian",
    "tensors.x.seed": -1,
    "tensors.x.scale": "inf",
    "tensors.x.colour": "red",
    "tensors.x.literals": [[[0, 0, 0, 0]]],
    "tensors.x.layout.order": [0, 1, 2, 2],
    "tensors.x.layout.step": 0,
    "tensors.x.layout.pad": -1,
    "tensors.x.layout.offset": True,
    "tensors.x.layout.expand": [4],
    "tensors.x.layout.colour": "red",
    "schedules.triton": 3,
    "schedules.triton.block": 0.5,
}


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("path", BAD_FIELDS)
def test_validation_names_the_bad_field(path: str) -> None:
    with pytest.raises(CaseError) as caught:
        Case.from_json(edited(path, BAD_FIELDS[path]))
    assert caught.value.path.startswith(path)
    assert str(caught.value).startswith(path)


@pytest.mark.usefixtures("unchecked_shapes")
def test_validation_shows_the_value_and_what_it_must_be() -> None:
    with pytest.raises(CaseError, match=r"^n: must be in 1\.\.16, was 17$"):
        Case.from_json(edited("n", 17))
    with pytest.raises(
        CaseError, match=r"^tensors\.x\.literals\[0\]: must be an index into shape \(2, 3, 2, 4\), was \(0, 0, 2, 0\)"
    ):
        Case.from_json(edited("tensors.x.literals", [[[0, 0, 2, 0], 1.0]]))
    with pytest.raises(CaseError, match=r"^tensors\.phi: must be given"):
        Case(tensors={"x": Recipe()})
    with pytest.raises(CaseError, match=r"^case: is not JSON"):
        Case.from_json("{")


def test_a_case_is_written_in_the_oldest_version_that_can_hold_it() -> None:
    register(rows_of_any_shape)
    case, other = default_case(), default_case(operator="rows_of_any_shape", B0=3, D=4)
    written = {
        1: [case, with_sizes(case, n=2)],
        2: [with_tensor(case, "x", period=8), with_tensor(case, "dh_in", rows=2)],
        3: [other, with_tensor(other, "x", period=8)],
    }
    for version, made in written.items():
        for one in made:
            assert json.loads(one.to_json())["schema"] == version
            assert Case.from_json(one.to_json()) == one


def test_every_saved_schema_version_is_read() -> None:
    """The fixture is what version 1 wrote; it must keep its meaning, its text and its id."""
    case = Case.from_json(FIXTURE.read_text(encoding="utf-8"))
    assert case.id == "pre-B2S3n2D5-fp16-nogamma-eae3d5d8"
    assert case.tensors["x"] == Recipe(
        kind="row_scaled",
        seed=7,
        scale=0.125,
        literals=(((1, 2, 0, 3), float("inf")),),
        layout=Layout(order=(1, 0, 2, 3), step=2, pad=1, offset=3),
    )
    assert (case.scalars["norm_eps"], case.scalars["hc_eps"]) == (1e-6, 0.0)
    assert dict(case.schedules["triton"]) == {"block_k": 64, "split": "auto", "swap": True}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (4, "schema: version 4 was written by a newer mhc; this one reads versions 1 to 3"),
        (0, "schema: version 0 cannot be read; this mhc reads versions 1 to 3"),
        ("1", "schema: must be an integer, was '1'"),
    ],
)
def test_a_schema_that_cannot_be_read_says_why(schema: Any, message: str) -> None:
    with pytest.raises(CaseError) as caught:
        Case.from_json(edited("schema", schema))
    assert str(caught.value) == message


def test_a_file_without_a_schema_says_so() -> None:
    with pytest.raises(CaseError, match=r"schema: missing; this is not a case"):
        Case.from_json("{}")


def test_an_older_schema_is_upgraded_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if versions 4 and 5 had renamed a field each."""

    def renamed(old: str, new: str) -> Any:
        def step(document: dict[str, Any]) -> dict[str, Any]:
            changed = copy.deepcopy(document)
            changed[new] = changed.pop(old)
            return changed

        return step

    steps = {**case_json._UPGRADES, 3: renamed("kind", "type"), 4: renamed("type", "dtype")}
    monkeypatch.setattr(case_json, "SCHEMA", 5)
    monkeypatch.setattr(case_json, "_UPGRADES", steps)
    document = json.loads(FIXTURE.read_text(encoding="utf-8"))
    document["kind"] = document.pop("dtype")
    assert Case.from_json(json.dumps(document)).dtype == "float16"
    monkeypatch.setattr(case_json, "_UPGRADES", {name: step for name, step in steps.items() if name != 1})
    with pytest.raises(CaseError, match=r"schema: version 1 cannot be read"):
        Case.from_json(json.dumps(document))


RECIPE_LIMITS: dict[str, tuple[list[Any], list[Any]]] = {
    # of a tensor of shape (2, 3, 2, 4): what is taken, and what is refused
    "kind": (["normal"], ["uniform", 3, None]),
    "seed": ([0, 1, 2**64 - 1], [-1, 2**64, True, 1.0]),
    "scale": ([0.0, -2.0], [1, math.inf, math.nan]),
    "period": ([0, 1, 2**62], [-1, True, 2**63]),
    "rows": ([0, 1, 2**62], [-1, 1.5, 2**63]),
    "literals": (
        [(), (((0, 0, 0, 0), 1.0),), (((1, 2, 1, 3), math.nan), ((0, 0, 0, 0), 2.0))],
        [
            (((0, 0, 0), 1.0),),
            (((0,) * 5, 1.0),),
            (((2, 0, 0, 0), 1.0),),
            (((0, 0, 0, 4), 1.0),),
            (((0, -1, 0, 0), 1.0),),
            (((0, 0, 0, 0), 1),),
        ],
    ),
    "layout.order": ([(), (0, 1, 2, 3), (3, 0, 2, 1)], [(0,), (0, 1, 2, 2), (1, 2, 3, 4)]),
    "layout.step": ([1, 2], [0, -1, 1.0]),
    "layout.pad": ([0, 1], [-1, True]),
    "layout.offset": ([0, 1], [-1, 0.5]),
    "layout.expand": ([(), (0,), (3, 1), (0, 1, 2, 3)], [(4,), (-1,), (1, 1), (True,)]),
}


@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("path", RECIPE_LIMITS)
def test_recipes_are_taken_up_to_their_limits(path: str) -> None:
    case = default_case(B=2, S=3, n=2, D=4)
    taken, refused = RECIPE_LIMITS[path]
    field = path.removeprefix("layout.")

    def made(value: Any) -> Case:
        return with_tensor(case, "x", **({field: value} if field == path else {"layout": Layout(**{field: value})}))

    for value in taken:
        recipe = made(value).tensors["x"]
        assert repr(getattr(recipe if field == path else recipe.layout, field)) == repr(value)
    for value in refused:
        with pytest.raises(CaseError) as caught:
            made(value)
        assert caught.value.path.startswith(f"tensors.x.{path}")


@pytest.mark.usefixtures("unchecked_shapes")
def test_cases_are_taken_up_to_their_limits() -> None:
    def refused(path: str, **changes: Any) -> None:
        with pytest.raises(CaseError) as caught:
            replace(case, **changes)
        assert caught.value.path == path, changes

    case = default_case(B=2, S=3, n=2, D=4)
    assert default_case(B=2**38, S=1, n=1, D=1).sizes["B"] == 2**38
    with pytest.raises(CaseError, match="of at most 274877906944 elements"):
        default_case(B=2**38 + 1, S=1, n=1, D=1)
    for sizes, path in (({"Q": 1}, "sizes.Q"), ({"n": 0}, "n"), ({"n": 17}, "n"), ({"B": True}, "B"), ({"B": 2**63}, "B")):
        refused(path, sizes={**case.sizes, **sizes})
    refused("operator", operator=3)
    refused("dtype", dtype="float8")
    refused("dtype", dtype=None)
    for value in (-1.0, math.inf, math.nan, 1):
        refused("scalars.norm_eps", scalars={"norm_eps": value})
    refused("scalars.other", scalars={"other": 1.0})
    refused("tensors.other", tensors={**case.tensors, "other": Recipe()})
    refused("tensors.x", tensors={**case.tensors, "x": 3})
    refused("tensors.x", tensors={name: one for name, one in case.tensors.items() if name != "x"})
    refused("tensors.x.layout", tensors={**case.tensors, "x": Recipe(layout=3)})  # type: ignore[arg-type]
    refused("tensors.x.rows", tensors={**case.tensors, "x": Recipe(period=2, rows=2)})
    refused("schedules.a.b", schedules={"a": {"b": 0.5}})
    assert replace(case, scalars={"norm_eps": 0.0}).scalars["norm_eps"] == 0
    assert not replace(case, tensors={name: one for name, one in case.tensors.items() if name != "gamma"}).has("gamma")
    assert dict(replace(case, schedules={"a": {"b": True, "c": "d"}}).schedules["a"]) == {"b": True, "c": "d"}
