"""Functions that only return an expression of their parameters, written out where they are called."""

import ast
from collections.abc import Iterable

from mhc.upstream.fold import Fold
from mhc.upstream.source import Closure, Key, again, calls, resolve


def inlined(before: Closure, entries: Iterable[Key]) -> Closure:
    """The same definitions with small functions written out, and without those that nothing calls any more."""
    entries = list(entries)
    made = before
    while True:
        small = {
            key: node
            for key, node in made.definitions.items()
            if key not in entries and isinstance(node, ast.FunctionDef) and _returned(node) is not None
        }
        made.definitions = {key: _Inline(key, small).visit(node) for key, node in made.definitions.items()}
        left = again(made, entries)
        if left.definitions.keys() == made.definitions.keys():
            return left
        made = left


class _Inline(ast.NodeTransformer):
    def __init__(self, caller: Key, small: dict[Key, ast.FunctionDef]) -> None:
        self._caller, self._small = caller, small

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        target = next((key for key, call in calls(self._caller[0], node) if call is node), None)
        function = self._small.get(target) if target is not None else None
        if target is None or function is None or node.keywords:
            return node
        names = [one.arg for one in function.args.args]
        body = _returned(function)
        assert body is not None
        read = [one.id for one in ast.walk(body) if isinstance(one, ast.Name)]
        if any(read.count(name) > 1 and not _cheap(arg) for name, arg in zip(names, node.args, strict=False)):
            return node
        free = {one.id for one in ast.walk(body) if isinstance(one, ast.Name)} - set(names)
        if len(names) != len(node.args) or any(resolve(target[0], one) != resolve(self._caller[0], one) for one in free):
            return node
        copied = ast.parse(ast.unparse(body), mode="eval").body
        written: ast.AST = Fold(dict(zip(names, node.args, strict=True))).visit(copied)
        return written


def _returned(node: ast.FunctionDef) -> ast.expr | None:
    """What a small function returns."""
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if node.args.kwonlyargs or len(body) != 1 or not isinstance(body[0], ast.Return):
        return None
    return body[0].value


def _cheap(node: ast.expr) -> bool:
    """What may be written twice."""
    index = isinstance(node, ast.BinOp) and all(
        isinstance(one, (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.Load)) for one in ast.walk(node)
    )
    return index or isinstance(node, (ast.Name, ast.Constant, ast.Attribute))
