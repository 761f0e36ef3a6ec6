"""What the text of a function says about its arguments: tensor or scalar, how many axes, what their sizes are called."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mhc.fuzz.cli.init.survey import Function

Kind = Literal["tensor", "index", "float", "fixed"]
"""A tensor of floats, one of integers, a scalar that is drawn, or a value that stays the same."""
MISSING = object()

_FLOATS = re.compile(
    r"(^|_)(eps|epsilon|temperature|temp|theta|alpha|slope|momentum|factor|sm_scale|softmax_scale|softcap|clip)$"
)
_INTEGERS = re.compile(
    r"(^|_)(dim|axis|k|topk|groups?|heads?|causal|training|inplace|iters?|repeats?)$|^(num|n|is|use|has)_|_size$"
)
_INDICES = re.compile(r"(^|_)(idx|index|indices|ids?|targets?|labels?|positions?|offsets?|tokens?)$")
_METHODS = re.compile(
    r"shape|dtype|device|float|half|double|to|size|stride|dim|ndim|numel|view|reshape|contiguous|is_contiguous|transpose|permute|"
    r"unsqueeze|squeeze|mean|sum|square|pow|t|mT|T|expand|flatten|element_size|type_as|new_empty|new_zeros|softmax|exp|abs"
)
"""Attributes that tensors have and numbers do not."""
_USUAL = {"eps": (1e-6, 1e-5), "epsilon": (1e-6, 1e-5)}


@dataclass
class Hint:
    """What is known of one argument.

    Attributes:
        default: its default as a Python value, or `MISSING`.
        rank: its number of axes, where the text says it. least: the number that it has at least.
        symbols: names of sizes by the position of their axis, as in {0: "M", -1: "D"}.
        flattened: the text reshapes it to rows, so that it may have any number of axes.
    """

    name: str
    kind: Kind = "tensor"
    optional: bool = False
    default: Any = MISSING
    rank: int | None = None
    least: int = 1
    symbols: dict[int, str] = field(default_factory=dict)
    flattened: bool = False
    said: bool = False  # the kind is in the text, not only in the name

    @property
    def values(self) -> tuple[float, ...]:
        """Return what is drawn for a scalar, its default first."""
        usual = _USUAL.get(self.name.rpartition("_")[2])
        if isinstance(self.default, (int, float)) and not isinstance(self.default, bool):
            return tuple(dict.fromkeys((float(self.default), *(usual or ()))))
        return usual or (1.0, 0.5)


def hints(function: Function) -> dict[str, Hint]:
    """Return what the text of a function says about each of its parameters."""
    defaults = function.defaults
    found = {one.arg: Hint(one.arg) for one in function.parameters}
    for argument in function.parameters:
        hint = found[argument.arg]
        if argument.arg in defaults:
            hint.default = _literal(defaults[argument.arg])
            hint.optional = hint.default is None
        _annotated(hint, "" if argument.annotation is None else ast.unparse(argument.annotation))
    for node in ast.walk(function.node):
        _used(found, node)
    for hint in found.values():
        if not hint.said:
            _named(hint)
    return found


def merged(reference: Mapping[str, Hint], launcher: Mapping[str, Hint], names: Mapping[str, str]) -> dict[str, Hint]:
    """Return the hints of a reference's arguments, with what the launcher says of the argument that goes there.

    Args:
        names: the parameter of the launcher for each of the reference.
    """
    for name, hint in reference.items():
        other = launcher.get(names.get(name, ""))
        if other is None:
            continue
        if not hint.said and other.said:
            hint.kind, hint.optional = other.kind, hint.optional or other.optional
        if hint.default is MISSING:
            hint.default = other.default
        hint.rank = other.rank or hint.rank
        hint.least = max(hint.least, other.least)
        hint.symbols = {**hint.symbols, **other.symbols}
        hint.flattened = hint.flattened or other.flattened
    return dict(reference)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return MISSING


def _annotated(hint: Hint, text: str) -> None:
    if "None" in text or "Optional" in text:
        hint.optional = True
    if "Tensor" in text:
        hint.kind, hint.said = (
            "index" if re.match(r"(Int|UInt|Long)", text) or _INDICES.search(hint.name) else "tensor",
            True,
        )
        shape = re.search(r"Tensor, '([^']*)'", text)
        if shape:
            axes = [one.lstrip("*#") for one in shape.group(1).split()]
            hint.rank = None if "*" in shape.group(1) or "..." in axes else len(axes)
            if hint.rank is not None:
                hint.symbols = {at: one for at, one in enumerate(axes) if one.isidentifier()}
    elif re.search(r"\bfloat\b", text):
        hint.kind, hint.said = "float", True
    elif re.search(r"\b(int|bool|str)\b", text):
        hint.kind, hint.said = "fixed", True
    elif type(hint.default) is float:
        hint.kind, hint.said = "float", True
    elif isinstance(hint.default, (bool, int, str)):
        hint.kind, hint.said = "fixed", True


def _named(hint: Hint) -> None:
    """Set the kind from the name, where nothing else says it."""
    if _FLOATS.search(hint.name):
        hint.kind = "float"
    elif _INTEGERS.search(hint.name):
        hint.kind = "fixed"
    elif _INDICES.search(hint.name):
        hint.kind = "index"


def _used(found: Mapping[str, Hint], node: ast.AST) -> None:
    """Note what one node says of a parameter."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in found:
        hint = found[node.value.id]
        if _METHODS.fullmatch(node.attr) and not hint.said:
            hint.said = True
            hint.kind = "index" if _INDICES.search(hint.name) else "tensor"
    if isinstance(node, ast.Attribute) and node.attr in {"t", "T", "mT"} and (name := _root(node)) in found:
        found[name].least = max(found[name].least, 2)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("linear") and len(node.args) > 1:
        name = _root(node.args[1])
        if name in found:
            found[name].least = max(found[name].least, 2)
    if isinstance(node, (ast.Subscript, ast.Call)):
        _position(found, node)
    if isinstance(node, ast.Assign):
        for target, value in _pairs(node):
            _assigned(found, target, value)
    if isinstance(node, ast.Compare):
        name, rank = _shape_of(node.left, ("dim", "ndim")), node.comparators[0]
        if name in found and isinstance(node.ops[0], ast.Eq) and isinstance(rank, ast.Constant) and type(rank.value) is int:
            found[name].rank = rank.value


