"""Draws operations whose operands are of every kind: operations of a dtype are as likely as one another, and operands too.

The other draws make what some rewriting looks for. These leave out no pair of an operation and an operand that is legal.
"""

import math
from collections.abc import Callable

from mhc.programs import grammar
from mhc.programs.grammar import Binary, Buffer, Cast, Const, Expr, Load, Select, Unary, Var, bits_of, range_of, walk
from mhc.strategies.programs.expressions import MOST_FRACTION
from mhc.strategies.programs.indices import Drawn
from mhc.strategies.programs.woven import DIVISIONS, Woven, divided

_KEPT = 12
"""So many of the last expressions may be drawn again."""
_ARITHMETIC = ("+", "-", "*", "min", "max")
_CHOICES = ("select", "bool", "select", "bool", "bool")
"""What has conditions as operands, of which there are many kinds."""
_OF_ANY = {"bits", *_CHOICES}
_OF_INTEGERS = (*_ARITHMETIC, *DIVISIONS, "&", "|", "^", "<<", ">>", "-", "~", "abs", "bits", *_CHOICES)
_CASTS = ("narrowing", "widening", "sign", "float", "through bool", "float", "through bool", "through bool")
_LEAVES = ("element", "index", "name", "constant", "again", "element", "constant")
_MIRROR = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}


