"""Case: everything that determines one check except the implementation. Small, frozen, stored as JSON."""

import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from mhc.case_json import CaseError, decode, encode, parse
from mhc.operator import DEFAULT, OPERATORS, STORAGE_DTYPES, Operator, TensorSpec
from mhc.recipe import CONTIGUOUS, Layout, Recipe

ScheduleValue = int | str | bool
Schedule = Mapping[str, ScheduleValue]

_MOST_ELEMENTS = 1 << 38  # of a tensor: no machine has room for more
_SHORT_DTYPE = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One drawn case of one operator.

    Attributes:
        operator: a key of `mhc.operator.OPERATORS`.
        sizes: of every symbol of the operator. Given are those of its axes, 1 where missing; the others follow. A leading
            axis that is missing is none.
        dtype: of the tensors in storage dtype, by name; the other dtypes follow from it.
        tensors: a recipe for each input and upstream gradient of the operator; absent optional tensors are left out.
        scalars: the operator's hyper-parameters; missing ones take the operator's defaults.
        schedules: pinned kernel schedules by implementation name; other implementations use their default.

    Raises:
        CaseError: a field is invalid; the message begins with the field's path, as in `tensors.x.layout.step`.
    """

    operator: str = DEFAULT
    sizes: Mapping[str, int] = field(default_factory=dict)
    dtype: str = "bfloat16"
    tensors: Mapping[str, Recipe] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)
    schedules: Mapping[str, Schedule] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(_is_one_of(self.operator, OPERATORS), "operator", f"one of {', '.join(OPERATORS)}", self.operator)
        object.__setattr__(self, "sizes", MappingProxyType(_sizes(self.table, self.sizes)))
        scalars = {one: self.table.scalar(one, value) for one, value in {**self.table.scalars, **self.scalars}.items()}
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))
        object.__setattr__(self, "scalars", MappingProxyType(scalars))
        schedules = {name: MappingProxyType(dict(schedule)) for name, schedule in self.schedules.items()}
        object.__setattr__(self, "schedules", MappingProxyType(schedules))
        _validate(self)

    @property
    def table(self) -> Operator:
        return OPERATORS[self.operator]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> int:
            """Return the size of a symbol: `case.n` in a `supports` of an implementation."""
            if name in self.__dict__.get("sizes", {}):
                return self.sizes[name]
            raise AttributeError(f"{type(self).__name__} has no attribute and {self.operator} no symbol {name!r}")

    @property
    def lead(self) -> tuple[int, ...]:
        """Return the sizes of the axes of tokens."""
        return tuple(self.sizes[name] for name in self.table.tokens if name in self.sizes)

    @property
    def axes(self) -> tuple[str, ...]:
        """Return the names of the axes that its tensors have."""
        return tuple(name for name in self.table.axis_names if name in self.sizes)

    def may_have(self, lead: Sequence[int]) -> bool:
        """Return whether the axes of tokens may have these sizes."""
        axes = [self.table.axis(name) for name in self.table.tokens if name in self.sizes]
        return all(axis.least <= size <= axis.most for axis, size in zip(axes, lead, strict=True))

    @property
    def token_count(self) -> int:
        """Return the number of tokens."""
        return math.prod(self.lead)

    @property
    def shape(self) -> str:
        """Return the sizes of the axes in words: `B = 1, S = 2, n = 4, D = 5`."""
        return ", ".join(f"{name} = {self.sizes[name]}" for name in self.axes)

    @property
    def words(self) -> str:
        """Return its sizes, its dtype and pinned schedules in words, for reports."""
        pinned = [f"{key} = {value}" for schedule in self.schedules.values() for key, value in schedule.items()]
        return ", ".join([self.shape, f"dtype = {self.dtype}", *pinned])

    def has(self, name: str) -> bool:
        """Return whether the tensor `name` is present."""
        return name in self.tensors

    @functools.cached_property
    def json(self) -> str:
        """Return the canonical one-line JSON text; equal cases have equal texts."""
        return json.dumps(encode(vars(self)), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @functools.cached_property
    def id(self) -> str:
        """Return a readable, unique name, fit for a file: `pre-B1S2n4D5-bf16-nogamma-3fa92c01`; of an axis S1, `S1=2`."""
        shape = "".join(f"{name}{'=' if name[-1].isdigit() else ''}{self.sizes[name]}" for name in self.axes)
        absent = [f"no{spec.name}" for spec in self.table.drawn if spec.optional and not self.has(spec.name)]
        return "-".join([self.operator.removeprefix("mhc_"), shape, _SHORT_DTYPE[self.dtype], *absent, self.digest])

    @property
    def digest(self) -> str:
        """Return the end of its id, by which it differs from other cases of the same shape."""
        return hashlib.sha256(self.json.encode()).hexdigest()[:8]

    def to_json(self) -> str:
        """Return indented JSON, for files."""
        return json.dumps(encode(vars(self)), indent=2, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> "Case":
        """Read a case, of this schema version or an older one.

        Raises:
            CaseError: names the invalid field, or the schema version found and those that can be read.
        """
        try:
            document = parse(text)
        except ValueError as error:
            raise CaseError("case", str(error)) from error
        return Case.from_document(document)

    @staticmethod
    def from_document(document: object) -> "Case":
        """Read a case from JSON values, as `from_json` does."""
        try:
            return Case(**decode(document))
        except RecursionError:  # messages quote a bad value, at any depth
            raise CaseError("case", "is nested too deeply") from None

    def __reduce__(self) -> tuple[object, ...]:
        return Case.from_json, (self.json,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.json == other.json

    def __hash__(self) -> int:
        return hash(self.json)


def default_case(*, operator: str = DEFAULT, absent: frozenset[str] = frozenset(), **fields: object) -> Case:
    """Return a case with standard-normal or uniform tensors, each with its own seed, without those in `absent`.

    fields: of the case, or sizes of axes: `default_case(B=2, n=4, dtype="float32")`; other axes have 1, or their least.
    """
    _require(_is_one_of(operator, OPERATORS), "operator", f"one of {', '.join(OPERATORS)}", operator)
    drawn = OPERATORS[operator].drawn
    recipes = {spec.name: spec.recipe(seed) for seed, spec in enumerate(drawn) if spec.name not in absent}
    sizes = {name: fields.pop(name) for name in OPERATORS[operator].axis_names if name in fields}
    return Case(operator=operator, tensors=recipes, sizes=sizes, **fields)  # type: ignore[arg-type]  # checked by Case itself


def with_sizes(case: Case, **sizes: int) -> Case:
    """Return `case` with other sizes of some axes."""
    return replace(case, sizes={**case.sizes, **sizes})


def with_tensor(case: Case, name: str, **changes: object) -> Case:
    """Return `case` with some fields of one tensor's recipe replaced."""
    recipe = replace(case.tensors[name], **changes)  # type: ignore[arg-type]  # checked by Case itself
    return replace(case, tensors={**case.tensors, name: recipe})


