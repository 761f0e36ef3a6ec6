"""Simplify for known sizes: index arithmetic, loops that run once, and names that stand for a constant."""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mhc.upstream.source.flat import literal, loads, names, stores
from mhc.upstream.source.fold import Fold, Known, constant, listed

_LOOPS = {"range": 3, "tl.range": 3, "tl.static_range": 3, "T.serial": 1, "T.unroll": 1, "T.grid": None}
"""Loops over integers, and how many of their arguments are first, last and step; of `T.grid` all are sizes."""

_INTEGERS: Mapping[str, Callable[..., int]] = {
    "T.ceildiv": lambda a, b: -(-a // b),
    "tl.cdiv": lambda a, b: -(-a // b),
    **dict.fromkeys(("T.min", "tl.minimum", "min"), min),
    **dict.fromkeys(("T.max", "tl.maximum", "max"), max),
}
"""Functions of two sizes."""


class Index(Fold):
    """`Fold`, and index arithmetic: 0 + i, 1 * i and the like, and the DSLs' functions of known sizes.

    Args:
        grid: of a Triton launch; its programs along an axis of size 1 are number 0.
    """

    def __init__(self, known: Known, grid: Sequence[int] = ()) -> None:
        super().__init__(known)
        self._depth = 0
        self._grid = grid

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        node.value = self.visit(node.value)
        self._depth += 1
        node.slice = self.visit(node.slice)
        self._depth -= 1
        at = _integer(node.slice)
        if isinstance(node.value, ast.Tuple) and at is not None and at < len(node.value.elts):
            return node.value.elts[at]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        made = super().visit_BinOp(node)
        if not isinstance(made, ast.BinOp):
            return made
        if isinstance(made.left, ast.Tuple) and isinstance(made.right, ast.Tuple) and isinstance(made.op, ast.Add):
            return ast.Tuple([*made.left.elts, *made.right.elts], ast.Load())
        left, right = (_integer(one) for one in (made.left, made.right))
        if isinstance(made.op, ast.Add):
            return made.right if left == 0 else made.left if right == 0 else made
        if isinstance(made.op, ast.Mult):
            if 0 in (left, right) and self._depth > 0:  # elsewhere it might be 0 * inf
                return constant(0)
            return made.right if left == 1 else made.left if right == 1 else made
        return made

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        numbers = [number for number in map(_integer, node.args) if number is not None]
        if len(numbers) == len(node.args) == 2 and not node.keywords and name in _INTEGERS:
            return constant(_INTEGERS[name](*numbers))
        if name == "T.if_then_else" and isinstance(node.args[0], ast.Constant):
            return node.args[1] if node.args[0].value else node.args[2]
        if name in {"tl.program_id", "tl.num_programs"} and numbers and numbers[0] < len(self._grid):
            size = self._grid[numbers[0]]
            return constant(size) if name == "tl.num_programs" else constant(0) if size == 1 else node
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and _integer(node.func.value) is not None:
            return node.func.value  # a size in another type of integer
        return node

    def visit_For(self, node: ast.For) -> Any:
        node.iter = self.visit(node.iter)
        assigned = stores(node.body) | stores([node.target])
        inner = Index({name: value for name, value in self._known.items() if name not in assigned}, self._grid)
        inner._depth = self._depth
        node.body = [made for part in node.body for made in listed(inner.visit(part))]
        return node if node.body else None


class Unroll(ast.NodeTransformer):
    """Loops that run once, without the loop, and none that never run; and what is known then."""

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        firsts = _firsts(node.iter)
        names = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if firsts is None or len(names) != max(len(firsts), 1) or node.orelse:
            return node
        if not firsts:
            return None
        known = {one.id: constant(first) for one, first in zip(names, firsts, strict=True) if isinstance(one, ast.Name)}
        if stores(node.body) & known.keys() or any(isinstance(one, (ast.Break, ast.Continue)) for one in ast.walk(node)):
            return node
        folded = Index(known)
        return [made for part in node.body for made in listed(folded.visit(part))]


def _firsts(node: ast.expr) -> list[int] | None:
    """The one value of each variable of a loop that runs once; empty where it never runs, None where it runs more often."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _LOOPS:
        return None
    numbers = [_integer(one) for one in node.args]
    sizes = _LOOPS[ast.unparse(node.func)]
    whole = [number for number in numbers if number is not None]
    if not numbers or len(whole) != len(numbers):
        return None
    if sizes is None:
        return [0 for _ in whole] if all(number == 1 for number in whole) else None
    if sizes == 1 and len(whole) > 1:
        return None
    times = range(*whole)
    return [times[0]] if len(times) == 1 else [] if len(times) == 0 else None


class Forward:
    """Names that stand for a constant or for another name, written out from where they are assigned to where they change."""

    def __init__(self, grid: Sequence[int] = ()) -> None:
        self._grid = grid
        self._names: set[str] = set()

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._names = names(node)
        node.body = self._block(node.body, {}) or [ast.Pass()]
        return node

    def _block(self, block: list[ast.stmt], known: dict[str, ast.expr]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in block:
            made += self._statement(statement, known)
        return made

    def _statement(self, statement: ast.stmt, known: dict[str, ast.expr]) -> list[ast.stmt]:
        if isinstance(statement, ast.FunctionDef):
            inside = {name: value for name, value in known.items() if name not in stores([statement])}
            statement.args = Index(inside).visit(statement.args)
            statement.body = self._block(statement.body, inside) or [ast.Pass()]
            return [statement]
        if isinstance(statement, (ast.For, ast.While)):
            self._forget(known, stores([statement]))
            if isinstance(statement, ast.For):
                statement.iter = Index(known, self._grid).visit(statement.iter)
            else:
                statement.test = Index(known, self._grid).visit(statement.test)
            statement.body = self._block(statement.body, dict(known))
            return [statement] if statement.body else []
        if isinstance(statement, ast.If):
            statement.test = Index(known, self._grid).visit(statement.test)
            if isinstance(statement.test, ast.Constant):
                return self._block(statement.body if statement.test.value else statement.orelse, known)
            statement.body = self._block(statement.body, dict(known)) or [ast.Pass()]
            statement.orelse = self._block(statement.orelse, dict(known))
            self._forget(known, stores([statement]))
            return [statement]
        if isinstance(statement, ast.With):
            statement.items = [Index(known, self._grid).visit(one) for one in statement.items]
            statement.body = self._block(statement.body, known) or [ast.Pass()]
            return [statement]
        plain = Index(known, self._grid).visit(statement)
        first = self._elements(plain)
        self._forget(known, stores([plain, *first]))
        target = plain.targets[0] if isinstance(plain, ast.Assign) and len(plain.targets) == 1 else None
        if isinstance(target, ast.Name) and _standing(plain.value):
            known[target.id] = plain.value
        if isinstance(target, ast.Tuple) and isinstance(plain.value, ast.Tuple):
            pairs = list(zip(target.elts, plain.value.elts, strict=True))
            for one, value in pairs:
                if isinstance(one, ast.Name) and _standing(value) and not loads(value) & stores([plain]):
                    known[one.id] = value
        return [*first, plain]

    def _elements(self, statement: ast.stmt) -> list[ast.stmt]:
        """Statements that compute the elements of a tuple, which then holds their names."""
        value = getattr(statement, "value", None)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(value, ast.Tuple) or not isinstance(target, ast.Name):
            return []
        made: list[ast.stmt] = []
        for at, element in enumerate(value.elts):
            if not _standing(element):
                name = f"{target.id}_{at}"
                while name in self._names:
                    name += "_"
                self._names.add(name)
                made.append(ast.Assign([ast.Name(name, ast.Store())], element, lineno=0))
                value.elts[at] = ast.Name(name, ast.Load())
        return made

    @staticmethod
    def _forget(known: dict[str, ast.expr], assigned: set[str]) -> None:
        for name in [name for name, value in known.items() if name in assigned or loads(value) & assigned]:
            del known[name]


def _standing(node: ast.expr) -> bool:
    """What may be written out as often as one likes: a name, a whole number, a DSL's dtype, and tuples of these."""
    if isinstance(node, ast.Tuple):
        return all(map(_standing, node.elts))
    number = isinstance(node, ast.Constant) and isinstance(node.value, float)
    return isinstance(node, ast.Name) or (literal(node, ("tl", "T", "torch")) and not number)


def _integer(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
