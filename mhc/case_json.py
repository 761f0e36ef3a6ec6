"""The JSON form of a case and its versions. Numbers round-trip exactly; NaN and infinities are written as strings.

`_UPGRADES[v]` turns a document of version v into one of version v + 1. A change of the format increases `SCHEMA` and adds a
step, so that every saved fixture stays readable. A case is written in the oldest version that can represent it, so that its
text and its id never change.

    1  the first version
    2  recipes may have `period` and `rows`
    3  `sizes` of any axes; before it the fields B, S, n and D of mhc_pre, the only operator
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from mhc.operator import OPERATORS
from mhc.operator_json import encode_operator, known_operator
from mhc.recipe import Layout, Recipe

SCHEMA = 3
OLDEST = 1
_LONGEST = 1000

_FIRST_OPERATOR = "mhc_pre"
_FLAT = ("B", "S", "n", "D")  # its sizes, fields of their own up to version 2


def _with_sizes(document: dict[str, Any]) -> dict[str, Any]:
    sizes = {name: document[name] for name in _FLAT if name in document}
    return {**{name: value for name, value in document.items() if name not in _FLAT}, "sizes": sizes}


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: lambda document: document, 2: _with_sizes}


class CaseError(ValueError):
    """Raised for an invalid case or case file. The message begins with the path of the invalid field."""

    def __init__(self, path: str, problem: str) -> None:
        shown = problem if len(problem) <= _LONGEST else f"{problem[:_LONGEST]}..."  # it quotes values of any size
        super().__init__(f"{path}: {shown}")
        self.path = path


def encode(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Case` as JSON values.

    All fields of recipes and layouts are written, so that new defaults cannot change a fixture.
    """
    thinned = any(recipe.period or recipe.rows for recipe in case["tensors"].values())
    flat = case["operator"] == _FIRST_OPERATOR
    return {
        "schema": 3 if not flat else 2 if thinned else 1,
        "operator": case["operator"] if flat else encode_operator(OPERATORS[case["operator"]]),
        **({name: case["sizes"][name] for name in _FLAT} if flat else {"sizes": dict(case["sizes"])}),
        "dtype": case["dtype"],
        "scalars": dict(case["scalars"]),
        "tensors": {name: _encode_recipe(recipe) for name, recipe in case["tensors"].items()},
        "schedules": {name: dict(schedule) for name, schedule in case["schedules"].items()},
    }


