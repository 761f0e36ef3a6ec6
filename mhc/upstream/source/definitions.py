"""Collect the definitions that functions use, from all their modules, as statements of one file.

Modules are read, not imported: a name in a function stands for what its module's top level binds it to. Definitions in
public modules (the standard library, PyTorch, NumPy, the DSL) are not collected, but imported.
"""

import ast
import builtins
import copy
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mhc.upstream.verify import ExportError

Key = tuple[str, str]
"""A definition: the module it is in, and its name there."""

Rewrite = Callable[[Key, ast.stmt], ast.stmt]
"""A change of a definition before the names in it are followed."""

_PUBLIC = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "triton", "tilelang", "tvm"}


@dataclass(frozen=True)
class _Import:
    """What an import binds: a module, or with `name` what a module has under that name."""

    module: str
    name: str | None = None

    def statement(self, alias: str) -> str:
        if self.name is None:
            return f"import {self.module}" if alias == self.module else f"import {self.module} as {alias}"
        return f"from {self.module} import {self.name}" + ("" if alias == self.name else f" as {alias}")


@dataclass
class Closure:
    """Definitions in an order in which each comes after what it leads to; `imports` as lines."""

    definitions: dict[Key, ast.stmt] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    references: dict[Key, set[Key]] = field(default_factory=dict)

    def statements(self) -> list[ast.stmt]:
        """The definitions, each under a name that nothing else has: its own where that is free."""
        names = self._names()
        return [_Rename(key[0], names, names[key]).definition(copy.deepcopy(node)) for key, node in self.definitions.items()]

    def name(self, key: Key) -> str:
        """What a definition is called in `statements`."""
        return self._names()[key]

    def _names(self) -> dict[Key, str]:
        users: dict[Key, set[str]] = {key: set() for key in self.definitions}
        for key, reached in self.references.items():
            for one in reached:
                users[one] |= bound(self.definitions[key])
        taken = {line.split()[-1] for line in self.imports}
        names: dict[Key, str] = {}
        for key in self.definitions:
            name = key[1].lstrip("_") or key[1]
            while name in taken or name in users[key]:
                name += "_"
            taken.add(name)
            names[key] = name
        return names


def closure(entries: Sequence[Key], rewrite: Rewrite = lambda _, node: node) -> Closure:
    """Return everything that the entries use.

    Raises:
        ExportError: a name that no module binds, or a module without a file.
    """
    made = Closure()

    def visit(key: Key) -> None:
        if key in made.definitions:
            return
        node = rewrite(key, definition(key))
        for one in _imports(node):
            names = [one.module or ""] if isinstance(one, ast.ImportFrom) else [alias.name for alias in one.names]
            if not all(map(is_public, names)):
                raise ExportError(f"{key[0]}: {key[1]} imports {', '.join(names)} inside of itself")
        made.definitions[key] = node  # before what it leads to: it may lead to itself
        reached: set[Key] = set()
        for target in _reached(key[0], node):
            if isinstance(target, str):
                made.imports.add(target)
            else:
                reached.add(target)
                visit(target)
        made.references[key] = reached
        made.definitions[key] = made.definitions.pop(key)

    for entry in entries:
        visit(entry)
    return made


def definition(key: Key) -> ast.stmt:
    """A copy of the statement that defines a name at the top level of its module.

    Raises:
        ExportError: there is none.
    """
    module, name = key
    found = _bindings(module).get(name)
    if not isinstance(found, ast.stmt):
        raise ExportError(f"{module} has no definition of {name}")
    return copy.deepcopy(found)


def resolve(module: str, name: str) -> Key | _Import | None:
    """What a module's top level binds a name to; None of a builtin."""
    found = _bindings(module).get(name)
    if isinstance(found, _Import) and not is_public(found.module):
        if found.name is None:
            return found
        inner = f"{found.module}.{found.name}"
        return _Import(inner) if _is_module(inner) else resolve(found.module, found.name)
    if isinstance(found, _Import):
        return found
    if found is None:
        if hasattr(builtins, name) or name in {"__name__", "__file__"}:
            return None
        raise ExportError(f"{module}: nothing at its top level is called {name}")
    return module, name


def is_public(module: str) -> bool:
    """Return whether the module is in the standard library, or comes with PyTorch or the DSL."""
    return module.partition(".")[0] in _PUBLIC


