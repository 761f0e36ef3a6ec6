"""Make the reference of a repro: the operator's formula in float64, for one output or gradient of one case."""

import ast
from collections.abc import Mapping

from mhc.case import Case
from mhc.operator import Operator
from mhc.upstream.source.definitions import definition
from mhc.upstream.source.flat import Flat, loads, stores
from mhc.upstream.source.fold import Fold, constant
from mhc.upstream.source.inline import apart
from mhc.upstream.source.shrink import returned
from mhc.upstream.source.simplify import Simplify
from mhc.upstream.source.slice import Cutter


def reference(case: Case, subject: str, present: Mapping[str, bool]) -> tuple[ast.FunctionDef, tuple[str, ...]]:
    """Return a function `reference` that computes `subject`, and the names of its parameters.

    Args:
        present: of each input and upstream gradient, whether the case has it.
    """
    table = case.table
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
    return ast.fix_missing_locations(ast.FunctionDef("reference", arguments, body, [], lineno=0)), names


def _plain(steps: list[ast.stmt]) -> list[ast.stmt]:
    """Steps that are needed, with sizes written out, without casts of what is float64 already and what is computed twice."""
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
    """The statements of a stage without branches, and what it returns, in order."""
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
