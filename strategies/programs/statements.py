"""Draws statements: loops, names, `while` loops, assumptions. What they have in common is kept here."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.grammar import Assign, Buffer, Expr, For, If, Statement, Store, Var, While, range_of
from mhc.strategies.programs.indices import Draw, Drawn, Scope, wide
from mhc.strategies.programs.operands import Operands

DEPTH = 3
PLAINLY = ("serial", "unroll")
"""Loops that run one iteration after the other."""
SMALL = 100  # floats hold these integers, and sums of a few
_LETTERS = "ijklmnpqrst"


@dataclass(frozen=True)
class Features:
    """What may be drawn for a target.

    Attributes:
        loops: their kinds. scopes: where temporary buffers may lie. threads: of a block. tiles: operations of all
            threads of a block together, which a third of the programs consist of. symbols: sizes that the compiler does
            not know. lazy: a choice evaluates only what it chooses.
    """

    dtypes: tuple[str, ...] = grammar.DTYPES
    loops: tuple[str, ...] = ("serial", "unroll", "Parallel", "vectorized")
    scopes: tuple[str, ...] = ("local", "var", "shared")
    copies: bool = True
    configs: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1,)
    tiles: bool = False
    symbols: bool = True
    lazy: bool = True


class Statements:
    """Draws statements of one program."""

    def __init__(self, draw: Draw, features: Features) -> None:
        self._draw, self._features = draw, features
        self._scope = Scope(dtypes=features.dtypes, lazy=features.lazy)
        self._expressions = Operands(draw, self._scope)
        self._buffers: list[Buffer] = []
        self._used = 0
        self._deepest = DEPTH
        self._marks: tuple[int, ...] = ()
        self._has_scalars = "var" in features.scopes
        self._last = ""  # the name that an element was bound to
        self._extents: list[int] = []
        self._threads: int = self._pick(*features.threads)

    def _pick(self, *options: Any) -> Any:
        return self._expressions.pick(*options)

    def _loop(self, body: tuple[Statement, ...], var: str, extent: int, begin: int, kind: str) -> For:
        return For(kind=kind, var=var, extent=extent, body=body, begin=begin)  # type: ignore[arg-type]

    def _stepped(self, extent: int, begin: int, kind: str) -> For:
        """Draw a loop without a body, over a variable of its own; a plain one sometimes has a step."""
        step = self._pick(*[1] * 35, 2, 3, -1, -2, 4) if kind in PLAINLY else 1
        begin = self._pick(begin, (extent - 1) * -step, begin - step) if step < 0 else begin
        empty = replace(self._loop((), "i", extent, begin, kind), step=step, rest=self._pick(*range(abs(step))[::-1]))
        return replace(empty, var=self._variable(min(empty.indices), max(empty.indices)))

    def _variable(self, low: int, high: int) -> str:
        around, letter = divmod(self._used, len(_LETTERS))
        name = _LETTERS[letter] + (str(around + 1) if around else "")
        self._used += 1
        self._scope.variables[name] = (low, high)
        return name

    def _value(self, dtype: str) -> Drawn:
        """Draw what is stored; now and then a constant."""
        if self._pick(*[False] * 11, True):
            return self._expressions.constant(dtype)
        return self._expressions.value(dtype, min(self._deepest, self._pick(1, 2, 0, 1, 2, DEPTH)))

    def _begin(self, kind: str) -> int:
        """Draw where a loop begins; a vectorised one above 0 is refused by all releases so far."""
        if kind == "vectorized":
            return int(self._pick(0, 0, 0, 0, 0, 0, 0, 1))
        return int(self._pick(0, 0, 0, 1, 3, -1, 0, -2, 0, -3)) if kind in PLAINLY else 0

    def _in_int64(self, loop: For, at: Expr) -> tuple[For, tuple[Assign, ...], Expr]:
        """Return a loop whose index is of int64, what binds that to the old name, and where the loop writes."""
        name = f"h{len(self._buffers)}"
        self._buffers += Buffer(name, (1,), "int64", scope="index"), Buffer(loop.var, (1,), "int32", scope="let")
        self._scope.scalars[name] = ("int64", *self._scope.variables[loop.var])
        bound = (Assign(loop.var, grammar.Cast("int32", Var(name))),)
        return replace(loop, var=name), bound, self._pick(wide(at, {loop.var: name}), at)

    def _bind(self, dtype: str) -> tuple[Assign, ...]:
        """Draw names that are bound to values, which what follows often reads; mostly none.

        Args:
            dtype: of what follows.
        """
        bound: list[Assign] = []
        for _ in range(self._pick(*[0] * 15, 1, 1, 2)):
            of = self._pick(dtype, "int32", "bool")
            drawn = self._value(of)
            named = isinstance(drawn.node, Var) and drawn.node.name[0] != "v"  # which binds nothing
            if named or not any(isinstance(one, (Var, grammar.Load)) for one in grammar.walk(drawn.node)):
                continue
            name = self._scalar(of, "let")
            self._scope.scalars[name] = (of, drawn.low, drawn.high)
            self._scope.fractions[name] = drawn.fraction
            if of == "int32" and drawn.within(-SMALL, SMALL):
                self._scope.variables[name] = (drawn.low, drawn.high)
            bound.append(Assign(name, drawn.node))
        return tuple(bound)

    def _assumed(self, rarely: int) -> tuple[grammar.Assume, ...]:
        """Draw an assumption that holds, of a scalar or an input: where its values lie; mostly none.

        Args:
            rarely: how much less often one is drawn than none.
        """
        written = {one.name for one in self._buffers if one.written or one.scope in {"var", "local", "shared"}}
        known = [(Var(name), "int32", *ends) for name, ends in self._scope.variables.items() if name not in written]
        known += [(Var(name), *one) for name, one in self._scope.scalars.items() if name not in written]
        for one, low, high in self._scope.buffers.values():
            if one.name not in written:
                known.append((self._expressions.element(one), one.dtype, low, high))  # type: ignore[arg-type]
        known = [one for one in known if one[1] in grammar.INTEGERS]
        if not known or not self._pick(*[False] * rarely, True):
            return ()
        node, dtype, low, high = self._pick(*known)
        least, most = range_of(dtype)
        options = [
            grammar.Binary(">=", node, grammar.Const(low, dtype)),
            grammar.Binary("<=", node, grammar.Const(high, dtype)),
        ]
        if high < most:
            options.append(grammar.Binary("<", node, grammar.Const(high + 1, dtype)))
        if low > least:
            options.append(grammar.Binary(">", node, grammar.Const(low - 1, dtype)))
        first = self._pick(*options)
        holds = grammar.Binary("and", first, self._pick(*options)) if self._pick(False, False, True) else first
        return (grammar.Assume(holds),)

    def _filled(self, dtype: str, rarely: int = 7) -> tuple[Statement, ...]:
        """Draw a local buffer that the body of a loop fills, and that may be read from then on; mostly none.

        It is often like another one, and mostly begins as a constant that an inner loop then changes.

        Args:
            dtype: of what follows. rarely: how much less often one is drawn than none.
        """
        if "local" not in self._features.scopes or self._threads > 1 or not self._pick(*[False] * rarely, True):
            return ()
        name = f"a{len(self._buffers)}"
        like = [one for one in self._buffers if one.scope == "local" and one.size <= 4]
        new = Buffer(name, (self._pick(1, 1, 2, 3),), self._pick(dtype, dtype, *self._features.dtypes), scope="local")
        one = replace(self._pick(*like), name=name) if like and self._pick(False, True, True) else new
        self._buffers.append(one)
        simple = one.dtype != "bool" and self._pick(True, True, False)
        drawn = self._expressions.constant(one.dtype) if simple else self._expressions.value(one.dtype, self._pick(1, 0))
        places = [tuple(map(grammar.Const, at)) for at in itertools.product(*map(range, one.shape))]
        statements: list[Statement] = [Store(name, at, drawn.node) for at in places]
        if simple:
            more, drawn = self._accumulated(one, self._pick(*places), drawn)
            statements += more
        self._scope.buffers[name] = (one, drawn.low, drawn.high)
        self._scope.fractions[name] = drawn.fraction
        return tuple(statements)

    def _leaving(
        self, body: tuple[Statement, ...], tested: Callable[[], Expr] | None = None, *, last: bool = False
    ) -> tuple[Statement, ...]:
        """Return the body of a plain loop, which an iteration, or the loop, may leave early; mostly as it is.

        Args:
            tested: draws a condition. last: the loop is left, and not an iteration.
        """
        if self._pick(*[False] * 9, True, True):
            leave = grammar.Leave("break" if last or self._pick(True, False) else "continue")
            condition = tested() if tested is not None and self._pick(True, False) else self._expressions.condition(1)
            at = self._pick(0, 0, len(body), len(body) // 2)
            body = (*body[:at], If(condition, (leave,)), *body[at:])
        return body

    def _accumulated(self, one: Buffer, at: tuple[Expr, ...], first: Drawn) -> tuple[list[Statement], Drawn]:
        """Draw a loop that changes an element again and again, and return where it lies then."""
        extent = self._pick(2, 3, 4)
        loop = self._loop((), self._variable(0, extent - 1), extent, 0, self._pick("serial", *self._plain))
        a, old = self._expressions.value(one.dtype, self._pick(1, 0)), grammar.Load(one.name, at)
        leaves = self._leaving(())
        del self._scope.variables[loop.var]
        op = self._pick("max", "min", "+")
        low, high = first.low + extent * min(a.low, 0), first.high + extent * max(a.high, 0)
        least, most = range_of(one.dtype) if one.dtype in grammar.INTEGERS else (-SMALL, SMALL)
        if op == "+" and not (least <= low and high <= most):
            op = "max"
        if op != "+":
            low, high = min(first.low, a.low), max(first.high, a.high)
        loop = replace(
            loop,
            body=(
                *leaves,
                Store(one.name, at, grammar.Binary(op, old, a.node)),
            ),
        )
        return [loop], Drawn(old, low, high, max(first.fraction, a.fraction))

    @property
    def _plain(self) -> list[str]:
        return [one for one in self._features.loops if one in PLAINLY]

    def _scalar(self, dtype: str, scope: str) -> str:
        """Return the name of a new scalar."""
        name = f"{'b' if scope == 'let' else 'v'}{len(self._buffers)}"
        self._buffers.append(Buffer(name, (1,), dtype, scope=scope))  # type: ignore[arg-type]
        return name

    def _unbind(self, bound: Sequence[Statement]) -> None:
        """Have nothing read the names that are set there from here on."""
        for one in bound:
            if isinstance(one, Assign):
                self._scope.scalars.pop(one.name, None)
                self._scope.variables.pop(one.name, None)

    def _counting(self) -> tuple[Statement, ...]:
        """Draw a `while` loop that counts, or halves a range, until a condition holds; its result may be read then."""
        most = self._pick(4, 3, 7, 8, 16)
        if self._pick(True, False):
            name = self._scalar("int32", "var")
            begun, counted = self._counted_too(name, most) if self._pick(False, True) else ((), ())
            statements = self._counter(name, most, counted, self._ends)
            self._readable(name, 0, most)
            return (*begun, *statements)
        low, high = self._scalar("int32", "var"), self._scalar("int32", "var")
        middle = self._scalar("int32", "let")
        self._scope.variables[middle] = (0, most - 1)
        found = self._ends(middle)
        del self._scope.variables[middle]
        between = Assign(middle, grammar.Binary("//", grammar.Binary("+", Var(low), Var(high)), grammar.Const(2)))
        then = Assign(low, grammar.Binary("+", Var(middle), grammar.Const(1)))
        body = between, If(found, (then,), (Assign(high, Var(middle)),))
        loop = While(grammar.Binary("<", Var(low), Var(high)), body)
        first = Assign(low, grammar.Const(0)), Assign(high, self._expressions.index(most + 1, 1))
        self._readable(low, 0, most)
        return (*first, loop)

    def _counted_too(self, index: str, most: int) -> tuple[tuple[Statement, ...], tuple[Statement, ...]]:
        """Return what stands in front of a `while` loop, and in it, for a sum of what its index is, or of its iterations."""
        name, one = self._scalar("int32", "var"), self._pick(Var(index), grammar.Const(1))
        self._readable(name, 0, most * most)
        return (Assign(name, grammar.Const(0)),), (Assign(name, grammar.Binary("+", Var(name), one)),)

    def _readable(self, name: str, low: int, high: int) -> None:
        """Have expressions read a scalar of int32."""
        self._scope.scalars[name] = ("int32", low, high)
        self._scope.variables[name] = (low, high)

    def _ends(self, name: str) -> Expr:
        """Draw a condition on an index, mostly of the element there."""
        buffers = [one for one, _, _ in self._scope.buffers.values() if one.dtype != "bool"]
        if not buffers or not self._pick(True, True, True, False):
            return self._expressions.condition(1)
        one = self._pick(*buffers)
        at = [self._expressions.index(size, 1) for size in one.shape]
        if (most := self._scope.variables[name][1]) < one.shape[0]:
            at[0] = Var(name)
            if self._pick(True, True, False):
                return self._sought(one, tuple(at), most)
        bound = self._expressions.value(one.dtype, 0).node
        return grammar.Binary(self._pick("<", "<=", "!=", ">"), grammar.Load(one.name, tuple(at)), bound)

    def _sought(self, buffer: Buffer, at: tuple[Expr, ...], most: int) -> Expr:
        """Draw the condition of a search that an element on the way ends, where the first index is at most a number."""
        there = grammar.Const(self._expressions.integer(1, max(most - 1, 1))), *at[1:]
        return grammar.Binary("!=", grammar.Load(buffer.name, at), grammar.Load(buffer.name, there))

    def _counter(
        self, name: str, most: int, body: tuple[Statement, ...], ends: Callable[[str], Expr] | None
    ) -> tuple[Statement, ...]:
        """Draw a `while` loop over a scalar from 0 to at most a number, or down from it.

        Args:
            ends: draws what must also hold.
        """
        number = self._expressions.index(most + 1, 1)
        up, down = Assign(name, grammar.Binary("+", Var(name), grammar.Const(1))), self._pick("-", "//")
        if self._pick(True, True, False):
            step, goes_on = up, grammar.Binary("<", Var(name), number)
            first: Expr = grammar.Const(0)
        else:
            first, step = number, Assign(name, grammar.Binary(down, Var(name), grammar.Const(1 if down == "-" else 2)))
            goes_on = grammar.Binary(">", Var(name), grammar.Const(0))
        if ends is not None:
            self._scope.variables[name] = (0, most)
            goes_on = grammar.Binary("and", goes_on, ends(name))
            del self._scope.variables[name]
        return Assign(name, first), While(goes_on, (*body, step))

    def _constant_in(self, loops: Sequence[For]) -> Expr:
        """Draw a condition that is the same in all iterations of some loops."""
        variables = self._scope.variables
        inside = {one.var for one in loops}
        self._scope.variables = {name: one for name, one in variables.items() if name not in inside}
        condition = self._expressions.condition(self._pick(0, 1))
        self._scope.variables = variables
        return condition

    def _counted(self, loop: Statement, buffer: Buffer) -> Statement:
        """Return a serial loop whose number of iterations is computed, and may be 0; or the loop as it is."""
        if not isinstance(loop, For) or loop.kind != "serial" or loop.step != 1 or not self._pick(False, True):
            return loop
        readable = self._scope.buffers
        self._scope.buffers = {name: one for name, one in readable.items() if name != buffer.name}
        count = self._expressions.index(1 + self._pick(loop.extent, 1), 1)
        first = self._expressions.index(loop.extent + 1, 1) if not loop.begin and self._pick(False, True) else None
        self._scope.buffers = readable
        if first is None:
            return replace(loop, count=count)
        end = self._pick(grammar.Const(loop.extent), grammar.Binary("max", first, count))
        return replace(loop, first=first, count=grammar.Binary("-", end, first))
