"""The JSON form of an operator that was declared by a function: what a case needs, without the function.

A case holds it, so that a finding can be shown, a store checked and a run resumed before the file of its operator is
imported. Until then the operator is *described*: its formula cannot be evaluated.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mhc import expression
from mhc.operator import OPERATORS, Axis, Operator, Order, Role, TensorSpec, Values, register

Name = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w{0,99}$")]
OperatorName = Annotated[str, Meta(pattern=r"^(\w{1,100}\.)?[A-Za-z_]\w{0,99}$")]
Symbol = Annotated[str, Meta(pattern=r"^\w{1,40}$")]
Expression = Annotated[str, Meta(max_length=100)]
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AxisText(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An `Axis`."""

    name: Name
    least: Size
    most: Size
    leading: bool = False


class ValuesText(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The `Values` of a tensor."""

    least: Expression
    end: Expression
    sentinel: int | None = None
    order: Order = ""


class TensorText(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A `TensorSpec`."""

    name: Name
    symbols: tuple[Symbol, ...]
    dtype: Role
    optional: bool = False
    values: ValuesText | None = None
    differentiable: bool = True
    within: tuple[float | None, float | None] | None = None  # None for an infinite end
    finite: bool = False


class OperatorText(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An `Operator` that was declared by a function, without what is made from the function."""

    name: OperatorName
    axes: tuple[AxisText, ...]
    tokens: tuple[Name, ...]
    inputs: tuple[TensorText, ...]
    outputs: tuple[TensorText, ...]
    scalars: dict[Name, tuple[bool | int | float, ...]]
    derived: tuple[tuple[Name, Expression], ...] = ()  # in the order of evaluation


class NotImportedError(Exception):
    """The formula of an operator was asked for, whose file has not been imported."""


def encode_operator(table: Operator) -> dict[str, Any]:
    """Return the description of an operator as JSON values."""
    text = OperatorText(
        name=table.name,
        axes=tuple(AxisText(one.name, one.least, one.most, one.leading) for one in table.axes),
        tokens=table.tokens,
        inputs=tuple(map(_text, table.inputs)),
        outputs=tuple(map(_text, table.outputs)),
        scalars=dict(table.scalar_choices),
        derived=tuple(table.formulas.items()),
    )
    found: dict[str, Any] = msgspec.to_builtins(text)
    return found


def known_operator(document: object) -> str:
    """Return the name of the operator that JSON values describe, and register it as described if it is not known.

    Raises:
        ValueError: the values are no description, or another operator has this name.
    """
    text = msgspec.convert(document, OperatorText)
    described, known = _described(text), OPERATORS.get(text.name)
    if known is None:
        register(described)
    elif known.description != described.description:
        raise ValueError(f"{text.name!r} is declared otherwise now")
    return text.name


class _NotImported:
    """Stands for the formula of an operator that is only described."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise NotImportedError(f"operator {self.name}: its file has not been imported; name an implementation of it")


def _text(spec: TensorSpec) -> TensorText:
    held, values = spec.values, None
    if held is not None:
        values = ValuesText(held.least, held.end, held.sentinel, held.order)
    least, most = spec.within or (-math.inf, math.inf)
    within = spec.within and (least if math.isfinite(least) else None, most if math.isfinite(most) else None)
    return TensorText(spec.name, spec.symbols, spec.role, spec.optional, values, spec.differentiable, within, spec.finite)


def _spec(text: TensorText) -> TensorSpec:
    held, values = text.values, None
    if held is not None:
        values = Values(held.least, held.end, held.sentinel, held.order)
    within = None
    if text.within is not None:
        least, most = text.within
        within = -math.inf if least is None else least, math.inf if most is None else most
    return TensorSpec(text.name, text.symbols, text.dtype, text.optional, values, text.differentiable, within, text.finite)


def _described(text: OperatorText) -> Operator:
    axes, inputs = {one.name for one in text.axes}, tuple(map(_spec, text.inputs))
    used = [symbol for symbol in (*text.tokens, *(one for spec in inputs for one in spec.symbols)) if not symbol.isdigit()]
    used = [symbol for symbol in used if symbol not in axes and symbol not in dict(text.derived)]
    known = {one.name for one in text.axes if not one.leading}  # of these, sizes follow
    for name, formula in text.derived:
        used += [one for one in expression.symbols(formula) if one not in known]
        known.add(name)
    used += [one for spec in inputs if spec.values for one in spec.values.symbols if one not in known]
    whole = inputs and text.outputs and all(text.scalars.values()) and not axes & set(dict(text.derived))
    if used or not whole or any(spec.floating != (spec.values is None) for spec in inputs):
        raise ValueError(f"{text.name!r} has {used[0] if used else 'a part'} that is not described")
    return record_of(
        text.name,
        axes=tuple(Axis(one.name, one.least, one.most, one.leading) for one in text.axes),
        tokens=text.tokens,
        inputs=inputs,
        outputs=tuple(map(_spec, text.outputs)),
        scalars=text.scalars,
        formulas=dict(text.derived),
        forward=_NotImported(text.name),
        backward=_NotImported(text.name),
        function=None,
    )


def record_of(
    name: str,
    *,
    axes: tuple[Axis, ...],
    tokens: tuple[str, ...],
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    scalars: Mapping[str, tuple[float, ...]],
    formulas: Mapping[str, str],
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    function: Callable[..., Any] | None,
) -> Operator:
    """Return the record of an operator that was declared by a function; nothing is saved for its backward."""
    upstream = tuple(replace(one, name=f"d{one.name}") for one in outputs if one.differentiable)
    gradients = tuple(replace(one, name=f"d{one.name}", within=None, finite=False) for one in inputs if one.differentiable)
    return Operator(
        name=name,
        inputs=inputs,
        outputs=outputs,
        saved=(),
        upstream=upstream if gradients else (),
        gradients=gradients if upstream else (),
        optional_outputs=frozenset(),
        scalars={one: values[0] for one, values in scalars.items()},
        scalar_choices=dict(scalars),
        axes=axes,
        derived=partial(_derived, formulas),
        formulas=dict(formulas),
        forward=forward,
        backward=backward,
        tokens=tokens,
        function=function,
        described=function is None,
    )


def _derived(formulas: Mapping[str, str], sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of the symbols that follow, in the order of their formulas."""
    found = dict(sizes)
    for name, formula in formulas.items():
        found[name] = expression.evaluate(formula, found)
    return {name: found[name] for name in formulas}
