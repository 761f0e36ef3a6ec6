"""Specialise kernels, and the functions that they use, to the recorded launches."""

import ast
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence

from mhc.upstream.source.flat import Flat, literal
from mhc.upstream.source.fold import Fold, Known, constant

Choose = Callable[[ast.FunctionDef], set[str]]
"""The parameters of a function that may become constants."""

_TYPE = "{}.dtype.element_ty"
"""What a kernel asks of a pointer."""


def specialise(
    made: Flat,
    entries: Sequence[str],
    known: Mapping[str, Known],
    choose: Choose,
    kinds: tuple[type, ...] = (bool,),
    absent: frozenset[str] = frozenset(),
) -> None:
    """Rewrite each function for the arguments that all its callers share, and drop what the entries no longer use.

    Args:
        known: of each entry.
        choose: which parameters of the functions they lead to may become constants.
        kinds: types of the modules' constants that are written out. absent: as for `Fold`.
    """
    constants = _constants(made, kinds)
    own = {name: dict(known.get(name, {})) for name in made.functions}
    learns = True
    while learns:
        for name, function in made.functions.items():
            made.definitions[name] = Fold({**constants, **own[name]}, absent).visit(function)
        made.keep(entries)
        learns = any(_learns(made, one, own, choose) for name, one in made.functions.items() if name not in entries)
    for name, function in made.functions.items():
        without_parameters(made, function, own[name])


def _learns(made: Flat, function: ast.FunctionDef, own: Mapping[str, dict[str, ast.expr]], choose: Choose) -> bool:
    """Add constants and types that every call of a function gives to a parameter; return whether there were any."""
    called = [
        (caller, call) for caller, node in made.definitions.items() for one, call in made.calls(node) if one is function
    ]
    known = own[function.name]
    before = len(known)
    for at, name in enumerate(one.arg for one in function.args.args):
        given = [(caller, call.args[at]) for caller, call in called if at < len(call.args)]
        if given and len(given) == len(called) and _same([value for _, value in given]):
            value = given[0][1]
            if name in choose(function) and literal(value, ("tl",)):
                known.setdefault(name, value)
        types = [own.get(caller, {}).get(_TYPE.format(ast.unparse(value))) for caller, value in given]
        if types and types[0] is not None and _same(types):
            known.setdefault(_TYPE.format(name), types[0])
    return len(known) > before


def _same(values: Sequence[ast.expr | None]) -> bool:
    return len({value and ast.unparse(value) for value in values}) == 1


def without_parameters(made: Flat, function: ast.FunctionDef, gone: Collection[str]) -> None:
    """Remove parameters of a function, and what its calls give them."""
    names = [one.arg for one in function.args.args]
    for call in made.calls_of(function):
        call.args = [value for name, value in zip(names, call.args, strict=False) if name not in gone]
        call.keywords = [word for word in call.keywords if word.arg not in gone]
    function.args.args = [one for one in function.args.args if one.arg not in gone]
    words = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    kept = [(one, default) for one, default in words if one.arg not in gone]
    function.args.kwonlyargs, function.args.kw_defaults = [one for one, _ in kept], [default for _, default in kept]


def compile_time(function: ast.FunctionDef) -> set[str]:
    """Return the parameters that Triton's compiler must know."""
    return {
        one.arg
        for one in function.args.args
        if one.annotation is not None and ast.unparse(one.annotation).endswith("constexpr")
    }


def undecorated(function: ast.FunctionDef) -> set[str]:
    """Return every parameter of a plain Python function; none of a kernel or macro."""
    return set() if function.decorator_list else {one.arg for one in function.args.args}


def _constants(made: Flat, kinds: tuple[type, ...]) -> Known:
    """Return the definitions that are a constant of these types."""
    found: dict[str, ast.expr] = {}
    for (module, own), name in made.names.items():
        value = getattr(importlib.import_module(module), own, None)
        value = getattr(value, "value", value)
        if type(value) in kinds:
            found[name] = constant(value)
    return found
