"""Sizes that follow from others: expressions of symbols and integers with + - * //, a minus in front, and parentheses."""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache

_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class ExpressionError(ValueError):
    """Raised for a text that is no such expression; the message quotes it."""


@cache
def symbols(text: str) -> tuple[str, ...]:
    """Return the symbols of an expression, each once.

    Raises:
        ExpressionError: the text is no expression.
    """
    return tuple(dict.fromkeys(node.id for node in ast.walk(_tree(text)) if isinstance(node, ast.Name)))


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression.

    Raises:
        ExpressionError: the text is no expression.
        ZeroDivisionError: it divides by a size of 0.
    """
    return _value(_tree(text), sizes)


@cache
def _tree(text: str) -> ast.expr:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text!r} is no expression of symbols and integers with + - * //") from None
    for node in ast.walk(tree):
        known = isinstance(node, (ast.Name, ast.BinOp, ast.operator, ast.Load, ast.UnaryOp, ast.USub))
        if not known and not (isinstance(node, ast.Constant) and type(node.value) is int):
            raise ExpressionError(f"{text!r} has {ast.unparse(node)!r}; only symbols, integers and + - * // may occur")
        if isinstance(node, ast.operator) and type(node) not in _OPERATIONS:
            raise ExpressionError(f"{text!r} has an operator other than + - * //")
    return tree


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_value(left, sizes), _value(right, sizes))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, sizes)
    raise AssertionError(f"{ast.dump(node)} passed the check of its tree")
