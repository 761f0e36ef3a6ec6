"""Draws statements that depend on one another through memory: iterations, branches, neighbouring loops, two stores."""

from collections.abc import Callable

from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.grammar import (
    Assign,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Load,
    Select,
    Statement,
    Store,
    Unary,
    Var,
)
from mhc.strategies.programs.statements import Statements

_BLOCKS = (
    *("carried", "retested", "overwritten", "apart", "alternating", "carried", "retested"),
    *("shifted", "branched", "narrowed", "apart", "shifted", "narrowed", "patch", "retested"),
    *("summed", "found", "summed", "found"),
)
_OTHERWISE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}

Place = tuple[Expr, ...]


class Carried(Statements):
    """Draws them among the others. All expressions are plain: what counts is the order of loads and stores."""

    def _dependent(self, buffer: Buffer, prefix: Place = ()) -> list[Statement]:
        """Draw such statements, about a buffer that is filled, or a block's part of it.

        What they store in a buffer of numbers lies between 0 and `SMALL`, of floats 9, or was there before.
        """
        first = self._expressions.integer(1, 8)
        self._marks = first, (first + self._pick(1, 3, 5, 7)) % 10
        return [one for _ in range(self._pick(1, 1, 1, 1, 2)) for one in self._block(buffer, prefix)]

    def _block(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a block of them, of one kind."""
        match self._pick(*_BLOCKS):
            case "retested":
                return self._retested(buffer, prefix)
            case "overwritten":
                return self._overwritten(buffer, prefix)
            case "apart":
                return self._apart(buffer, prefix)
            case "shifted":
                return self._shifted(buffer, prefix)
            case "patch":
                return self._patch(buffer, prefix)
            case "branched":
                return self._branched(buffer, prefix)
            case "narrowed":
                return self._narrowed(buffer, prefix)
            case "summed":
                return self._summed(buffer, prefix)
            case "found":
                return self._found(buffer, prefix)
            case "alternating" if "local" in self._features.scopes:
                return self._alternating(buffer, prefix)
        return self._carried(buffer, prefix)

    def _carried(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a loop that begins with a load, and whose rest stores what a later iteration loads."""
        loop, far = self._empty(self._pick(3, 2, 4)), self._pick(1, 1, 1, 2)
        at = self._row(self._fixed(buffer, prefix), buffer, loop, far)
        head, held = self._held(buffer, Load(buffer.name, at(0)))
        store: Statement = Store(buffer.name, at(far), self._made(buffer, held, loop.var))
        rest: tuple[Statement, ...] = (store,)
        match self._pick("plain", "plain", "branch", "before", "after"):
            case "branch":
                rest = (If(self._compares(buffer, self._pick(held, Load(buffer.name, at(far)))), rest),)
            case "before":
                rest = Store(buffer.name, at(0), self._number(buffer, 0)), store
            case "after":
                rest = store, Store(buffer.name, at(0), self._pick(held, Load(buffer.name, at(far))))
        return [self._around(loop, (head, *rest), buffer)]

    def _held(self, buffer: Buffer, loaded: Expr) -> tuple[Statement, Expr]:
        """Draw a statement that keeps a value, in a name, a scalar or a local buffer, and return it with what reads it."""
        scopes = [one for one in ("var", "local") if one in self._features.scopes and (one, buffer.dtype) != ("var", "bool")]
        scope = self._pick(*scopes, "let")
        if scope == "local":
            one = self._new_local(buffer, (1,))
            return Store(one.name, (Const(0),), loaded), Load(one.name, (Const(0),))
        name = self._scalar(buffer.dtype, scope)
        return Assign(name, loaded), Var(name)

    def _retested(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a branch that stores to what its condition reads, and what then depends on that condition again."""
        loop = self._empty(self._pick(4, 3, 6, 8))
        at = self._row(self._fixed(buffer, prefix), buffer, loop, 1)
        place, other = self._pick((at(0), at(1)), (at(1), at(0)))
        element = Load(buffer.name, place)
        subject, number = self._subject(buffer, element, loop)
        first = Binary(self._pick("<", ">", ">=", "<=", "==", "!="), subject, number)
        new = self._pick(self._number(buffer, 1), self._made(buffer, element, loop.var))
        change: Statement = Store(buffer.name, place, new)
        change = (
            If(self._compares(buffer, Load(buffer.name, other)), (change,))
            if not self._expressions.integer(0, 3)
            else change
        )
        again = self._depends(buffer, first, number, other)
        then = (change, again) if subject != Var(loop.var) or self._pick(False, True) else (again,)
        otherwise = (self._depends(buffer, first, number, other),) if len(then) == 1 or self._pick(False, True) else ()
        return [self._around(loop, (If(first, then, otherwise),), buffer)]

    def _depends(self, buffer: Buffer, first: Binary, number: Const, place: Place) -> Statement:
        """Draw a statement that depends on a condition, or on what a compiler may know where that holds.

        Args:
            number: that the condition compares something with.
        """
        dtype, of = buffer.dtype, number.dtype
        near = number if dtype == "bool" else Const(max(type(number.value)(1), number.value + self._pick(0, 1, 2, -1)), of)
        one, two = (self._number(buffer, which) for which in self._pick((0, 1), (1, 0)))
        op = self._pick(first.op, _OTHERWISE[first.op], *grammar.COMPARISONS)
        tested = self._pick(first, Unary("not", first), Binary(op, first.a, number), Binary(op, first.a, near))
        match self._pick("select", "bound", "select", "branch"):
            case "branch":
                return If(tested, (Store(buffer.name, place, one),), (Store(buffer.name, place, two),))
            case "bound" if dtype != "bool" and (of == dtype or of in grammar.INTEGERS):
                whole = of in grammar.INTEGERS
                bound: Expr = Binary(self._pick("min", "max", *(("%", "//") if whole else ())), first.a, near)
                bound = Binary("%", bound, Const(31, of)) if whole else bound
                return Store(buffer.name, place, bound if of == dtype else Cast(dtype, bound))
        return Store(buffer.name, place, Select(tested, one, two))

    def _subject(self, buffer: Buffer, element: Load, loop: For) -> tuple[Expr, Const]:
        """Draw what is tested, an element or an index, or a multiple of it, and a number that it may be near."""
        dtype = buffer.dtype
        how = self._pick("element", "index", "element", "multiple")
        if how == "element" or (how == "multiple" and dtype not in grammar.INTEGERS):
            return element, self._number(buffer, 0)
        index = how == "index"
        a: Expr = Var(loop.var) if index else Binary("%", element, Const(5, dtype))
        dtype, most = ("int32", loop.extent - 1) if index else (dtype, 4)
        by = self._pick(*((1, 1) if index else ()), 3, 2, 5, *((-2, -3) if dtype in grammar.SIGNED else ()))
        value = by * self._expressions.integer(0 if dtype in grammar.SIGNED else 1, most) - self._pick(0, 1, 1)
        return a if by == 1 else Binary("*", a, Const(by, dtype)), Const(value, dtype)

    def _overwritten(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw two stores to one place, between which a loop or a branch reads it."""
        loop = self._empty(self._pick(2, 3, 4))
        fixed, name = self._fixed(buffer, prefix), buffer.name
        at = self._row(fixed, buffer, loop, 0)
        local = "local" in self._features.scopes and self._pick(False, True)
        where = Load(self._new_local(buffer, (1,)).name, (Const(0),)) if local else Load(name, fixed)
        values: list[Expr] = [self._number(buffer, which) for which in self._pick((0, 1), (1, 0))]
        if local and self._pick(False, True):
            values[0] = Load(name, fixed)
        read: Statement = Store(name, at(0), self._made(buffer, where, loop.var))
        branches = self._pick(False, False, True)
        if not local and self._pick(False, True):  # by an index that a compiler may take for another one
            into = self._row(self._fixed(buffer, prefix), buffer, loop, 0)
            read = Store(name, into(0), self._made(buffer, Load(name, at(0)), loop.var))
            if not branches and self._pick(True, False):
                return [self._around(loop, (Store(name, fixed, values[0]), read, Store(name, fixed, values[1])), buffer)]
        if branches:
            read = Store(name, self._fixed(buffer, prefix), where)
            del self._scope.variables[loop.var]
        tested = self._compares(buffer, where if self._pick(False, True) else Load(name, self._fixed(buffer, prefix)))
        between: Statement = If(tested, (read,)) if branches else self._around(loop, (read,), buffer)
        after = [Store(name, self._fixed(buffer, prefix), where)] if local else []
        first, second = (Store(where.buffer, where.at, value) for value in values)
        return [first, between, second, *after]

    def _apart(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw neighbouring loops of one range, of which an iteration reads what another one of the loop before sets.

        Or the second loop sets some of the elements again, and neither reads any.
        """
        extent, fixed, name = self._pick(3, 2, 4), self._fixed(buffer, prefix), buffer.name
        got, put = self._pick((0, 1), (1, 0), (0, 0))
        reads = self._pick(True, True, False)
        found: list[Statement] = []
        for which, ahead in enumerate(((0, 0), (got, put))):
            loop = self._empty(extent)
            at = self._row(fixed, buffer, loop, 1)
            value = self._made(buffer, Load(name, at(ahead[0])), loop.var) if reads else self._number(buffer, which)
            found.append(self._around(loop, (Store(name, at(ahead[1]), value),), buffer))
        return found

    def _shifted(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a loop of one store, which loads what an iteration some steps before has set, or an element that one sets."""
        loop, how = self._empty(self._pick(4, 8, 5, 6, 8, 12)), self._pick("made", "made", "loaded", "two")
        far = 1 if how == "two" else self._pick(2, 3, 1, 4)
        fixed, name = self._fixed(buffer, prefix), buffer.name
        at = self._row(fixed, buffer, loop, far)
        got, put = self._pick((0, far), (0, far), (far, 0), (None, far), (None, 0))
        loaded: Expr = Load(name, fixed if got is None else at(got))
        match how:
            case "made":
                value = self._made(buffer, loaded, self._pick(loop.var, None))
            case "loaded":
                value = loaded
            case "two":
                value = self._both(buffer, loaded, Load(name, at(put)))
        return [self._around(loop, (Store(name, at(put), value),), buffer)]

    def _both(self, buffer: Buffer, a: Expr, b: Expr) -> Expr:
        """Draw what is stored where it depends on two elements, as in a running sum or maximum."""
        a, b = self._pick((a, b), (b, a))
        if buffer.dtype == "bool":
            return Binary("!=", a, b)
        if buffer.dtype in grammar.FLOATS:
            return Binary(self._pick("max", "min"), a, b)
        small = Const(31, buffer.dtype)
        return Binary("+", Binary("%", a, small), Binary("%", b, small))

    def _summed(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a loop over rows, each of which has an element set and changed in a loop of its own, as a sum is made."""
        rows, loop = self._empty(self._pick(3, 2, 4)), self._empty(self._pick(3, 2, 4))
        place = self._row(self._fixed(buffer, prefix), buffer, rows, 0)(0)
        local = "local" in self._features.scopes and self._pick(False, False, True)
        sum_of = Load(self._new_local(buffer, (1,)).name, (Const(0),)) if local else Load(buffer.name, place)
        first = Store(sum_of.buffer, sum_of.at, self._pick(self._number(buffer, 0), Load(buffer.name, place)))
        added = Store(sum_of.buffer, sum_of.at, self._made(buffer, sum_of, self._pick(loop.var, rows.var)))
        last = (Store(buffer.name, place, sum_of),) if local else ()
        body = first, self._around(loop, (added,), buffer), *last
        return [self._around(rows, body if local or self._pick(True, True, False) else body[::-1], buffer)]

    def _found(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a loop that sets one element in some of its iterations, of which the last one counts."""
        loop, fixed = self._empty(self._pick(4, 3, 6, 8)), self._fixed(buffer, prefix)
        index = Var(loop.var)
        near = Const(self._expressions.integer(0, loop.extent - 1))
        some = Binary(self._pick("<", "!=", "<=", "==", ">"), index, near)
        every = Binary("==", Binary("%", index, Const(self._pick(2, 3))), Const(self._pick(0, 1)))
        if buffer.dtype == "bool":
            value: Expr = self._pick(some, every)
        else:
            value = index if buffer.dtype == "int32" else Cast(buffer.dtype, index)
        tested = self._pick(some, every, self._expressions.condition(0), some)
        return [self._around(loop, (If(tested, (Store(buffer.name, fixed, value),)),), buffer)]

    def _patch(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw loops that set the first elements of some rows, or a part of a row in rows of its own, to one number."""
        axes = [axis for axis in range(len(prefix), len(buffer.shape)) if buffer.shape[axis] > 1]
        fixed, name = self._fixed(buffer, prefix), buffer.name
        if not axes:
            return [Store(name, fixed, self._number(buffer, 0))]
        last, size = axes[-1], buffer.shape[axes[-1]]
        pitch = self._pick(2, 3, 4, 2) if len(axes) == 1 else size
        pitch = min(pitch, size)
        rows = size // pitch if len(axes) == 1 else buffer.shape[axes[-2]]
        row = self._empty(self._pick(rows, max(1, rows - 1)))
        part = self._empty(self._expressions.integer(1, pitch))
        at: dict[int, Expr] = {last: Var(part.var)}
        if len(axes) == 1:
            at[last] = Binary("+", Binary("*", Var(row.var), Const(pitch)), Var(part.var))
        else:
            at[axes[-2]] = Var(row.var)
        store = Store(name, tuple(at.get(axis, one) for axis, one in enumerate(fixed)), self._number(buffer, 0))
        inner = self._around(part, (store,), buffer)
        return [self._around(row, (inner,), buffer)]

    def _branched(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a store, and then a branch that sets that element on one of its sides, or on both."""
        fixed, name = self._fixed(buffer, prefix), buffer.name
        loop = self._empty(self._pick(3, 2, 4))
        at = self._row(self._fixed(buffer, prefix), buffer, loop, 0)
        first, second = self._pick((0, 1), (1, 0))
        read = Store(name, at(0), self._made(buffer, Load(name, fixed), loop.var))
        sides: dict[str, tuple[Statement, ...]] = {
            "set": (Store(name, fixed, self._number(buffer, second)),),
            "read": (read,),
            "read and set": (read, Store(name, fixed, self._number(buffer, second))),
            "other": (Store(name, self._fixed(buffer, prefix), self._number(buffer, first)),),
            "nothing": (),
        }
        pairs = *(("set", each) for each in ("other", "nothing", "read", "set", "other")), ("read and set", "set")
        one, two = (sides[each] for each in self._pick(*pairs))
        subject, number = self._subject(buffer, Load(name, at(0)), loop)
        compared = Binary(self._pick("<", ">", ">=", "<=", "==", "!="), subject, number)
        tested = self._pick(compared, self._expressions.condition(0))
        turned = self._pick(False, True) and bool(two)
        then, otherwise = (two, one) if turned else (one, two)
        body = Store(name, fixed, self._number(buffer, first)), If(tested, then, otherwise)
        return [self._around(loop, (*body, *((read,) if self._pick(False, True) else ())), buffer)]

    def _narrowed(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a branch within a side of another one, of which a compiler knows something there: both compare the same."""
        loop = self._empty(self._pick(4, 3, 6, 8))
        at = self._row(self._fixed(buffer, prefix), buffer, loop, 1)
        place, other = self._pick((at(0), at(1)), (at(1), at(0)))
        subject, number = self._subject(buffer, Load(buffer.name, place), loop)
        against: Expr = number
        if subject == Load(buffer.name, place) and buffer.dtype in grammar.INTEGERS:  # few values, which are often equal
            subject, against = (Binary("%", Load(buffer.name, one), Const(3, buffer.dtype)) for one in (place, other))
        first = Binary(self._pick("<", ">", "<", ">=", "<=", "=="), subject, against)
        sides = self._pick((subject, against), (subject, against), (against, subject))
        second = Binary(self._pick("==", "<=", "==", ">=", "!=", "<"), *sides)
        one, two = (Store(buffer.name, other, self._number(buffer, which)) for which in self._pick((0, 1), (1, 0)))
        three = Store(buffer.name, other, self._made(buffer, Load(buffer.name, other), loop.var))
        inner: tuple[Statement, ...] = (If(second, (one,), (two,) if self._pick(True, False) else ()),)
        inner = (*inner, three) if self._pick(False, False, True) else inner
        branch = If(first, (three,), inner) if self._pick(True, True, False) else If(first, inner, (three,))
        return [self._around(loop, (branch,), buffer)]

    def _alternating(self, buffer: Buffer, prefix: Place) -> list[Statement]:
        """Draw a loop in which two local buffers that are alike are used in turn; one is live around the loop's end."""
        shape = self._pick((2,), (1,), (2, 2), (3,), (2, 3), (3, 2))
        kept, used = self._new_local(buffer, shape), self._new_local(buffer, shape)
        fixed, name = self._fixed(buffer, prefix), buffer.name
        first = self._set_all(kept, self._pick(Load(name, fixed), self._number(buffer, 0)))
        loop = self._empty(self._pick(2, 3))
        at = self._row(fixed, buffer, loop, 1)
        element = tuple(Const(self._expressions.integer(0, size - 1)) for size in shape)
        body: list[Statement] = [Store(name, at(0), self._made(buffer, Load(kept.name, element), loop.var))]
        body.append(self._set_all(used, self._pick(self._number(buffer, 1), Load(name, at(1)))))
        body.append(Store(name, at(1), self._made(buffer, Load(used.name, element), None)))
        match self._pick("kept", "kept", "set", "changed"):
            case "set":
                body.append(Store(kept.name, element, Load(used.name, element)))
            case "changed":
                body.insert(1, Store(kept.name, element, self._made(buffer, Load(kept.name, element), loop.var)))
        return [first, self._around(loop, tuple(body), buffer)]

    def _set_all(self, one: Buffer, value: Expr) -> Statement:
        """Return loops that set all elements of a local buffer."""
        names = [self._variable(0, size - 1) for size in one.shape]
        statement: Statement = Store(one.name, tuple(map(Var, names)), self._made(one, value, names[-1]))
        for name, size in reversed(list(zip(names, one.shape, strict=True))):
            del self._scope.variables[name]
            statement = self._loop((statement,), name, size, 0, "serial")
        return statement

    def _new_local(self, buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
        one = Buffer(f"a{len(self._buffers)}", shape, buffer.dtype, scope="local")
        self._buffers.append(one)
        return one

    def _empty(self, extent: int) -> For:
        """Draw a plain loop without a body."""
        return self._loop((), self._variable(0, extent - 1), extent, 0, self._pick("serial", "serial", *self._plain))

    def _around(self, loop: For, body: tuple[Statement, ...], buffer: Buffer) -> Statement:
        """Return a loop with a body, which may be left early or be in another; how often it runs may be computed."""
        whole = replace(loop, body=self._leaving(body) if self._pick(False, False, True) else body)
        del self._scope.variables[loop.var]
        statement = whole if self._expressions.integer(0, 5) else self._counted(whole, buffer)
        if self._pick(False, False, True):
            outer = self._empty(self._pick(2, 3))
            statement = replace(outer, body=(statement,))
            del self._scope.variables[outer.var]
        return statement

    def _fixed(self, buffer: Buffer, prefix: Place) -> Place:
        """Draw an element: constant indices, behind those of a block."""
        return *prefix, *(Const(self._expressions.integer(0, min(size - 1, 2))) for size in buffer.shape[len(prefix) :])

    def _row(self, fixed: Place, buffer: Buffer, loop: For, far: int) -> Callable[[int], Place]:
        """Draw in what order a loop meets the elements of a row.

        Args:
            fixed: an element of the row. far: by so much an iteration may be ahead.

        Returns:
            The place of an iteration, or of one that is ahead of it, where the row is long enough.
        """
        axes = [axis for axis, one in enumerate(fixed) if isinstance(one, Const)]
        axis = self._pick(*([one for one in axes if buffer.shape[one] > loop.extent] or axes))
        size, index = buffer.shape[axis], Var(loop.var)
        most = loop.extent - 1 + far
        how = self._pick("plain", "plain", "reversed", "rotated") if most < size else "rotated"
        by = self._expressions.integer(0, min(2, size - 1 - most)) if how != "rotated" else self._pick(0, 0, 1, 2)

        def at(ahead: int) -> Place:
            """Return the place of an iteration."""
            if how == "reversed":
                one: Expr = Binary("-", Const(by + most - ahead), index)
            else:
                one = Binary("+", index, Const(by + ahead)) if by + ahead else index
                one = Binary("%", one, Const(size)) if how == "rotated" else one
            return *fixed[:axis], one, *fixed[axis + 1 :]

        return at

    def _number(self, buffer: Buffer, which: int) -> Const:
        """Return one of the two numbers that elements are set to and compared with."""
        value, dtype = self._marks[which], buffer.dtype
        return Const(which if dtype == "bool" else float(value) if dtype in grammar.FLOATS else value, dtype)

    def _compares(self, buffer: Buffer, a: Expr) -> Expr:
        return Binary(self._pick("!=", "<", "==", ">="), a, self._number(buffer, self._pick(0, 1)))

    def _made(self, buffer: Buffer, a: Expr, index: str | None) -> Expr:
        """Draw what is stored: something that depends on a value.

        Args:
            index: of the loop around it.
        """
        dtype = buffer.dtype
        if dtype == "bool":
            return Unary("not", a) if self._pick(True, True, True, False) else a
        number, other = self._number(buffer, 0), self._number(buffer, 1)
        more: Expr = other if index is None else Var(index) if dtype == "int32" else Cast(dtype, Var(index))
        if dtype in grammar.FLOATS:
            chosen: Expr = Select(Binary("<", a, number), other, more)
            return self._pick(chosen, Binary("max", a, number), chosen)  # type: ignore[no-any-return]
        small = Binary("%", a, Const(self._pick(31, 7, 10), dtype))
        return Binary("+", small, self._pick(number, more, number))
