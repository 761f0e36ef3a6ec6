"""Make the reference of a repro: the operator's formula in float64, for one output or gradient of one case."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mhc.case import Case
from mhc.operator import Operator
from mhc.upstream.source.definitions import closure, definition
from mhc.upstream.source.flat import Flat, Key, Renaming, called, loads, stores
from mhc.upstream.source.fold import Fold, constant
from mhc.upstream.source.inline import apart
from mhc.upstream.source.shrink import returned
from mhc.upstream.source.simplify import Simplify
from mhc.upstream.source.slice import Cutter
from mhc.upstream.source.text import unparse
from mhc.upstream.verify import ExportError


@dataclass(frozen=True)
class Formula:
    """The text of a function `reference` and of what it uses, the names of its parameters, and lines that import."""

    text: str
    parameters: tuple[str, ...]
    imports: tuple[str, ...] = ()


def reference(case: Case, subject: str, present: Mapping[str, bool]) -> Formula:
    """Return the function that computes `subject`.

    Args:
        present: of each input and upstream gradient, whether the case has it.
    """
    table = case.table
    if table.function is not None:
        return _of_function(case, subject, present, table.function)
    steps, ends = _straight(table, "forward", case, present)
    if subject in {spec.name for spec in table.outputs}:
        wanted = ends[[spec.name for spec in table.outputs].index(subject)]
    else:
        for spec, end in zip(table.outputs, ends, strict=True):
            if spec.name in table.saved and ast.unparse(end) != spec.name:
                steps.append(ast.Assign([ast.Name(spec.name, ast.Store())], end, lineno=0))
        further, ends = _straight(table, "backward", case, present)
        steps += [one for one in further if ast.unparse(one) not in {ast.unparse(step) for step in steps[:1]}]
        wanted = ends[[spec.name for spec in table.gradients].index(subject)]
    body = _plain([*steps, ast.Return(wanted)])
    read = set().union(*map(loads, body))
    names = tuple(spec.name for spec in table.drawn if present[spec.name] and spec.name in read)
    arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    made = ast.fix_missing_locations(ast.FunctionDef("reference", arguments, body, [], lineno=0))
    return Formula("\n".join(unparse([made])), names)


def _of_function(case: Case, subject: str, present: Mapping[str, bool], function: Callable[..., Any]) -> Formula:
    """Return the plain function of an operator with float64 for every floating dtype; autograd gives its gradients."""
    table, key = case.table, key_of(function)
    whole = closure([key])
    names = {name: f"{name}_in_float64" for name in whole.definitions}
    renaming = Renaming(names)
    nodes = [called(renaming.visit(_InFloat64().visit(one)), names[name]) for name, one in whole.definitions.items()]
    outputs = [spec.name for spec in table.outputs]
    parameters = [spec.name for spec in table.inputs if present[spec.name]]
    arguments = [spec.name if present[spec.name] else "None" for spec in table.inputs]
    scalars = [f"{name}={value!r}" for name, value in case.scalars.items()]
    call = f"{names[whole.names[key]]}({', '.join([*arguments, *scalars])})"
    if subject in outputs:
        lines = [f"return {call}" + (f"[{outputs.index(subject)}]" if len(outputs) > 1 else "")]
    else:
        leaf, weights = subject.removeprefix("d"), [spec.name for spec in table.upstream if present[spec.name]]
        of = ", ".join(name.removeprefix("d") for name in weights)
        parameters += weights
        lines = [
            f"{leaf}.requires_grad_()",
            f"{', '.join(outputs)} = {call}",
            f"return torch.autograd.grad([{of}], {leaf}, [{', '.join(weights)}])[0]",
        ]
    head = f"def reference({', '.join(parameters)}):"
    text = "\n".join([*unparse(nodes), "", "", head, *(f"    {line}" for line in lines)])
    return Formula(text, tuple(parameters), tuple(whole.imports))


def key_of(function: Callable[..., Any]) -> Key:
    """Return the module and the name of a function.

    Raises:
        ExportError: it is not defined at the top level of its module.
    """
    name = getattr(function, "__name__", "")
    if getattr(function, "__qualname__", None) != name or name in {"", "<lambda>"}:
        raise ExportError(f"{function!r} is not a function at the top level of its module")
    return function.__module__, name


class _InFloat64(ast.NodeTransformer):
    """Writes float64 for every floating dtype, and leaves out decorators and annotations."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        named = isinstance(node.value, ast.Name) and node.value.id == "torch"
        return ast.Attribute(node.value, "float64", node.ctx) if named and node.attr in _FLOATING else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        method = isinstance(node.func, ast.Attribute) and node.func.attr in {"float", "half", "bfloat16"}
        if method and not node.args:
            node.func.attr = "double"  # type: ignore[attr-defined]
        return node


_FLOATING = frozenset({"float", "half", "bfloat16", "float32", "float16"})


def _plain(steps: list[ast.stmt]) -> list[ast.stmt]:
    """Return the needed steps, with sizes written out, without casts to float64 of float64 and without repeated steps."""
    function = ast.FunctionDef("reference", ast.arguments([], [], None, [], [], None, []), steps, [], lineno=0)
    Simplify().visit(_Double().visit(Simplify().visit(function)))
    function.body = [part for one in function.body for part in apart(one)]
    Cutter(Flat()).apply(function, [])
    body = function.body
    texts = [ast.unparse(one) for one in body]
    once = [one for at, one in enumerate(body) if texts[at] not in texts[:at]]
    changed = any(sum(name in stores([one]) for one in once) > 1 for name in stores(once))
    function.body = body if changed else once
    returned(function)
    return function.body


class _Double(ast.NodeTransformer):
    """Everything is float64."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        cast = isinstance(node.func, ast.Attribute) and node.func.attr == "to" and len(node.args) == 1
        return node.func.value if cast else node  # type: ignore[attr-defined]


def _straight(table: Operator, stage: str, case: Case, present: Mapping[str, bool]) -> tuple[list[ast.stmt], list[ast.expr]]:
    """Return the statements of a stage without branches, and what it returns, in order."""
    function = getattr(table, stage)
    node = definition((function.__module__, function.__name__))
    lead = table.inputs[0]
    known = {
        f"accumulation_dtype({lead.name}.dtype)": ast.parse("torch.float64", mode="eval").body,
        f"{lead.name}.shape": constant(lead.shape(case.sizes)),
        **{f"{name} is None": constant(not there) for name, there in present.items()},
        **{name: constant(value) for name, value in case.scalars.items()},
    }
    folded = Fold(known).visit(node)
    assert isinstance(folded, ast.FunctionDef)
    *steps, last = folded.body
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Call)
    plain = [one for one in steps if not isinstance(one, ast.Delete) and not _docstring(one)]
    return plain, last.value.args


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
