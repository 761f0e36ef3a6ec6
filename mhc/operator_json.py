"""The JSON form of an operator that was declared by a function: what a case needs, without the function.

A case holds it, so that a finding can be shown, a store checked and a run resumed before the file of its operator is
imported. Until then the operator is *described*: its formula cannot be evaluated.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mhc.operator import OPERATORS, Axis, Operator, Role, TensorSpec, register

Name = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w{0,99}$")]
Symbol = Annotated[str, Meta(pattern=r"^\w{1,40}$")]
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AxisText(msgspec.Struct, forbid_unknown_fields=True):
    """An `Axis`."""

    name: Name
    least: Size
    most: Size


class TensorText(msgspec.Struct, forbid_unknown_fields=True):
    """A `TensorSpec`."""

    name: Name
    symbols: tuple[Symbol, ...]
    dtype: Role


class OperatorText(msgspec.Struct, forbid_unknown_fields=True):
    """An `Operator` that was declared by a function, without what is made from the function."""

    name: Name
    axes: tuple[AxisText, ...]
    tokens: tuple[Name, ...]
    inputs: tuple[TensorText, ...]
    outputs: tuple[TensorText, ...]
    scalars: dict[Name, tuple[float, ...]]


class NotImportedError(Exception):
    """The formula of an operator was asked for, whose file has not been imported."""


def encode_operator(table: Operator) -> dict[str, Any]:
    """Return the description of an operator as JSON values."""
    text = OperatorText(
        name=table.name,
        axes=tuple(AxisText(one.name, one.least, one.most) for one in table.axes),
        tokens=table.tokens,
        inputs=tuple(TensorText(one.name, one.symbols, one.role) for one in table.inputs),
        outputs=tuple(TensorText(one.name, one.symbols, one.role) for one in table.outputs),
        scalars=dict(table.scalar_choices),
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


def _described(text: OperatorText) -> Operator:
    symbols = [symbol for one in text.inputs for symbol in one.symbols]
    axes = {one.name for one in text.axes}
    missing = [symbol for symbol in (*symbols, *text.tokens) if symbol not in axes and not symbol.isdigit()]
    if missing or not text.inputs or not text.outputs or not all(text.scalars.values()):
        raise ValueError(f"{text.name!r} has {missing[0] if missing else 'a part'} that is not described")
    return record_of(
        text.name,
        axes=tuple(Axis(one.name, one.least, one.most) for one in text.axes),
        tokens=text.tokens,
        inputs=tuple(TensorSpec(one.name, one.symbols, one.dtype) for one in text.inputs),
        outputs=tuple(TensorSpec(one.name, one.symbols, one.dtype) for one in text.outputs),
        scalars=text.scalars,
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
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    function: Callable[..., Any] | None,
) -> Operator:
    """Return the record of an operator that was declared by a function; nothing is saved for its backward."""
    return Operator(
        name=name,
        inputs=inputs,
        outputs=outputs,
        saved=(),
        upstream=tuple(TensorSpec(f"d{one.name}", one.symbols, one.role) for one in outputs),
        gradients=tuple(TensorSpec(f"d{one.name}", one.symbols, one.role) for one in inputs),
        optional_outputs=frozenset(),
        scalars={one: values[0] for one, values in scalars.items()},
        scalar_choices=dict(scalars),
        axes=axes,
        derived=lambda sizes: {},
        forward=forward,
        backward=backward,
        tokens=tokens,
        function=function,
        described=function is None,
    )