def _require(condition: bool, path: str, wanted: str, was: object) -> None:
    if not condition:
        raise _error(path, wanted, was)


def _error(path: str, wanted: str, was: object) -> CaseError:
    return CaseError(path, f"must be {wanted}, was {was!r}")


def _is_one_of(value: object, known: Iterable[str]) -> bool:
    return isinstance(value, str) and value in set(known)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _require_size(value: object, least: int, path: str) -> None:
    """Require an integer from `least` to the largest size or stride of a tensor."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _error(path, f"an integer >= {least}", value)
    _require(value < 2**63, path, "below 2^63", value)


def _sizes(table: Operator, given: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of all symbols, of which those of the axes are checked."""
    axes = [axis for axis in table.axes if not axis.leading or axis.name in given]
    chosen = {axis.name: given.get(axis.name, max(1, axis.least)) for axis in axes}
    for axis in axes:
        _require_size(chosen[axis.name], axis.least, axis.name)
        if chosen[axis.name] > axis.most:
            raise _error(axis.name, f"in {axis.least}..{axis.most}", chosen[axis.name])
    problem = table.problem(chosen)
    if problem is not None:
        raise CaseError("sizes", problem)
    found = table.sizes(chosen)
    for name in given:
        if name not in found:
            raise _error(f"sizes.{name}", f"one of {', '.join(table.axis_names)}", name)
    return found


