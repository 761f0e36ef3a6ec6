"""Draws expressions of few operands, each of which occurs more than once, beside constants that belong together.

A simplifier's rules are about such expressions: `(x + c) // d - x // d`, `min(x, y - z) + z`, `x % c == k and x // c == l`.
"""

import ast
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.grammar import Binary, Cast, Const, Expr, Select, Unary, Var, bits_of, range_of, walk
from mhc.strategies.programs.corners import Corners
from mhc.strategies.programs.expressions import interval
from mhc.strategies.programs.indices import Drawn

DIVISIONS = ("//", "%", "truncdiv", "truncmod", "ceildiv")
_SMALL = 100
_MOST_SEED = (1 << 32) - 1
_TWINS = {"//": "%", "%": "//", "truncdiv": "truncmod", "truncmod": "truncdiv", "min": "max", "max": "min"}
_SWAPPED = ("+", "*", "min", "max", "-", *DIVISIONS)
_JOINED = ("-", "+", "min", "max", "-", "*")
_UNARY: Mapping[type, Literal["not", "-", "~"]] = MappingProxyType({ast.Not: "not", ast.USub: "-", ast.Invert: "~"})
_EQUALITY: tuple[grammar.Operation, ...] = ("==", "!=")
_BY_NUMBERS = ("+", "//", "%", "*", "-", "min", "max", "truncdiv", "truncmod", "from")


