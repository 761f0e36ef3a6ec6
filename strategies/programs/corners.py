"""Draws expressions of the shapes that a compiler's rewritings look for, with operands at which a wrong one shows.

What a rewriting gets wrong is mostly seen at few operands: those that overflow in between, tie, or lie on both sides of 0.
"""

from mhc.programs import grammar
from mhc.programs.grammar import Binary, Cast, Const, Expr, Select, Unary, Var, bits_of, range_of
from mhc.strategies.programs.expressions import Expressions, interval
from mhc.strategies.programs.indices import Drawn

_WIDE = ("int32", "uint32", "int64")
_SHAPES = (*("scaled", "narrowed", "masked", "ladder", "narrowed") * 2, "ladder", "narrowed")
_MORE = (
    "clamped",
    *("widened", "chosen", "widened", "chosen", "widened", "chosen"),
    "floored",
    "floored",
    "narrowed",
    "narrowed",
)
_SUMS = ("factored", "parts")


class Corners(Expressions):
    """Draws such expressions among the others."""

    def value(self, dtype: str, depth: int) -> Drawn:
        """Draw an expression of a dtype."""
        shapes: tuple[str, ...] = ()
        if depth and dtype in grammar.INTEGERS:
            which = self.integer(0, 27)
            shapes = _SHAPES if which > 15 else _MORE if which > 10 else _SUMS if which > 6 else ()
        if shapes:
            match self.pick(*shapes):
                case "scaled":
                    return self._scaled(dtype)
                case "narrowed":
                    return self._narrowed(dtype)
                case "masked":
                    return self._masked(dtype)
                case "ladder":
                    return self._ladder(dtype)
                case "clamped":
                    return self._clamped(dtype)
                case "widened":
                    return self._widened(dtype)
                case "floored":
                    return self._floored(dtype)
                case "chosen":
                    return self._chosen(dtype)
                case "factored":
                    return self._factored(dtype)
                case "parts":
                    return self._parts(dtype)
        return super().value(dtype, depth)

    def condition(self, depth: int) -> Expr:
        """Draw an expression of dtype bool."""
        if self.integer(0, 2):
            found = self.pick(self._apart, self._tied, self.bounded, self._multiple, self._high)()
            return found if found is not None else super().condition(depth)
        return super().condition(depth)

    def _read(self, dtype: str) -> Drawn:
        """Draw a value that is no constant, unless there is nothing else."""
        return self._leaf(dtype, constant=False)

    def _made(self, op: str, a: Drawn, b: Drawn, dtype: str) -> Drawn:
        """Return an operation of integers, or its first operand where it may overflow."""
        kept = self._fits(*interval(op, a, b, dtype), dtype)
        return a if kept is None else Drawn(Binary(op, a.node, b.node), *kept)

    def _number(self, value: int, dtype: str) -> Drawn:
        return Drawn(Const(value, dtype), value, value)

    def _within(self, a: Drawn, most: int, dtype: str) -> Drawn:
        """Return a value that is taken modulo a number, where it may be larger."""
        return a if a.within(-most, most) else self._made("%", a, self._number(most + 1, dtype), dtype)

    def _scaled(self, dtype: str) -> Drawn:
        """Draw a multiple, with a rest or without, divided by a divisor or a multiple of its factor."""
        _, most = range_of(dtype)
        large = [(1 << 33) + 2] * 30 if bits_of(dtype) == 64 else []  # whose multiples 32 bits do not hold
        by = self.pick(4, 2, 3, 6, 8, 12, *large)
        divisor = self.pick(by, by, by * 2, by * 3, *([by // 2] if by % 2 == 0 else []))
        if divisor > most:
            return self._leaf(dtype)
        wraps = dtype in grammar.UNSIGNED and self.pick(False, True)
        a = self._read(dtype)
        if wraps and a.high * by <= most:  # a small value is moved to the end of its dtype
            a = self._made("+", a, self._number(most - (a.low + a.high) // 2, dtype), dtype)
        elif not wraps:
            a = self._within(a, min(100, most // by // 2), dtype)
        scaled = self._made("*", a, self._number(by, dtype), dtype)
        if self.pick(True, False):
            rest = self._within(self._read(dtype), min(most // 4, 2 * divisor + 1), dtype)
            scaled = self._made(self.pick("+", "+", "-"), scaled, rest, dtype)
        op = self.pick("//", "%", "truncdiv", "truncmod")
        return scaled if isinstance(scaled.node, Const) else self._made(op, scaled, self._number(divisor, dtype), dtype)

    def _narrowed(self, dtype: str) -> Drawn:
        """Draw an operation of a wider dtype whose operands the narrower one does not hold, and cast it."""
        wider = [one for one in _WIDE if bits_of(one) > bits_of(dtype)]
        if not wider:
            return self._leaf(dtype)
        wide, (_, most) = self.pick(*wider), range_of(dtype)
        a = self._past(self._read(wide), wide, dtype)
        if isinstance(a.node, Const):
            return self._leaf(dtype)
        a = self._emptied(a, wide) if not self.integer(0, 5) else a
        op = self.pick("max", "min", ">>", "//", "%", "truncdiv", "&", "max", "min")
        if op == ">>":
            by = self.pick(1, 2, bits_of(dtype) - 1)
            made = Drawn(Binary(">>", a.node, Const(by, wide)), a.low >> by, a.high >> by)
        else:
            number = self.pick(3, 10, most // 2, most) if op in {"//", "%", "truncdiv"} else self.pick(0, 5, most, most + 3)
            other = self._past(self._read(wide), wide, dtype) if op in {"max", "min"} and self.pick(False, True) else None
            made = self._made(op, a, other or self._number(number, wide), wide)
        return self._converted(made, dtype)

    def _masked(self, dtype: str) -> Drawn:
        """Draw an operation with a power of two, or one less, of a value on both sides of 0."""
        a = self._read(dtype)
        if isinstance(a.node, Const):
            return a
        if dtype in grammar.SIGNED and a.low >= 0:
            a = self._across(a, 0, dtype)
        elif dtype in grammar.UNSIGNED and self.pick(True, False):  # what is negative where the sign is mistaken
            a = self._made("|", a, self._number(1 << (bits_of(dtype) - 1), dtype), dtype)
        power = 1 << self.pick(2, 1, 3, 4, bits_of(dtype) - 2)
        op = self.pick("&", "|", "^", "%", "truncmod", "truncdiv", "ceildiv", "//", "shift")
        if op == "shift":
            by = self.pick(1, bits_of(dtype) // 2 + 1, bits_of(dtype) - 2)
            return Drawn(Binary(">>", a.node, Const(by, dtype)), a.low >> by, a.high >> by)
        number = power - 1 if op in {"&", "|", "^"} else power
        if op == "ceildiv" and a.high > range_of(dtype)[1] - power:
            return a
        made = self._made(op, a, self._number(number, dtype), dtype)
        return Drawn(made.node, *range_of(dtype)) if op in {"&", "|", "^"} and a.low < 0 else made

    def _ladder(self, dtype: str) -> Drawn:
        """Draw a choice within a choice by one value, where both conditions often hold."""
        of = self.pick("int32", dtype)
        tested = self._read(of)
        if isinstance(tested.node, Const):
            return self._leaf(dtype)
        op, middle = self.pick("<", ">", "<=", ">="), (tested.low + tested.high) // 2
        first = Binary(op, tested.node, Const(middle, of))
        spread = max(1, min(9, (tested.high - tested.low) // 4))
        end = middle + spread if op in {"<", "<="} else middle - spread
        least, most = range_of(of)
        second = Binary(op, tested.node, Const(max(least, min(most, end)), of))
        a, b, c = self._number(1, dtype), self._leaf(dtype), self._number(3, dtype)
        inner = Select(second, b.node, c.node)
        low, high = min(1, b.low), max(3, b.high)
        if self.pick(True, False):
            return Drawn(Select(first, a.node, inner), low, high)
        return Drawn(Select(Unary("not", first), inner, a.node), low, high)

    def _clamped(self, dtype: str) -> Drawn:
        """Draw a value between two bounds, either of which may be the lower one; mostly one is no constant."""
        a, b = self._read(dtype), self._read(dtype)
        if isinstance(a.node, Const):
            return a
        number = self._number(self.integer(a.low, min(a.high, a.low + 40)), dtype)
        bounds = self.pick((number, b), (b, number), (number, self._number(self.integer(a.low, a.high), dtype)))
        first, second = self.pick(("min", "max"), ("max", "min"))
        return self._made(second, self._made(first, a, bounds[0], dtype), bounds[1], dtype)

    def _widened(self, dtype: str) -> Drawn:
        """Draw an operation of 64 bits whose operands are of 32, in which it overflows, or cast what wraps around in 32."""
        wide, narrow = dtype if bits_of(dtype) == 64 else "int64", self.pick("int32", "uint32")
        # of 32 bits, since C computes what is narrower in `int`, which compilers are known to get wrong
        first = narrow == "uint32" and self.pick(True, True, False)
        op, sides = self.pick("*", "*", "+", "-"), []
        for end in (True, op != "-"):
            a = self._read(narrow)
            if isinstance(a.node, Const):
                return self._leaf(dtype)
            large = self._made("|", a, self._number(1 << 30, narrow), narrow)  # a sum is cast by its parts, this is not
            moved = self._moved(a, narrow, end=end) if (first and op == "+") or self.pick(False, False, True) else large
            sides.append(moved if first else self._converted(moved, wide))
        sides = sides[::-1] if first and op == "-" and sides[0].low >= sides[1].high else sides  # so that it wraps around
        made = self._made(op, sides[0], sides[1], narrow if first else wide)
        made = self._converted(made, wide) if first else made
        if wide == dtype:
            return made
        by = self.pick(31, 16, 33)
        return self._converted(Drawn(Binary(">>", made.node, Const(by, wide)), made.low >> by, made.high >> by), dtype)

    def _chosen(self, dtype: str) -> Drawn:
        """Draw a choice between a value that 32 bits do not hold and one of 32 bits that is cast."""
        wide = dtype if bits_of(dtype) == 64 else "int64"
        a, b = self._read(wide), self._converted(self._read(self.pick("int32", "uint32")), wide)
        if isinstance(a.node, Const):
            a = self._converted(self._read("int32"), wide)
        if a.within(0, 1 << 40):
            a = self._made("+", a, self._number(1 << self.pick(33, 32, 40), wide), wide)
        sides = self.pick((a, b), (b, a))
        made = Drawn(
            Select(self.condition(self.pick(0, 1)), sides[0].node, sides[1].node), min(a.low, b.low), max(a.high, b.high)
        )
        if wide == dtype:
            return made
        by = self.pick(31, 16, 33)
        return self._converted(Drawn(Binary(">>", made.node, Const(by, wide)), made.low >> by, made.high >> by), dtype)

    def _floored(self, dtype: str) -> Drawn:
        """Draw a fraction, often below 0, that is rounded to a whole number and cast; or the root of a square."""
        floats = [one for one in self._scope.dtypes if one in grammar.FLOATS]
        if not floats:
            return self._leaf(dtype)
        before = self.pick(*floats)
        if self.pick(False, False, True):
            return self._rooted(dtype, "float32" if before == "float16" else before)
        a = self._large(before) if before == "float64" and self.pick(False, True) else self._read(before)
        a = self._across(a, 0, before) if a.low >= 0 and dtype in grammar.SIGNED else a
        a = a if a.fraction else self._part(a, before)
        if isinstance(a.node, Const) or not a.within(*range_of(dtype)):
            return self._leaf(dtype)
        return Drawn(Cast(dtype, Unary(self.pick(*grammar.ROUNDING), a.node)), a.low, a.high)

    def _rooted(self, dtype: str, before: str) -> Drawn:
        """Draw the root of the square of an integer, often below 0, in a float's dtype."""
        of = self.pick("int32", "int32", "int64", "int16")
        a = self._within(self._read(of), 1000, of)
        a = self._across(a, 0, of) if a.low >= 0 else a
        if isinstance(a.node, Const) or not a.within(-1000, 1000):
            return self._leaf(dtype)
        root = self._root(Drawn(Cast(before, a.node), a.low, a.high), before)
        most = max(abs(a.low), abs(a.high))
        return Drawn(Cast(dtype, root.node), 0, most) if most <= range_of(dtype)[1] else self._leaf(dtype)

    def _large(self, dtype: str) -> Drawn:
        """Draw a float of as many digits as an integer of 32 bits has."""
        of = self.pick("uint32", "int32")
        a = self._moved(self._read(of), of, end=True)
        return self._leaf(dtype) if isinstance(a.node, Const) else Drawn(Cast(dtype, a.node), a.low, a.high)

    def _factored(self, dtype: str) -> Drawn:
        """Draw a multiple, often of a negative number, of a sum, a difference, or the smaller or larger of two values."""
        number = self.pick(*((-2, -1, -3) if dtype in grammar.SIGNED else ()), 2, 3, 4)
        most = range_of(dtype)[1] // abs(number) // 2
        a, b = (self._within(self._read(dtype), most, dtype) for _ in range(2))
        both = self._made(self.pick("min", "max", "+", "-"), a, b, dtype)
        return both if isinstance(both.node, Const) else self._made("*", both, self._number(number, dtype), dtype)

    def _parts(self, dtype: str) -> Drawn:
        """Draw a value put together from its quotient and its remainder, one of them alone, or without one of them."""
        a = self._read(dtype)
        if isinstance(a.node, Const):
            return a
        if dtype in grammar.SIGNED and a.low >= 0:
            a = self._across(a, 0, dtype)
        by = self._number(self.pick(2, 3, 4, 2, 8, 5), dtype)
        rest = self._made("%", a, by, dtype)
        whole = self._made("*", self._made("//", a, by, dtype), by, dtype)
        b = self._read(dtype)
        match self.pick("without the rest", "rest", "less the rest", "whole", "both"):
            case "without the rest":
                return self._made("-", a, rest, dtype)
            case "less the rest":
                return self._made("-", self._within(b, range_of(dtype)[1] // 2, dtype), rest, dtype)
            case "whole":
                return self._made("-", a, whole, dtype)
            case "both":
                return self._made("+", whole, rest, dtype)
        return rest

    def bounded(self) -> Expr | None:
        """Draw what guards an access: an index of a loop or a block, or its multiple, below a number that is computed."""
        names = list(self._scope.variables)
        if not names:
            return None
        name = self.pick(*reversed(names))
        low, high = self._scope.variables[name]
        a = Drawn(Var(name), low, high)
        by = self.pick(1, 1, 2, 3, 4)
        if by > 1:
            a = self._made("*", a, self._number(by, "int32"), "int32")
            if self.pick(False, True):
                a = self._made("+", a, self._within(self._read("int32"), by - 1, "int32"), "int32")
        most = max(1, a.high + self.pick(1, 2, 5))
        b = self._within(self._read("int32"), most, "int32")
        if isinstance(b.node, Const):
            return None
        if b.low >= 0 and a.low < 0:
            b = self._made("+", b, self._number(a.low, "int32"), "int32")
        sides = (a, b) if self.pick(True, True, False) else (b, a)
        return Binary(self.pick("<", "<=", ">", ">=", "<"), *(one.node for one in sides))

    def _multiple(self) -> Expr | None:
        """Draw a comparison of a multiple of a small value with a number around its values, which is mostly no multiple."""
        dtype = self.pick("int32", "int32", *(one for one in self._scope.dtypes if one in grammar.INTEGERS))
        names = [(name, ends) for name, ends in self._scope.variables.items() if dtype == "int32"]
        if names and self.pick(True, False):
            name, ends = self.pick(*reversed(names))
            a = Drawn(Var(name), *ends)
        else:
            a = self._within(self._read(dtype), 9, dtype)
        if isinstance(a.node, Const) or not a.within(-100, 100):
            return None
        by = self.pick(3, 2, 5, 4, 7, *((-2, -3, -1) if dtype in grammar.SIGNED else ()))
        scaled = self._made("*", a, self._number(by, dtype), dtype)
        value = self.integer(a.low, min(a.high, a.low + 20)) * by + self.pick(1, -1, 0, by - 1)
        if scaled.node == a.node or not range_of(dtype)[0] <= value <= range_of(dtype)[1]:
            return None
        number = self._number(value, dtype)
        sides = self.pick((scaled, number), (scaled, number), (number, scaled))
        return Binary(self.pick("<", "<=", ">", ">=", "=="), *(one.node for one in sides))

    def _apart(self) -> Expr | None:
        """Draw a comparison of two integers that are far apart, of a sum that wraps around, or of two dtypes in int64."""
        dtype = self.pick("int32", "uint32", "int64", "uint64", "uint8", "uint32")
        a, op = self._read(dtype), self.pick("<", "<=", ">", ">=", "==")
        if isinstance(a.node, Const):
            return None
        _, most = range_of(dtype)
        if dtype in {"uint32", "uint64"} and self.pick(False, True, True):
            return self._wrapped(a, op, dtype)
        if dtype in grammar.UNSIGNED and self.pick(True, False):
            added = self.pick(5, max(1, most - (a.low + a.high) // 2), most // 2)
            bound = min(most, added + self.pick(1, 4, 20))
            return Binary(op, Binary("+", a.node, Const(added, dtype)), Const(bound, dtype))
        if dtype in grammar.UNSIGNED:
            one, two = self._moved(self._read("uint32"), "uint32", end=True), self._opposite(self._read("int32"), "int32")
            sides = self.pick((one, two), (two, one))
            return Binary(op, *(Cast("int64", side.node) for side in sides))
        sides = self._moved(a, dtype, end=True), self._opposite(self._read(dtype), dtype)
        return Binary(op, *(side.node for side in self.pick(sides, sides[::-1])))

    def _wrapped(self, a: Drawn, op: str, dtype: str) -> Binary:
        """Draw a comparison of a difference that wraps around, of unsigned values or of one and a constant."""
        b = self._read(dtype)
        if isinstance(b.node, Const) or a.node == b.node or self.pick(True, False):
            b = self._number(min(range_of(dtype)[1], (a.low + a.high) // 2 + self.pick(1, 0, 3)), dtype)
        one, two = self.pick((a, b), (a, b), (b, a))
        number = Const(self.pick(1, 4, 20, range_of(dtype)[1] // 2), dtype)
        sides = self.pick((Binary("-", one.node, two.node), number), (number, Binary("-", one.node, two.node)))
        return Binary(op, *sides)

    def _opposite(self, a: Drawn, dtype: str) -> Drawn:
        """Return a value that is often below 0."""
        if isinstance(a.node, Const) or a.low < 0:
            return a
        return Drawn(Unary("-", a.node), -a.high, -a.low)

    def _moved(self, a: Drawn, dtype: str, *, end: bool) -> Drawn:
        """Return a value moved near an end of its dtype, where it does not take up most of it."""
        least, most = range_of(dtype)
        if isinstance(a.node, Const) or a.high - a.low > most // 2:
            return a
        by = (most if end else least) - (a.high if end else a.low) + (-3 if end else 3)
        if not by or not 0 < abs(by) <= most:
            return a
        return Drawn(Binary("+" if by > 0 else "-", a.node, Const(abs(by), dtype)), a.low + by, a.high + by)

    def _emptied(self, a: Drawn, dtype: str) -> Drawn:
        """Return an integer whose lower bits are all 0, mostly half of them; it may be 0, and mostly is not."""
        bits, most = bits_of(dtype), range_of(dtype)[1]
        by = self.pick(bits // 2, bits // 2, bits // 4, 8) if bits > 8 else 4
        if isinstance(a.node, Const):
            return a
        if a.within(-(most >> by), most >> by):
            return Drawn(Binary("*", a.node, Const(1 << by, dtype)), a.low << by, a.high << by)
        mask = -(1 << by) if dtype in grammar.SIGNED else most - (1 << by) + 1
        return Drawn(Binary("&", a.node, Const(mask, dtype)), a.low >> by << by, a.high)

    def _truth(self, a: Drawn, dtype: str) -> Cast:
        """Return whether a value is not 0; of integers of 16 bits and more, the lower bits are 0 in half of the cases."""
        wide = dtype in grammar.INTEGERS and bits_of(dtype) > 8 and self.pick(False, True)
        return Cast("bool", (self._emptied(a, dtype) if wide else a).node)

    def _high(self) -> Expr | None:
        """Draw what the higher bits of an integer decide: whether it is 0, or how it compares with one of another bit."""
        dtype = self.pick("int64", "uint64", "int32", "uint32", "int64")
        a = self._read(dtype)
        if isinstance(a.node, Const):
            return None
        if self.pick(True, True, False):
            a = self._emptied(a, dtype)
            number = Const(self.pick(0, 0, 0, 1), dtype)
            return self.pick(Cast("bool", a.node), Binary(self.pick("!=", "==", ">", "<="), a.node, number))  # type: ignore[no-any-return]
        bit = Const(1 << self.pick(bits_of(dtype) // 2, bits_of(dtype) - 2, 8, 16), dtype)
        other = Binary("^", a.node, bit)
        sides = self.pick((a.node, other), (other, a.node), (Binary("&", a.node, bit), Const(0, dtype)))
        return Binary(self.pick(*grammar.COMPARISONS), *sides)

    def _tied(self) -> Expr | None:
        """Draw a comparison of values that are often equal."""
        dtype = self.pick("int32", *(one.dtype for one, _, _ in self._scope.buffers.values() if one.dtype != "bool"))
        a = self._read(dtype)
        if isinstance(a.node, Const) or dtype not in grammar.INTEGERS:
            return None
        number = Const(self.integer(a.low, min(a.high, a.low + 9)), dtype)
        match self.pick("not", "most", "plain", "remainder", "remainder"):
            case "not":
                return Unary("not", Binary(self.pick("<", ">", "<=", ">="), a.node, number))
            case "most":
                op, compared = self.pick("max", "min"), self.pick("==", "<=", "!=")
                return Binary(compared, Binary(op, a.node, number), self.pick(a.node, number))
            case "remainder":
                a = self._across(a, 0, dtype) if dtype in grammar.SIGNED and a.low >= 0 else a
                by = self.pick(2, 3, 4, 5)
                small = Binary("%", a.node, Const(by, dtype))
                return Binary(self.pick("==", "!=", "<="), small, Const(self.pick(by - 1, 1, 0), dtype))
        return Binary(self.pick(*grammar.COMPARISONS), a.node, number)