def _validate(case: Case) -> None:
    table = case.table
    _require(_is_one_of(case.dtype, STORAGE_DTYPES), "dtype", f"one of {', '.join(STORAGE_DTYPES)}", case.dtype)
    for name, scalar in case.scalars.items():
        path = f"scalars.{name}"
        if name not in table.scalars:
            raise _error(path, f"one of {', '.join(table.scalars)}", name)
        wanted, least = type(table.scalars[name]), min(0, *table.scalar_choices[name])
        if type(scalar) is not wanted or not math.isfinite(scalar) or scalar < least:
            raise _error(path, f"{'an int' if wanted is int else f'a {wanted.__name__}'} >= {least:g}", scalar)
    specs = {spec.name: spec for spec in table.drawn}
    for name in case.tensors:
        if name not in specs:
            raise _error(f"tensors.{name}", f"one of {', '.join(specs)}", name)
    for name, spec in specs.items():
        path = f"tensors.{name}"
        if name in case.tensors:
            shape = spec.shape(case.sizes)
            elements = math.prod(shape)
            if elements > _MOST_ELEMENTS:
                raise _error(path, f"of at most {_MOST_ELEMENTS} elements", elements)
            _validate_recipe(case.tensors[name], path, spec, shape)
            if spec.values is not None:
                _validate_integers(case.tensors[name], path, spec, case.sizes)
        else:
            _require(spec.optional, path, "given (it is not optional)", None)
    for name, schedule in case.schedules.items():
        for key, value in schedule.items():
            path = f"schedules.{name}.{key}"
            _require(isinstance(value, (int, str, bool)), path, "an integer, a string or a boolean", value)


def _validate_integers(recipe: Recipe, path: str, spec: TensorSpec, sizes: Mapping[str, int]) -> None:
    """Validate what a recipe of integers or booleans may not have."""
    assert spec.values is not None
    shape, inside, ordered = spec.shape(sizes), spec.values.range(sizes), bool(spec.values.order)
    _require(recipe.scale == 1, f"{path}.scale", "1.0 (its values are integers)", recipe.scale)
    _require(recipe.rows == 0, f"{path}.rows", "0 (its values are integers)", recipe.rows)
    for at, (_, value) in enumerate(recipe.literals):
        known = not ordered and spec.values.may_be(value, sizes)
        wanted = "left out (its values have an order)" if ordered else f"in {inside.start}..{inside.stop}"
        _require(known, f"{path}.literals[{at}]", wanted, value)
    if ordered:
        _require(
            recipe.period % max(1, shape[-1]) == 0, f"{path}.period", "whole rows (its values have an order)", recipe.period
        )
    if spec.values.uneven:
        alike = len(shape) - 1 in recipe.layout.expand
        wanted = f"without the last dimension ({spec.values.order})"
        _require(not alike, f"{path}.layout.expand", wanted, recipe.layout.expand)


def _validate_recipe(recipe: Recipe, path: str, spec: TensorSpec, shape: tuple[int, ...]) -> None:
    _require(isinstance(recipe, Recipe), path, "a Recipe", recipe)
    if recipe.kind not in spec.kinds:
        raise _error(f"{path}.kind", f"one of {', '.join(spec.kinds)}", recipe.kind)
    _require(_is_int(recipe.seed) and 0 <= recipe.seed < 2**64, f"{path}.seed", "in 0..2**64-1", recipe.seed)
    scale = recipe.scale
    _require(isinstance(scale, float) and math.isfinite(scale), f"{path}.scale", "a finite float", scale)
    _require_size(recipe.period, 0, f"{path}.period")
    _require_size(recipe.rows, 0, f"{path}.rows")
    if recipe.period and recipe.rows:
        raise _error(f"{path}.rows", f"0 where period is given (period = {recipe.period})", recipe.rows)
    for at, (index, value) in enumerate(recipe.literals):
        inside = len(index) == len(shape) and all(0 <= i < size for i, size in zip(index, shape, strict=True))
        _require(inside, f"{path}.literals[{at}]", f"an index into shape {shape}", index)
        _require(isinstance(value, float), f"{path}.literals[{at}]", "a float value", value)
        if spec.floating and not spec.may_be(value):
            wanted = "in {}..{}".format(*spec.within) if spec.within is not None else "finite"
            raise _error(f"{path}.literals[{at}]", wanted, value)
    _validate_layout(recipe.layout, f"{path}.layout", len(shape))


def _validate_layout(layout: Layout, path: str, rank: int) -> None:
    _require(isinstance(layout, Layout), path, "a Layout", layout)
    if layout is CONTIGUOUS:
        return
    order = layout.order
    _require(not order or sorted(order) == list(range(rank)), f"{path}.order", f"a permutation of 0..{rank - 1}", order)
    for name, least in (("step", 1), ("pad", 0), ("gap", 0), ("offset", 0)):
        _require_size(getattr(layout, name), least, f"{path}.{name}")
    expand = layout.expand
    distinct = len(set(expand)) == len(expand) and all(_is_int(dim) and 0 <= dim < rank for dim in expand)
    _require(distinct, f"{path}.expand", f"distinct dimensions in 0..{rank - 1}", expand)
