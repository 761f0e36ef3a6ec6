"""Draws indices within a size, and what all expressions are drawn with."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from mhc.programs.grammar import Binary, Buffer, Cast, Const, Expr, Load, Select, Var, walk

_LARGE = 16  # of constants that are drawn again

Draw = Callable[[st.SearchStrategy[Any]], Any]


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
        symbols: sizes that the compiler does not know, which are variables too.
        special: inputs with NaN and infinities, which comparisons alone may read.
        lazy: a choice evaluates only what it chooses, so that it may guard a division.
    """

    dtypes: Sequence[str]
    variables: dict[str, tuple[int, int]] = field(default_factory=dict)
    buffers: dict[str, tuple[Buffer, int, int]] = field(default_factory=dict)
    scalars: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    fractions: dict[str, int] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    special: dict[str, Buffer] = field(default_factory=dict)
    lazy: bool = True


@functools.lru_cache(maxsize=None, typed=True)
def integers(low: int, high: int) -> st.SearchStrategy[int]:
    """Return the strategy of an interval; to make one anew for each draw takes most of the time of drawing."""
    return st.integers(low, high)


def wide(node: Expr, names: Mapping[str, str]) -> Expr:
    """Return an index computed in int64.

    Args:
        names: of variables of int64, by that of the same number in int32.
    """
    match node:
        case Const():
            return Const(node.value, "int64")
        case Binary():
            return Binary(node.op, wide(node.a, names), wide(node.b, names))
        case Select():
            return Select(node.condition, wide(node.a, names), wide(node.b, names))
        case Var() if node.name in names:
            return Var(names[node.name])
    return Cast("int64", node)


