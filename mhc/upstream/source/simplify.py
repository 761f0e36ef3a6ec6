"""Simplify for known sizes: index arithmetic, loops that run once, and names that stand for a constant."""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mhc.upstream.source.flat import literal, loads, names, pairs, stores
from mhc.upstream.source.fold import Fold, constant

_LOOPS = {"range", "tl.range", "tl.static_range", "T.serial", "T.unroll", "T.grid"}
"""Loops over integers: first, last and step, as of `range`; of `T.grid` all arguments are sizes."""

_INTEGERS: Mapping[str, Callable[..., int]] = {
    "T.ceildiv": lambda a, b: -(-a // b),
    "tl.cdiv": lambda a, b: -(-a // b),
    **dict.fromkeys(("T.min", "tl.minimum", "min"), min),
    **dict.fromkeys(("T.max", "tl.maximum", "max"), max),
}
"""Functions of two sizes."""


class Simplify(Fold):
    """Rewrites a function with all that its statements make known.

    It folds index arithmetic (0 + i, 1 * i) and the DSLs' functions of known sizes. A name that stands for a constant or for
    another name is written out, from where it is assigned to where one of the two changes. A loop that runs once becomes its
    body.

    Args:
        grid: of a Triton launch; its programs along an axis of size 1 are number 0.
    """

    def __init__(self, grid: Sequence[int] = ()) -> None:
        super().__init__({})
        self._grid = grid
        self._depth = 0
        self._names: set[str] = set()

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

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self._names |= names(node)
        outer, inside = self._known, stores([node])
        self._known = {name: value for name, value in outer.items() if name not in inside}
        made = super().visit_FunctionDef(node)
        self._known = outer
        return made

    def visit_For(self, node: ast.For) -> Any:
        self._forget(stores([node]))
        node.iter = self.visit(node.iter)
        firsts = _firsts(node.iter)
        variables = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if firsts == []:
            return None
        if firsts is not None and len(variables) == len(firsts) and _straight(node):
            self._known |= {
                one.id: constant(at) for one, at in zip(variables, firsts, strict=True) if isinstance(one, ast.Name)
            }
            return self.block(node.body)
        node.body = self.branch(node.body)
        return node if node.body else None

    def visit_While(self, node: ast.While) -> Any:
        self._forget(stores([node]))
        node.test, node.body = self.visit(node.test), self.branch(node.body)
        return node if node.body else None

    def visit_If(self, node: ast.If) -> Any:
        made = super().visit_If(node)
        if made is node:
            self._forget(stores([node]))
        return made

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        self._forget(stores([node]))
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        super().visit_Assign(node)
        first = self._elements(node)
        self._forget(stores([node, *first]))
        for target, value in pairs(node) if len(node.targets) == 1 else ():
            if isinstance(target, ast.Name) and _standing(value) and not loads(value) & stores([node]):
                self._known[target.id] = value
        return [*first, node]

    def _elements(self, statement: ast.Assign) -> list[ast.stmt]:
        """Return statements that compute the elements of a tuple, which then holds their names."""
        value, target = statement.value, statement.targets[0]
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

    def _forget(self, assigned: set[str]) -> None:
        for name in [name for name, value in self._known.items() if name in assigned or loads(value) & assigned]:
            del self._known[name]


def _straight(loop: ast.For) -> bool:
    """Return whether the body leaves the variables of the loop, and the loop, alone."""
    inside = [one for statement in loop.body for one in ast.walk(statement)]
    leaves = any(isinstance(one, (ast.Break, ast.Continue)) for one in inside)
    return not leaves and not loop.orelse and not stores(loop.body) & stores([loop.target])


def _firsts(node: ast.expr) -> list[int] | None:
    """Return the value of each variable of a loop that runs once; empty if it never runs, None if it runs more often."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in _LOOPS:
        return None
    numbers = [number for number in map(_integer, node.args) if number is not None]
    if not numbers or len(numbers) != len(node.args):
        return None
    turns = [range(number) for number in numbers] if ast.unparse(node.func) == "T.grid" else [range(*numbers)]
    if not all(turns):
        return []
    return [one[0] for one in turns] if all(len(one) == 1 for one in turns) else None


def _standing(node: ast.expr) -> bool:
    """Return whether copies of an expression cost nothing: a name, an integer, a DSL's dtype, or a tuple of these."""
    if isinstance(node, ast.Tuple):
        return all(map(_standing, node.elts))
    number = isinstance(node, ast.Constant) and isinstance(node.value, float)
    return isinstance(node, ast.Name) or (literal(node, ("tl", "T", "torch")) and not number)


def _integer(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
