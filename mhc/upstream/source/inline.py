"""Inline functions: those that only return an expression, and those that are called once or twice."""

import ast
import copy
from collections.abc import Collection, Mapping
from typing import Any

from mhc.upstream.source.flat import Flat, Renaming, bound, literal, loads, names, pairs, parameters, stores
from mhc.upstream.source.fold import Fold

_TIMES = 2
"""How often a function of several statements is written out: for what one call gives it, it is often shorter."""


def expressions(made: Flat, entries: Collection[str]) -> None:
    """Inline functions that only return an expression, once the arguments of a call are known."""
    small = {name: node for name, node in made.functions.items() if name not in entries}
    for name, node in made.definitions.items():
        others = {one: function for one, function in small.items() if one != name}
        made.definitions[name] = _Expressions(others, bound(node)).visit(node)
    made.keep(entries)


def statements(made: Flat, entries: Collection[str]) -> None:
    """Inline the statements of functions whose one or two calls are each the whole right-hand side of a statement."""
    once = {
        name: function
        for name, function in made.functions.items()
        if name not in entries and 1 <= len(made.calls_of(function)) <= _TIMES and _straight(function)
    }
    for name, node in made.functions.items():
        if name not in once:  # from the outside in: what is written out is looked at in the next round
            _Statements(once, node).visit(node)
    made.keep(entries)


class _Expressions(ast.NodeTransformer):
    def __init__(self, small: Mapping[str, ast.FunctionDef], taken: set[str]) -> None:
        self._small, self._taken = small, taken

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Lambda) and not node.keywords:
            return _applied(node.func.body, [one.arg for one in node.func.args.args], node.args) or node
        function = self._small.get(node.func.id) if isinstance(node.func, ast.Name) else None
        given = None if function is None else bind(function, node)
        if function is None or given is None:
            return node
        body = _returned(function, given)
        if body is None or (loads(body) - given.keys()) & (self._taken - {function.name} - self._small.keys()):
            return node
        return _applied(body, list(given), list(given.values())) or node


def _applied(body: ast.expr, parameters: list[str], given: list[ast.expr]) -> ast.expr | None:
    """Return an expression with its parameters replaced by their values; None if that would compute something twice."""
    if len(parameters) != len(given):
        return None
    typed = {id(one.value) for one in ast.walk(body) if isinstance(one, ast.Attribute) and one.attr == "dtype"}
    read = [one.id for one in ast.walk(body) if isinstance(one, ast.Name) and id(one) not in typed]
    if any(read.count(name) > 1 and not _cheap(value) for name, value in zip(parameters, given, strict=True)):
        return None
    written: ast.expr = Fold(dict(zip(parameters, given, strict=True))).visit(copy.deepcopy(body))
    return written


class _Statements(ast.NodeTransformer):
    """Replaces statements whose value is a call by what the function does."""

    def __init__(self, once: Mapping[str, ast.FunctionDef], caller: ast.FunctionDef) -> None:
        self._once, self._caller, self._taken = once, caller, names(caller)

    def visit(self, statement: ast.AST) -> Any:
        value = getattr(statement, "value", None)
        if not isinstance(statement, ast.stmt) or not isinstance(value, ast.Call):
            return self.generic_visit(statement)
        if not isinstance(value.func, ast.Name) or value.func.id not in self._once:
            return self.generic_visit(statement)
        function = copy.deepcopy(self._once[value.func.id])
        given = bind(function, value)
        meant = loads(function) - stores(function.body) - set(parameters(function))
        if given is None or meant & bound(self._caller):  # a name that means something else here
            return statement
        return self._spliced(function, given, statement)

    def _spliced(self, function: ast.FunctionDef, given: Mapping[str, ast.expr], statement: ast.stmt) -> list[ast.stmt]:
        *body, last = function.body
        result = last.value if isinstance(last, ast.Return) else None
        body = body if isinstance(last, ast.Return) else function.body
        own = stores(function.body)
        wish = {} if result is None else _results(result, statement)
        renamed: dict[str, str] = {}
        for name in sorted(own | set(given)):
            free = wish.get(name, name) if name in own else name
            if free != wish.get(name):
                while free in self._taken or free in renamed.values():
                    free += "_"
            renamed[name] = free
        self._taken |= set(renamed.values())
        first: list[ast.stmt] = []
        known: dict[str, ast.expr] = {}
        for name, value in given.items():
            if name in own or not (_cheap(value) or isinstance(value, ast.Lambda)):
                first.append(ast.Assign([ast.Name(renamed[name], ast.Store())], value, lineno=0))
            else:
                known[renamed[name]] = value
        fold = Fold(known)
        body = fold.block([Renaming(renamed).visit(one) for one in body])
        if result is not None:
            statement.value = fold.visit(Renaming(renamed).visit(result))  # type: ignore[attr-defined]
            body += apart(statement)
        return [*first, *body]


def _results(result: ast.expr, statement: ast.stmt) -> dict[str, str]:
    """Return the locals of the function that the caller's names become."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return {}
    read = loads(statement.value)
    return {
        local.id: name.id
        for name, local in pairs(ast.Assign(statement.targets, result))
        if isinstance(name, ast.Name) and isinstance(local, ast.Name) and name.id not in read
    }


def apart(statement: ast.stmt) -> list[ast.stmt]:
    """Split `a, b = x, y` into statements where neither needs the other, and drop a name that becomes itself."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return [statement]
    changed = [
        (target, value)
        for target, value in pairs(statement)
        if not (isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id == value.id)
    ]
    if stores(target for target, _ in changed) & set().union(*(loads(value) for _, value in changed)):
        return [statement]
    return [ast.Assign([target], value, lineno=0) for target, value in changed]


def bind(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """Return what a call gives each parameter; None where it leaves one out or gives more."""
    wanted = parameters(function)
    if len(call.args) > len(wanted) or any(isinstance(one, ast.Starred) for one in call.args):
        return None
    given = dict(zip(wanted, call.args, strict=False))
    for one in call.keywords:
        if one.arg is None or one.arg in given or one.arg not in wanted:
            return None
        given[one.arg] = one.value
    return given if len(given) == len(wanted) else None


def _returned(function: ast.FunctionDef, given: Mapping[str, ast.expr]) -> ast.expr | None:
    """Return the expression that a function returns if it does nothing else, given its constant arguments."""
    plain = {name: value for name, value in given.items() if literal(value)}
    node = Fold(plain).visit(copy.deepcopy(function)) if plain and not plain.keys() & stores(function.body) else function
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None


def _straight(function: ast.FunctionDef) -> bool:
    """Return whether it returns at its end alone."""
    returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
    inner = [one for one in ast.walk(function) if isinstance(one, (ast.FunctionDef, ast.Yield)) and one is not function]
    return not inner and (not returns or (len(returns) == 1 and returns[0] is function.body[-1]))


def _cheap(node: ast.expr) -> bool:
    """Return whether an expression may be written twice."""
    index = isinstance(node, ast.BinOp) and all(
        isinstance(one, (ast.Name, ast.Constant, ast.BinOp, ast.operator, ast.Load)) for one in ast.walk(node)
    )
    return index or isinstance(node, (ast.Name, ast.Constant, ast.Attribute))
