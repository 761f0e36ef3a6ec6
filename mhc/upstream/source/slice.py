"""Slice kernels for one result: stores to other tensors go, with everything that only they need.

The slice goes from the end to the beginning: a statement stays where it writes, or calls something with, a name that is live
after it, and then all that it reads is live before it. The elements of a tensor are not distinguished. If the cut removes
the cause of a failure, the program no longer reproduces, and the uncut one is used.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mhc.upstream.source.flat import Editor, Flat, pointer

Launched = tuple[str, Mapping[str, str]]
"""A kernel, with the variables that its parameters are."""

_BLOCKS = (ast.For, ast.While, ast.If, ast.With)
_MODULES = {"T", "tl", "tilelang", "triton", "torch"}


def cut(made: Flat, launched: Sequence[Launched], needed: set[str]) -> list[int]:
    """Cut what is launched to what some variables need; gives which launches are left.

    Args:
        needed: grows by what that reads.
    """
    cutter = Cutter(made)
    kernels = [prim_func(made.functions[name]) for name, _ in launched]

    def wanted(variables: Mapping[str, str]) -> set[str]:
        return {name for name, variable in variables.items() if variable in needed}

    before = -1
    while len(needed) != before:
        before = len(needed)
        for kernel, (_, variables) in zip(kernels, launched, strict=True):
            if cutter.writes(kernel) & wanted(variables):
                read = cutter.reads(kernel, wanted(variables))
                needed |= {variable for name, variable in variables.items() if name in read}
    kept = [at for at, (_, variables) in enumerate(launched) if cutter.writes(kernels[at]) & wanted(variables)]
    for name in dict.fromkeys(launched[at][0] for at in kept):
        own = [wanted(launched[at][1]) for at in kept if launched[at][0] == name]
        cutter.apply(prim_func(made.functions[name]), set().union(*own))
    return kept


def prim_func(function: ast.FunctionDef) -> ast.FunctionDef:
    """Return the kernel inside of TileLang's factory, or the kernel itself."""
    return next((one for one in function.body if isinstance(one, ast.FunctionDef)), function)


class Cutter:
    """Cuts kernels and what they call.

    Args:
        definitions: the kernels with everything that they use; `apply` changes it.
    """

    def __init__(self, definitions: Flat) -> None:
        self._definitions = definitions
        self._addresses: Mapping[str, set[str]] = {}
        self._kept: set[ast.stmt] = set()

    def reads(self, function: ast.FunctionDef, wanted: Iterable[str]) -> set[str]:
        """Return the names whose value before a kernel it needs for the tensors `wanted`, themselves included."""
        self._addresses, self._kept = _addresses(_plain(function)), set()
        return self._before(function.body, set(wanted)) | set(wanted)

    def apply(self, function: ast.FunctionDef, wanted: Iterable[str]) -> None:
        """Cut a kernel, and leave out the parameters that it does not read then."""
        self.reads(function, wanted)
        _Kept(self._kept).visit(function)
        left = _loaded(ast.Module(function.body, []))
        function.args.args = [one for one in function.args.args if one.arg in left]

    def writes(self, function: ast.FunctionDef) -> set[str]:
        """Return the parameters through which a function writes."""
        parameters = {one.arg for one in function.args.args}
        plain = _plain(function)
        addresses = _addresses(plain)
        found: set[str] = set().union(*(self._through(one) for one in plain))
        return set().union(found, *(addresses.get(name, set()) for name in found)) & parameters

    def _before(self, body: list[ast.stmt], live: set[str]) -> set[str]:
        """Return what is live before a block, for what is `live` after it; the statements that are needed are kept."""
        for statement in reversed(body):
            live = self._around(statement, live) if isinstance(statement, _BLOCKS) else self._one(statement, live)
        return live

    def _around(self, statement: ast.For | ast.While | ast.If | ast.With, live: set[str]) -> set[str]:
        before = self._before(statement.body, live)
        before = before | self._before(statement.orelse if isinstance(statement, ast.If) else [], live)
        if self._kept.isdisjoint(ast.walk(statement)):
            return live
        heads = [one for one in ast.iter_child_nodes(statement) if isinstance(one, (ast.expr, ast.withitem))]
        around = before.union(*map(self._read, heads))
        if isinstance(statement, (ast.For, ast.While)):
            around |= live
            while not (again := self._before(statement.body, around)) <= around:
                around |= again  # what the next turn reads
        return around

    def _one(self, statement: ast.stmt, live: set[str]) -> set[str]:
        assigned = isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        if (assigned or _call(statement) is not None) and not self._written(statement) & live:
            return live
        self._kept.add(statement)
        if isinstance(statement, ast.Assign) and all(map(_name, statement.targets)):
            live = live - set().union(*map(_root, statement.targets))
        return live | self._read(statement)

    def _read(self, node: ast.AST) -> set[str]:
        """Return the names in it, with those of the memory that they point into."""
        names = _loaded(node)
        return names.union(*(self._addresses.get(name, set()) for name in names))

    def _written(self, statement: ast.stmt) -> set[str]:
        """Return the names that a statement assigns to, or writes through, with those of the memory that they point into."""
        through = self._through(statement)
        whole = set().union(*map(_root, _targets(statement))) | through
        return whole.union(*(self._addresses.get(name, set()) for name in through))

    def _through(self, statement: ast.stmt) -> set[str]:
        """Return the names of the memory that one statement writes to."""
        assigned = [one for one in _targets(statement) if not isinstance(one, (ast.Name, ast.Tuple))]
        if assigned:
            return set().union(*map(_root, assigned))
        call = _call(statement)
        if call is None:
            return set()
        if ast.unparse(call.func).rpartition(".")[2] in {"store", "atomic_add"} and call.args:
            return _loaded(pointer(call.args[0]))
        function = next((one for one, found in self._definitions.calls(call) if found is call), None)
        if function is None:
            return _loaded(call)
        written = self.writes(function)
        names = [one.arg for one in function.args.args]
        return set().union(*(_loaded(arg) for name, arg in zip(names, call.args, strict=False) if name in written))


class _Kept(Editor):
    def __init__(self, kept: set[ast.stmt]) -> None:
        self._kept = kept

    def visit(self, node: ast.AST) -> Any:
        gone = isinstance(node, ast.stmt) and not hasattr(node, "body") and node not in self._kept
        return None if gone else self.generic_visit(node)


def _plain(function: ast.FunctionDef) -> list[ast.stmt]:
    return [one for one in ast.walk(function) if isinstance(one, ast.stmt) and not hasattr(one, "body")]


def _name(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (isinstance(target, ast.Tuple) and all(map(_name, target.elts)))


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, (ast.AugAssign, ast.AnnAssign)) else []


def _call(statement: ast.stmt) -> ast.Call | None:
    """Return the call that a statement is."""
    return statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def _root(target: ast.AST) -> set[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*map(_root, target.elts))
    while isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
        target = target.value
    return {target.id} if isinstance(target, ast.Name) else set()


def _addresses(statements: Sequence[ast.stmt]) -> dict[str, set[str]]:
    """Return local names with all the names that they are counted from, over any number of assignments."""
    found: dict[str, set[str]] = {}
    count = -1
    while count != (count := sum(map(len, found.values()))):
        for one in statements:
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                roots = _loaded(pointer(one.value)) - _MODULES
                found.setdefault(one.targets[0].id, set()).update(roots, *(found.get(name, set()) for name in roots))
    return found


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
