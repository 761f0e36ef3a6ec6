"""From launches to text: the kernels' definitions, and the lines that launch them."""

import ast
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from mhc.upstream.capture import Launch, Variable
from mhc.upstream.cut import Cutter
from mhc.upstream.fold import Index, Settled, Unroll, constant
from mhc.upstream.inline import inlined
from mhc.upstream.source import Closure, Key, again, definition
from mhc.upstream.specialise import Constants, Specialisation, compile_time, undecorated
from mhc.upstream.tensors import shape_text
from mhc.upstream.text import unparse


class Kernels:
    """Text of the launches of one stage.

    Attributes:
        imports, definitions: lines. calls: for each launch its lines. where: the kernels, for a title.
    """

    def __init__(self, imports: set[str], definitions: list[str], calls: list[list[str]], where: str) -> None:
        self.imports, self.definitions, self.calls, self.where = imports, definitions, calls, where


def triton_kernels(launches: Sequence[Launch], wanted: str | None) -> Kernels:
    """Triton kernels, what is known at compile time written out.

    Args:
        wanted: the variable that everything else may be cut for; None cuts nothing.
    """
    keys = [(launch.kernel.fn.__module__, launch.kernel.fn.__name__) for launch in launches]
    known: dict[Key, Constants] = {}
    texts: dict[Key, Constants] = {}
    for key in dict.fromkeys(keys):
        own = [launch for one, launch in zip(keys, launches, strict=True) if one == key]
        function = definition(key)
        assert isinstance(function, ast.FunctionDef)
        known[key] = {
            name: constant(_value(own[0].arguments[name]))
            for name in compile_time(function)
            if all(launch.arguments[name] == own[0].arguments[name] for launch in own)
        }
        texts[key] = {
            f"{name}.dtype.element_ty": ast.parse(f"tl.{dtype}", mode="eval").body
            for name, dtype in own[0].dtypes.items()
            if all(launch.dtypes.get(name) == dtype for launch in own)
        }
    entries = list(dict.fromkeys(keys))
    double = any("float64" in launch.dtypes.values() for launch in launches)
    absent = frozenset({"tl.float64"}) if wanted is not None and not double else frozenset[str]()
    made = Specialisation(entries, known, texts, compile_time, absent=absent).closure
    if absent and _mentions(made, "tl.float64"):  # a value of its own
        made = Specialisation(entries, known, texts, compile_time).closure
    if wanted is not None:
        made = inlined(made, entries)
        made.definitions = {key: Unroll().visit(node) for key, node in made.definitions.items()}
    functions = {key: node for key, node in made.definitions.items() if isinstance(node, ast.FunctionDef)}
    kept = _cut(made, [(key, functions[key], launch) for key, launch in zip(keys, launches, strict=True)], wanted)
    entries = [key for key in entries if any(one == key for one, _ in kept)]
    made = again(made, entries)
    calls = []
    for key, launch in kept:
        names = [one.arg for one in functions[key].args.args]
        given = [_argument(launch.arguments[name]) for name in names]
        options = [f"{name}={value!r}" for name, value in launch.options.items()]
        calls.append([f"{made.name(key)}[{launch.grid}]({', '.join([*given, *options])})"])
    where = "Triton kernel " + ", ".join(key[1] for key in entries)
    return Kernels(made.imports, unparse(made.statements()), calls, where)


def tilelang_kernels(launches: Sequence[Launch], shapes: Mapping[str, Sequence[int]], wanted: str | None) -> Kernels:
    """TileLang prim_funcs of their own sizes.

    Args:
        shapes: of the variables. wanted: as for `triton_kernels`.
    """
    imports, definitions = {"import tilelang"}, list[str]()
    calls: list[list[str]] = []
    where: list[str] = []
    needed = None if wanted is None else {wanted}
    for launch in reversed(launches):
        module, _, name = launch.kernel.partition(":")
        key = (module, name)
        known = {key: {name: constant(value) for name, value in launch.constants.items()}}
        kinds = (bool,) if needed is None else (bool, int)
        made = Specialisation([key], known, {}, undecorated, kinds).closure
        dynamic = _Sizes(launch.arguments)
        made.definitions[key] = dynamic.visit(made.definitions[key])
        if needed is not None:
            made = inlined(made, [key])
            made.definitions[key] = _unrolled(made.definitions[key], launch.arguments, dynamic.found)
        inner = _prim_func(made.definitions[key])
        arguments = {name: value for name, value in launch.arguments.items() if name not in dynamic.found}
        arguments.pop("stream", None)
        if needed is not None:
            _cut(made, [(key, inner, launch)], None, needed)
            arguments = {name: value for name, value in arguments.items() if name in {one.arg for one in inner.args.args}}
            if not arguments:
                continue
            made = again(made, [key])
        imports |= made.imports
        definitions = [*unparse(made.statements()), *([""] if definitions else []), *definitions]
        sizes = _shapes(launch) if arguments else {}
        given = [
            _viewed(value, shapes[value.name], sizes[name]) if isinstance(value, Variable) else repr(value)
            for name, value in arguments.items()
        ]
        options = [
            f'target="{launch.target}", execution_backend="cython"',
            *([f"pass_configs={dict(launch.pass_configs)!r}"] if launch.pass_configs else []),
            *([f"compile_flags={list(launch.flags)!r}"] if launch.flags else []),
        ]
        own = made.name(key)
        call = [f"kernel = tilelang.compile({own}(), {', '.join(options)})", f"kernel({', '.join(given)})"]
        calls.insert(0, call if launch.arguments else call[:1])  # without arguments: it did not get so far
        where.insert(0, f"{inner.name} on target {launch.target.split()[0]}")
    return Kernels(imports, definitions, calls, ", ".join(where))