class Indices:
    """Draws indices in a scope."""

    def __init__(self, draw: Draw, scope: Scope) -> None:
        self._draw, self._scope = draw, scope

    def pick(self, *options: Any) -> Any:
        """Draw one of the options; the first is the simplest."""
        return options[self.integer(0, len(options) - 1)]

    def integer(self, low: int, high: int) -> int:
        """Draw an integer."""
        number: int = self._draw(integers(low, high))
        return number

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
            last = self._size(size)
            last = Const(size - 1) if isinstance(last, Const) else Binary("-", last, Const(1))
            return clamped if drawn.high < size else Binary("min", clamped, last)
        if how == "select" and self._scope.variables:
            name = self.pick(*self._scope.variables)
            inside = Binary("and", Binary(">=", drawn.node, Const(0)), Binary("<", drawn.node, self._size(size)))
            low, high = self._scope.variables[name]
            other = Var(name) if low >= 0 and high < size else Const(self.integer(0, size - 1))
            return Select(inside, drawn.node, other)
        node, most = drawn.node, size
        if not self.integer(0, 5):  # a remainder of a remainder, which the outer divisor may not divide
            most = size * self.pick(1, 1, 2, 4) + self.integer(1, 5)
        if width > 0 and drawn.within(0, most - 1) and self.integer(0, 2):  # which is the value itself
            node = Binary("*", node, Const(most // width * self.pick(1, 2, 4) + 1))  # once the size, or several times
        node = node if most == size else Binary("%", node, Const(most))
        return Binary("%", node, self._size(size))

    def _size(self, size: int) -> Expr:
        """Draw a size: a constant, or the symbol that has this value."""
        for name, value in self._scope.symbols.items():
            if value == size and self.pick(True, True, False):
                return Var(name)
        return Const(size)

    def _plus(self, node: Expr, amount: int) -> Expr:
        if amount == 0:
            return node
        return Binary("+", node, Const(amount)) if amount > 0 else Binary("-", node, Const(-amount))

    def _affine(self, depth: int) -> Drawn:
        """Draw sums, differences, multiples, quotients and remainders of indices and constants."""
        names = list(self._scope.variables)
        if depth == 0 or not names:
            options = [*(("var", one) for one in names), ("const", ""), *(("load", one) for one in self.integers())]
            kind, name = self.pick(*options)
            if kind == "var":
                return Drawn(Var(name), *self._scope.variables[name])
            if kind == "load":
                buffer, low, high = self._scope.buffers[name]
                return Drawn(Load(name, tuple(Const(self.integer(0, one - 1)) for one in buffer.shape)), low, high)
            value = self.integer(0, 9)
            return Drawn(Const(value), value, value)
        a = self._affine(depth - 1)
        how = self.pick("plain", "+", "-", "from", "*", "//", "%", "sum", "minmax", "ceildiv", "split")
        match how:
            case "+" | "-":
                c = self.integer(1, 9)
                c = c if how == "+" else -c
                return Drawn(self._plus(a.node, c), a.low + c, a.high + c)
            case "from":
                c = self.integer(0, 17)
                return Drawn(Binary("-", Const(c), a.node), c - a.high, c - a.low)
            case "*":
                k = self._beside(a.node, 2, 3, -1, 4, 5, -2, 7, 8, -3)
                ends = sorted((a.low * k, a.high * k))
                return Drawn(Binary("*", a.node, Const(k)), ends[0], ends[1])
            case "ceildiv":
                d = self.pick(2, 3, 4, 5, 7, 8, 16)
                return Drawn(Binary("ceildiv", a.node, Const(d)), -(-a.low // d), -(-a.high // d))
            case "//" | "%" if (above := self._above_0()) and not self.integer(0, 2):
                b = self.pick(*above)
                if how == "%":
                    return Drawn(Binary("%", a.node, b.node), 0, b.high - 1)
                values = [x // y for x in (a.low, a.high) for y in (b.low, b.high)]
                return Drawn(Binary("//", a.node, b.node), min(values), max(values))
            case "//" | "%":
                d = self._beside(a.node, 2, 3, 4, 5, 7, 8, 16, -2, -3, *self._scope.symbols.values())
                ends = sorted((a.low // d, a.high // d))
                if how == "//":
                    return Drawn(Binary("//", a.node, self._size(d)), ends[0], ends[1])
                low, high = (a.low % d, a.high % d) if ends[0] == ends[1] else (0, d - 1) if d > 0 else (d + 1, 0)
                return Drawn(Binary("%", a.node, self._size(d)), low, high)
            case "split":  # a place in rows of k, divided by their length, or by a part or a multiple of it
                k = self.pick(4, 2, 3, 6, 8)
                d = self.pick(k, k, 2 * k, *([k // 2] if k > 3 and k % 2 == 0 else []))
                b = self._affine(depth - 1)
                low, high = a.low * k + b.low, a.high * k + b.high
                node = Binary("+", Binary("*", a.node, Const(k)), b.node)
                if self.pick("//", "%") == "//":
                    return Drawn(Binary("//", node, Const(d)), low // d, high // d)
                return Drawn(Binary("%", node, Const(d)), 0, d - 1)
            case "sum":
                b, minus = self._affine(depth - 1), self.pick(False, True)
                low, high = (a.low - b.high, a.high - b.low) if minus else (a.low + b.low, a.high + b.high)
                return Drawn(Binary("-" if minus else "+", a.node, b.node), low, high)
            case "minmax":
                c, op = self.integer(-3, 9), self.pick("min", "max")
                meet = min if op == "min" else max
                return Drawn(Binary(op, a.node, Const(c)), meet(a.low, c), meet(a.high, c))
        return a

    def _above_0(self) -> list[Drawn]:
        """Return the indices, sizes and numbers that are never 0, by which others may be divided."""
        return [Drawn(Var(name), low, high) for name, (low, high) in self._scope.variables.items() if low > 0]

    def _beside(self, node: Expr, *options: int) -> int:
        """Draw one of the options, or a constant of an expression, or twice that."""
        inside = [int(one.value) for one in walk(node) if isinstance(one, Const) and 1 < one.value <= _LARGE]
        again = [value for one in inside[:3] for value in (one, 2 * one)]
        number: int = self.pick(*options, *again * 2)
        return number

    def integers(self) -> list[str]:
        """Return the buffers of small int32 values."""
        return [name for name, (one, low, high) in self._scope.buffers.items() if one.dtype == "int32" and high - low < 64]
