"""Make kernels small: substitute everything that is known, inline functions, and remove what is unused."""

import ast
from collections.abc import Iterable, Mapping, Sequence

from mhc.upstream.source.flat import Flat, loads, parameters, stores
from mhc.upstream.source.inline import bind, expressions, statements
from mhc.upstream.source.simplify import Simplify

_WRITING = (
    "store",
    "copy",
    "fill",
    "clear",
    "gemm",
    "_add",
    "_max",
    "_min",
    "_or",
    "_and",
    "_xor",
    "_cas",
    "_xchg",
    "assert",
)
"""How the names of functions end that do more than compute a value."""


def shrink(made: Flat, entries: Sequence[str], grids: Mapping[str, Sequence[int]] | None = None) -> None:
    """Write functions out where they are called and constants where they are read, until nothing changes.

    Args:
        grids: of kernels that are launched with one alone.
    """
    made.until_stable(lambda: _round(made, entries, grids or {}))


def _round(made: Flat, entries: Sequence[str], grids: Mapping[str, Sequence[int]]) -> None:
    expressions(made, entries)
    statements(made, entries)
    for name, function in made.functions.items():
        if name not in entries:
            returned(function)
        made.definitions[name] = Simplify(grids.get(name, ())).visit(function)
    for function in made.functions.values():
        _Unused(function).visit(function)
    _unread(made, entries)
    _unwanted(made, entries)
    made.keep(entries)


class _Unused(ast.NodeTransformer):
    """Drop assignments to names that are never read, if computing the value has no other effect."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._read = loads(function)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_For(self, node: ast.For) -> ast.AST | None:
        self.generic_visit(node)
        return node if node.body else None

    def visit_If(self, node: ast.If) -> ast.AST | None:
        self.generic_visit(node)
        node.body = node.body or ([ast.Pass()] if node.orelse else [])
        return node if node.body else None

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        names = [
            one for target in node.targets for one in ast.walk(target) if not isinstance(one, (ast.Tuple, ast.expr_context))
        ]
        plain = all(isinstance(one, ast.Name) and one.id not in self._read for one in names)
        return None if plain and all(map(_pure, ast.walk(node.value))) else node


def _pure(node: ast.AST) -> bool:
    """No call, or one of what only computes a value."""
    if not isinstance(node, ast.Call):
        return True
    called = ast.unparse(node.func)
    return called.startswith(("tl.", "T.", "torch.")) and not called.endswith(_WRITING)


def returned(function: ast.FunctionDef) -> None:
    """`y = f(x)` and `return y` become `return f(x)`."""
    if len(function.body) < 2:
        return
    made, last = function.body[-2:]
    if not isinstance(made, ast.Assign) or not isinstance(last, ast.Return) or not isinstance(last.value, ast.Name):
        return
    if [ast.unparse(one) for one in made.targets] == [last.value.id]:
        function.body[-2:] = [ast.Return(made.value)]


def _unread(made: Flat, entries: Iterable[str]) -> None:
    """Parameters that a function does not read go, and so do the arguments of its calls."""
    for name, function in made.functions.items():
        called = [call for node in made.definitions.values() for one, call in made.calls(node) if one is function]
        read = set().union(*map(loads, function.body)) if function.body else set()
        gone = {one for one in parameters(function) if one not in read}
        if name in entries or not gone or any(bind(function, call) is None for call in called):
            continue
        for call in called:
            given = bind(function, call) or {}
            call.args, call.keywords = [value for one, value in given.items() if one not in gone], []
        function.args.args = [one for one in function.args.args if one.arg not in gone]
        function.args.kwonlyargs, function.args.kw_defaults = [], []


def _unwanted(made: Flat, entries: Iterable[str]) -> None:
    """Of a tuple that a function returns, what no caller reads goes."""
    for name, function in made.functions.items():
        last = function.body[-1]
        returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
        if name in entries or returns != [last] or not isinstance(last.value, ast.Tuple):  # type: ignore[attr-defined]
            continue
        whole: ast.Tuple = last.value  # type: ignore[attr-defined]
        called = [call for node in made.definitions.values() for one, call in made.calls(node) if one is function]
        taken = [
            (one, target, loads(node))
            for node in made.definitions.values()
            for one in ast.walk(node)
            if isinstance(one, ast.Assign) and any(one.value is call for call in called)
            for target in one.targets
            if isinstance(target, ast.Tuple) and len(target.elts) == len(whole.elts)
        ]
        if len(taken) != len(called):
            continue
        wanted = [
            at
            for at in range(len(whole.elts))
            if any(not isinstance(target.elts[at], ast.Name) or target.elts[at].id in read for _, target, read in taken)  # type: ignore[attr-defined]
        ]
        if not wanted or len(wanted) == len(whole.elts):
            continue
        last.value = _some(whole, wanted)  # type: ignore[attr-defined]
        for assigned, target, _ in taken:
            assigned.targets = [_some(target, wanted)]


def _some(whole: ast.Tuple, wanted: Sequence[int]) -> ast.expr:
    if len(wanted) == 1:
        return whole.elts[wanted[0]]
    return ast.Tuple([whole.elts[at] for at in wanted], whole.ctx)


def lifted(made: Flat, factory: str) -> str:
    """A TileLang kernel out of the factory that only returns it, if it does no more; gives the name of what is left."""
    function = made.functions[factory]
    kernel = next((one for one in function.body if isinstance(one, ast.FunctionDef)), None)
    if kernel is None or parameters(function):
        return factory
    read = loads(kernel)
    kept = [one for one in function.body if not (isinstance(one, ast.Assign) and not stores([one]) & read)]
    if kept[:1] != [kernel] or len(kept) != 2 or not isinstance(kept[1], ast.Return):
        return factory
    name = kernel.name
    while name != factory and name in made.definitions:
        name += "_"
    kernel.name = name
    made.definitions = dict((name, kernel) if key == factory else (key, one) for key, one in made.definitions.items())
    return name