_VALUES = """
x + y + x | (x + y) + (y + z) | x + (y + x) | (x + c) + (y + d) | x * y + x * z | x * y + x | x * c + x * d
x * c * y | m(x, y + z) + z | m(x + y, z) + x | m(x, y + z * c) + z * d | m(x, y + c) + d | m(x, y) + m(y, x)
m(x, y) * m(x, y) | m(x, y) + m(x, z) | m(x + y, x + z) | m(x + c, x + d) | m(c - x, d - x) | m(x + c, y + d)
m(x * c, y * c) | m(x * c, d) | m(x // c, y // c) | m(x // c, d) | m(m(x, y), m(x, z)) | m(m(m(x, y), z), y)
m(m(m(m(x, y), z), c), y) | m(m(x, c), d) | m(m(x, y), x) | m(x, x // c * c) | m((x + d) // c * c, x)
m((x + d) // c * c, m(x, c)) | m(x + y, x) | x // c * c + x % c | x // c * d + x % c | x + x // c * c
x + (x + y) // c * c | x * c + x // d * e | x * c + (x + y) // d * e | (x + c) // d + (x + e) // d
(x + c) // d + x // d | (x % c + d) // c + x // c | x // c + x % c | (x + c) % d + x % d | x * c + y % c
(x + x % c) // d * e | (x + x % c) // d | x + x % c | x // y * y + x % y | x * c + y + z % c | x // c // d
(x // c + d) // e | x * c // d | (x * c + y) // d | (x * c + y + z) // d | m(x * c, y) // d | (x + c) // d
x * c // x | x // x | (x + y) // x | (x + y + z) // x | x * y // y | (x * z + y) // z | x * c // (x * d)
(x * z * c + y) // (z * c) | x % c // d | x // c % d | (x % c + d) // e | (x // c * c + y) // d | x * c % d
(x * c + y) % d | (x * c + y + z) % d | (x + c) % d | x % c % d | (x % c * d) % e | x * c % (x * d) | x * y % y
(x + y % c) % c | (x + x % c) % d | (x * z + y) % z | (x * z * c + y) % (z * c) | (x + y * c) % d
(x // c * c + y) % d | s(x < y, x, y) | s(x < c, x, y) + s(x < c, y, z) | s(x < c, x, y) + y
m(s(x < y, x, z), s(x < y, z, y)) | s(x < c, x + d, y) + x | m(x * c, y * c) + z | m(x * c, d) + m(y * c, d)
m(x - y, y - x) | (x - y) * (y - x) | (x - y) // c + (y - x) // c | m(x // y, y // x) | m(x % y, y % x)
s(x < y, x - y, y - x) | s(x - y < z, y - x, z) | w >> c >> d | w >> c >> d | (w + y >> c) >> d | x >> c >> d | x << c >> d
x << c << d | x >> c << d | w >> c & d | (w & c) >> d | x & c & d | x & c | (x & c) + (y & d) | x & y & x
(w >> c) - (w >> d) | w >> c << d | w >> c >> d >> c
-x // c | (c - x) // d | -x % c | (c - x) % d | -(x // c) | -x * y | -(x - y) + z | x * c & d | x & -c | ~x & c | ~(x & c)
x - (x & c) | (x & c) - c | (x & c) + (x & d) | x & -x | w << c >> c | b(x < c) + b(y < d) | b(x < c) + b(x < d)
b(x < y) - b(y < x) | b(x < y) + b(x == y) | b(x < c) * y | b(x & c == c) + b(x < d) | b(x < c) + b(y < c) + b(z < c)
w // c | w % c | (w + y) // c | (w + y) % c | (w + y) // c * c | m(w + y, c) | m(x - y, c)
m(x + c, d) | m(c - x, d) | m(x + c, d)
"""
_CONDITIONS = """
x < y | x < c | x + y < x | x + y < x + z | x + c < d | c - x < d | x + c < y + d | x * c < d | x * c < y * c
x * c < x * d | x // c < d | x // c < y // c | x % c < d | x // c * c < x + y | x // c * c < x
(x + c) // d * d < x + y | (x + c) // d * d < x | m(x, y) < z | m(x, y) < x | m(x, c) < d | m(x, y) < m(x, z)
m(x, c) < x + d | m(x + c, y) < d | m(x, y) < m(x, y) | x * c + y < d | x * c + y < z * c | x * c < y * c + d
x // c * c + y < d | s(x < y, x, z) < y | x + y * c < c | (x + c) // d < e | x < c and x < d | x < c and d < x
x < y and y < x | x < y and x < y | x < c and not x < d | not (x < y and y < z) | x // c < d and x % c < e
x < c and x % d < e | x + y * c < d and e < x + y * c | x // c < d and x < e | x % c < d and x % c < e
x < y and (y < z and z < x) | x < c and (x < d and x < e) | x < y and x < y + c | x < m(y, z) and x < y
x // c < o | x % c < o | x // c < o | x * c < o | x + c < o | x - y < o | x & c < o | m(x, y) < o | x // c < o and x % c < o
x & c == c | x & c == c | x & c == c | x & c == c | x & c == d | x & c == o | x % c == d | x // c == d | x == y
x % c == y % c | x & c == y & c | x & c == c | x & c == c | x & c == c
c < x and x < d | y < x and x < z | y < x and x < y + c | -x < c | -x < y | -x // c < d | ~x < c | x * y < o | x * x < c
b(x < c) + b(y < d) == c | b(x < y) == b(y < z) | b(x < c) < b(y < c)
not not x < y | x - y < y - x | x // y < y // x | x & c < d | x & c < x & d | w >> c >> d < y | x & y < x
"""
"""Shapes of values and conditions: of one, `+` is a sum or a difference, `//` and `%` round down or to 0, `m` is `min` or
`max`, `s` a choice, `b` a condition as a number, `<` any comparison, `==` may be `!=`, `and` may be `or`, `&` may be `|` or
`^`, `w` is a multiple of `x` that reaches the highest bits, `o` is 0, and `c`, `d` and `e` are constants, often equal or
opposite, or by how much is shifted.
"""


def _shapes(text: str) -> tuple[ast.expr, ...]:
    return tuple(ast.parse(one.strip(), mode="eval").body for one in text.replace("\n", "|").split("|") if one.strip())


_OF_VALUES, _OF_CONDITIONS = _shapes(_VALUES), _shapes(_CONDITIONS)


@dataclass
class _Pool:
    """What an expression is made of: one dtype, a few operands with the intervals of their values, and constants."""

    dtype: str
    leaves: dict[Expr, Drawn]
    numbers: tuple[int, ...]


