"""Make kernels small: substitute everything that is known, inline functions, and remove what is unused."""

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence

from mhc.upstream.source.flat import Editor, Flat, loads, parameters, stores
from mhc.upstream.source.inline import bind, expressions, statements
from mhc.upstream.source.simplify import Simplify
from mhc.upstream.source.slice import Launched, cut
from mhc.upstream.source.specialise import without_parameters

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


def slim(
    made: Flat, launched: Sequence[Launched], needed: set[str], grids: Mapping[str, Sequence[int]] | None = None
) -> list[int]:
    """Shrink the launched kernels, and cut them to what some variables need; return the launches that are left.

    Args:
        launched, needed: as for `cut`.
    """
    wanted = set(needed)
    shrink(made, [name for name, _ in launched], grids)
    kept = cut(made, launched, needed)
    left = [launched[at] for at in kept]
    entries = [name for name, _ in left]
    made.keep(entries)
    shrink(made, entries, grids)
    cut(made, left, wanted)
    return kept


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


class _Unused(Editor):
    """Drop assignments to names that are never read, if computing the value has no other effect."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._read = loads(function)

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        names = [
            one for target in node.targets for one in ast.walk(target) if not isinstance(one, (ast.Tuple, ast.expr_context))
        ]
        plain = all(isinstance(one, ast.Name) and one.id not in self._read for one in names)
        return None if plain and all(map(_pure, ast.walk(node.value))) else node


def _pure(node: ast.AST) -> bool:
    """Return whether an expression has no call, or only calls that compute a value."""
    if not isinstance(node, ast.Call):
        return True
    called = ast.unparse(node.func)
    return called.startswith(("tl.", "T.", "torch.")) and not called.endswith(_WRITING)


def returned(function: ast.FunctionDef) -> None:
    """Turn `y = f(x)` and `return y` into `return f(x)`."""
    if len(function.body) < 2:
        return
    made, last = function.body[-2:]
    if not isinstance(made, ast.Assign) or not isinstance(last, ast.Return) or not isinstance(last.value, ast.Name):
        return
    if [ast.unparse(one) for one in made.targets] == [last.value.id]:
        function.body[-2:] = [ast.Return(made.value)]


def _unread(made: Flat, entries: Iterable[str]) -> None:
    """Drop the parameters that a function does not read, and the arguments of its calls."""
    for name, function in made.functions.items():
        gone = set(parameters(function)) - set().union(*map(loads, function.body))
        if name not in entries and gone and all(bind(function, call) for call in made.calls_of(function)):
            without_parameters(made, function, gone)


def _unwanted(made: Flat, entries: Iterable[str]) -> None:
    """Drop the elements of a returned tuple that no caller reads."""
    for name, function in made.functions.items():
        returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
        if name in entries or returns != function.body[-1:] or not isinstance(returns[0].value, ast.Tuple):
            continue
        whole = returns[0].value.elts
        calls = made.calls_of(function)
        taken: list[tuple[ast.Assign, list[ast.expr]]] = []
        wanted: set[int] = set()
        for node in made.definitions.values():
            read = loads(node)
            for one in ast.walk(node):
                target = one.targets[0] if isinstance(one, ast.Assign) and one.value in calls else None
                if isinstance(one, ast.Assign) and isinstance(target, ast.Tuple) and len(target.elts) == len(whole):
                    taken.append((one, target.elts))
                    unread = [isinstance(part, ast.Name) and part.id not in read for part in target.elts]
                    wanted |= {at for at, gone in enumerate(unread) if not gone}
        if len(taken) == len(calls) and 0 < len(wanted) < len(whole):
            returns[0].value = _some(whole, wanted, ast.Load())
            for assigned, elements in taken:
                assigned.targets = [_some(elements, wanted, ast.Store())]


def _some(elements: Sequence[ast.expr], wanted: Collection[int], context: ast.expr_context) -> ast.expr:
    kept = [elements[at] for at in sorted(wanted)]
    return kept[0] if len(kept) == 1 else ast.Tuple(kept, context)


def lifted(made: Flat, factory: str) -> str:
    """Take a TileLang kernel out of a factory that does nothing else; return the name of what is left."""
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
