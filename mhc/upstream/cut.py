"""Kernels without what one result does not need: stores to other tensors, and all that leads to those alone.

The slice looks at names and not at order: a statement stays where it writes, or calls something with, a name that is wanted,
and then all that it reads is wanted too. What is cut may have been what made a kernel fail; the program that is left is run,
and where it does not reproduce, the whole one is.
"""

import ast
from collections.abc import Iterable

from mhc.upstream.source import Closure, Key, calls


class Cutter:
    """Cuts kernels and what they call.

    Args:
        whole: the kernels with everything that they lead to; `apply` changes it.
    """

    def __init__(self, whole: Closure) -> None:
        self._whole = whole

    def reads(self, key: Key, function: ast.FunctionDef, wanted: Iterable[str]) -> set[str]:
        """The names that a kernel needs for the tensors `wanted`, themselves included."""
        names = set(wanted)
        inside = [one for one in ast.walk(function) if isinstance(one, ast.stmt) and not hasattr(one, "body")]
        names |= {name for name, roots in _addresses(inside).items() if roots & names}
        before = -1
        while len(names) != before:
            before = len(names)
            for statement in function.body:
                self._read(key, statement, names)
        return names

    def apply(self, key: Key, function: ast.FunctionDef, wanted: Iterable[str]) -> set[str]:
        """Cut a kernel, and give the names that it still reads."""
        names = self.reads(key, function, wanted)
        function.body = self._kept(key, function.body, names)
        left = _loaded(ast.Module(function.body, []))
        function.args.args = [one for one in function.args.args if one.arg in left]
        return left

    def writes(self, key: Key, function: ast.FunctionDef) -> set[str]:
        """Parameters through which a function writes."""
        parameters = {one.arg for one in function.args.args}
        plain = [one for one in ast.walk(function) if isinstance(one, ast.stmt) and not hasattr(one, "body")]
        addresses = _addresses(plain)
        found: set[str] = set().union(*(self._through(key, one) for one in plain))
        return set().union(found, *(addresses.get(name, set()) for name in found)) & parameters

    def _read(self, key: Key, statement: ast.stmt, names: set[str]) -> bool:
        """Whether a statement is wanted; then `names` gets what it reads."""
        inner = [one for field in ("body", "orelse") for one in getattr(statement, field, [])]
        if not inner or isinstance(statement, ast.FunctionDef):
            wanted = self._wanted(key, statement, names)
            if wanted:
                names |= _loaded(statement)
            return wanted
        wanted = sum(self._read(key, one, names) for one in inner) > 0  # each of them: `names` grows
        if wanted:
            head = [getattr(statement, field) for field in ("test", "iter", "target") if hasattr(statement, field)]
            for one in [*head, *(item.context_expr for item in getattr(statement, "items", []))]:
                names |= _loaded(one)
        return wanted

    def _wanted(self, key: Key, statement: ast.stmt, names: set[str]) -> bool:
        writes = isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or _call(statement) is not None
        return not writes or bool(self._written(key, statement) & names)

    def _written(self, key: Key, statement: ast.stmt) -> set[str]:
        """Names that one statement assigns to, or writes through."""
        return set().union(*map(_root, _targets(statement))) | self._through(key, statement)

    def _through(self, key: Key, statement: ast.stmt) -> set[str]:
        """Names of the memory that one statement writes to."""
        assigned = [one for one in _targets(statement) if not isinstance(one, (ast.Name, ast.Tuple))]
        if assigned:
            return set().union(*map(_root, assigned))
        call = _call(statement)
        if call is None:
            return set()
        if ast.unparse(call.func).rpartition(".")[2] in {"store", "atomic_add"} and call.args:
            return _leftmost(call.args[0])
        target = next((one for one, found in calls(key[0], call) if found is call), None)
        function = None if target is None else self._whole.definitions.get(target)
        if target is None or not isinstance(function, ast.FunctionDef):
            return _loaded(call)
        written = self.writes(target, function)
        names = [one.arg for one in function.args.args]
        through = [arg for name, arg in zip(names, call.args, strict=False) if name in written]
        return set().union(*map(_loaded, through)) if through else set()

    def _kept(self, key: Key, body: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            if not hasattr(statement, "body") or isinstance(statement, ast.FunctionDef):
                if self._wanted(key, statement, names):
                    made.append(statement)
                continue
            kept = self._kept(key, statement.body, names)
            other = self._kept(key, getattr(statement, "orelse", []), names)
            if kept or other:
                statement.body = kept or [ast.Pass()]
                if hasattr(statement, "orelse"):
                    statement.orelse = other
                made.append(statement)
        return made


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, (ast.AugAssign, ast.AnnAssign)) else []


def _call(statement: ast.stmt) -> ast.Call | None:
    """The call that a statement is."""
    return statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def _root(target: ast.AST) -> set[str]:
    if isinstance(target, (ast.Tuple, ast.List)):
        return set().union(*map(_root, target.elts))
    while isinstance(target, (ast.Subscript, ast.Attribute, ast.Starred)):
        target = target.value
    return {target.id} if isinstance(target, ast.Name) else set()


def _leftmost(address: ast.expr) -> set[str]:
    """The name that an address is counted from: `out` in `out + rows * n + columns`."""
    while isinstance(address, (ast.BinOp, ast.Subscript)):
        address = address.left if isinstance(address, ast.BinOp) else address.value
    return {address.id} if isinstance(address, ast.Name) else _loaded(address)


def _addresses(statements: Iterable[ast.stmt]) -> dict[str, set[str]]:
    """Local names with all the names that they are counted from, over any number of assignments."""
    found: dict[str, set[str]] = {}
    for one in statements:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            found.setdefault(one.targets[0].id, set()).update(_leftmost(one.value))
    changed = True
    while changed:
        changed = False
        for roots in found.values():
            more = set().union(*(found.get(name, set()) for name in roots)) - roots
            roots.update(more)
            changed |= bool(more)
    return found


def _loaded(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
