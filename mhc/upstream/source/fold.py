"""Fold constants: branches that are not taken are removed, and names of known values are replaced by these."""

import ast
import copy
from collections.abc import Mapping
from typing import Any

from mhc.upstream.source.flat import literal, pointer

Known = Mapping[str, ast.expr]
"""Names, and expressions by how `ast.unparse` writes them, with what they stand for: a constant, or a dtype."""


def constant(value: object) -> ast.expr:
    """Return an expression for a plain value."""
    return ast.parse(repr(value), mode="eval").body


class Fold(ast.NodeTransformer):
    """Rewrites one function for what is known.

    Args:
        known: parameters and global names, which must not be assigned to in the function, and expressions.
        absent: dtypes that no value of the kernel has, such as `tl.float64`.
    """

    def __init__(self, known: Known, absent: frozenset[str] = frozenset()) -> None:
        self._known = dict(known)
        self._expressions = not all(map(str.isidentifier, known))
        self._absent = absent

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            name = node.id if isinstance(node, ast.Name) else ast.unparse(node) if self._expressions else ""
            if name in self._known:
                return copy.deepcopy(self._known[name])
        return super().visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        """Leave out the names that its own parameters hide."""
        hidden = {one.arg: self._known.pop(one.arg) for one in node.args.args if one.arg in self._known}
        node.body = self.visit(node.body)
        self._known.update(hidden)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.args = self.visit(node.args)
        node.body = self.block(node.body) or [ast.Pass()]
        return node

    def visit_If(self, node: ast.If) -> Any:
        node.test = self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            return self.block(node.body if node.test.value else node.orelse)
        node.body, node.orelse = self.branch(node.body) or [ast.Pass()], self.branch(node.orelse)
        return node

    def branch(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite a block that does not always run: what becomes known in it is not known after it."""
        before, self._known = self._known, dict(self._known)
        made = self.block(body)
        self._known = before
        return made

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite a block, up to the first statement that leaves it."""
        made: list[ast.stmt] = []
        for statement in body:
            new = self.visit(statement)
            made += new if isinstance(new, list) else [new] if new is not None else []
            if made and isinstance(made[-1], (ast.Return, ast.Raise)):
                break
        return made

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        test = self.visit(node.test)
        if isinstance(test, ast.Constant):
            return self.visit(node.body if test.value else node.orelse)
        node.test = test
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Replace a compile-time name from here on by its value, where that is known."""
        if node.value is not None:
            node.value = self.visit(node.value)
            if isinstance(node.target, ast.Name) and literal(node.value):
                self._known[node.target.id] = node.value
                return None
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Give what is loaded through a pointer of known type that type."""
        self.generic_visit(node)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            text = f"{node.targets[0].id}.dtype"
            of = _loaded_from(node.value)
            dtype = None if of is None else self._known.get(f"{of}.dtype.element_ty")
            if dtype is not None:
                self._known[text] = dtype
            else:
                self._known.pop(text, None)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        both = isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant)
        return _evaluated(node) if both else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        return _evaluated(node) if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant) else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) != 1:
            return node
        left, right = node.left, node.comparators[0]
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
            return _evaluated(node)
        if isinstance(left, ast.Attribute) and left.attr == "dtype" and ast.unparse(right) in self._absent:
            return ast.Constant(not isinstance(node.ops[0], ast.Eq))
        if literal(left) and literal(right) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            return ast.Constant((ast.unparse(left) == ast.unparse(right)) == isinstance(node.ops[0], ast.Eq))
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        stops = isinstance(node.op, ast.Or)
        left: list[ast.expr] = []
        for value in map(self.visit, node.values):
            if not isinstance(value, ast.Constant):
                left.append(value)
            elif bool(value.value) is stops:
                return ast.Constant(stops) if not left else ast.BoolOp(node.op, [*left, value])
        if not left:
            return ast.Constant(not stops)
        node.values = left
        return left[0] if len(left) == 1 else node


def _loaded_from(node: ast.expr) -> str | None:
    """Return the pointer that `tl.load(pointer + ...)` is counted from."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "tl.load" or not node.args:
        return None
    address = pointer(node.args[0])
    return address.id if isinstance(address, ast.Name) else None


def _evaluated(node: ast.expr) -> ast.expr:
    whole = ast.fix_missing_locations(ast.Expression(node))
    try:
        value = eval(compile(whole, "<constants>", "eval"), {"__builtins__": {}})
    except ArithmeticError:
        return node  # left as it is, to raise where it is run
    if isinstance(value, (bool, int, str)):
        return ast.Constant(value)
    return node