class Operands(Woven):
    """Draws such expressions among the others."""

    _inside = False  # of an index
    _drawn: tuple[tuple[str, Drawn, tuple[tuple[str, object], ...]], ...] = ()

    def value(self, dtype: str, depth: int) -> Drawn:
        """Draw an expression of a dtype."""
        which = self.integer(0, 9) if depth and dtype != "bool" else 0
        if which > (7 if dtype in grammar.INTEGERS else 8):
            return self.woven(dtype)
        if which > 5:
            return self.operand(dtype, depth + self.integer(0, 1))
        return super().value(dtype, depth)

    def condition(self, depth: int) -> Expr:
        """Draw an expression of dtype bool."""
        if not self.integer(0, 4):
            return self.woven_condition()
        if self.integer(0, 2 if depth else 1):
            return self._logic(depth) if depth else self._comparison(1)
        return super().condition(depth)

    def index(self, size: int, depth: int = 2) -> Expr:
        """Draw an int32 expression whose values are in 0..size - 1."""
        if self._inside or not depth or (which := self.integer(0, 7)) < 6:
            return super().index(size, depth)
        self._inside = True
        a = self.operand("int32", depth) if which > 6 else self.woven("int32")
        self._inside = False
        return super().index(size, depth) if isinstance(a.node, Const) else self._between(a, size - 1, "int32").node

    def operand(self, dtype: str, depth: int) -> Drawn:
        """Draw a value of any kind."""
        if dtype == "bool":
            return Drawn(self.condition(depth), 0, 1)
        drawn = self._operation(dtype, depth) if depth > 0 and self.integer(0, 3) else self._any_leaf(dtype)
        self._keep(drawn, dtype)
        return drawn

    def _keep(self, drawn: Drawn, dtype: str) -> None:
        """Keep a value, to be drawn again where all that it reads still has the values that it has here."""
        if not isinstance(drawn.node, Const):
            names = {
                one.name if isinstance(one, Var) else one.buffer for one in walk(drawn.node) if isinstance(one, (Var, Load))
            }
            self._drawn = (*self._drawn, (dtype, drawn, tuple((name, self._ends(name)) for name in sorted(names))))[-_KEPT:]

    def _ends(self, name: str) -> object:
        """Return between what a name's values lie; None where it cannot be read."""
        scope = self._scope
        return scope.buffers.get(name) or scope.scalars.get(name) or scope.variables.get(name)

    def _again(self, dtype: str) -> list[Drawn]:
        """Return the values of a dtype that may be drawn again."""
        return [
            drawn
            for of, drawn, names in self._drawn
            if of == dtype and all(ends is not None and self._ends(name) == ends for name, ends in names)
        ]

    def _readable(self, dtype: str) -> tuple[list[str], list[str]]:
        """Return the names of a dtype, and the buffers."""
        scope = self._scope
        names = [name for name, (of, _, _) in scope.scalars.items() if of == dtype]
        return names, [name for name, (one, _, _) in scope.buffers.items() if one.dtype == dtype]

    def _any_leaf(self, dtype: str) -> Drawn:
        """Draw an operand without operands, of any kind that there is."""
        scope, (names, elements), narrower = self._scope, self._readable(dtype), self._narrower(dtype)
        match self.pick(*_LEAVES):
            case "element" if elements:
                return self._element(self.pick(*elements))
            case "name" if narrower and (not names or self.pick(False, False, True)):
                return self._converted(self._named(self.pick(*narrower)), dtype)
            case "name" if names:
                return self._named(self.pick(*names))
            case "index" if scope.variables:
                name = self.pick(*scope.variables)
                low, high = scope.variables[name]
                if dtype == "int32":
                    return Drawn(Var(name), low, high)
                if dtype in grammar.INTEGERS:
                    return self._converted(Drawn(Var(name), low, high), dtype)
            case "constant":
                return self.constant(dtype)
            case "again" if again := self._again(dtype):
                found: Drawn = self.pick(*again)
                return found
        return self._leaf(dtype)

    def _at(self, buffer: Buffer) -> tuple[Expr, ...]:
        """Draw the indices of an element, mostly those of loops or constants."""
        plain = self._choices is not None or self.integer(0, 3)
        return tuple(map(self._near_index, buffer.shape)) if plain else super()._at(buffer)

    def _near_index(self, size: int) -> Expr:
        inside = [name for name, (low, high) in self._scope.variables.items() if low >= 0 and high < size]
        name = self.pick(*inside, *inside, "")
        return Var(name) if name else Const(self.integer(0, size - 1))

    def constant(self, dtype: str) -> Drawn:
        """Draw a constant: often one of those around it, or one beside."""
        if dtype == "bool":
            value = self.integer(0, 1)
            return Drawn(Const(value, dtype), value, value)
        if dtype in grammar.FLOATS:
            return self._constant(dtype)
        least, most = range_of(dtype)
        near = [
            int(one.value)
            for of, drawn, _ in self._drawn[-4:]
            for one in walk(drawn.node)
            if isinstance(one, Const) and of in grammar.INTEGERS and one.dtype in grammar.INTEGERS
        ]
        ends = (most, least, most - 1, least + 1) if bits_of(dtype) < 32 or not self.integer(0, 3) else ()
        below = (-1, -2, -3, -5, -8) if least else ()
        beside = [value for one in near for value in (one, one, one * 2, one + 1) if least <= value <= most]
        powers = [1 << by for by in (1, 2, 3, 4, 6)]
        value = self.pick(0, 1, *powers, 3, 5, 7, 10, 100, *below, *ends, *beside[-6:])
        return Drawn(Const(value, dtype), value, value)

    def _operation(self, dtype: str, depth: int) -> Drawn:
        """Draw an operation of any kind, whose operands are drawn in the same way."""
        if dtype in grammar.FLOATS:
            return self._of_floats(dtype, depth)
        op = self.pick(*_OF_INTEGERS, *_CASTS)
        if op in _CASTS:
            return self._any_cast(dtype, depth, op)
        if op in _OF_ANY:
            return self._of_any(op, dtype, depth)
        a = self._variable_operand(dtype, depth - 1)
        if isinstance(a.node, Const):
            return a
        if op in {"~", "abs"} or (op == "-" and not self.integer(0, 1)):
            return self._any_unary(op, a, dtype)
        if op in {"<<", ">>"}:
            return self._any_shift(op, a, self.operand(dtype, self.pick(0, depth - 1)), dtype)
        b = a if not self.integer(0, 3) else self.operand(dtype, self.pick(0, depth - 1))
        if op in DIVISIONS:
            above = self._above_0() if dtype == "int32" else []
            b = self.pick(*above) if above and not self.integer(0, 2) else b
            return self._quotient(op, a, b, dtype)
        one, two = self.pick((a, b), (b, a))
        return self._both(op, one, two, dtype)

    def _of_any(self, op: str, dtype: str, depth: int) -> Drawn:
        """Draw an operation of `_OF_ANY`, which every dtype has."""
        match op:
            case "bits":
                return self._bits(dtype, depth)
            case "bool":
                return Drawn(Cast(dtype, self.condition(depth - 1)), 0, 1)
        return self._select(dtype, depth)

    def _variable_operand(self, dtype: str, depth: int) -> Drawn:
        """Draw an operand that is no constant, unless there is nothing else; the front end folds operations of constants."""
        a = self.operand(dtype, depth)
        return self._leaf(dtype, constant=False) if isinstance(a.node, Const) else a

    def _both(self, op: str, a: Drawn, b: Drawn, dtype: str) -> Drawn:
        """Return an operation of two values, made smaller where it may overflow."""
        most = range_of(dtype)[1]
        if op in {"+", "-", "*"} and dtype in grammar.SIGNED and self._fits(*_corners(op, a, b), dtype) is None:
            limit = math.isqrt(most) if op == "*" else most // 2
            a, b = self._less(a, limit, dtype), self._less(b, limit, dtype)
        return a if isinstance(a.node, Const) and isinstance(b.node, Const) else self._made(op, a, b, dtype)

    def _less(self, a: Drawn, limit: int, dtype: str) -> Drawn:
        """Return a value that lies between two opposite limits, in one of several ways."""
        if a.within(-limit, limit) or isinstance(a.node, Const):
            return self._number(max(-limit, min(a.low, limit)), dtype) if isinstance(a.node, Const) else a
        by = next(by for by in range(1, 64) if -limit <= a.low >> by and a.high >> by <= limit)
        return self._between(a, limit, dtype, shifted=by)

    def _between(self, a: Drawn, most: int, dtype: str, shifted: int = 0) -> Drawn:
        """Return a value that lies between 0 and a number, in one of several ways; one that is shifted may lie below 0."""
        if a.within(0, most):
            return a
        power = (1 << (most + 1).bit_length() - 1) - 1
        match self.pick("%", "&", "clamp", *([">>"] if shifted else []), "%"):
            case ">>":
                return Drawn(Binary(">>", a.node, Const(shifted, dtype)), a.low >> shifted, a.high >> shifted)
            case "&":
                return Drawn(Binary("&", a.node, Const(power, dtype)), 0, power)
            case "clamp":
                a = a if a.low >= 0 else self._made("max", a, self._number(0, dtype), dtype)
                return a if a.high <= most else self._made("min", a, self._number(most, dtype), dtype)
        divisor = most + 1 if most < range_of(dtype)[1] and (most < 64 or self.integer(0, 2)) else self.pick(7, 10, 100)
        divisor = min(divisor, most + 1, range_of(dtype)[1])
        return Drawn(Binary("%", a.node, Const(divisor, dtype)), 0, divisor - 1)

    def _quotient(self, op: str, a: Drawn, b: Drawn, dtype: str) -> Drawn:
        """Return a quotient or a remainder, of a divisor that is not 0, now and then since a choice tests it."""
        least, most = range_of(dtype)
        tested = self._scope.lazy and b.low <= 0 < b.high and self.pick(False, True)
        if isinstance(b.node, Const):
            b = b if b.low > 0 or (b.low < 0 and op != "ceildiv") else self._divisor(dtype, "//" if op != "ceildiv" else "%")
            b = self._number(abs(b.low), dtype) if op == "ceildiv" else b
        elif tested:
            b = self._between(b, self.pick(1, 2, 4), dtype) if self.pick(True, True, False) else b  # often 0
            b = Drawn(b.node, b.low if b.low < 0 and op != "ceildiv" else 1, b.high)
        elif b.low <= 0:
            b = self._nonzero(b, dtype, positive=op == "ceildiv")
        if a.low == least < 0 and b.low <= -1 <= b.high:
            a = self._made("max", a, self._number(least + 1, dtype), dtype)
        if op == "ceildiv" and a.high + b.high - 1 > most:
            a = self._less(a, most - b.high, dtype) if b.high < most else a
            if a.high + b.high - 1 > most:
                return a
        kept = self._fits(*divided(op, a, b), dtype)
        if kept is None:
            return a
        made = Drawn(Binary(op, a.node, b.node), *kept)
        return self._unless_zero(made, b, dtype) if tested else made

    def _unless_zero(self, made: Drawn, b: Drawn, dtype: str) -> Drawn:
        """Return a choice between a quotient and another value, by whether the divisor is one that may be divided by.

        Args:
            b: the divisor, between the ends where it may be; 0 it is not.
        """
        other = self._any_leaf(dtype)
        (holds, fails), zero = (">", "<=") if b.low > 0 else ("!=", "=="), Const(0, dtype)
        node = self.pick(
            Select(Binary(holds, b.node, zero), made.node, other.node),
            Select(Binary(fails, b.node, zero), other.node, made.node),
        )
        return Drawn(node, min(made.low, other.low), max(made.high, other.high))

    def _nonzero(self, b: Drawn, dtype: str, *, positive: bool) -> Drawn:
        """Return a value that is never 0, in one of several ways."""
        one = self._number(1, dtype)
        match self.pick("max", "|", "%", *([] if positive or not range_of(dtype)[0] else ["min"])):
            case "|" if b.low >= 0 or not positive:
                return Drawn(Binary("|", b.node, one.node), b.low, b.high | 1)
            case "%":
                small = self._between(b, self.pick(1, 2, 4), dtype)
                return Drawn(Binary("+", small.node, one.node), small.low + 1, small.high + 1)
            case "min":
                return Drawn(Binary("min", b.node, Const(-1, dtype)), min(b.low, -1), -1)
        return self._made("max", b, one, dtype)

    def _any_shift(self, op: str, a: Drawn, b: Drawn, dtype: str) -> Drawn:
        """Return a value shifted by another."""
        most = bits_of(dtype) - 1
        if op == "<<" and dtype in grammar.SIGNED:
            most = self.pick(1, 3, min(7, most))
        b = self._number(b.low % (most + 1), dtype) if isinstance(b.node, Const) else self._between(b, most, dtype)
        if op == ">>":
            ends = [x >> by for x in (a.low, a.high) for by in (b.low, b.high)]
            return Drawn(Binary(op, a.node, b.node), min(ends), max(ends))
        if dtype in grammar.SIGNED:
            limit = range_of(dtype)[1] >> b.high
            a = self._between(a, limit, dtype)
        kept = self._fits(a.low << b.low, a.high << b.high, dtype)
        return a if kept is None else Drawn(Binary(op, a.node, b.node), *kept)

    def _any_unary(self, op: str, a: Drawn, dtype: str) -> Drawn:
        least = range_of(dtype)[0]
        if op == "abs" and dtype in grammar.UNSIGNED:
            op = "~"
        if op != "~" and a.low == least < 0:
            a = self._made("max", a, self._number(least + 1, dtype), dtype)
        if op == "abs":
            low, high = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high))
        else:
            low, high = (-a.high, -a.low) if op == "-" else (-a.high - 1, -a.low - 1)
        kept = self._fits(low, high, dtype)
        return a if kept is None else Drawn(Unary(op, a.node), *kept)  # type: ignore[arg-type]

    def _select(self, dtype: str, depth: int) -> Drawn:
        a, b = self.operand(dtype, depth - 1), self.operand(dtype, self.pick(0, depth - 1))
        node = Select(self.condition(depth - 1), a.node, b.node)
        return Drawn(node, min(a.low, b.low), max(a.high, b.high), max(a.fraction, b.fraction))

    def _any_cast(self, dtype: str, depth: int, how: str) -> Drawn:
        """Draw an integer cast from a dtype of any kind: of more bits, of fewer, of the other sign, a float, or bool."""
        of = {
            "narrowing": [one for one in grammar.INTEGERS if bits_of(one) > bits_of(dtype)],
            "widening": [one for one in grammar.INTEGERS if bits_of(one) < bits_of(dtype)],
            "sign": [one for one in grammar.INTEGERS if bits_of(one) == bits_of(dtype) and one != dtype],
            "float": list(grammar.FLOATS),
        }.get(how, [])
        options = [one for one in of if one in self._scope.dtypes]
        if not options:
            return Drawn(Cast(dtype, self._truth(self._variable_operand(dtype, depth - 1), dtype)), 0, 1)
        before = self.pick(*options)
        a = self._variable_operand(before, depth - 1)
        if isinstance(a.node, Const):
            return self._leaf(dtype)
        if before not in grammar.FLOATS:
            return self._converted(a, dtype)
        a = a if a.fraction or not self.integer(0, 3) else self._part(a, before)
        a = self._rounded(a) if a.fraction and before != "float16" and not self.integer(0, 2) else a
        return Drawn(Cast(dtype, a.node), a.low, a.high) if a.within(*range_of(dtype)) else self._leaf(dtype)

    def _rounded(self, a: Drawn) -> Drawn:
        return Drawn(Unary(self.pick(*grammar.ROUNDING), a.node), a.low, a.high)

    def _of_floats(self, dtype: str, depth: int) -> Drawn:
        op: str = self.pick(*_ARITHMETIC, *_ARITHMETIC, "/", "negated", "rounded", "cast", "cast", "bits", *_CHOICES)
        if op == "cast":
            return self._cast(dtype, depth)
        if op in _OF_ANY:
            return self._of_any(op, dtype, depth)
        a = self._variable_operand(dtype, depth - 1)
        if op == "/":
            return self._part(a, dtype)
        if op == "rounded":
            return self._rounded(a) if a.fraction and dtype != "float16" else a
        if op == "negated":
            return a if isinstance(a.node, Const) else Drawn(Unary("-", a.node), -a.high, -a.low, a.fraction)
        b = a if not self.integer(0, 3) else self.operand(dtype, self.pick(0, depth - 1))
        if self.integer(0, 1):
            a, b = b, a
        fraction = a.fraction + b.fraction if op == "*" else max(a.fraction, b.fraction)
        kept = self._fits(*_corners(op, a, b), dtype)
        constant = isinstance(a.node, Const) and isinstance(b.node, Const)
        if kept is None or fraction > MOST_FRACTION[dtype] or constant:
            return a
        return Drawn(Binary(op, a.node, b.node), *kept, fraction)

    def _logic(self, depth: int) -> Expr:
        """Draw a condition whose operands are of every kind."""
        match self.pick("compare", "compare", "related", "related", "and", "or", "not", "cast", "select", "leaf"):
            case "related":
                return self._related(self._comparison(depth))
            case "and" | "or" as op:
                return Binary(op, self.condition(depth - 1), self.condition(depth - 1))
            case "not":
                return Unary("not", self.condition(depth - 1))
            case "cast":
                dtype = self._any_dtype()
                return self._truth(self._variable_operand(dtype, depth - 1), dtype)
            case "select":
                return Select(self.condition(depth - 1), self.condition(depth - 1), self.condition(self.pick(0, depth - 1)))
            case "leaf":
                names, elements = self._readable("bool")
                if names or elements:
                    name = self.pick(*names, *elements)
                    return Var(name) if name in names else self._element(name).node
        return self._comparison(depth)

    def _any_dtype(self) -> str:
        readable = [one.dtype for one, _, _ in self._scope.buffers.values() if one.dtype != "bool"]
        return str(self.pick("int32", *readable, *(one for one in self._scope.dtypes if one != "bool")))

    def _comparison(self, depth: int) -> Binary:
        """Draw a comparison of two values, often of one with a number between which and another it lies."""
        dtype, op = self._any_dtype(), self.pick(*grammar.COMPARISONS)
        if self._scope.special and self.pick(False, True):
            return self._special(op)
        a = self._variable_operand(dtype, depth)
        b = self.operand(dtype, self.pick(0, 0, depth))
        match self.pick("near", "any", "near", "any", "any", "same"):
            case "near" if dtype in grammar.INTEGERS:
                value = self.pick((a.low + a.high) // 2, a.low, a.high, self.integer(a.low, min(a.high, a.low + 20)))
                b = self._number(value, dtype)
            case "same":
                b = a
        if isinstance(a.node, Const) and isinstance(b.node, Const):
            return Binary(op, *(one.node for one in (self._leaf("int32", constant=False), self._number(1, "int32"))))
        return Binary(op, *(one.node for one in self.pick((a, b), (a, b), (b, a))))

    def _special(self, op: grammar.Operation) -> Binary:
        """Return a comparison of a value that may be NaN or infinite with a number, or with another element of its dtype."""
        name = self.pick(*self._scope.special)
        dtype = self._scope.special[name].dtype
        others = [other for other, one in self._scope.special.items() if one.dtype == dtype]
        a, b = (Load(one, self._at(self._scope.special[one])) for one in (name, self.pick(*others)))
        zero = Const(0.0, dtype)
        number = self.pick(zero, zero, self._constant(dtype).node)
        return Binary(op, *self.pick((a, number), (a, number), (number, a), (a, b), (a, a)))

    def _related(self, first: Binary) -> Expr:
        """Return a condition of two comparisons of the same operands, or of operands that differ by a little."""
        a, b = self.pick((first.b, first.a), (first.a, first.b))
        op = self.pick(first.op, _MIRROR[first.op], first.op, *grammar.COMPARISONS)
        second: Expr = Binary(op, a, b)
        if self.pick(False, False, True):
            second = Unary("not", second)
        return Binary(self.pick("and", "or"), *self.pick((first, second), (second, first)))


def _corners(op: str, a: Drawn, b: Drawn) -> tuple[int, int]:
    """Return where the results of arithmetic lie."""
    compute: dict[str, Callable[[int, int], int]] = {
        "+": lambda x, y: x + y,
        "-": lambda x, y: x - y,
        "*": lambda x, y: x * y,
        "min": min,
        "max": max,
    }
    ends = [compute[op](x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends)
