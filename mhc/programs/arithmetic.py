"""The arithmetic of the evaluator: what operations give in a dtype, and which have no one meaning.

Integers are Python's, so that each overflow is seen; unsigned ones wrap around. Floats are such that every operation is
exact, so that the order of evaluation does not matter.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from mhc.programs import grammar
from mhc.programs.grammar import bits_of, range_of

QUANTUM = {"float16": 4, "float32": 64, "float64": 64}  # a float is a multiple of 1 / that,
LARGEST = {"float16": 512, "float32": 1 << 17, "float64": 1 << 34}  # and not larger than this

_OF_FLOATS = ("+", "-", "*", "/", "min", "max")

Value = int | float
_Program = TypeVar("_Program")


class Invalid(Exception):
    """The program has no meaning that a compiler must keep: says which rule it breaks."""


def has_meaning(evaluate: Callable[[_Program], object], program: _Program) -> bool:
    """Return whether a program, of any language, has a meaning as a whole, by its evaluator."""
    try:
        evaluate(program)
    except Invalid:
        return False
    return True


def constant(node: grammar.Const) -> Value:
    if node.dtype in grammar.FLOATS:
        return _exact(float(node.value), node.dtype)
    least, most = range_of(node.dtype)
    if isinstance(node.value, float) or not least <= node.value <= most:
        raise Invalid(f"{node.value} is no {node.dtype}")
    return node.value


def _exact(value: float, dtype: str) -> float:
    """Return a float, if sums of a few such floats are exact in any order."""
    if not math.isfinite(value) or abs(value) > LARGEST[dtype] or not (value * QUANTUM[dtype]).is_integer():
        raise Invalid(f"{value} may be rounded in {dtype}")
    return value


def fitting(dtype: str) -> Callable[[Any], Any]:
    """Return what makes a result fit its dtype: unsigned ones wrap around, signed ones must not overflow."""
    if dtype in grammar.FLOATS:
        return lambda value: _exact(value, dtype)
    least, most = range_of(dtype)
    if dtype in grammar.UNSIGNED:
        return lambda value: value & most

    def fit(value: int) -> int:
        if not least <= value <= most:
            raise Invalid(f"{value} overflows {dtype}")
        return value

    return fit


def operation(op: str, dtype: str) -> Callable[[Any, Any], Any]:
    """Return what computes a binary operation in a dtype."""
    floating = dtype in grammar.FLOATS
    if dtype == "bool" or (floating and op not in _OF_FLOATS) or (op == "/" and not floating):
        raise Invalid(f"{op} of {dtype}")
    fit = fitting(dtype)
    if op in PLAIN:
        plain = PLAIN[op]
        return lambda a, b: fit(plain(a, b))
    if op in {"<<", ">>"}:
        bits, left = bits_of(dtype), op == "<<"

        def shift(a: int, b: int) -> Any:
            if not 0 <= b < bits:
                raise Invalid(f"a shift by {b} of {dtype}")
            if left and a < 0:
                raise Invalid(f"a shift of {a} to the left")
            return fit(a << b if left else a >> b)

        return shift
    divide, biased = DIVIDE[op], op == "ceildiv"

    def division(a: Any, b: Any) -> Any:
        if b == 0:
            raise Invalid("a division by 0")
        if b == -1:
            fit(-a)  # a remainder whose quotient overflows: C has no value for it
        if biased and not range_of(dtype)[0] <= a + b - (1 if b > 0 else -1) <= range_of(dtype)[1]:
            raise Invalid(f"the sum of {a} and {b} overflows {dtype}")  # which is divided, rounding down
        return fit(divide(a, b))

    return division


def _truncmod(a: int, b: int) -> int:
    return a - b * _truncdiv(a, b)


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def shifted_constant(a: int, b: int, dtype: str) -> int:
    """Return a constant shifted to the left by a constant, which wraps around, also into the sign."""
    if not 0 <= b < bits_of(dtype):
        raise Invalid(f"a shift by {b} of {dtype}")
    if a < 0:
        raise Invalid(f"a shift of {a} to the left")
    return int(converter(dtype, dtype)(a << b))


def reinterpreted(before: str, after: str) -> Callable[[Any], Any]:
    """Return what gives the bits of a value of a dtype as another of the same size."""
    old, new = np.dtype(before), np.dtype(after)
    return lambda value: np.array(value, dtype=old).view(new).item()


PLAIN: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "min": min,
    "max": max,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
DIVIDE: Mapping[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "/": operator.truediv,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "ceildiv": _ceildiv,
}


def _root(value: float) -> float:
    root = math.sqrt(value) if value >= 0 else math.nan
    if root * root != value:
        raise Invalid(f"a square root of {value}, which is rounded")
    return root


UNARY: Mapping[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "abs": abs,
    "floor": lambda value: float(math.floor(value)),
    "ceil": lambda value: float(math.ceil(value)),
    "trunc": lambda value: float(math.trunc(value)),
    "sqrt": _root,
}
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def converter(before: str, after: str) -> Callable[[Any], Any]:
    """Return what converts a value of a dtype to another."""
    if after == "bool":
        return lambda value: int(value != 0)
    if after in grammar.FLOATS:
        return lambda value: _exact(float(value), after)
    least, most = range_of(after)
    if before in grammar.FLOATS:

        def truncate(value: float) -> int:
            whole = math.trunc(value)
            if not least <= whole <= most:
                raise Invalid(f"{value} is no {after}")
            return whole

        return truncate
    bits, signed = bits_of(after), after in grammar.SIGNED

    def wrap(value: int) -> int:
        low = value & ((1 << bits) - 1)
        return low - (1 << bits) if signed and low >> (bits - 1) else low

    return wrap