def calls(module: str, node: ast.AST) -> Iterator[tuple[Key, ast.Call]]:
    """The calls in a piece of a module of what modules define, each with that definition."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            target = _definition(module, call.func, set())
            if target is not None:
                yield target, call


def _definition(module: str, node: ast.AST, inside: Collection[str]) -> Key | None:
    """The definition that `name` or `module.name` stands for; None of anything else, and of names bound `inside`."""
    if isinstance(node, ast.Name) and node.id not in inside and node.id in _bindings(module):
        target = resolve(module, node.id)
        return target if isinstance(target, tuple) else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        holder = _holder(module, node.value.id, inside)
        return None if holder is None else _definition(holder, ast.Name(node.attr), ())
    return None


def _holder(module: str, name: str, inside: Collection[str]) -> str | None:
    """The module that a name stands for, where its definitions are to be collected."""
    target = resolve(module, name) if name not in inside and name in _bindings(module) else None
    return target.module if isinstance(target, _Import) and not is_public(target.module) else None


def bound(node: ast.AST) -> set[str]:
    """Names that a definition binds inside of itself: parameters, targets, nested functions."""
    inside = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load)}
    inside |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    inside |= {one.name for one in ast.walk(node) if isinstance(one, (ast.FunctionDef, ast.ClassDef)) and one is not node}
    inside |= {alias.asname or alias.name.partition(".")[0] for one in _imports(node) for alias in one.names}
    return inside if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set()


def _imports(node: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    return [one for one in ast.walk(node) if isinstance(one, (ast.Import, ast.ImportFrom))]


def _reached(module: str, node: ast.stmt) -> Iterator[Key | str]:
    """Yield keys of definitions, and lines that import public modules."""
    inside = bound(node)
    own = _bound_to(node)
    for name, attribute in _loads(node):
        if name in inside or name == own:
            continue
        target = resolve(module, name)
        if isinstance(target, tuple):
            yield target
        elif target is not None and is_public(target.module):
            yield target.statement(name)
        elif target is not None:
            if attribute is None:
                raise ExportError(f"{module}: the module {target.module} is used as a value")
            inner = resolve(target.module, attribute)
            assert isinstance(inner, tuple)
            yield inner


def _loads(node: ast.AST) -> Iterator[tuple[str, str | None]]:
    """Names that are read, each with the attribute that is asked of it."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        yield node.value.id, node.attr
        return
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id, None
        return
    for child in ast.iter_child_nodes(node):
        yield from _loads(child)


def _bound_to(node: ast.stmt) -> str | None:
    return node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else None


class _Rename(ast.NodeTransformer):
    """Names of definitions as they are called in the one file."""

    def __init__(self, module: str, names: Mapping[Key, str], own: str) -> None:
        self._module, self._names, self._own = module, names, own
        self._inside: set[str] = set()

    def definition(self, node: ast.stmt) -> ast.stmt:
        self._inside = bound(node)
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.name = self._own
        elif isinstance(node, ast.Assign):
            node.targets = [ast.Name(self._own, ast.Store())]
        renamed = self.visit(node)
        assert isinstance(renamed, ast.stmt)
        return renamed

    def visit_Name(self, node: ast.Name) -> ast.AST:
        target = _definition(self._module, node, self._inside) if isinstance(node.ctx, ast.Load) else None
        return node if target is None else ast.Name(self._names[target], node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        target = _definition(self._module, node, self._inside)
        return self.generic_visit(node) if target is None else ast.Name(self._names[target], node.ctx)


@cache
def _bindings(module: str) -> Mapping[str, "ast.stmt | _Import"]:
    found: dict[str, ast.stmt | _Import] = {}
    for node in ast.parse(_file(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or whole] = _Import(whole)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{module}: relative imports are not followed"
            for alias in node.names:
                found[alias.asname or alias.name] = _Import(node.module, alias.name)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            plain = ast.Assign([node.target], node.value, lineno=node.lineno)
            found[node.target.id] = ast.fix_missing_locations(plain)
    return found


def _file(module: str) -> Path:
    loaded = sys.modules.get(module)
    place = getattr(loaded, "__file__", None)
    if place is None:
        spec = importlib.util.find_spec(module)
        place = None if spec is None else spec.origin
    if place is None:
        raise ExportError(f"{module}: no file holds its source")
    return Path(place)


def _is_module(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