def parse(text: str) -> object:
    """Return the JSON values of a text. NaN and infinities are not valid JSON.

    Raises:
        ValueError: the text is not JSON, or nested too deeply; the message says where.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:  # its syntax, or a number with thousands of digits
        raise ValueError(f"is not JSON ({error})") from error


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def decode(document: object) -> dict[str, Any]:
    """Return the fields of a `Case` from JSON values of this schema version or an older one.

    Raises:
        CaseError: a field is unknown, or the schema version cannot be read.
    """
    document = _upgrade(_mapping(document, "case"))
    names = {"operator", "sizes", "dtype", "scalars", "tensors", "schedules"}
    _only(document, names, "")
    sizes = _mapping(document.get("sizes", {}), "sizes")
    tensors, scalars, schedules = (_mapping(document.get(name, {}), name) for name in ("tensors", "scalars", "schedules"))
    return {
        **document,
        **({"operator": _operator(document["operator"])} if "operator" in document else {}),
        "sizes": sizes,
        "tensors": {name: _decode_recipe(value, f"tensors.{name}") for name, value in tensors.items()},
        "scalars": {
            name: value if isinstance(value, bool) else _float(value, f"scalars.{name}") for name, value in scalars.items()
        },
        "schedules": {name: _mapping(value, f"schedules.{name}") for name, value in schedules.items()},
    }


def operator_of(document: object) -> str:
    """Return the name of the operator of a case of any version from its JSON values, without reading anything else of it.

    Raises:
        ValueError: there is none.
    """
    value = document.get("operator", _FIRST_OPERATOR) if isinstance(document, Mapping) else None
    name = value.get("name") if isinstance(value, Mapping) else value
    if not isinstance(name, str):
        raise ValueError("no case")
    return name


def _operator(value: object) -> object:
    """Return the name of an operator from its name or its description."""
    if not isinstance(value, Mapping):
        return value
    try:
        return known_operator(value)
    except ValueError as error:
        raise CaseError("operator", str(error)) from None


def _upgrade(document: dict[str, Any]) -> dict[str, Any]:
    if "schema" not in document:
        raise CaseError("schema", f"missing; this is not a case, or not one that was saved by mhc (it reads {_readable()})")
    version = document["schema"]
    if not isinstance(version, int) or isinstance(version, bool):
        raise CaseError("schema", f"must be an integer, was {version!r}")
    if version > SCHEMA:
        raise CaseError("schema", f"version {version} was written by a newer mhc; this one reads {_readable()}")
    while version < SCHEMA:
        if version not in _UPGRADES:
            raise CaseError("schema", f"version {version} cannot be read; this mhc reads {_readable()}")
        document = _UPGRADES[version](document)
        version += 1
    return {name: value for name, value in document.items() if name != "schema"}


def _readable() -> str:
    return f"version {SCHEMA}" if OLDEST == SCHEMA else f"versions {OLDEST} to {SCHEMA}"


def _encode_recipe(recipe: Recipe) -> dict[str, Any]:
    layout = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(recipe.layout).items()}
    if not recipe.layout.gap:  # of cases that were saved before there was one, the id stays
        del layout["gap"]
    thinned = {"period": recipe.period, "rows": recipe.rows} if recipe.period or recipe.rows else {}
    return {
        "kind": recipe.kind,
        "seed": recipe.seed,
        "scale": recipe.scale,
        **thinned,
        "literals": [[list(index), _encode_float(value)] for index, value in recipe.literals],
        "layout": layout,
    }


def _encode_float(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _decode_recipe(value: object, path: str) -> Recipe:
    document = _mapping(value, path)
    _only(document, {field.name for field in fields(Recipe)}, f"{path}.")
    if "scale" in document:
        document["scale"] = _float(document["scale"], f"{path}.scale")
    if "literals" in document:
        entries = _list(document["literals"], f"{path}.literals")
        document["literals"] = tuple(_decode_literal(entry, f"{path}.literals[{at}]") for at, entry in enumerate(entries))
    if "layout" in document:
        document["layout"] = _decode_layout(document["layout"], f"{path}.layout")
    return Recipe(**document)


def _decode_literal(value: object, path: str) -> tuple[tuple[int, ...], float]:
    entry = _list(value, path)
    if len(entry) != 2:
        raise CaseError(path, f"must be [index, value], was {value!r}")
    return _index(entry[0], path), _float(entry[1], path)


def _decode_layout(value: object, path: str) -> Layout:
    document = _mapping(value, path)
    _only(document, {field.name for field in fields(Layout)}, f"{path}.")
    for name in ("order", "expand"):
        if name in document:
            document[name] = _index(document[name], f"{path}.{name}")
    return Layout(**document)


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise CaseError(path, f"must be an object, was {value!r}")
    return dict(value)


def _list(value: object, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise CaseError(path, f"must be a list, was {value!r}")
    return value


def _index(value: object, path: str) -> tuple[int, ...]:
    entries = _list(value, path)
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in entries):
        raise CaseError(path, f"must be a list of integers, was {value!r}")
    return tuple(entries)


def _float(value: object, path: str) -> float:
    if value in ("nan", "inf", "-inf"):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CaseError(path, f'must be a number, "nan", "inf" or "-inf", was {value!r}')
    try:
        return float(value)
    except OverflowError:
        raise CaseError(path, f"must fit a float64, was {value!r}") from None


def _only(document: Mapping[str, object], known: set[str], prefix: str) -> None:
    for name in document:
        if name not in known:
            raise CaseError(f"{prefix}{name}", f"unknown field; known are {', '.join(sorted(known))}")
