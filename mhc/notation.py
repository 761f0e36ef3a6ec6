"""The notation of `mhc.declaration.operator`: the axes and the dtype of a tensor, and sizes that follow from others."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mhc import expression
from mhc.operator import Order, Role, TensorSpec, Values
from mhc.tensor_spec import FIXED

LEADING = 3
"""Axes that `*B` stands for, at most: B0, B1 and B2. A case has the first of them, or none."""
ROLES = {"storage": Role.STORAGE, "float32": Role.ACCUMULATE, **{role.value: role for role in FIXED}}
_NOTATION = re.compile(
    r"\[(?P<axes>[^\]]*)\]"
    r"(?: *(?P<dtype>(?!constant\b|optional\b)\w+))?"
    r"(?: in (?P<least>.+?)\.\.(?P<end>.+?))?(?: or (?P<sentinel>-?\d+))?"
    r"(?: (?P<order>sorted|offsets|permutation))?(?P<constant> constant)?(?P<optional> optional)?"
)


class DeclarationError(ValueError):
    """Raised for a declaration that cannot be read; the message names the argument and what was expected."""


def spec_of(operator: str, name: str, notation: object) -> TensorSpec:
    """Return the spec of an input from its notation.

    Raises:
        DeclarationError: it is no notation; the message shows it.
    """
    matched = _NOTATION.fullmatch(notation.strip()) if isinstance(notation, str) else None
    role = ROLES.get(matched["dtype"] or "storage") if matched else None
    if matched is None or role is None:
        wanted = f'"[axes] dtype" with a dtype out of {", ".join(ROLES)}'
        order = '"in 0..N", "or -1", "sorted", "constant", "optional"'
        was = f"was {notation!r}; further words come in this order: {order}"
        raise DeclarationError(f"{operator}: {name} must be declared as {wanted}, {was}")
    if matched["end"] and re.search(r" (constant|optional)\b", matched["end"]):
        wanted = '"constant" and "optional" are last, in this order, as in "[T] int64 in 0..V constant optional"'
        raise DeclarationError(f"{operator}: {name} is declared as {matched.string!r}; {wanted}")
    optional, differentiable = matched["optional"] is not None, matched["constant"] is None
    symbols = symbols_of(matched["axes"])
    if any(len(one.split()) > 1 for one in symbols):
        raise DeclarationError(f"{operator}: {name} is declared as {matched.string!r}; write commas between its axes")
    spec = TensorSpec(name, symbols, role, optional, differentiable=differentiable)
    if spec.floating and matched["end"] and not (matched["order"] or matched["sentinel"]):
        return replace(spec, within=_within(operator, spec, matched))
    return replace(spec, values=_values(operator, spec, matched))


def _within(operator: str, spec: TensorSpec, matched: re.Match[str]) -> tuple[float, float]:
    """Return the range of a tensor of floating-point numbers, from the notation behind its dtype."""
    try:
        least, most = float(matched["least"]), float(matched["end"])
    except ValueError:
        least = most = math.nan
    if not least < most:
        wanted = 'two numbers, the first less than the second, as in "[T] float32 in 0..1" or "in -inf..0"'
        raise DeclarationError(f"{operator}: {spec.name} is declared as {matched.string!r}; its range must be {wanted}")
    return least, most


def _values(operator: str, spec: TensorSpec, matched: re.Match[str]) -> Values | None:
    """Return the values of a tensor of integers or booleans, from the notation behind its dtype."""
    least, end = matched["least"], matched["end"]
    order: Order = matched["order"] or ""  # type: ignore[assignment]  # one of the words in `_NOTATION`
    sentinel = None if matched["sentinel"] is None else int(matched["sentinel"])
    where = f"{operator}: {spec.name} is declared as {matched.string!r}"
    if spec.floating or spec.role is Role.BOOL:
        if end or order or sentinel is not None:
            raise DeclarationError(f"{where}; only integers have a sentinel or an order, and booleans have no range")
        return None if spec.floating else Values()
    if order == "permutation":
        if end or sentinel is not None or not spec.symbols:
            raise DeclarationError(f"{where}; a permutation is of all indices of its last axis, without range or sentinel")
        return Values(end=spec.symbols[-1], order=order)
    if order == "offsets" and sentinel is not None:
        raise DeclarationError(f"{where}; offsets have no sentinel")
    if end is None or (order and not spec.symbols):
        raise DeclarationError(f'{where}; an integer tensor has a range, as in "[T] int64 in 0..V", which excludes V')
    return Values(least.strip(), end.strip(), sentinel, order)


def all_symbols(operator: str, inputs: Sequence[TensorSpec], formulas: Mapping[str, str]) -> list[str]:
    """Return the symbols of the tensors, of their ranges and of the formulas, each once."""
    symbols = [symbol for spec in inputs for symbol in spec.symbols if not symbol.isdigit()]
    try:
        for spec in inputs:
            symbols += sorted(spec.values.symbols) if spec.values is not None else ()
        for name, formula in formulas.items():
            symbols += (name, *expression.symbols(formula))
    except expression.ExpressionError as error:
        raise DeclarationError(f"{operator}: {error}") from None
    return [one for one in dict.fromkeys(symbols) if not one.isdigit()]


def ordered(operator: str, formulas: Mapping[str, str], axes: Sequence[str]) -> dict[str, str]:
    """Return the formulas, each behind those of its symbols."""
    found: dict[str, str] = {}
    while len(found) < len(formulas):
        ready = [
            name
            for name, formula in formulas.items()
            if name not in found and all(one in axes or one in found for one in expression.symbols(formula))
        ]
        if not ready:
            circle = ", ".join(f"{name} = {formula}" for name, formula in formulas.items() if name not in found)
            raise DeclarationError(f"{operator}: these sizes depend on themselves: {circle}")
        found.update({name: formulas[name] for name in ready})
    return found


def symbols_of(text: str) -> tuple[str, ...]:
    """Return the symbols in a list, with `LEADING` of them for `*B`."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    spread = [[f"{one[1:]}{at}" for at in range(LEADING)] if one.startswith("*") else [one] for one in names]
    return tuple(symbol for some in spread for symbol in some)


def starred_symbols(operator: str, notations: Sequence[str], formulas: Sequence[str]) -> dict[str, str]:
    """Return the axes that have a star in the notations, such as B0, each with its name there, such as B."""
    brackets = [one.strip() for text in notations for one in _NOTATION.fullmatch(text.strip())["axes"].split(",")]  # type: ignore[index]
    ranges = [one for text in notations for one in re.findall(r"[A-Za-z_]\w*", text.partition("]")[2])]
    words = {*brackets, *ranges, *(one for text in formulas for one in expression.symbols(text))}
    found = {one: stem[1:] for stem in brackets if stem.startswith("*") for one in symbols_of(stem)}
    for one, stem in found.items():
        if words & {one, stem}:
            raise DeclarationError(f"{operator}: a case may have no axis {one}, so that only *{stem} in brackets names it")
    return found
