"""Turn launches into text: the kernels' definitions, and the lines that launch them."""

import ast
import copy
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mhc.upstream.program.script import Call
from mhc.upstream.source.definitions import closure
from mhc.upstream.source.flat import Flat, parameters
from mhc.upstream.source.fold import Known, constant
from mhc.upstream.source.shrink import lifted, shrink, slim
from mhc.upstream.source.slice import prim_func
from mhc.upstream.source.specialise import compile_time, specialise, undecorated
from mhc.upstream.source.text import shape_text, unparse
from mhc.upstream.trace.capture import Launch, Variable


@dataclass(frozen=True)
class Kernels:
    """Text of the launches of one stage.

    Attributes:
        definitions: texts by name. where: the kernels, for a title.
    """

    imports: set[str]
    definitions: dict[str, str]
    calls: list[Call]
    where: str


def triton_kernels(launches: Sequence[Launch], wanted: str | None) -> Kernels:
    """Triton kernels, what is known at compile time written out.

    Args:
        wanted: the variable that everything else may be cut for; None cuts nothing.
    """
    keys = [(launch.kernel.fn.__module__, launch.kernel.fn.__name__) for launch in launches]
    made = closure(list(dict.fromkeys(keys)))
    names = [made.names[key] for key in keys]
    launched = list(zip(names, launches, strict=True))
    known: dict[str, Known] = {}
    for name in dict.fromkeys(names):
        own = [launch for one, launch in launched if one == name]
        fixed = compile_time(made.functions[name]) | (set() if wanted is None else _whole_numbers(own[0]))
        known[name] = {
            one: constant(_value(own[0].arguments[one]))
            for one in fixed
            if all(launch.arguments[one] == own[0].arguments[one] for launch in own)
        } | {
            f"{one}.dtype.element_ty": ast.parse(f"tl.{dtype}", mode="eval").body
            for one, dtype in own[0].dtypes.items()
            if all(launch.dtypes.get(one) == dtype for launch in own)
        }
    double = any("float64" in launch.dtypes.values() for launch in launches)
    absent = frozenset({"tl.float64"}) if wanted is not None and not double else frozenset[str]()
    whole = copy.deepcopy(made)
    specialise(made, names, known, compile_time, absent=absent)
    if absent and _mentions(made, "tl.float64"):  # a value of its own
        made = whole
        specialise(made, names, known, compile_time)
    if wanted is not None:
        grids = {
            name: launch.grid
            for name, launch in launched
            if all(other.grid == launch.grid for one, other in launched if one == name)
        }
        kept = slim(made, [(name, _variables(launch)) for name, launch in launched], {wanted}, grids)
        launched = [launched[at] for at in kept]
        names = [name for name, _ in launched]
    calls = []
    for name, launch in launched:
        given = {one: _argument(launch.arguments[one]) for one in parameters(made.functions[name])}
        options = [f"{option}={value!r}" for option, value in launch.options.items()]
        calls.append(Call(kernel=name, arguments=given, head=f"{name}[{launch.grid}]", options=options))
    where = "Triton kernel " + ", ".join(dict.fromkeys(names))
    return Kernels(made.imports, texts_of(made), calls, where)


def tilelang_kernels(launches: Sequence[Launch], shapes: Mapping[str, Sequence[int]], wanted: str | None) -> Kernels:
    """TileLang prim_funcs of their own sizes.

    Args:
        shapes: of the variables, but for those with strides, whose memory a kernel reads as if it were dense. wanted: as for
            `triton_kernels`.
    """
    whole = Flat({"import tilelang"})
    calls: list[Call] = []
    where: list[str] = []
    needed = None if wanted is None else {wanted}
    for launch in reversed(launches):
        module, _, name = launch.kernel.partition(":")
        key = (module, name)
        made = closure([key])
        own = made.names[key]
        known = {own: {name: constant(value) for name, value in launch.constants.items()}}
        specialise(made, [own], known, undecorated, (bool,) if needed is None else (bool, int))
        dynamic = _Sizes(launch.arguments)
        made.definitions[own] = dynamic.visit(made.definitions[own])
        arguments = {name: value for name, value in launch.arguments.items() if name not in dynamic.found}
        arguments.pop("stream", None)
        if needed is not None:
            shrink(made, [own])
            own = lifted(made, own)
            if not launch.arguments:
                shrink(made, [own])
            elif not slim(made, [(own, _variables(launch))], needed):
                continue
        inner = prim_func(made.functions[own])
        arguments = {name: arguments[name] for name in parameters(inner) if name in arguments}
        direct = inner is made.functions[own]
        own = whole.add(made)[own]
        sizes = _shapes(launch) if arguments else {}
        given = {
            name: viewed(value, shapes.get(value.name), sizes[name]) if isinstance(value, Variable) else repr(value)
            for name, value in arguments.items()
        }
        options = [
            f'target="{launch.target}", execution_backend="cython"',
            *([f"pass_configs={dict(launch.pass_configs)!r}"] if launch.pass_configs else []),
            *([f"compile_flags={list(launch.flags)!r}"] if launch.flags else []),
        ]
        head = f"run_{own}"
        compiled = f"{head} = tilelang.compile({own}{'' if direct else '()'}, {', '.join(options)})"
        # without arguments it did not get so far
        calls.insert(0, Call(kernel=own, arguments=given, head=head if launch.arguments else "", compiled=compiled))
        where.insert(0, f"{inner.name} on target {launch.target.split()[0]}")
    return Kernels(whole.imports, texts_of(whole), calls, ", ".join(where))


def texts_of(made: Flat) -> dict[str, str]:
    """Definitions as text."""
    return {name: "\n".join(unparse([node])) for name, node in made.definitions.items()}


def _mentions(made: Flat, text: str) -> bool:
    """Whether the body of a function has an expression."""
    return any(text in ast.unparse(statement) for function in made.functions.values() for statement in function.body)


def _whole_numbers(launch: Launch) -> set[str]:
    """Arguments that are sizes, or absent tensors."""
    return {name for name, value in launch.arguments.items() if value is None or type(value) is int}


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


def _variables(launch: Launch) -> dict[str, str]:
    return {name: value.name for name, value in launch.arguments.items() if isinstance(value, Variable)}


def _shapes(launch: Launch) -> dict[str, tuple[int, ...]]:
    """Of each parameter that is a tensor: its shape, symbols replaced by what they were."""
    module, _, name = launch.kernel.partition(":")
    function = getattr(importlib.import_module(module), name)(**launch.constants)
    numbers = {name: value for name, value in launch.arguments.items() if isinstance(value, int)}
    return {
        buffer.data.name: tuple(int(eval(str(size), {"__builtins__": {}}, numbers)) for size in buffer.shape)
        for buffer in function.buffer_map.values()
    }


def viewed(variable: Variable, shape: Sequence[int] | None, wanted: Sequence[int]) -> str:
    """A variable as a kernel takes it; a shape of None: it is not dense, and the kernel reads its memory as if it were."""
    if shape is None:
        return f"{variable.name}.as_strided({tuple(wanted)}, {torch.empty(tuple(wanted)).stride()})"
    return variable.name if tuple(shape) == tuple(wanted) else f"{variable.name}.view({shape_text(wanted)})"


def _argument(value: Any) -> str:
    return value.name if isinstance(value, Variable) else repr(_value(value))


def _value(value: Any) -> Any:
    """A plain value; a `tl.constexpr` is what it holds."""
    return getattr(value, "value", value)