def _position(found: Mapping[str, Hint], node: ast.Subscript | ast.Call) -> None:
    """Note the axis in `x.shape[1]`, `x.size(1)` and `x.stride(1)`, and a view as rows."""
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Attribute):
            return
        method, base, arguments = node.func.attr, node.func.value, node.args
        if isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute):  # x.contiguous().view(-1, D)
            base = base.func.value
        name = base.id if isinstance(base, ast.Name) else ""
        if name in found and method in {"view", "reshape"} and len(arguments) == 2 and ast.unparse(arguments[0]) == "-1":
            found[name].flattened = True
        where = arguments[0] if method in {"size", "stride"} and len(arguments) == 1 else None
    else:
        name, where = _shape_of(node.value, ("shape",)), node.slice
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        new = [isinstance(one, ast.Constant) and one.value is None for one in parts]
        if any(new) and "..." not in ast.unparse(node.slice) and _root(node.value) in found:  # x[:, None]
            hint = found[_root(node.value)]
            hint.rank = hint.rank or new.count(False)
    at = None if where is None else _literal(where)
    if name in found and type(at) is int:
        found[name].least = max(found[name].least, at + 1 if at >= 0 else -at)


def _assigned(found: Mapping[str, Hint], target: ast.expr, value: ast.expr) -> None:
    """Note names of sizes, as in `M, N = x.shape` and `D = x.shape[-1]`."""
    name = _shape_of(value, ("shape", "size"))
    if name in found and isinstance(target, (ast.Tuple, ast.List)):
        hint, parts = found[name], target.elts
        starred = [at for at, one in enumerate(parts) if isinstance(one, ast.Starred)]
        if not hint.flattened and not starred:
            hint.rank = len(parts)
        first = starred[0] if starred else len(parts)
        for at, one in enumerate(parts):
            if isinstance(one, ast.Name) and one.id.strip("_") and not hint.flattened:
                hint.symbols[at if at < first else at - len(parts)] = one.id
    elif isinstance(target, ast.Name):
        where: object = MISSING
        if isinstance(value, ast.Subscript):
            name, where = _shape_of(value.value, ("shape",)), _literal(value.slice)
        elif (
            isinstance(value, ast.Call)
            and isinstance(value.func, ast.Attribute)
            and value.func.attr == "size"
            and value.args
        ):
            base = value.func.value
            name, where = (base.id if isinstance(base, ast.Name) else ""), _literal(value.args[0])
        if name in found and isinstance(where, int):
            found[name].symbols[where] = target.id


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield targets with their values, those of `a, b = x, y` one by one."""
    for target in node.targets:
        sides: Sequence[ast.expr] = (target, node.value)
        if all(isinstance(one, ast.Tuple) for one in sides) and len({len(one.elts) for one in sides}) == 1:  # type: ignore[attr-defined]
            yield from zip(target.elts, node.value.elts, strict=True)  # type: ignore[attr-defined]
        else:
            yield target, node.value


def _root(node: ast.expr) -> str:
    """Return the name at the start of a chain, as x in `x.float().t()`."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _shape_of(node: ast.expr, attributes: Sequence[str]) -> str:
    """Return the name in `name.shape`, or in `name.size()`; empty where a node is none of these."""
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in attributes and isinstance(node.value, ast.Name):
        return node.value.id
    return ""
