"""Draws statements that set and read elements of a buffer that is filled, often the same one."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.grammar import Assign, Buffer, Expr, If, Statement, Store, Var
from mhc.strategies.programs.carried import Carried
from mhc.strategies.programs.indices import Drawn
from mhc.strategies.programs.statements import PLAINLY, SMALL

_REWORKED = (
    ("set", "branch", "get"),
    ("set", "loop", "get"),
    ("loop", "get"),
    ("loop", "loop"),
    ("loop", "loop", "get"),
    ("loop", "loop"),
    ("nest",),
    ("branch", "branch"),
    ("loop", "set"),
    ("set", "set", "branch"),
    ("body",),
    ("set", "spread", "set", "get"),
    ("patched", "get"),
    ("swap", "get"),
    ("keep", "set", "recall"),
    ("keep", "loop", "recall"),
    ("set", "while", "get"),
    ("while", "get"),
)
"""Statements that set and read elements of one buffer, one after the other."""
_DEPENDENT = ("dependent",)


class Reworked(Carried):
    """Draws them among the others."""

    def _again(self, output: Buffer, prefix: tuple[Expr, ...]) -> Statement:
        """Draw a loop that sets some elements of a buffer once more, which it may read."""
        rest = output.shape[len(prefix) :]
        before = dict(self._scope.variables)
        kind = self._pick(*(one for one in self._features.loops if one in {"serial", "unroll"}))
        loop = self._stepped(self._pick(1, 2, 3, 4, 5, 8), 0, kind)
        name = loop.var
        at = tuple(self._expressions.index(size, 1) for size in rest)
        drawn = self._value(output.dtype)
        statement: Statement = Store(output.name, (*prefix, *at), drawn.node)
        if output.dtype == "int32" and self._pick(False, True):
            old = grammar.Load(output.name, (*prefix, *at))
            small = grammar.Binary("%", old, grammar.Const(self._pick(2, 3, 7, 100)))
            statement = Store(output.name, (*prefix, *at), grammar.Binary("+", small, Var(name)))
        if self._pick(False, True):
            statement = self._guarded(name, statement)
        body = self._leaving((statement,))
        self._scope.variables = before
        return self._counted(replace(loop, body=body), output)

    def _reworked(self, buffer: Buffer) -> list[Statement]:
        """Draw statements that set and read elements of a buffer that is filled, often the same one."""
        name, dtype = buffer.name, buffer.dtype
        focus = tuple(grammar.Const(self._expressions.integer(0, min(size - 1, 2))) for size in buffer.shape)
        _, low, high = self._scope.buffers[name]
        if dtype != "bool":  # what is stored from here on lies there too
            low, high = min(low, 0), max(high, SMALL if dtype in grammar.INTEGERS else 9)
            self._scope.buffers[name] = (buffer, low, high)
        self._marks = tuple(self._expressions.integer(low, min(high, low + SMALL)) for _ in range(2))
        statements: list[Statement] = []
        dependent = [_DEPENDENT] * len(_REWORKED) * buffer.written  # of what is not an output the most is not seen
        first, second = self._pick(*_REWORKED), self._pick((), *dependent, *_REWORKED)
        first = () if second == _DEPENDENT and self._pick(False, True) else first
        for how in (*first, *second):
            if how in {"get", "recall"} and self._pick(False, False, True):
                statements += self._passed_on(buffer, focus, how)
            elif how == "dependent":
                statements += self._dependent(buffer)
            elif how == "while" and self._has_scalars:
                statements += self._turned(buffer, focus)
            else:
                statements.append(self._rework(buffer, focus, "loop" if how == "while" else how))
        return statements

    def _passed_on(self, buffer: Buffer, focus: tuple[Expr, ...], how: str) -> list[Statement]:
        """Draw a store of an element, or of a name that it was bound to, to another buffer, and often what puts it back."""
        value = Var(self._last) if how == "recall" else grammar.Load(buffer.name, focus)
        other = self._other(buffer)
        if other is None and "local" not in self._features.scopes:
            return [self._rework(buffer, focus, how)]
        other = other or self._new_local(buffer, (1,))
        at = tuple(grammar.Const(self._expressions.integer(0, size - 1)) for size in other.shape)
        back = Store(buffer.name, self._place(buffer, focus), grammar.Load(other.name, at))
        return [Store(other.name, at, value), *([back] if not other.written or self._pick(False, True) else [])]

    def _other(self, buffer: Buffer) -> Buffer | None:
        """Draw another buffer of a dtype that is filled and may be set, which from here on may have the same values."""
        mine = self._scope.buffers
        others = [
            name
            for name, (one, _, _) in mine.items()
            if name != buffer.name and one.dtype == buffer.dtype and (one.written or one.scope == "local")
        ]
        if not others:
            return None
        name, (_, low, high) = self._pick(*others), mine[buffer.name]
        one, least, most = mine[name]
        mine[name] = one, min(least, low), max(most, high)
        fractions = self._scope.fractions
        fractions[name] = max(fractions.get(name, 0), fractions.get(buffer.name, 0))
        return one

    def _turned(self, buffer: Buffer, focus: tuple[Expr, ...]) -> tuple[Statement, ...]:
        """Draw a `while` loop that sets elements, and may end by what it sets."""
        name, most = self._scalar("int32", "var"), self._pick(4, 2, 3)
        self._scope.variables[name] = (0, most)
        place = (Var(name), *focus[1:]) if most < buffer.shape[0] else focus
        if self._pick(False, False, True):
            statement: Statement = self._branch(buffer, focus, place, otherwise=self._pick(False, True), index=name)
        else:
            statement = self._kept(buffer, place, focus, name)
        body = self._leaving((statement,), partial(self._compared, buffer, place), last=True)
        del self._scope.variables[name]

        def goes_on(_: str) -> Expr:
            if place != focus and buffer.dtype != "bool" and self._pick(False, True):
                return self._sought(buffer, place, most)
            return self._compared(buffer, self._pick(focus, place))

        return self._counter(name, most, body, self._pick(None, goes_on))

    def _rework(self, buffer: Buffer, focus: tuple[Expr, ...], how: str) -> Statement:
        """Draw one such statement.

        Args:
            focus: the element that is met often.
        """
        if how == "keep":
            self._last = self._scalar(buffer.dtype, "let")
            return Assign(self._last, grammar.Load(buffer.name, focus))
        if how == "recall":
            return Store(buffer.name, self._place(buffer, focus), Var(self._last))
        if how == "get":
            return Store(buffer.name, self._place(buffer, focus), grammar.Load(buffer.name, focus))
        if how == "set":
            return self._kept(buffer, self._place(buffer, focus), focus)
        if how == "branch":
            return self._branch(buffer, focus, self._place(buffer, focus), otherwise=self._pick(True, False))
        if how == "swap" and buffer.dtype == "bool":
            how = "patched"
        if how in {"body", "patched", "spread", "swap"}:
            return self._sequence(buffer, focus, how)
        extents = [self._pick(3, 2, 4, 5) for _ in range(2 if how == "nest" else 1)]
        if how == "loop":  # often as many iterations as the loop before
            extents = self._extents = self._pick(*[self._extents or extents] * 3, extents)
        names = [self._variable(0, extent - 1) for extent in extents]
        if how == "nest":
            place: tuple[Expr, ...] = tuple(self._met(names, size) for size in buffer.shape)
        elif extents[0] <= buffer.shape[0] and self._pick(True, True, False):  # a row that goes past it
            place = Var(names[0]), *focus[1:]
        else:
            place = tuple(self._expressions.index(size, 1) for size in buffer.shape)
        if self._pick(False, False, True):
            statement: Statement = self._branch(buffer, focus, place, otherwise=False, index=names[-1])
        else:
            statement = self._kept(buffer, place, focus, names[-1])
        counted = how != "nest" or self._pick(False, True)
        for name, extent in reversed(list(zip(names, extents, strict=True))):
            kind = self._pick("serial", *(one for one in self._features.loops if one in PLAINLY))
            places = (focus, place) if name == names[-1] else (focus,)
            body = self._leaving((statement,), partial(self._compared, buffer, self._pick(*places)))
            del self._scope.variables[name]  # the number of iterations of the inner loop may be the outer one's index
            loop = self._loop(body, name, extent, 0, kind)
            statement = self._counted(loop, buffer) if counted else loop
        return statement

    def _sequence(self, buffer: Buffer, focus: tuple[Expr, ...], how: str) -> Statement:
        """Draw a loop whose statements meet the same element in some iterations, by indices that are written differently.

        Args:
            how: "body": several statements; "patched": two elements are set, and one is read; "spread": one is read; "swap":
                one is kept in a scalar, set, and put elsewhere.
        """
        before = dict(self._scope.variables)
        kind = self._pick("serial", *(one for one in self._features.loops if one in PLAINLY))
        loop = self._stepped(min(buffer.shape[0], self._pick(3, 4, 2)), 0, kind)
        index = Var(loop.var)
        inside = min(loop.indices) >= 0 and max(loop.indices) < buffer.shape[0]
        mine: Expr = index if inside else grammar.Binary("%", index, grammar.Const(buffer.shape[0]))
        places = (mine, *focus[1:]), focus, self._place(buffer, focus)
        body: list[Statement] = []
        kinds = ["set", "move", "set", "move", "branch"]
        if how == "swap":
            one, two = self._pick(places[:2], places[1::-1])
            name = self._scalar(buffer.dtype, self._pick("var", "let") if self._has_scalars else "let")
            new = self._pick(grammar.Load(buffer.name, two), self._mark(buffer.dtype))
            kept = Assign(name, grammar.Load(buffer.name, one)), Store(buffer.name, one, new)
            body = [*kept, Store(buffer.name, self._pick(two, self._place(buffer, focus)), Var(name))]
        elif how == "body":
            body = [self._one_of(buffer, focus, places, kinds, loop.var) for _ in range(self._pick(2, 3, 4))]
        else:
            one, two = self._pick(places[:2], places[1::-1])
            if how == "patched":
                body = [Store(buffer.name, at, self._marked(buffer, one)) for at in (one, two)]
                body += [self._one_of(buffer, focus, places, kinds, loop.var)] if self._pick(False, False, True) else []
            body.append(Store(buffer.name, self._place(buffer, two), grammar.Load(buffer.name, one)))
        left = self._leaving(tuple(body), partial(self._compared, buffer, self._pick(*places)))
        self._scope.variables = before
        return self._counted(replace(loop, body=left), buffer)

    def _one_of(
        self, buffer: Buffer, focus: tuple[Expr, ...], places: Sequence[tuple[Expr, ...]], kinds: Sequence[str], index: str
    ) -> Statement:
        """Draw a statement of a loop that sets an element, or reads one and sets another."""
        at, other = self._pick(*places), self._pick(*places)
        match self._pick(*kinds):
            case "branch":
                return self._branch(buffer, focus, at, otherwise=self._pick(False, True), index=index)
            case "move":
                target = self._other(buffer) if self._pick(False, False, True) else None
                if target is None:
                    return Store(buffer.name, at, grammar.Load(buffer.name, other))
                into = tuple(self._expressions.index(size, 1) for size in target.shape)
                return Store(target.name, into, grammar.Load(buffer.name, other))
        return Store(buffer.name, at, self._marked(buffer, other))

    def _marked(self, buffer: Buffer, other: tuple[Expr, ...]) -> Expr:
        """Draw a value that elements are set to; of bools, another element, or a constant comparison."""
        if buffer.dtype == "bool":
            return self._expressions.condition(0) if self._pick(False, True) else grammar.Load(buffer.name, other)
        return self._mark(buffer.dtype)

    def _branch(
        self, buffer: Buffer, focus: tuple[Expr, ...], at: tuple[Expr, ...], *, otherwise: bool, index: str | None = None
    ) -> Statement:
        """Draw a branch that tests an element, and often sets that one."""
        tested = self._compared(buffer, self._pick(focus, focus, at))
        then, other = self._kept(buffer, at, focus, index), self._kept(buffer, self._place(buffer, focus), focus)
        return If(tested, (then,), (other,) if otherwise else ())

    def _met(self, names: Sequence[str], size: int) -> Expr:
        """Draw an index at which several iterations of two loops meet."""
        a, b = map(Var, names)
        both = grammar.Binary(self._pick("+", "*"), a, b)
        one: Expr = self._pick(grammar.Binary("%", both, grammar.Const(size)), grammar.Const(size // 2))
        return one

    def _place(self, buffer: Buffer, focus: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Draw the indices of an element, often those of one that is met often, or of one in its column."""
        match self._pick("focus", "focus", "column", "any"):
            case "focus":
                return focus
            case "column":
                return grammar.Const(self._expressions.integer(0, buffer.shape[0] - 1)), *focus[1:]
        return tuple(self._expressions.index(size, 1) for size in buffer.shape)

    def _compared(self, buffer: Buffer, at: tuple[Expr, ...]) -> Expr:
        """Draw a comparison of an element with a value that it may have."""
        if buffer.dtype == "bool":
            return grammar.Load(buffer.name, at)
        return grammar.Binary(self._pick("!=", "<", "==", ">="), grammar.Load(buffer.name, at), self._mark(buffer.dtype))

    def _mark(self, dtype: str) -> Expr:
        """Draw one of the few values that elements are set to and compared with."""
        value = self._pick(*self._marks)
        return grammar.Const(float(value) if dtype in grammar.FLOATS else value, dtype)

    def _kept(self, buffer: Buffer, at: tuple[Expr, ...], focus: tuple[Expr, ...], index: str | None = None) -> Store:
        """Draw a store of a value that leaves the buffer's elements where they lie, so that they may be read again.

        Args:
            index: of the loop around it.
        """
        _, low, high = self._scope.buffers[buffer.name]
        name, dtype = buffer.name, buffer.dtype
        met = index is not None and self._pick(True, False)  # by several iterations
        element = grammar.Load(name, at if met else self._place(buffer, focus))
        if dtype in grammar.INTEGERS and index is not None and self._pick(True, True, False):  # depends on the order
            small = grammar.Binary("%", element, grammar.Const(self._pick(31, 7, 2), dtype))
            more: Expr = Var(index) if dtype == "int32" else grammar.Cast(dtype, Var(index))
            return Store(name, at, grammar.Binary("+", grammar.Binary("*", small, grammar.Const(3, dtype)), more))
        if dtype == "bool":
            return Store(name, at, self._pick(element, self._expressions.condition(1)))
        if dtype in grammar.FLOATS and index is not None and self._pick(True, False):
            return Store(name, at, grammar.Cast(dtype, Var(index)))
        if self._pick(True, True, False) or dtype in grammar.FLOATS:
            return Store(name, at, self._mark(dtype) if element.at == at or self._pick(True, True, False) else element)
        drawn = self._expressions.value(dtype, 1)
        lower = drawn.node if drawn.low >= low else grammar.Binary("max", drawn.node, grammar.Const(low, dtype))
        return Store(name, at, lower if drawn.high <= high else grammar.Binary("min", lower, grammar.Const(high, dtype)))

    def _alike(self, output: Buffer, prefix: tuple[Expr, ...], drawn: Drawn) -> Statement:
        """Draw a loop with two branches that look alike: they test an element that the first sets, or two buffers.

        Args:
            drawn: where the output's elements lie.
        """
        rest = output.shape[len(prefix) :]
        before = dict(self._scope.variables)
        extent = self._pick(1, 2, 3)
        name = self._variable(0, extent - 1)
        pairs = self._pairs()
        if pairs and self._pick(False, True, True):
            (one, low, high), two = self._pick(*pairs)
            element = self._expressions.element(one)
            tested = element, replace(element, buffer=two.name)
            changed = tuple(self._expressions.index(size, 1) for size in rest)
        else:
            one, low, high = output, drawn.low, drawn.high
            changed = tuple(grammar.Const(self._expressions.integer(0, size - 1)) for size in rest)
            tested = (grammar.Load(output.name, (*prefix, *changed)),) * 2
        bound = grammar.Const(self._expressions.integer(low, max(low, min(high, low + 40))), one.dtype)
        op = self._pick("!=", "<", "==", ">=")
        first = bound if one.dtype == output.dtype and self._pick(True, False) else self._value(output.dtype).node
        other = tuple(self._expressions.index(size, 1) for size in rest)
        stores = (
            Store(output.name, (*prefix, *changed), first),
            Store(output.name, (*prefix, *other), self._value(output.dtype).node),
        )
        body = tuple(If(grammar.Binary(op, at, bound), (store,)) for at, store in zip(tested, stores, strict=True))
        self._scope.variables = before
        return self._loop(body, name, extent, 0, self._pick(*(one for one in self._features.loops if one in PLAINLY)))

    def _pairs(self) -> list[tuple[tuple[Buffer, int, int], Buffer]]:
        """Return the pairs of inputs of integers of one shape and dtype."""
        inputs = [
            one for one in self._scope.buffers.values() if one[0].scope == "global" and one[0].dtype in grammar.INTEGERS
        ]
        return [
            (a, b[0]) for a in inputs for b in inputs if a is not b and (a[0].shape, a[0].dtype) == (b[0].shape, b[0].dtype)
        ]

    def _guarded(self, index: str, statement: Statement) -> Statement:
        """Draw a condition around a statement, or one that divides inside of one that says that the divisor is not 0."""
        drawn = self._expressions.divisor() if self._pick(False, True) else None
        if drawn is None:
            return If(
                (self._expressions.bounded() if self._pick(False, True) else None) or self._expressions.test(1), (statement,)
            )
        divisor, dtype = drawn
        is_some = grammar.Binary("!=", divisor, grammar.Const(0, dtype))
        later = grammar.Binary(">", Var(index), grammar.Const(0))
        return If(grammar.Binary("and", later, is_some), (If(self._expressions.divides(divisor, dtype), (statement,)),))
