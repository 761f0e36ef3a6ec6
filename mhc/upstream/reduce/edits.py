"""Propose smaller versions of kernels: without some statements, or with simpler expressions."""

import ast
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mhc.upstream.source.flat import Editor, bound, loads, stores

Definitions = dict[str, ast.stmt]
Site = tuple[str, int]
"""A node of a definition: the definition's name, and which of its nodes it is, in the order of `ast.walk`."""

_MEMORY = {"tl.load": 1, "tl.store": 2}
"""Functions of an address, and how many of their arguments are no mask."""
_CLAMPS = frozenset({"tl.minimum", "tl.maximum", "T.min", "T.max"})
_CHOICES = frozenset({"tl.where", "T.if_then_else"})


@dataclass(frozen=True)
class Edit:
    """Another expression or statement at one place."""

    site: Site
    made: Callable[[Any], ast.AST | list[ast.stmt]]


def sites(definitions: Definitions) -> list[Site]:
    """Return the statements that may go, in the order of the text."""
    found = []
    for name, definition in definitions.items():
        order = {id(node): at for at, node in enumerate(ast.walk(definition))}
        found += [(name, order[id(one)]) for one in _statements(definition)]
    return found


def without(definitions: Definitions, gone: Sequence[Site]) -> Definitions:
    """Return copies of the definitions without some of their statements, and without blocks that are empty then."""
    made = dict(definitions)
    for name in dict.fromkeys(name for name, _ in gone):
        made[name] = copy.deepcopy(definitions[name])
        nodes = list(ast.walk(made[name]))
        _Replaced({id(nodes[at]): None for other, at in gone if other == name}).visit(made[name])
    return made


def edited(definitions: Definitions, edit: Edit) -> Definitions:
    """Return copies of the definitions with one edit."""
    name, at = edit.site
    made = {**definitions, name: copy.deepcopy(definitions[name])}
    target = list(ast.walk(made[name]))[at]
    _Replaced({id(target): edit.made(target)}).visit(made[name])
    return made


class _Replaced(Editor):
    def __init__(self, made: Mapping[int, ast.AST | list[ast.stmt] | None]) -> None:
        self._made = made

    def visit(self, node: ast.AST) -> Any:
        return self._made[id(node)] if id(node) in self._made else self.generic_visit(node)


def edits(definitions: Definitions, *, addresses: bool) -> Iterator[Edit]:
    """Yield the possible edits.

    Args:
        addresses: also those that may make a kernel reach beside its tensors.
    """
    for name, definition in definitions.items():
        nodes = list(ast.walk(definition))
        given = {one.arg for one in nodes if isinstance(one, ast.arg)}
        memory = [one for one in nodes if isinstance(one, ast.Call) and ast.unparse(one.func) in _MEMORY]
        inside = {id(part) for one in memory for argument in one.args[:1] for part in ast.walk(argument)}
        for at, node in enumerate(nodes):
            if addresses or id(node) not in inside:
                for made in _choices(node, given, addresses):
                    yield Edit((name, at), made)


def free(definition: ast.stmt) -> set[str] | None:
    """Return the names that a definition reads and does not bind; None if it reads its own buffer that nothing writes to."""
    return None if _unwritten(definition) else loads(definition) - bound(definition)


def _unwritten(definition: ast.stmt) -> bool:
    """Return whether the definition reads a buffer of its own that nothing writes to and no call gets."""
    nodes = list(ast.walk(definition))
    made = stores(one for one in nodes if isinstance(one, ast.Assign) and ".alloc_" in ast.unparse(one.value))
    elements = [one for one in nodes if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name)]
    inside = {id(one.value) for one in elements}
    given = {
        one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and id(one) not in inside
    }
    read = set().union(*(loads(one.value) for one in elements if isinstance(one.ctx, ast.Load)))
    written = set().union(*(loads(one.value) for one in elements if isinstance(one.ctx, ast.Store)))
    return bool(made & read - written - given)


def _choices(node: ast.AST, given: set[str], addresses: bool) -> list[Callable[[Any], ast.AST | list[ast.stmt]]]:
    if isinstance(node, ast.If):
        return [lambda one: one.body, lambda one: one.orelse]
    if isinstance(node, ast.IfExp):
        return [lambda one: one.body, lambda one: one.orelse]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = [(node.left, lambda one: one.right), (node.right, lambda one: one.left)]
        return [made for dropped, made in both if isinstance(dropped, ast.Name) and dropped.id not in given]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return [lambda one: ast.Assign([one.target], one.value, lineno=0)]
    if not isinstance(node, ast.Call):
        return []
    called = ast.unparse(node.func)
    if called in _CHOICES and len(node.args) == 3:
        return [lambda one: one.args[1], lambda one: one.args[2]]
    if not addresses:
        return []
    if called in _CLAMPS and len(node.args) == 2:
        return [lambda one: one.args[0], lambda one: one.args[1]]
    kept = _MEMORY.get(called)
    if kept is not None and (len(node.args) > kept or node.keywords):
        return [lambda one: ast.Call(one.func, one.args[:kept], [])]
    return []


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in a definition that may go, in the order of the text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt) and not isinstance(child, (ast.FunctionDef, ast.With, ast.Return, ast.Pass)):
            yield child
        yield from _statements(child)
