"""Collect the definitions that functions use, from all their modules, as statements of one file.

Modules are read, not imported: a name in a function stands for what its module's top level binds it to. Definitions in
public modules (the standard library, PyTorch, NumPy, the DSL) are not collected, but imported.
"""

import ast
import builtins
import copy
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mhc.operator import Operator
from mhc.upstream.source.flat import Flat, Key, Renaming, bare, bound, called
from mhc.upstream.verify import ExportError

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


def closure(entries: Sequence[Key]) -> Flat:
    """Return all that the entries use, each definition under a unique name: its own if that is free.

    Raises:
        ExportError: a name that no module binds, or a module without a file.
    """
    collected: dict[Key, _Collected] = {}

    def visit(key: Key) -> None:
        if key in collected:
            return
        collected[key] = made = _Collected(key)  # before what it leads to: it may lead to itself
        for one in made.reached:
            visit(one)
        collected[key] = collected.pop(key)

    for entry in entries:
        visit(entry)
    users: dict[Key, set[str]] = {key: set() for key in collected}
    for one in collected.values():
        for key in one.reached:
            users[key] |= one.inside
    imports = set[str]().union(*(one.imports for one in collected.values()))
    taken = {line.split()[-1] for line in imports}
    names: dict[Key, str] = {}
    for key in collected:
        name = key[1].lstrip("_") or key[1]
        while name in taken or name in users[key]:
            name += "_"
        taken.add(name)
        names[key] = name
    renaming = Renaming({_placeholder(key): name for key, name in names.items()})
    definitions = {names[key]: called(bare(renaming.visit(one.node)), names[key]) for key, one in collected.items()}
    return Flat(imports, definitions, names)


class _Collected(ast.NodeTransformer):
    """One definition, in which placeholders stand for other definitions.

    Attributes:
        reached: the definitions that it uses, in order. imports: lines for what it uses of public modules.
        inside: names that it binds itself.
    """

    def __init__(self, key: Key) -> None:
        node = definition(key)
        for one in ast.walk(node):
            if isinstance(one, (ast.Import, ast.ImportFrom)):
                modules = [one.module or ""] if isinstance(one, ast.ImportFrom) else [alias.name for alias in one.names]
                if not all(map(is_public, modules)):
                    raise ExportError(f"{key[0]}: {key[1]} imports {', '.join(modules)} inside of itself")
        self._module = key[0]
        self.inside = bound(node)
        self.reached: dict[Key, None] = {}
        self.imports: set[str] = set()
        self.node: ast.stmt = self.visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or node.id in self.inside:
            return node
        target = resolve(self._module, node.id)
        if isinstance(target, tuple):
            return self._use(target)
        if target is not None and not is_public(target.module):
            raise ExportError(f"{self._module}: the module {target.module} is used as a value")
        if target is not None:
            self.imports.add(target.statement(node.id))
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id not in self.inside:
            holder = resolve(self._module, node.value.id)
            if isinstance(holder, _Import) and not is_public(holder.module):
                target = resolve(holder.module, node.attr)
                assert isinstance(target, tuple)
                return self._use(target)
        return self.generic_visit(node)

    def _use(self, key: Key) -> ast.Name:
        self.reached[key] = None
        return ast.Name(_placeholder(key), ast.Load())


def _placeholder(key: Key) -> str:
    return ":".join(key)


def definition(key: Key) -> ast.stmt:
    """Return a copy of the statement that defines a name at the top level of its module; of an operator, its plain function.

    Raises:
        ExportError: there is none.
    """
    module, name = key
    found = _bindings(module).get(name)
    if not isinstance(found, ast.stmt):
        raise ExportError(f"{module} has no definition of {name}")
    copied = copy.deepcopy(found)
    if isinstance(copied, ast.FunctionDef) and isinstance(getattr(sys.modules.get(module), name, None), Operator):
        copied.decorator_list = []
    return copied


def resolve(module: str, name: str) -> Key | _Import | None:
    """Return what a module's top level binds a name to; None of a builtin."""
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