class Woven(Corners):
    """Draws such expressions among the others."""

    _choices: random.Random | None = None

    def integer(self, low: int, high: int) -> int:
        """Draw an integer; within such an expression, from what one number decides."""
        return super().integer(low, high) if self._choices is None else self._choices.randint(low, high)

    def woven(self, dtype: str, *, conditions: bool = False) -> Drawn:
        """Draw such a value, of which one number decides all.

        Args:
            conditions: a third of the values are conditions.
        """
        found: Drawn = self._at_once(lambda: self._woven(dtype, conditions=conditions))
        return found

    def woven_condition(self) -> Expr:
        """Draw such a condition: a comparison, or several of the same operands."""
        found: Expr = self._at_once(self._woven_condition)
        return found

    def _at_once(self, make: Callable[[], Any]) -> Any:
        """Draw one number, and return what is made with all choices by it: to draw each would take most of the time."""
        if self._choices is not None:
            return make()
        self._choices = random.Random(self.integer(0, _MOST_SEED))
        try:
            return make()
        finally:
            self._choices = None

    def _woven(self, dtype: str, *, conditions: bool) -> Drawn:
        if conditions and not self.integer(0, 2):
            return Drawn(Cast(dtype, self._woven_condition()), 0, 1)
        indexed = dtype in {"int32", "int64"}  # whose operations a simplifier rewrites most
        pool = self._pool(
            dtype if indexed or (dtype in grammar.INTEGERS and self.integer(0, 1)) else self.pick("int32", "int32", "int64")
        )
        node = (
            self._shaped(pool, self.pick(*_OF_VALUES))
            if self.pick(True, True, False)
            else self._tree(pool, self.pick(2, 1, 3))
        )
        found = self._largest(pool, node if self.pick(True, True, False) else self._relative(pool, node))
        if pool.dtype == dtype:
            return found
        if dtype in grammar.FLOATS:
            fits = self._fits(found.low, found.high, dtype) is not None
            return Drawn(Cast(dtype, found.node), found.low, found.high) if fits else self._leaf(dtype)
        return self._converted(found, dtype)

    def _woven_condition(self) -> Expr:
        pool = self._pool(self.pick("int32", "int32", "int32", "int64", "uint32"))
        if self.pick(True, True, False):
            return self._shaped(pool, self.pick(*_OF_CONDITIONS))
        of = self._tree(pool, self.pick(1, 0, 2))
        found: Expr = self._compared(pool, of)
        for _ in range(self.pick(1, 0, 1, 1, 2)):
            last = found.b if isinstance(found, Binary) and found.op in grammar.LOGIC else found
            again = self._compared(pool, self.pick(of, of, self._relative(pool, of), self._changed(pool, of)))
            near = replace(last, op=self.pick(*grammar.COMPARISONS)) if isinstance(last, Binary) else again
            second: Expr = self.pick(again, again, again, near)
            second = Unary("not", second) if not self.integer(0, 7) else second
            found = Binary(self.pick("and", "or", "and", "or", "==", "!="), *self._either(found, second))
        return Unary("not", found) if not self.integer(0, 9) else found

    def _pool(self, dtype: str) -> _Pool:
        leaves = [self._small(dtype) for _ in range(self.pick(2, 1, 2, 3))]
        above = self._above_0() if dtype == "int32" else []
        leaves += [self.pick(*above)] if above and self.pick(False, True) else []
        by = self.pick(2, 3, 4, 2, 5, 8)
        by = -by if dtype in grammar.SIGNED and self.pick(False, False, True) else by
        beside = (by, -by, by, by * 2, by - 1, by, 1, -by, by + 1, 1 - by)
        least = range_of(dtype)[0]
        return _Pool(dtype, {one.node: one for one in leaves}, tuple(one for one in beside if one >= least))

    def _small(self, dtype: str) -> Drawn:
        """Draw an operand, mostly of small values, and often of either sign."""
        names = self._scope.variables.items() if dtype == "int32" else ()
        near = [Drawn(Var(name), *ends) for name, ends in names if ends[0] < ends[1]]
        a: Drawn = self.pick(*near) if near and self.pick(False, True) else self._leaf(dtype, constant=False)
        a = self._leaf(dtype, constant=False) if a.low == a.high else a
        if isinstance(a.node, Const) or a.within(-_SMALL, _SMALL) or not self.integer(0, 5):
            return a
        a = self._within(a, _SMALL, dtype)
        return self._across(a, 0, dtype) if a.low >= 0 and dtype in grammar.SIGNED and self.pick(True, False) else a

    def _shaped(self, pool: _Pool, shape: ast.expr) -> Expr:
        """Return an expression of a shape; where a side of a comparison may have no meaning, a part of it is compared."""
        leaves, floor = list(pool.leaves), self.pick(True, True, False)
        names: dict[str, Expr] = {name: self.pick(*leaves) for name in "xyz"}
        names |= dict(zip(self.pick("xyz", "yxz", "zxy"), leaves, strict=False))
        names |= {name: self._number_of(pool) for name in "cde"} | {"o": Const(0, pool.dtype)}
        high = Binary("*", names["x"], Const(1 << bits_of(pool.dtype) - 8, pool.dtype))
        names["w"] = high if bits_of(pool.dtype) > 8 and self._measured(pool, high) is not None else names["x"]

        def fill(node: ast.expr) -> Expr:
            match node:
                case ast.Name():
                    return names[node.id]
                case ast.UnaryOp():
                    inner, sign = fill(node.operand), _UNARY[type(node.op)]
                    return self._opposite_of(pool, inner) if sign == "-" and isinstance(inner, Const) else Unary(sign, inner)
                case ast.BoolOp():
                    return Binary(self.pick("and", "and", "or"), *self._either(*map(fill, node.values)))
                case ast.Compare():
                    ops = _EQUALITY if isinstance(node.ops[0], ast.Eq) else grammar.COMPARISONS
                    return self._comparable(pool, fill(node.left), fill(node.comparators[0]), ops)
                case ast.Call() if len(node.args) == 3:
                    return Select(*map(fill, node.args))
                case ast.Call() if len(node.args) == 1:
                    return Cast(pool.dtype, fill(*node.args))
                case ast.Call():
                    return Binary(self.pick("min", "max"), *self._either(*map(fill, node.args)))
                case ast.BinOp(op=ast.Add()):
                    return Binary(self.pick("+", "-"), *self._either(fill(node.left), fill(node.right)))
                case ast.BinOp(op=ast.FloorDiv() | ast.Mod()):
                    whole = isinstance(node.op, ast.FloorDiv)
                    op = ("//" if floor else "truncdiv") if whole else "%" if floor else "truncmod"
                    return Binary(op, fill(node.left), self._divisor_of(pool, fill(node.right)))
                case ast.BinOp(op=ast.LShift() | ast.RShift()):
                    op = "<<" if isinstance(node.op, ast.LShift) else ">>"
                    return Binary(op, fill(node.left), self._amount_of(pool))
                case ast.BinOp(op=ast.BitAnd()):
                    return Binary(self.pick("&", "&", "|", "^"), *self._either(fill(node.left), fill(node.right)))
                case ast.BinOp():
                    op = "*" if isinstance(node.op, ast.Mult) else "-"
                    return Binary(op, fill(node.left), fill(node.right))
            raise AssertionError(node)

        return fill(shape)

    def _divisor_of(self, pool: _Pool, node: Expr) -> Expr:
        """Return a divisor that is mostly above 0."""
        if isinstance(node, Const):
            value = abs(int(node.value)) if self.pick(True, True, True, False) else int(node.value)
            return replace(node, value=value if value not in {0, 1} else 2)
        found = self._measured(pool, node)
        return node if found is not None and found.low > 0 else Binary("max", node, Const(1, pool.dtype))

    def _opposite_of(self, pool: _Pool, number: Const) -> Const:
        """Return the opposite of a constant, which of an unsigned dtype wraps around."""
        value = -int(number.value)
        return replace(number, value=value if range_of(pool.dtype)[0] else value % (range_of(pool.dtype)[1] + 1))

    def _amount_of(self, pool: _Pool) -> Const:
        """Return by how much is shifted: often so far that two such shifts leave nothing of a value but its sign."""
        bits = bits_of(pool.dtype)
        return Const(self.pick(1, bits // 2, bits // 2 + 1, 2, 3, bits - 1, bits - 3), pool.dtype)

    def _comparable(self, pool: _Pool, a: Expr, b: Expr, ops: Sequence[grammar.Operation]) -> Binary:
        one = self._largest(pool, a) if not isinstance(a, Const) else Drawn(a, int(a.value), int(a.value))
        if isinstance(b, Const) and not one.low <= b.value <= one.high:
            b = Const(self.pick((one.low + one.high) // 2, one.low, one.high, b.value), pool.dtype)
        two = b if isinstance(b, Const) else self._largest(pool, b).node
        return Binary(self.pick(*ops), *self._either(one.node, two))

    def _tree(self, pool: _Pool, depth: int) -> Expr:
        if depth == 0:
            return self._operand_of(pool)
        a = self._tree(pool, depth - 1)
        match self.pick("number", "relative", "both", "number", "relative", "relative", "rest", "select"):
            case "number":
                return self._by_number(pool, a)
            case "relative":
                return Binary(self.pick(*_JOINED), *self._either(a, self._relative(pool, a)))
            case "both":
                return Binary(self.pick(*_JOINED), *self._either(a, self._tree(pool, self.pick(0, 0, depth - 1))))
            case "rest":
                return self._rest(pool, a)
        condition = self._compared(pool, self._operand_of(pool))
        choice = Select(condition, *self._either(self.pick(condition.a, a), self._relative(pool, a)))
        return choice if self.pick(True, False) else Binary(self.pick(*_JOINED), choice, self._varied(pool, choice))

    def _either(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Return two expressions in either order."""
        return (a, b) if self.pick(True, False) else (b, a)

    def _varied(self, pool: _Pool, a: Select) -> Expr:
        """Return a choice by the same condition, or one of its two values."""
        other = replace(a, a=self._changed(pool, a.b), b=self._changed(pool, a.a))
        return self.pick(other, a.a, a.b)  # type: ignore[no-any-return]

    def _operand_of(self, pool: _Pool) -> Expr:
        found: Expr = self.pick(*pool.leaves)
        return found

    def _number_of(self, pool: _Pool) -> Const:
        return Const(self.pick(*pool.numbers), pool.dtype)

    def _by_number(self, pool: _Pool, a: Expr) -> Expr:
        """Return an operation of an expression and a constant, or a divisor that is an operand."""
        op, number = self.pick(*_BY_NUMBERS), self._number_of(pool)
        if op == "from":
            return Binary("-", number, a)
        if op in DIVISIONS:
            divisors = [node for node, one in pool.leaves.items() if one.low > 0]
            scaled = [Binary("*", one, number) for one in divisors]
            number = self.pick(*divisors, *scaled, *[replace(number, value=abs(number.value))] * 4, number)
        return Binary(op, a, number)

    def _rest(self, pool: _Pool, a: Expr) -> Expr:
        """Return the multiple of a quotient, beside what it is a quotient of, or beside a remainder."""
        by = self._number_of(pool)
        by = replace(by, value=max(2, abs(by.value)))
        floor = self.pick(True, True, False)
        over, rest = ("//", "%") if floor else ("truncdiv", "truncmod")
        scale = self.pick(1, 1, 2, 3)
        sides = self._number_of(pool), self._operand_of(pool), Const(int(by.value) - 1, pool.dtype)
        more = self.pick(a, Binary(self.pick("+", "-"), a, self.pick(*sides)))
        times = Const(int(by.value) * scale, pool.dtype)
        part = Binary("*", Binary(over, more, by), times)
        one: Expr = a if scale == 1 else Binary("*", a, Const(scale, pool.dtype))
        other = self.pick(one, Binary(rest, a, by), Binary(rest, self._operand_of(pool), by))
        return Binary(self.pick("-", "+", "-", "min", "max"), *self.pick((part, other), (other, part)))

    def _relative(self, pool: _Pool, a: Expr) -> Expr:
        """Return a part of an expression, one that differs little from it or from a part, or itself."""
        parts = [one for one in walk(a) if not isinstance(one, Const)] if a not in pool.leaves else [a]
        part: Expr = self.pick(*parts)
        match self.pick("part", "changed", "changed part", "changed", "part", "again"):
            case "part":
                return part
            case "changed":
                return self._changed(pool, a)
            case "changed part":
                return self._changed(pool, part)
        return a

    def _changed(self, pool: _Pool, a: Expr) -> Expr:
        """Return an expression with one change: another constant or operand, an operation more, less, or turned round."""
        other, number = self._operand_of(pool), self._number_of(pool)
        if not isinstance(a, Binary) or a in pool.leaves:
            return self.pick(Binary("+", a, number), Binary("*", a, number), other, Binary("+", a, other))  # type: ignore[no-any-return]
        if isinstance(a.a, Binary) and a.a not in pool.leaves and self.pick(True, False):
            return replace(a, a=self._changed(pool, a.a))
        match self.pick("last", "swap", "less", "twin", "last", "first"):
            case "last" if isinstance(a.b, Const):
                return replace(a, b=self._amount_of(pool) if a.op in {"<<", ">>"} else number)
            case "last" if a.op not in DIVISIONS:
                return replace(a, b=other)
            case "swap" if a.op in _SWAPPED:
                return replace(a, a=a.b, b=self._divisor_of(pool, a.a) if a.op in DIVISIONS else a.a)
            case "less":
                return a.a
            case "twin" if a.op in _TWINS:
                return replace(a, op=_TWINS[a.op])
        return replace(a, a=self.pick(other, Binary(self.pick("+", "-", "*"), a.a, self.pick(number, other))))

    def _compared(self, pool: _Pool, a: Expr) -> Binary:
        """Return a comparison of an expression with one that differs little, an operand, or a number in its midst."""
        one = self._largest(pool, a)
        middle = Const(
            self.pick((one.low + one.high) // 2, max(one.low, min(one.high, int(self._number_of(pool).value)))), pool.dtype
        )
        other = self.pick(middle, self._number_of(pool), self._relative(pool, one.node), self._operand_of(pool))
        two = self._measured(pool, other)
        if two is None or (isinstance(two.node, Const) and isinstance(one.node, Const)):
            two = one
        if isinstance(one.node, Const) and isinstance(two.node, Const):
            return Binary("<", self._leaf("int32", constant=False).node, Const(1))
        return Binary(
            self.pick(*grammar.COMPARISONS), *self.pick((one.node, two.node), (one.node, two.node), (two.node, one.node))
        )

    def _largest(self, pool: _Pool, node: Expr) -> Drawn:
        """Return the first part of an expression, itself if it can, whose values all have a meaning, or an operand."""
        for one in walk(node):
            found = None if isinstance(one, Const) else self._measured(pool, one)  # type: ignore[arg-type]
            if found is not None:
                return found
        return next(iter(pool.leaves.values()))

    def _measured(self, pool: _Pool, node: Expr) -> Drawn | None:
        """Return an expression with the interval of its values; None where one of them may have no meaning."""
        if node in pool.leaves:
            return pool.leaves[node]
        match node:
            case Const(value=int(value)):
                return Drawn(node, value, value) if range_of(pool.dtype)[0] <= value else None
            case Select():
                a, b = self._measured(pool, node.a), self._measured(pool, node.b)
                return None if a is None or b is None else Drawn(node, min(a.low, b.low), max(a.high, b.high))
            case Cast():  # of a condition, whose sides all have a meaning
                return Drawn(node, 0, 1)
            case Unary(op="-" | "~" as op):
                one = self._measured(pool, node.a)
                if one is None:
                    return None
                less = op == "~"
                kept = self._fits(-one.high - less, -one.low - less, pool.dtype)
                return None if kept is None else Drawn(node, *kept)
            case Binary() if node.op not in (*grammar.COMPARISONS, *grammar.LOGIC):
                a, b = self._measured(pool, node.a), self._measured(pool, node.b)
                if a is None or b is None or (isinstance(a.node, Const) and isinstance(b.node, Const)):
                    return None
                if node.op in {"<<", ">>"}:
                    return self._shifted(node, a, b, pool.dtype)
                if node.op in DIVISIONS and (
                    b.low <= 0 <= b.high or (b.low <= -1 <= b.high and a.low == range_of(pool.dtype)[0])
                ):
                    return None
                kept = self._fits(
                    *(divided(node.op, a, b) if node.op in DIVISIONS else interval(node.op, a, b, pool.dtype)), pool.dtype
                )
                return None if kept is None else Drawn(node, *kept)
        return None

    def _shifted(self, node: Binary, a: Drawn, b: Drawn, dtype: str) -> Drawn | None:
        """Return a shift by a constant with the interval of its values; None where it has no meaning."""
        if not isinstance(b.node, Const) or not 0 <= b.low < bits_of(dtype):
            return None
        if node.op == ">>":
            return Drawn(node, a.low >> b.low, a.high >> b.low)
        kept = self._fits(a.low << b.low, a.high << b.low, dtype) if a.low >= 0 else None
        return None if kept is None else Drawn(node, *kept)


def divided(op: str, a: Drawn, b: Drawn) -> tuple[int, int]:
    """Return where quotients or remainders lie, of a divisor that is not 0 but may have either sign."""
    largest, size = max(abs(a.low), abs(a.high)), max(abs(b.low), abs(b.high)) - 1
    if op in {"%", "truncmod"}:
        below = a.low < 0 if op == "truncmod" else b.low < 0
        above = a.high > 0 if op == "truncmod" else b.high > 0
        return -size if below else 0, size if above else 0
    if b.low <= 0 <= b.high:
        return -largest, largest
    ends = [x // y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends) + (op != "//")
