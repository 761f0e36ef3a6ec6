"""Kernels without what one result does not need: stores to other tensors, and all that leads to those alone.

The slice looks at names and not at order: a statement stays where it writes, or calls something with, a name that is wanted,
and then all that it reads is wanted too. What is cut may have been what made a kernel fail; the program that is left is run,
and where it does not reproduce, the whole one is.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence

from mhc.upstream.flat import Flat


def cut(made: Flat, launched: Sequence[tuple[str, Mapping[str, str]]], needed: set[str]) -> list[int]:
    """Cut what is launched to what some variables need; gives which launches are left.

    Args:
        launched: kernels, each with the variables that its parameters are. needed: grows by what that reads.
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
    """The kernel inside of TileLang's factory, or the kernel itself."""
    return next((one for one in function.body if isinstance(one, ast.FunctionDef)), function)


class Cutter:
    """Cuts kernels and what they call.

    Args:
        whole: the kernels with everything that they lead to; `apply` changes it.
    """

    def __init__(self, whole: Flat) -> None:
        self._whole = whole

    def reads(self, function: ast.FunctionDef, wanted: Iterable[str]) -> set[str]:
        """The names that a kernel needs for the tensors `wanted`, themselves included."""
        names = set(wanted)
        inside = [one for one in ast.walk(function) if isinstance(one, ast.stmt) and not hasattr(one, "body")]
        names |= {name for name, roots in _addresses(inside).items() if roots & names}
        before = -1
        while len(names) != before:
            before = len(names)
            for statement in function.body:
                self._read(statement, names)
        return names

    def apply(self, function: ast.FunctionDef, wanted: Iterable[str]) -> set[str]:
        """Cut a kernel, and give the names that it still reads."""
        names = self.reads(function, wanted)
        function.body = self._kept(function.body, names)
        left = _loaded(ast.Module(function.body, []))
        function.args.args = [one for one in function.args.args if one.arg in left]
        return left

    def writes(self, function: ast.FunctionDef) -> set[str]:
        """Parameters through which a function writes."""
        parameters = {one.arg for one in function.args.args}
        plain = [one for one in ast.walk(function) if isinstance(one, ast.stmt) and not hasattr(one, "body")]
        addresses = _addresses(plain)
        found: set[str] = set().union(*(self._through(one) for one in plain))
        return set().union(found, *(addresses.get(name, set()) for name in found)) & parameters

    def _read(self, statement: ast.stmt, names: set[str]) -> bool:
        """Whether a statement is wanted; then `names` gets what it reads."""
        inner = [one for field in ("body", "orelse") for one in getattr(statement, field, [])]
        if not inner or isinstance(statement, ast.FunctionDef):
            wanted = self._wanted(statement, names)
            if wanted:
                names |= _loaded(statement)
            return wanted
        wanted = sum(self._read(one, names) for one in inner) > 0  # each of them: `names` grows
        if wanted:
            head = [getattr(statement, field) for field in ("test", "iter", "target") if hasattr(statement, field)]
            for one in [*head, *(item.context_expr for item in getattr(statement, "items", []))]:
                names |= _loaded(one)
        return wanted

    def _wanted(self, statement: ast.stmt, names: set[str]) -> bool:
        writes = isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or _call(statement) is not None
        return not writes or bool(self._written(statement) & names)

    def _written(self, statement: ast.stmt) -> set[str]:
        """Names that one statement assigns to, or writes through."""
        return set().union(*map(_root, _targets(statement))) | self._through(statement)

    def _through(self, statement: ast.stmt) -> set[str]:
        """Names of the memory that one statement writes to."""
        assigned = [one for one in _targets(statement) if not isinstance(one, (ast.Name, ast.Tuple))]
        if assigned:
            return set().union(*map(_root, assigned))
        call = _call(statement)
        if call is None:
            return set()
        if ast.unparse(call.func).rpartition(".")[2] in {"store", "atomic_add"} and call.args:
            return _leftmost(call.args[0])
        function = next((one for one, found in self._whole.calls(call) if found is call), None)
        if function is None:
            return _loaded(call)
        written = self.writes(function)
        names = [one.arg for one in function.args.args]
        through = [arg for name, arg in zip(names, call.args, strict=False) if name in written]
        return set().union(*map(_loaded, through)) if through else set()

    def _kept(self, body: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            if not hasattr(statement, "body") or isinstance(statement, ast.FunctionDef):
                if self._wanted(statement, names):
                    made.append(statement)
                continue
            kept = self._kept(statement.body, names)
            other = self._kept(getattr(statement, "orelse", []), names)
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
