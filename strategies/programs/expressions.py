"""Draws expressions of a dtype, and indices within a size, with the interval in which each value lies."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from mhc.programs import grammar
from mhc.programs.arithmetic import shifted_constant
from mhc.programs.grammar import Binary, Bits, Buffer, Cast, Const, Expr, Load, Select, Unary, Var, bits_of, range_of

Draw = Callable[[st.SearchStrategy[Any]], Any]
_OTHERS = {dtype: tuple(one for one in (*grammar.INTEGERS, "bool") if one != dtype) for dtype in grammar.INTEGERS}
_DIVISORS = ("int32", "int64", "uint32", "uint64")
_MOST_FLOAT = {"float16": 256, "float32": 4096, "float64": 4096}
_MOST_FRACTION = {"float16": 2, "float32": 6, "float64": 6}


@dataclass(frozen=True)
class Drawn:
    """An expression, the integers between which its values lie, and how many binary digits they have after the point."""

    node: Expr
    low: int
    high: int
    fraction: int = 0

    def within(self, low: int, high: int) -> bool:
        """Return whether all its values lie there."""
        return low <= self.low and self.high <= high


@dataclass
class Scope:
    """What an expression may read.

    Attributes:
        dtypes: that the program may use. variables: indices of loops and blocks with their least and largest value.
        buffers: those whose elements are all written, with the interval of their values. scalars: those made by
            `T.alloc_var` that are set. fractions: binary digits after the point, of buffers and scalars that have any.
    """

    dtypes: Sequence[str]
    variables: dict[str, tuple[int, int]] = field(default_factory=dict)
    buffers: dict[str, tuple[Buffer, int, int]] = field(default_factory=dict)
    scalars: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    fractions: dict[str, int] = field(default_factory=dict)


@functools.cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    """Return the strategy of an interval; to make one anew for each draw takes most of the time of drawing."""
    return st.integers(low, high)


class Expressions:
    """Draws expressions in a scope."""

    def __init__(self, draw: Draw, scope: Scope) -> None:
        self._draw, self._scope = draw, scope

    def pick(self, *options: Any) -> Any:
        """Draw one of the options; the first is the simplest."""
        return options[self.integer(0, len(options) - 1)]

    def integer(self, low: int, high: int) -> int:
        """Draw an integer."""
        number: int = self._draw(_integers(low, high))
        return number

    # --- indices

    def index(self, size: int, depth: int = 2) -> Expr:
        """Draw an int32 expression whose values are in 0..size - 1."""
        drawn = self._affine(depth)
        how = self.pick("fit", "modulo", "modulo", "clamp", "select")
        if drawn.within(0, size - 1) and how == "fit":
            return drawn.node
        width = drawn.high - drawn.low
        if how == "fit" and width < size:
            return self._plus(drawn.node, -drawn.low + self.integer(0, size - 1 - width))
        if how == "clamp":
            clamped = drawn.node if drawn.low >= 0 else Binary("max", drawn.node, Const(0))
            return clamped if drawn.high < size else Binary("min", clamped, Const(size - 1))
        if how == "select" and self._scope.variables:
            name = self.pick(*self._scope.variables)
            inside = Binary("and", Binary(">=", drawn.node, Const(0)), Binary("<", drawn.node, Const(size)))
            low, high = self._scope.variables[name]
            other = Var(name) if low >= 0 and high < size else Const(self.integer(0, size - 1))
            return Select(inside, drawn.node, other)
        return Binary("%", drawn.node, Const(size))

    def _plus(self, node: Expr, amount: int) -> Expr:
        if amount == 0:
            return node
        return Binary("+", node, Const(amount)) if amount > 0 else Binary("-", node, Const(-amount))

    def _affine(self, depth: int) -> Drawn:
        """Draw sums, differences, multiples, quotients and remainders of indices and constants."""
        names = list(self._scope.variables)
        if depth == 0 or not names:
            options = [*(("var", one) for one in names), ("const", ""), *(("load", one) for one in self._integers())]
            kind, name = self.pick(*options)
            if kind == "var":
                return Drawn(Var(name), *self._scope.variables[name])
            if kind == "load":
                buffer, low, high = self._scope.buffers[name]
                return Drawn(Load(name, tuple(Const(self.integer(0, one - 1)) for one in buffer.shape)), low, high)
            value = self.integer(0, 9)
            return Drawn(Const(value), value, value)
        a = self._affine(depth - 1)
        how = self.pick("plain", "+", "-", "from", "*", "//", "%", "sum", "minmax", "ceildiv")
        match how:
            case "+" | "-":
                c = self.integer(1, 9)
                c = c if how == "+" else -c
                return Drawn(self._plus(a.node, c), a.low + c, a.high + c)
            case "from":
                c = self.integer(0, 17)
                return Drawn(Binary("-", Const(c), a.node), c - a.high, c - a.low)
            case "*":
                k = self.pick(2, 3, -1, 4, 5, -2, 7, 8, -3)
                ends = sorted((a.low * k, a.high * k))
                return Drawn(Binary("*", a.node, Const(k)), ends[0], ends[1])
            case "ceildiv":
                d = self.pick(2, 3, 4, 5, 7, 8, 16)
                return Drawn(Binary("ceildiv", a.node, Const(d)), -(-a.low // d), -(-a.high // d))
            case "//" | "%":
                d = self.pick(2, 3, 4, 5, 7, 8, 16, -2, -3)
                ends = sorted((a.low // d, a.high // d))
                if how == "//":
                    return Drawn(Binary("//", a.node, Const(d)), ends[0], ends[1])
                low, high = (a.low % d, a.high % d) if ends[0] == ends[1] else (0, d - 1) if d > 0 else (d + 1, 0)
                return Drawn(Binary("%", a.node, Const(d)), low, high)
            case "sum":
                b, minus = self._affine(depth - 1), self.pick(False, True)
                low, high = (a.low - b.high, a.high - b.low) if minus else (a.low + b.low, a.high + b.high)
                return Drawn(Binary("-" if minus else "+", a.node, b.node), low, high)
            case "minmax":
                c, op = self.integer(-3, 9), self.pick("min", "max")
                meet = min if op == "min" else max
                return Drawn(Binary(op, a.node, Const(c)), meet(a.low, c), meet(a.high, c))
        return a

    def _integers(self) -> list[str]:
        """Return the buffers of small int32 values."""
        return [name for name, (one, low, high) in self._scope.buffers.items() if one.dtype == "int32" and high - low < 64]

    # --- values

    def value(self, dtype: str, depth: int) -> Drawn:
        """Draw an expression of a dtype."""
        if dtype == "bool":
            return Drawn(self.condition(depth), 0, 1)
        if depth == 0:
            return self._leaf(dtype)
        options = ["leaf", "binary", "binary", "binary", "cast", "cast", "select", "unary"]
        options += ["bits", "divide", "bitwise", "shift"] if dtype in grammar.INTEGERS else ["bits", "halve"]
        match self.pick(*options):
            case "binary":
                return self._binary(dtype, depth, self.pick("+", "-", "*", "min", "max"))
            case "divide":
                return self._binary(dtype, depth, self.pick("//", "%", "truncdiv", "truncmod", "ceildiv"))
            case "bitwise":
                return self._binary(dtype, depth, self.pick("&", "|", "^"))
            case "shift":
                return self._shift(dtype, depth)
            case "halve":
                return self._halved(dtype, depth)
            case "bits":
                return self._bits(dtype, depth)
            case "cast":
                return self._cast(dtype, depth)
            case "select":
                a, b = self.value(dtype, depth - 1), self.value(dtype, depth - 1)
                node = Select(self.condition(depth - 1), a.node, b.node)
                return Drawn(node, min(a.low, b.low), max(a.high, b.high), max(a.fraction, b.fraction))
            case "unary":
                return self._unary(dtype, depth)
        return self._leaf(dtype)

    def condition(self, depth: int) -> Expr:
        """Draw an expression of dtype bool."""
        how = self.pick("compare", "compare", "and", "or", "not", "cast", "guarded") if depth > 0 else "compare"
        match how:
            case "guarded" if (divides := self.divisor()) is not None:
                return Binary("and", Binary("!=", divides[0], Const(0, divides[1])), self.divides(*divides))
            case "cast":
                return Cast(
                    "bool", self.value(self.pick(*(one for one in self._scope.dtypes if one != "bool")), depth - 1).node
                )
            case "and" | "or":
                return Binary(how, self.condition(depth - 1), self.condition(depth - 1))
            case "not":
                return Unary(self.pick("not", "not", "not", "~"), self.condition(depth - 1))
        op = self.pick(*grammar.COMPARISONS)
        if self._scope.variables and self.pick(True, False):
            drawn = self._affine(min(depth, 2))
            return Binary(op, drawn.node, Const(self.integer(drawn.low, max(drawn.low, min(drawn.high, drawn.low + 40)))))
        readable = [one.dtype for one, _, _ in self._scope.buffers.values() if one.dtype != "bool"]
        dtype = self.pick(*(readable or ["int32"]))
        return Binary(op, self.value(dtype, max(0, depth - 1)).node, self.value(dtype, 0).node)

    def test(self, depth: int) -> Expr:
        """Draw what an `if` tests: a condition, or rarely an integer, which holds where it is not 0."""
        dtypes = [one.dtype for one, _, _ in self._scope.buffers.values() if one.dtype in grammar.INTEGERS]
        if dtypes and not self.integer(0, 9):
            return self.value(self.pick(*dtypes), self.pick(0, 1)).node
        return self.condition(depth)

    def element(self, buffer: Buffer) -> Expr:
        """Draw an element of a buffer at constant indices."""
        return Load(buffer.name, tuple(Const(self.integer(0, one - 1)) for one in buffer.shape))

    def divisor(self) -> tuple[Expr, str] | None:
        """Draw a value that is often 0, with its dtype; None where there is no buffer of integers of 32 or 64 bits."""
        buffers = [one for one, _, _ in self._scope.buffers.values() if one.dtype in _DIVISORS]
        if not buffers:
            return None
        buffer = self.pick(*buffers)
        element = Load(buffer.name, tuple(Const(self.integer(0, one - 1)) for one in buffer.shape))
        return Binary("%", element, Const(self.pick(2, 3, 5), buffer.dtype)), buffer.dtype

    def divides(self, divisor: Expr, dtype: str) -> Expr:
        """Draw a comparison of a quotient or remainder, which may only be evaluated where the divisor is not 0."""
        divided = Binary(self.pick("//", "%", "truncdiv"), self.value(dtype, self.pick(0, 1)).node, divisor)
        return Binary(self.pick(*grammar.COMPARISONS), divided, Const(self.integer(0, 9), dtype))

    def _leaf(self, dtype: str) -> Drawn:
        options: list[tuple[str, str]] = [
            ("load", name) for name, (one, _, _) in self._scope.buffers.items() if one.dtype == dtype
        ]
        options += [("scalar", name) for name, (of, _, _) in self._scope.scalars.items() if of == dtype]
        if dtype == "int32":
            options += [("var", name) for name in self._scope.variables]
        if dtype in grammar.INTEGERS:
            options += [("cast", name) for name, (one, _, _) in self._scope.buffers.items() if one.dtype in _OTHERS[dtype]]
        options.append(("const", ""))
        kind, name = self.pick(*options)
        if kind == "cast":
            buffer, low, high = self._scope.buffers[name]
            at = tuple(self.index(one, self.integer(0, 1)) for one in buffer.shape)
            return self._converted(Drawn(Load(name, at), low, high), dtype)
        fraction = self._scope.fractions.get(name, 0)
        if kind == "load":
            buffer, low, high = self._scope.buffers[name]
            return Drawn(Load(name, tuple(self.index(one, self.integer(0, 2)) for one in buffer.shape)), low, high, fraction)
        if kind == "scalar":
            _, low, high = self._scope.scalars[name]
            return Drawn(Var(name), low, high, fraction)
        if kind == "var":
            return Drawn(Var(name), *self._scope.variables[name])
        return self._constant(dtype)

    def _constant(self, dtype: str) -> Drawn:
        if dtype in grammar.FLOATS:
            value = self.integer(-8, 8)
            if self.pick(False, False, True):
                return Drawn(Const(value / 4, dtype), value // 4, -(-value // 4), 2)
            return Drawn(Const(float(value), dtype), value, value)
        least, most = range_of(dtype)
        value = self.pick(1, 0, 2, 3, 5, 7, 8, 10, 100, most, most - 1, most // 2, least, least + 1, most // 3)
        return Drawn(Const(value, dtype), value, value)

    def _fits(self, low: int, high: int, dtype: str) -> tuple[int, int] | None:
        """Return the interval of a result in a dtype; None where it overflows."""
        if dtype in grammar.FLOATS:
            most = _MOST_FLOAT[dtype]
            return (low, high) if -most <= low and high <= most else None
        least, most = range_of(dtype)
        if least <= low and high <= most:
            return low, high
        return (least, most) if dtype in grammar.UNSIGNED else None

    def _binary(self, dtype: str, depth: int, op: str) -> Drawn:
        a = self.value(dtype, depth - 1)
        divides = op in {"//", "%", "truncdiv", "truncmod", "ceildiv"}
        b = self._divisor(dtype) if divides else self.value(dtype, self.pick(0, depth - 1))
        if self.pick(False, True) and not divides:
            a, b = b, a
        if self._folds(a.node, b.node):
            return a
        if op == "ceildiv" and not _biased(a, b.low).within(*range_of(dtype)):
            return a
        kept = self._fits(*_interval(op, a, b, dtype), dtype)
        fraction = a.fraction + b.fraction if op == "*" else max(a.fraction, b.fraction)
        if kept is None or fraction > _MOST_FRACTION.get(dtype, 0):
            return a
        return Drawn(Binary(op, a.node, b.node), *kept, fraction)

    def _halved(self, dtype: str, depth: int) -> Drawn:
        """Draw a quotient of floats that is exact."""
        a, (digits, divisor) = self.value(dtype, depth - 1), self.pick((1, 2), (2, 4), (1, -2))
        if a.fraction + digits > _MOST_FRACTION[dtype] or self._folds(a.node):
            return a
        ends = a.low / divisor, a.high / divisor
        node = Binary("/", a.node, Const(float(divisor), dtype))
        return Drawn(node, math.floor(min(ends)), math.ceil(max(ends)), a.fraction + digits)

    def _bits(self, dtype: str, depth: int) -> Drawn:
        """Draw the bits of a value of another dtype; of a float by way of an integer, so that it is exact."""
        same = [one for one in (*grammar.INTEGERS, *grammar.FLOATS) if bits_of(one) == bits_of(dtype) and one != dtype]
        if dtype in grammar.FLOATS:
            a = self._above_zero(self.value(dtype, depth - 1), dtype)
            between = self.pick(*(one for one in same if one in grammar.INTEGERS))
            return Drawn(Bits(dtype, Bits(between, a.node)), a.low, a.high, a.fraction)
        before = self.pick(*same)
        a = self.value(before, depth - 1)
        a = self._above_zero(a, before) if before in grammar.FLOATS else a
        return Drawn(Bits(dtype, a.node), *range_of(dtype))

    def _above_zero(self, a: Drawn, dtype: str) -> Drawn:
        """Return a float that is not 0, whose sign is left open."""
        if a.low > 0 or a.high < 0:
            return a
        return Drawn(Binary("max", a.node, Const(1.0, dtype)), 1, max(1, a.high), a.fraction)

    def _folds(self, *nodes: Expr) -> bool:
        """Return whether to leave out an operation of constants, which the front end folds: nine of ten are."""
        return all(isinstance(one, Const) for one in nodes) and bool(self.integer(0, 9))

    def _divisor(self, dtype: str) -> Drawn:
        least, _ = range_of(dtype)
        value = self.pick(2, 3, 4, 5, 7, 8, 16, 100, *((-2, -3) if least else ()))
        return Drawn(Const(value, dtype), value, value)

    def _shift(self, dtype: str, depth: int) -> Drawn:
        a, by = self.value(dtype, depth - 1), self.integer(0, min(7, bits_of(dtype) - 1))
        left = self.pick(True, False)
        if self._folds(a.node):
            return a
        if left and isinstance(a.node, Const) and a.low >= 0:
            by = self.pick(by, bits_of(dtype) - 1, bits_of(dtype) - 2)
            value = shifted_constant(a.low, by, dtype)
            return Drawn(Binary("<<", a.node, Const(by, dtype)), value, value)
        if not left:
            return Drawn(Binary(">>", a.node, Const(by, dtype)), a.low >> by, a.high >> by)
        kept = self._fits(a.low << by, a.high << by, dtype) if a.low >= 0 else None
        return a if kept is None else Drawn(Binary("<<", a.node, Const(by, dtype)), *kept)

    def _unary(self, dtype: str, depth: int) -> Drawn:
        a = self.value(dtype, depth - 1)
        whole, signed = dtype in grammar.INTEGERS, dtype not in grammar.UNSIGNED
        op = self.pick("-", *(["~"] if whole else ["floor"]), *(["abs"] if signed else []))
        if self._folds(a.node):
            return a
        if not self.integer(0, 19):
            return Drawn(Unary("+", a.node), a.low, a.high, a.fraction)
        if op == "floor":
            low, high = a.low, a.high
        elif op == "abs":
            low, high = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high))
        else:
            low, high = (-a.high, -a.low) if op == "-" else (-a.high - 1, -a.low - 1)
        kept = self._fits(low, high, dtype)
        return a if kept is None else Drawn(Unary(op, a.node), *kept, 0 if op == "floor" else a.fraction)

    def _cast(self, dtype: str, depth: int) -> Drawn:
        before = self.pick(*(one for one in self._scope.dtypes if one not in {dtype, "bool"}), "bool")
        a = self.value(before, depth - 1)
        if self._folds(a.node):
            return self._leaf(dtype)
        if before == dtype:
            return a
        if dtype in grammar.FLOATS or before in grammar.FLOATS:
            fraction = a.fraction if dtype in grammar.FLOATS else 0
            fits = self._fits(a.low, a.high, dtype) == (a.low, a.high) and fraction <= _MOST_FRACTION.get(dtype, 0)
            return Drawn(Cast(dtype, a.node), a.low, a.high, fraction) if fits else self._leaf(dtype)
        return self._converted(a, dtype)

    def _converted(self, a: Drawn, dtype: str) -> Drawn:
        """Return an integer in another integer dtype."""
        least, most = range_of(dtype)
        inside = a.within(least, most)
        return Drawn(Cast(dtype, a.node), a.low if inside else least, a.high if inside else most)


def _biased(a: Drawn, divisor: int) -> Drawn:
    """Return where a dividend and what is added to it lie, so that the quotient is rounded up."""
    more = divisor - (1 if divisor > 0 else -1)
    return Drawn(a.node, min(a.low, a.low + more), max(a.high, a.high + more))


def _interval(op: str, a: Drawn, b: Drawn, dtype: str) -> tuple[int, int]:
    """Return where the exact results lie."""
    match op:
        case "+":
            return a.low + b.low, a.high + b.high
        case "-":
            return a.low - b.high, a.high - b.low
        case "*":
            ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
            return min(ends), max(ends)
        case "min":
            return min(a.low, b.low), min(a.high, b.high)
        case "max":
            return max(a.low, b.low), max(a.high, b.high)
        case "//" | "truncdiv" | "ceildiv":
            ends = [x // b.low for x in (a.low, a.high)]
            spare = 0 if op == "//" else 1
            return min(ends), max(ends) + spare
        case "%" | "truncmod":
            most = abs(b.low) - 1
            return (-most if b.low < 0 or (op == "truncmod" and a.low < 0) else 0), most
        case "&" | "|" | "^":
            if a.low < 0 or b.low < 0:
                return range_of(dtype)
            return 0, (1 << max(a.high.bit_length(), b.high.bit_length())) - 1
    raise AssertionError(op)
