"""Draws expressions of a dtype, with the interval in which each value lies."""

import math

from mhc.programs import grammar
from mhc.programs.arithmetic import shifted_constant
from mhc.programs.grammar import Binary, Bits, Buffer, Cast, Const, Expr, Load, Select, Unary, Var, bits_of, range_of
from mhc.strategies.programs.indices import Drawn, Indices, wide

_OTHERS = {dtype: tuple(one for one in (*grammar.INTEGERS, "bool") if one != dtype) for dtype in grammar.INTEGERS}
_DIVISORS = ("int32", "int64", "uint32", "uint64")
_MOST_FLOAT = {"float16": 256, "float32": 4096, "float64": 1 << 33}
MOST_FRACTION = {"float16": 2, "float32": 6, "float64": 6}


class Expressions(Indices):
    """Draws expressions in a scope."""

    def value(self, dtype: str, depth: int) -> Drawn:
        """Draw an expression of a dtype."""
        if dtype == "bool":
            return Drawn(self.condition(depth), 0, 1)
        if depth == 0:
            return self._leaf(dtype)
        options = ["leaf", "binary", "binary", "binary", "cast", "cast", "select", "unary", "unary"]
        more = ("divide", "bitwise", "shift", "chain", "through", "through") if dtype in grammar.INTEGERS else ("halve",)
        options += ["bits", *more]
        match self.pick(*options):
            case "binary":
                return self._binary(dtype, depth, self.pick("+", "-", "*", "min", "max"))
            case "divide":
                return self._binary(dtype, depth, self.pick("//", "%", "truncdiv", "truncmod", "ceildiv"))
            case "bitwise":
                return self._binary(dtype, depth, self.pick("&", "|", "^"))
            case "shift":
                return self._shift(dtype, depth)
            case "chain":
                return self._chain(dtype)
            case "through":
                return self._through(dtype, depth)
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
        named = [name for name, (of, _, _) in self._scope.scalars.items() if of == "bool"]
        if named and self.pick(False, True):
            return Var(self.pick(*named))
        how = (
            self.pick("compare", "compare", "and", "or", "not", "cast", "guarded", "bools", "bools")
            if depth > 0
            else "compare"
        )
        match how:
            case "guarded" if (divides := self.divisor()) is not None:
                return Binary("and", Binary("!=", divides[0], Const(0, divides[1])), self.divides(*divides))
            case "cast":
                return Cast(
                    "bool", self.value(self.pick(*(one for one in self._scope.dtypes if one != "bool")), depth - 1).node
                )
            case "bools":
                return self._bools(depth)
            case "and" | "or":
                return Binary(how, self.condition(depth - 1), self.condition(depth - 1))
            case "not":
                return Unary("~" if not self.integer(0, 7) else "not", self.condition(depth - 1))
        op = self.pick(*grammar.COMPARISONS)
        if self._scope.variables and self.pick(True, False):
            drawn = self._affine(min(depth, 2))
            return Binary(op, drawn.node, Const(self.integer(drawn.low, max(drawn.low, min(drawn.high, drawn.low + 40)))))
        readable = [one.dtype for one, _, _ in self._scope.buffers.values() if one.dtype != "bool"]
        dtype = self.pick(*(readable or ["int32"]))
        return Binary(op, self.value(dtype, max(0, depth - 1)).node, self.value(dtype, 0).node)

    def _bools(self, depth: int) -> Expr:
        """Draw a comparison of two bools, a choice between them, or one that is loaded."""
        names = [name for name, (one, _, _) in self._scope.buffers.items() if one.dtype == "bool"]
        loaded = [self._element(self.pick(*names)).node for _ in range(2)] if names else []
        a: Expr = self.pick(*loaded, self.condition(depth - 1))
        b: Expr = self.pick(*loaded[1:], self.condition(0))
        match self.pick("compare", "compare", "select", "loaded"):
            case "select":
                return Select(self.condition(depth - 1), a, b)
            case "loaded":
                return a
        return Binary(self.pick(*grammar.COMPARISONS), a, b)

    def test(self, depth: int) -> Expr:
        """Draw what an `if` tests: a condition, or rarely an integer, which holds where it is not 0."""
        dtypes = [one.dtype for one, _, _ in self._scope.buffers.values() if one.dtype in grammar.INTEGERS]
        if dtypes and not self.integer(0, 15):
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

    def _named(self, name: str) -> Drawn:
        """Return what a scalar holds."""
        return Drawn(Var(name), *self._scope.scalars[name][1:], self._scope.fractions.get(name, 0))

    def _narrower(self, dtype: str) -> list[str]:
        """Return the names of integers that a dtype of integers holds with bits to spare."""
        if dtype not in grammar.INTEGERS:
            return []
        scalars = self._scope.scalars.items()
        return [name for name, (of, _, _) in scalars if of in grammar.INTEGERS and bits_of(of) < bits_of(dtype)]

    def _leaf(self, dtype: str, *, constant: bool = True) -> Drawn:
        """Draw an expression without operands, which is a constant only where it may be, or where nothing can be read."""
        options: list[tuple[str, str]] = [
            ("load", name) for name, (one, _, _) in self._scope.buffers.items() if one.dtype == dtype
        ]
        scalars = [name for name, (of, _, _) in self._scope.scalars.items() if of == dtype]
        options += [("scalar", name) for name in scalars for _ in range(1 if name.startswith("v") else 3)]
        options += [("widened", name) for name in self._narrower(dtype)]
        if dtype == "int32":
            options += [("var", name) for name in self._scope.variables]
        if dtype in grammar.INTEGERS:
            options += [("cast", name) for name, (one, _, _) in self._scope.buffers.items() if one.dtype in _OTHERS[dtype]]
        else:
            options += [
                ("cast", name)
                for name, (one, low, high) in self._scope.buffers.items()
                if one.dtype not in grammar.FLOATS and self._fits(low, high, dtype) is not None
            ]
        if not constant and not options:
            options += [("var cast", name) for name in self._scope.variables]
        if constant or not options:
            options.append(("const", ""))
        kind, name = self.pick(*options)
        if kind == "widened":
            return self._converted(self._named(name), dtype)
        if kind == "var cast":
            return Drawn(Cast(dtype, Var(name)), *self._scope.variables[name])
        if kind == "cast":
            buffer, low, high = self._scope.buffers[name]
            loaded = Drawn(Load(name, self._at(buffer)), low, high)
            return Drawn(Cast(dtype, loaded.node), low, high) if dtype in grammar.FLOATS else self._converted(loaded, dtype)
        if kind == "load":
            return self._element(name)
        if kind == "scalar":
            return self._named(name)
        if kind == "var":
            return Drawn(Var(name), *self._scope.variables[name])
        return self._constant(dtype)

    def _constant(self, dtype: str) -> Drawn:
        if dtype in grammar.FLOATS:
            value = self.integer(-8, 8)
            if self.pick(False, False, True):
                return Drawn(Const(value / 4, dtype), value // 4, -(-value // 4), 2)
            return Drawn(Const(float(value), dtype), value, value)
        if not self.integer(0, 23):
            return self._folded(dtype)
        least, most = range_of(dtype)
        small = (1, 0, 2, 3, 5, 7, 8, 10, 100, *((-1, -2, -3) if least else ()))
        value = self.pick(*small, most, most - 1, most // 2, least, least + 1, most // 3)
        return Drawn(Const(value, dtype), value, value)

    def _folded(self, dtype: str) -> Drawn:
        """Draw an operation of constants, which the front end folds, with a value that may wrap around."""
        least, most = range_of(dtype)
        how = self.pick("cast", "+", "*", "<<") if dtype in grammar.UNSIGNED else self.pick("cast", "<<")
        a, b = Const(self.pick(1, 3, most // 2, most), dtype), Const(self.pick(1, 2, most // 2 + 1), dtype)
        if how == "cast":
            before = "int64" if bits_of(dtype) >= bits_of("int32") and dtype != "int64" else "int32"
            value = self.pick(most + 1, most + 45, 2 * most + 3, least - 1)
            if not range_of(before)[0] <= value <= range_of(before)[1]:
                value = self.pick(-1, 1)
            node: Expr = Cast(dtype, Const(value, before))
            folded = value & ((1 << bits_of(dtype)) - 1)
        elif how == "<<":
            by = self.pick(bits_of(dtype) - 1, bits_of(dtype) - 2)
            node, folded = Binary("<<", a, Const(by, dtype)), int(a.value) << by
        else:
            node = Binary(how, a, b)
            folded = int(a.value) + int(b.value) if how == "+" else int(a.value) * int(b.value)
        folded &= (1 << bits_of(dtype)) - 1
        folded -= 1 << bits_of(dtype) if folded > most else 0
        return Drawn(node, folded, folded)

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
        b = self._divisor(dtype, op) if divides else self.value(dtype, self.pick(0, depth - 1))
        if self.pick(False, True) and not divides:
            a, b = b, a
        if self._folds(a.node, b.node):
            a = self._leaf(dtype, constant=False)
            if isinstance(a.node, Const):
                return a
        if divides and a.low >= 0 and dtype in grammar.SIGNED:
            a = self._across(a, -b.low if op == "ceildiv" else 0, dtype)  # what is added must not bring it above 0
        if op == "ceildiv" and not _biased(a, b.low).within(*range_of(dtype)):
            return a
        kept = self._fits(*interval(op, a, b, dtype), dtype)
        if kept is None and op in {"+", "-", "*"} and dtype in grammar.INTEGERS and self.pick(False, True):
            a, b = (self._smaller(one, op, dtype) for one in (a, b))
            kept = self._fits(*interval(op, a, b, dtype), dtype)
        fraction = a.fraction + b.fraction if op == "*" else max(a.fraction, b.fraction)
        if kept is None or fraction > MOST_FRACTION.get(dtype, 0):
            return a
        return Drawn(Binary(op, a.node, b.node), *kept, fraction)

    def _operand(self, dtype: str, depth: int) -> Drawn:
        """Draw an operand of an operation of one; a constant only where there is nothing else, or rarely."""
        a = self.value(dtype, depth)
        return self._leaf(dtype, constant=False) if self._folds(a.node) else a

    def _across(self, a: Drawn, end: int, dtype: str) -> Drawn:
        """Return a value that is mostly moved by a constant, so that some of its values lie below an end and some do not."""
        by = end - (a.low + a.high) // 2 - 1
        moved = a.low + by, a.high + by
        least, most = range_of(dtype) if dtype in grammar.INTEGERS else (-_MOST_FLOAT[dtype], _MOST_FLOAT[dtype])
        if (
            isinstance(a.node, Const)
            or abs(by) > most
            or not least <= moved[0] <= moved[1] <= most
            or not self.integer(0, 3)
        ):
            return a
        amount = Const(abs(by) if dtype in grammar.INTEGERS else float(abs(by)), dtype)
        return Drawn(Binary("+" if by > 0 else "-", a.node, amount), *moved, a.fraction)

    def _smaller(self, a: Drawn, op: str, dtype: str) -> Drawn:
        """Return a value shifted to the right, where it is too large for sums or products of two such values."""
        by = bits_of(dtype) // 2 if op == "*" else 1
        least, most = range_of(dtype)
        if a.within(least >> by, most >> by):
            return a
        low, high = a.low >> by, a.high >> by
        return Drawn(Const(low, dtype) if isinstance(a.node, Const) else Binary(">>", a.node, Const(by, dtype)), low, high)

    def _through(self, dtype: str, depth: int) -> Drawn:
        """Draw a value of another integer dtype that need not fit it, and then something that shows whether it did."""
        between = self.pick(*(one for one in self._scope.dtypes if one in grammar.INTEGERS and one != dtype))
        wraps = between in grammar.UNSIGNED and self.pick(False, True)
        a = self._wrapping(between, depth - 1) if wraps else self._cast(between, depth)
        if bits_of(dtype) <= bits_of(between) or self.pick(False, False, True):
            a = self._shown(a, between)
        return self._leaf(dtype) if self._folds(a.node) else self._converted(a, dtype)

    def _wrapping(self, dtype: str, depth: int) -> Drawn:
        """Draw an operation of an unsigned dtype that wraps around for some values."""
        a, (_, most) = self._operand(dtype, depth), range_of(dtype)
        if isinstance(a.node, Const):
            return a
        middle = (a.low + a.high) // 2
        match self.pick("-", "+", "*", "~", "negated"):
            case "-":
                node: Expr = Binary("-", a.node, Const(min(most, middle + 1), dtype))
            case "+":
                node = Binary("+", a.node, Const(most - middle, dtype))
            case "*":
                node = Binary("*", a.node, Const(self.pick(3, most // 2, most // 3), dtype))
            case "~":
                node = Unary("~", a.node)
            case _:
                node = Unary("-", a.node)
        return Drawn(node, 0, most)

    def _shown(self, a: Drawn, dtype: str) -> Drawn:
        """Draw an operation that the sign and the high bits of a value matter to."""
        _, most = range_of(dtype)
        if isinstance(a.node, Const):
            return a
        match self.pick(">>", "//", "%", "min", "max"):
            case ">>":
                by = self.pick(1, 3, bits_of(dtype) - 1)
                return Drawn(Binary(">>", a.node, Const(by, dtype)), a.low >> by, a.high >> by)
            case "//" | "%" as op:
                value = self.pick(2, 3, 7, 10, 4, 8)
            case op:
                value = self.pick(100, most // 2, most // 3)
        b = Drawn(Const(value, dtype), value, value)
        return Drawn(Binary(op, a.node, b.node), *interval(op, a, b, dtype))

    def _halved(self, dtype: str, depth: int) -> Drawn:
        """Draw a quotient of floats that is exact."""
        return self._part(self._operand(dtype, depth - 1), dtype)

    def _part(self, a: Drawn, dtype: str) -> Drawn:
        """Return an exact quotient of a float, where there is one."""
        digits, divisor = self.pick((1, 2), (2, 4), (1, -2))
        if a.fraction + digits > MOST_FRACTION[dtype] or isinstance(a.node, Const):
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

    def _divisor(self, dtype: str, op: str) -> Drawn:
        least, _ = range_of(dtype)
        below = (-2, -3, -4, -7) if op == "ceildiv" else (-2, -3)
        value = self.pick(2, 3, 4, 5, 7, 8, 16, 100, *(below if least else ()))
        return Drawn(Const(value, dtype), value, value)

    def _shift(self, dtype: str, depth: int) -> Drawn:
        a, by = self._operand(dtype, depth - 1), self.integer(0, min(7, bits_of(dtype) - 1))
        left = self.pick(True, False)
        if left and isinstance(a.node, Const) and a.low >= 0:
            by = self.pick(by, bits_of(dtype) - 1, bits_of(dtype) - 2)
            value = shifted_constant(a.low, by, dtype)
            return Drawn(Binary("<<", a.node, Const(by, dtype)), value, value)
        if not left:
            if a.low >= 0 and dtype in grammar.SIGNED:
                a = self._across(a, 0, dtype)
            by = self.pick(by, by, 1, bits_of(dtype) - 1)
            return Drawn(Binary(">>", a.node, Const(by, dtype)), a.low >> by, a.high >> by)
        kept = self._fits(a.low << by, a.high << by, dtype) if a.low >= 0 else None
        if kept is None:
            return a
        shifted = Drawn(Binary("<<", a.node, Const(by, dtype)), *kept)
        if self.pick(True, False):
            return shifted
        back = self.pick(by, by, self.integer(0, min(7, bits_of(dtype) - 1)))  # which may clear bits
        return Drawn(Binary(">>", shifted.node, Const(back, dtype)), shifted.low >> back, shifted.high >> back)

    def _chain(self, dtype: str) -> Drawn:
        """Draw two constants added to a value, each sum of which fits, as their own need not."""
        near = [name for name, (one, _, high) in self._scope.buffers.items() if one.dtype == dtype and high < 0]
        a = self._leaf(dtype) if not near else self._element(self.pick(*near))
        if self._folds(a.node):
            return a
        least, most = range_of(dtype)
        if not near and least and self.pick(False, True):
            end = -self.pick(1, 3, 10, 100)
            a = Drawn(Binary("min", a.node, Const(end, dtype)), min(a.low, end), min(a.high, end))
        c = self._addend(max(0, min(most, most - a.high)), large=a.high < 0)
        d = self._addend(max(0, min(most, most - a.high - c)), large=a.high < 0)
        node = Binary("+", Binary("+", a.node, Const(c, dtype)), Const(d, dtype))
        return Drawn(node, a.low + c + d, a.high + c + d)

    def _addend(self, most: int, *, large: bool) -> int:
        return min(most, int(self.pick(most, most // 3 * 2, most // 2, 100) if large else self.pick(1, 2, 7, 9)))

    def _element(self, name: str) -> Drawn:
        """Draw an element of a buffer."""
        buffer, low, high = self._scope.buffers[name]
        fraction = self._scope.fractions.get(name, 0)
        at = self._at(buffer)
        if not self.integer(0, 19):
            at = tuple(self.pick(wide(one, {}), Cast("int64", one)) for one in at)
        return Drawn(Load(name, at), low, high, fraction)

    def _at(self, buffer: Buffer) -> tuple[Expr, ...]:
        """Draw the indices of an element."""
        return tuple(self.index(one, self.integer(0, 2)) for one in buffer.shape)

    def _unary(self, dtype: str, depth: int) -> Drawn:
        a = self._operand(dtype, depth - 1)
        whole, signed = dtype in grammar.INTEGERS, dtype not in grammar.UNSIGNED
        op = self.pick("-", *(["~"] if whole else ["floor", *grammar.ROUNDING, "sqrt"]), *(["abs"] if signed else []))
        if not self.integer(0, 19):
            return Drawn(Unary("+", a.node), a.low, a.high, a.fraction)
        if op == "sqrt":
            return self._root(a, dtype)
        if op in grammar.ROUNDING and not a.fraction:
            a = self._part(a, dtype)
        if op in {"abs", *grammar.ROUNDING} and a.low >= 0:
            a = self._across(a, 0, dtype)
        if op in {"-", "abs"} and dtype in grammar.SIGNED and a.low == range_of(dtype)[0]:  # whose opposite overflows
            end = a.low + 1
            a = Drawn(Binary("max", a.node, Const(end, dtype)), end, max(end, a.high))
        if op in grammar.ROUNDING:
            low, high = a.low, a.high
        elif op == "abs":
            low, high = 0 if a.low <= 0 <= a.high else min(abs(a.low), abs(a.high)), max(abs(a.low), abs(a.high))
        else:
            low, high = (-a.high, -a.low) if op == "-" else (-a.high - 1, -a.low - 1)
        kept = self._fits(low, high, dtype)
        return a if kept is None else Drawn(Unary(op, a.node), *kept, 0 if op in grammar.ROUNDING else a.fraction)

    def _root(self, a: Drawn, dtype: str) -> Drawn:
        """Return the square root of the square of a small whole float; other floats as they are."""
        most = max(abs(a.low), abs(a.high))
        if a.fraction or isinstance(a.node, Const) or self._fits(0, most * most, dtype) is None:
            return a
        return Drawn(Unary("sqrt", Binary("*", a.node, a.node)), 0, most)

    def _cast(self, dtype: str, depth: int) -> Drawn:
        before = self.pick(*(one for one in self._scope.dtypes if one not in {dtype, "bool"}), "bool")
        a = self._operand(before, depth - 1)
        if before == dtype:
            return a
        if before in grammar.FLOATS and dtype in grammar.INTEGERS:
            a = a if a.fraction else self._part(a, before)  # else nothing is rounded
            if a.fraction and self.pick(False, False, True):
                a = self._across(a, 0, before) if a.low >= 0 and dtype in grammar.SIGNED else a
                a = Drawn(Unary(self.pick(*grammar.ROUNDING), a.node), a.low, a.high)
        if dtype in grammar.FLOATS or before in grammar.FLOATS:
            fraction = a.fraction if dtype in grammar.FLOATS else 0
            fits = self._fits(a.low, a.high, dtype) == (a.low, a.high) and fraction <= MOST_FRACTION.get(dtype, 0)
            return Drawn(Cast(dtype, a.node), a.low, a.high, fraction) if fits else self._leaf(dtype)
        if before != "bool":
            a = self._past(a, before, dtype)
        return self._converted(a, dtype)

    def _past(self, a: Drawn, before: str, dtype: str) -> Drawn:
        """Return a value that the dtype does not always hold, where the dtype before has any and the value can be moved."""
        (least, most), (low, high) = range_of(dtype), range_of(before)
        ends = [end for end in (least, most + 1) if low < end <= high]
        return self._across(a, self.pick(*ends), before) if ends and a.within(least, most) else a

    def _converted(self, a: Drawn, dtype: str) -> Drawn:
        """Return an integer in another integer dtype."""
        least, most = range_of(dtype)
        inside = a.within(least, most)
        return Drawn(Cast(dtype, a.node), a.low if inside else least, a.high if inside else most)


def _biased(a: Drawn, divisor: int) -> Drawn:
    """Return where a dividend and what is added to it lie, so that the quotient is rounded up."""
    more = divisor - (1 if divisor > 0 else -1)
    return Drawn(a.node, min(a.low, a.low + more), max(a.high, a.high + more))


def interval(op: str, a: Drawn, b: Drawn, dtype: str) -> tuple[int, int]:
    """Return where the exact results of an operation lie."""
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