def _cut(
    whole: Closure,
    launched: Sequence[tuple[Key, ast.FunctionDef, Launch]],
    wanted: str | None,
    needed: set[str] | None = None,
) -> list[tuple[Key, Launch]]:
    """Cut what is launched to what one variable needs; gives what is left. `needed` grows by what that reads."""
    if needed is None and wanted is None:
        return [(key, launch) for key, _, launch in launched]
    needed = {wanted} if needed is None and wanted is not None else needed
    assert needed is not None
    cutter = Cutter(whole)

    def parameters(launch: Launch) -> set[str]:
        return {name for name, value in launch.arguments.items() if isinstance(value, Variable) and value.name in needed}

    before = -1
    while len(needed) != before:
        before = len(needed)
        for key, function, launch in launched:
            if cutter.writes(key, function) & parameters(launch):
                read = cutter.reads(key, function, parameters(launch))
                needed |= {
                    value.name for name, value in launch.arguments.items() if isinstance(value, Variable) and name in read
                }
    kept = [(key, launch) for key, function, launch in launched if cutter.writes(key, function) & parameters(launch)]
    for key, function, _ in {id(one[1]): one for one in launched}.values():
        own = [launch for other, launch in kept if other == key]
        if own:
            cutter.apply(key, function, set().union(*map(parameters, own)))
        else:
            function.args.args = []
    return kept


def _mentions(made: Closure, text: str) -> bool:
    """Whether the body of a function has an expression."""
    functions = [node for node in made.definitions.values() if isinstance(node, ast.FunctionDef)]
    return any(text in ast.unparse(statement) for node in functions for statement in node.body)


def _unrolled(factory: ast.stmt, values: Mapping[str, Any], sizes: set[str]) -> ast.stmt:
    """A factory with its sizes written out, and without the loops that run once."""
    known = {name: constant(values[name]) for name in sizes}
    before = ""
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [one for one in factory.body if not (isinstance(one, ast.Assign) and _assigns(one, sizes))]
    while ast.unparse(factory) != before:
        before = ast.unparse(factory)
        factory = ast.fix_missing_locations(Unroll().visit(Index(known).visit(factory)))
        Settled().visit(factory)
    return factory


def _assigns(statement: ast.Assign, names: set[str]) -> bool:
    target = statement.targets[0]
    return {one.id for one in getattr(target, "elts", [target]) if isinstance(one, ast.Name)} <= names


def _prim_func(factory: ast.stmt) -> ast.FunctionDef:
    """The kernel inside of a factory."""
    return next(one for one in ast.walk(factory) if isinstance(one, ast.FunctionDef) and one is not factory)


class _Sizes(ast.NodeTransformer):
    """`T.dynamic` sizes as the numbers they had."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.found: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        names = [one.id for one in getattr(target, "elts", [target]) if isinstance(one, ast.Name)]
        if "T.dynamic" not in ast.unparse(node.value) or not all(name in self._values for name in names):
            return node
        self.found |= set(names)
        values = tuple(self._values[name] for name in names)
        node.value = constant(values if isinstance(target, ast.Tuple) else values[0])
        return node


def _shapes(launch: Launch) -> dict[str, tuple[int, ...]]:
    """Of each parameter that is a tensor: its shape, symbols replaced by what they were."""
    module, _, name = launch.kernel.partition(":")
    function = getattr(importlib.import_module(module), name)(**launch.constants)
    numbers = {name: value for name, value in launch.arguments.items() if isinstance(value, int)}
    return {
        buffer.data.name: tuple(int(eval(str(size), {"__builtins__": {}}, numbers)) for size in buffer.shape)
        for buffer in function.buffer_map.values()
    }


def _viewed(variable: Variable, shape: Sequence[int], wanted: Sequence[int]) -> str:
    return variable.name if tuple(shape) == tuple(wanted) else f"{variable.name}.view({shape_text(wanted)})"


def _argument(value: Any) -> str:
    return value.name if isinstance(value, Variable) else repr(_value(value))


def _value(value: Any) -> Any:
    """A plain value; a `tl.constexpr` is what it holds."""
    return getattr(value, "value", value)
