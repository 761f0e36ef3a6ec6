"""The description of a declared operator in a case: all of it is written, read back, and refused where it says nothing."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from mhc import operator
from mhc.operator import OPERATORS, Operator, register
from mhc.operator_json import NotImportedError, encode_operator, known_operator

DECLARED: dict[str, Any] = {
    **{"x": "[*B, H] storage", "w": "[D] float32 constant", "i": "[E1] int32 in 1..D+1 or -1 sorted"},
    **{"p": "[D] int64 permutation", "m": "[D] bool", "b": "[H] storage optional"},
    **{"H": "2*D", "E1": "E+1", "D": (1, 64), "E": (0, 7), "B": (2, 9), "eps": (1e-6, 0.0), "scale": 2.0, "tokens": "*B"},
}


@operator(**DECLARED)
def described_once(
    x: Tensor, w: Tensor, i: Tensor, p: Tensor, m: Tensor, b: Tensor | None, *, eps: float, scale: float
) -> tuple[Tensor, Tensor]:
    y = x * torch.cat([w, w * m]).to(x.dtype) * scale + eps
    return (y if b is None else y + b), i * 1


def document_of(name: str) -> dict[str, Any]:
    return deepcopy({**encode_operator(described_once), "name": name})


def listed(document: Any) -> Any:
    """Return JSON values with lists in place of tuples, which a test can change."""
    return msgspec.json.decode(msgspec.json.encode(document))


def test_a_description_has_every_part_that_is_not_the_default() -> None:
    axes = [{"name": f"B{at}", "least": 2, "most": 9, "leading": True} for at in range(3)]
    axes += [{"name": "D", "least": 1, "most": 64}, {"name": "E", "least": 0, "most": 7}]
    lead = ["B0", "B1", "B2"]
    assert listed(encode_operator(described_once)) == {
        "name": "described_once",
        "axes": axes,
        "tokens": lead,
        "inputs": [
            {"name": "x", "symbols": [*lead, "H"], "dtype": "storage"},
            {"name": "w", "symbols": ["D"], "dtype": "accumulate", "differentiable": False},
            {
                **{"name": "i", "symbols": ["E1"], "dtype": "int32", "differentiable": False},
                "values": {"least": "1", "end": "D+1", "sentinel": -1, "order": "sorted"},
            },
            {
                **{"name": "p", "symbols": ["D"], "dtype": "int64", "differentiable": False},
                "values": {"least": "0", "end": "D", "order": "permutation"},
            },
            {
                **{"name": "m", "symbols": ["D"], "dtype": "bool", "differentiable": False},
                "values": {"least": "0", "end": "2"},
            },
            {"name": "b", "symbols": ["H"], "dtype": "storage", "optional": True},
        ],
        "outputs": [
            {"name": "y0", "symbols": [*lead, "H"], "dtype": "storage"},
            {"name": "y1", "symbols": ["E1"], "dtype": "int32", "differentiable": False},
        ],
        "scalars": {"eps": [1e-6, 0.0], "scale": [2.0]},
        "derived": [["H", "2*D"], ["E1", "E+1"]],
    }


def test_an_operator_is_known_by_its_description_alone() -> None:
    name = known_operator(document_of("described_twice"))
    found = OPERATORS[name]
    assert name == "described_twice"
    assert found.described
    assert not described_once.described
    assert found.description == replace(described_once, name=name).description
    for field in ("upstream", "gradients", "scalars", "saved", "optional_outputs", "backward_arguments", "axis_names"):
        assert getattr(found, field) == getattr(described_once, field), field
    chosen = {"B0": 2, "D": 5, "E": 3}
    assert found.sizes(chosen) == described_once.sizes(chosen) == {**chosen, "H": 10, "E1": 4}
    for function in (found.forward, found.backward):
        with pytest.raises(NotImportedError, match="operator described_twice: its file has not been imported"):
            function()
    assert known_operator(document_of(name)) == name, "once more"


def test_a_description_that_is_another_one_is_refused() -> None:
    known_operator(document_of("described_thrice"))
    changes: list[Callable[[Any], Any]] = [
        lambda one: one["axes"][0].update(least=1),
        lambda one: one["axes"][0].update(most=8),
        lambda one: one["scalars"]["eps"].append(1.0),
        lambda one: one["inputs"][2]["values"].update(sentinel=-2),
        lambda one: one["inputs"][2]["values"].update(order=""),
        lambda one: one["inputs"][2]["values"].update(least="0"),
        lambda one: one["inputs"][5].pop("optional"),
        lambda one: one["inputs"][1].pop("differentiable"),
        lambda one: one["outputs"].pop(),
        lambda one: one.update(tokens=[]),
        lambda one: one.update(derived=[["H", "2*D"], ["E1", "E+2"]]),
    ]
    for change in changes:
        document = listed(document_of("described_thrice"))
        change(document)
        with pytest.raises(ValueError, match="'described_thrice' is declared otherwise now"):
            known_operator(document)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one.update(tokens=["S"]), "has S that is not described"),
        (lambda one: one["inputs"][0].update(symbols=["S"]), "has S that"),
        (lambda one: one["inputs"][2]["values"].update(end="S+1"), "has S that"),
        (lambda one: one["inputs"][2]["values"].update(least="S"), "has S that"),
        (lambda one: one["inputs"][2]["values"].update(end="B0"), "has B0 that"),
        (lambda one: one.update(derived=[["H", "2*E1"], ["E1", "E+1"]]), "has E1 that"),
        (lambda one: one.update(derived=[["H", "2*B0"], ["E1", "E+1"]]), "has B0 that"),
        (lambda one: one.update(derived=[["H", "2*D"], ["E1", "E+1"], ["E", "1"]]), "has a part that"),
        (lambda one: one.update(inputs=[]), "has a part that"),
        (lambda one: one.update(outputs=[]), "has a part that"),
        (lambda one: one["scalars"].update(eps=[]), "has a part that"),
        (lambda one: one["inputs"][2].pop("values"), "has a part that"),
        (lambda one: one["inputs"][0].update(values={"least": "0", "end": "2"}), "has a part that"),
        (lambda one: one.update(derived=[["H", "2**D"], ["E1", "E+1"]]), "has an operator other than"),
        (lambda one: one.update(more=1), "unknown field `more`"),
        (lambda one: one["axes"][0].update(more=1), "unknown field `more`"),
        (lambda one: one["inputs"][0].update(more=1), "unknown field `more`"),
        (lambda one: one["inputs"][2]["values"].update(more=1), "unknown field `more`"),
        (lambda one: one.update(name="9"), "matching regex"),
        (lambda one: one["axes"][0].update(least=-1), ">= 0"),
        (lambda one: one["inputs"][0].update(dtype="int4"), "int4"),
    ],
)
def test_a_description_in_which_something_is_missing_is_refused(change: Callable[[Any], Any], message: str) -> None:
    document = listed(document_of("never_described"))
    change(document)
    with pytest.raises(ValueError, match=message):
        known_operator(document)
    assert "never_described" not in OPERATORS


def test_an_operator_without_a_differentiable_output_has_no_gradients() -> None:
    @operator(x="[T]")
    def counted(x: Tensor) -> Tensor:
        return (x > 0).sum(-1, keepdim=True).expand(x.shape[0])

    assert (counted.upstream, counted.gradients) == ((), ())

    @operator(i="[T] int64 in 0..T")
    def whole(i: Tensor) -> Tensor:
        return i.float()

    assert (whole.upstream, whole.gradients) == ((), ())


def test_what_a_case_cannot_be() -> None:
    def problem(**chosen: int) -> str | None:
        return described_once.problem(chosen)

    assert problem(D=3, E=0) is None
    assert problem(B0=2, D=3, E=0) is None
    assert problem(B1=2, D=3, E=0) == "B1 is given without B0"
    table: Operator = operator(i="[T] int32 in 2..T", Q="8//T", R="9-T")(lambda i: i.clone())
    assert table.problem({"T": 3}) is None
    assert table.problem({"T": 2}) == "i has no value: its range is 2..2"
    assert table.problem({"T": 0}) == "T = 0 is not in 1..8192"
    assert table.problem({"T": 9}) is None
    assert table.problem({"T": 10}) == "R = 9-T is -1"
    wide: Operator = operator(i="[T] int32 in 0..N", x="[N]", N=(1, 2**40))(lambda i, x: x[i.long()])
    assert wide.problem({"T": 1, "N": 2**31}) is None
    assert wide.problem({"T": 1, "N": 2**31 + 1}) == "i has values 0..2147483648, beyond int32"


def declared(name: str, **changes: Any) -> Operator:
    return operator(**{**DECLARED, "name": name, **changes})(described_once.function)  # type: ignore[arg-type]


def test_an_imported_operator_takes_the_place_of_its_description() -> None:
    name = known_operator(document_of("described_first"))
    whole = declared(name)
    assert register(whole) is whole
    assert OPERATORS[name] is whole
    assert not OPERATORS[name].described
    assert known_operator(document_of(name)) == name
    assert OPERATORS[name] is whole, "a case that is read does not replace it"
    assert register(whole) is whole, "once more"
    again = declared(name)
    assert register(again) is again, "the same function, of a file that was imported again"
    with pytest.raises(ValueError, match="operator 'described_first': another one has this name"):
        register(replace(whole, function=lambda x: x))
    with pytest.raises(ValueError, match="another one has this name"):
        register(replace(whole, function=None))


def test_an_operator_that_is_another_one_than_its_description_is_refused() -> None:
    name = known_operator(document_of("described_otherwise"))
    with pytest.raises(ValueError, match="'described_otherwise': a case that was read before declares it otherwise"):
        register(declared(name, eps=(1e-5,)))
    assert OPERATORS[name].described


def test_a_name_of_the_package_belongs_to_it() -> None:
    own = OPERATORS["rms_norm"]
    mine = declared("rms_norm")
    assert register(mine).name == "test_operator_json.rms_norm"
    assert OPERATORS["rms_norm"] is own
    assert register(own) is own
    with pytest.raises(ValueError, match="operator 'rms_norm': another one has this name"):
        register(replace(mine, function=None))


def test_axes_tokens_and_sums_over_tokens() -> None:
    table = described_once
    assert table.axis("E").least == 0
    assert (table.axis_names, table.widths) == (("B0", "B1", "B2", "D", "E"), ("D", "E"))
    assert [table.per_token(spec) for spec in table.inputs] == [True, *(False,) * 5]
    assert table.token_sums == {"db"}
    assert table.interface("forward") == (table.forward_arguments, table.outputs)
    assert table.interface("backward") == (("x", "w", "i", "p", "m", "dy0", "b"), table.gradients)
    assert [spec.name for spec in table.drawn] == ["x", "w", "i", "p", "m", "b", "dy0"]
    assert [*table.argument_specs] == ["x", "w", "i", "p", "m", "b", "dy0"]
    assert [*table.result_specs] == ["y0", "y1", "dx", "db"]
    own = OPERATORS["mhc_pre"]
    assert {*own.argument_specs} == {*own.forward_arguments, *own.saved, *(spec.name for spec in own.upstream)}
    assert own.backward_arguments[-1] == "gamma", "optional tensors come last"
