"""Hold the definitions of one file, in which each name stands for one function or constant, from any module."""

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str]
"""A definition: the module it is in, and its name there."""


@dataclass
class Flat:
    """Functions and constants by name, each after what it leads to.

    Attributes:
        imports: as lines. names: what the definitions of modules are called.
    """

    imports: set[str] = field(default_factory=set)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    names: Mapping[Key, str] = field(default_factory=dict)

    @property
    def functions(self) -> dict[str, ast.FunctionDef]:
        return {name: node for name, node in self.definitions.items() if isinstance(node, ast.FunctionDef)}

    def calls(self, node: ast.AST) -> Iterator[tuple[ast.FunctionDef, ast.Call]]:
        """Yield the calls of its functions in a piece of it, each with that function."""
        functions = self.functions
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in functions:
                yield functions[call.func.id], call

    def calls_of(self, function: ast.FunctionDef) -> list[ast.Call]:
        """Return all calls of one of its functions."""
        return [call for node in self.definitions.values() for one, call in self.calls(node) if one is function]

    def keep(self, entries: Iterable[str]) -> None:
        """Leave out what the entries do not lead to, and put each definition after what it leads to."""
        kept: dict[str, ast.stmt] = {}

        def visit(name: str) -> None:
            if name in self.definitions and name not in kept:
                kept[name] = self.definitions[name]  # before what it leads to: it may lead to itself
                for one in _read(kept[name]):
                    visit(one)
                kept[name] = kept.pop(name)

        for entry in entries:
            visit(entry)
        self.definitions = kept

    def until_stable(self, change: Callable[[], None]) -> None:
        """Repeat a change of the definitions until it changes nothing."""
        before = None
        while before != (before := [ast.unparse(ast.fix_missing_locations(node)) for node in self.definitions.values()]):
            change()

    def add(self, other: "Flat") -> dict[str, str]:
        """Add another's definitions, unless they are here already; return the names that they have here."""
        names: dict[str, str] = {}
        for name, node in other.definitions.items():
            renamed = Renaming(names).visit(node)
            free = name
            while free in self.definitions and ast.unparse(self.definitions[free]) != ast.unparse(called(renamed, free)):
                free += "_"
            names[name] = free
            self.definitions[free] = called(renamed, free)
        self.imports |= other.imports
        return names


class Editor(ast.NodeTransformer):
    """A visitor that leaves no empty block: a loop or a branch without a body goes too."""

    def generic_visit(self, node: ast.AST) -> Any:
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            if isinstance(node, (ast.For, ast.While)) or (isinstance(node, ast.If) and not node.orelse):
                return None
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node


class _Bare(Editor):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        made: ast.AST = self.generic_visit(node)
        return made


def bare(node: ast.stmt) -> ast.stmt:
    """Return a definition without docstrings; annotations stay, since a DSL reads them."""
    made: ast.stmt = _Bare().visit(node)
    return made


class Renaming(ast.NodeTransformer):
    """Names under other names, wherever they stand; what a function binds itself counts too."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        self.generic_visit(node)
        node.arg = self._names.get(node.arg, node.arg)
        return node


def called(node: ast.stmt, name: str) -> ast.stmt:
    """Return a definition under another name."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        node.name = name
    elif isinstance(node, ast.Assign):
        node.targets = [ast.Name(name, ast.Store())]
    return node


def loads(node: ast.AST) -> set[str]:
    """Return the names that are read."""
    return set(_read(node))


def _read(node: ast.AST) -> Iterator[str]:
    """Yield the names that are read, in the order of the text."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _read(child)


def stores(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are assigned to."""
    inside = (one for node in nodes for one in ast.walk(node))
    return {one.id for one in inside if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}


def bound(node: ast.AST) -> set[str]:
    """Return the names that a function or class binds inside of itself: parameters, targets, nested functions, imports."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return set()
    inside = stores([node])
    for one in ast.walk(node):
        if isinstance(one, ast.arg):
            inside.add(one.arg)
        elif isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one is not node:
            inside.add(one.name)
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            inside |= {alias.asname or alias.name.partition(".")[0] for alias in one.names}
    return inside


def names(node: ast.AST) -> set[str]:
    """Return every name in a piece, parameters included."""
    return bound(node) | {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """Return the target of an assignment and its value; if both are tuples, the pairs of their elements."""
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]


def literal(node: ast.AST, modules: Collection[str] = ("tl", "torch")) -> bool:
    """Return whether a node is a constant, or a name in one of the modules, such as `tl.float32`."""
    dtype = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    return isinstance(node, ast.Constant) or dtype


def pointer(address: ast.expr) -> ast.expr:
    """Return what an address is counted from: `out` in `out + rows * n + columns`."""
    while isinstance(address, (ast.BinOp, ast.Subscript)):
        address = address.left if isinstance(address, ast.BinOp) else address.value
    return address
