"""Draws programs: buffers, a grid of blocks, loops, conditions, and stores. The simplest come first."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.arithmetic import has_meaning
from mhc.programs.evaluate import block_name, evaluate
from mhc.programs.grammar import Assign, Buffer, Copy, Expr, For, If, Program, Statement, Store, Var, While, range_of
from mhc.strategies.programs.corners import Corners
from mhc.strategies.programs.indices import Draw, Drawn, Scope, wide
from mhc.strategies.programs.tile_programs import draw_tiles

_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 17)
_DEPTH = 3
_PLAINLY = ("serial", "unroll")
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
_AROUND = ("always", "or else", "always", "or else", "nested", "nested or else", "guarded", "guarded")
"""What is around a store that a loop repeats."""
_ONE = ((1,), (1,), (1,), (2,), (3,))
"""Grids of one axis."""
_LETTERS = "ijklmnpqrstu"
_SMALL = 100  # floats hold these integers, and sums of a few


@dataclass(frozen=True)
class Features:
    """What may be drawn for a target.

    Attributes:
        loops: their kinds. scopes: where temporary buffers may lie. threads: of a block. tiles: operations of all
            threads of a block together, which a third of the programs consist of. symbols: sizes that the compiler does
            not know.
    """

    dtypes: tuple[str, ...] = grammar.DTYPES
    loops: tuple[str, ...] = ("serial", "unroll", "Parallel", "vectorized")
    scopes: tuple[str, ...] = ("local", "var", "shared")
    copies: bool = True
    configs: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1,)
    tiles: bool = False
    symbols: bool = True


def programs(features: Features) -> st.SearchStrategy[Program]:
    """Draw programs that every compiler must give one meaning."""
    return _programs(features).filter(partial(has_meaning, evaluate))


def _holds(dtype: str, low: int, high: int) -> bool:
    least, most = range_of(dtype)
    return least <= low and high <= most


@st.composite
def _programs(draw: Draw, features: Features) -> Program:
    if features.tiles and draw(st.sampled_from((False, False, True))):
        return draw_tiles(draw, features.configs)
    return _Builder(draw, features).program()


class _Builder:
    """Draws one program."""

    def __init__(self, draw: Draw, features: Features) -> None:
        self._draw, self._features = draw, features
        self._scope = Scope(dtypes=features.dtypes)
        self._expressions = Corners(draw, self._scope)
        self._buffers: list[Buffer] = []
        self._used = 0
        self._deepest = _DEPTH
        self._marks: tuple[int, ...] = ()
        self._has_scalars = "var" in features.scopes
        self._last = ""  # the name that an element was bound to
        self._extents: list[int] = []
        self._threads: int = self._pick(*features.threads)

    def _pick(self, *options: Any) -> Any:
        return self._expressions.pick(*options)

    def program(self) -> Program:
        """Draw all of it."""
        for name in ("x", "w")[: self._pick(1, 2)]:
            self._input(name)
        grid = self._grid()
        outputs = [self._output(name, grid) for name in ("y", "z")[: self._pick(1, 1, 1, 1, 2)]]
        self._symbol()
        self._passed()
        body: list[Statement] = []
        for _ in range(self._pick(0, 0, 0, 1, 2)):
            body += self._temporary()
        body += self._bind(outputs[0].dtype)
        body += self._assumed(11)
        for output in outputs:
            body += self._fill(output, grid)
        configs: dict[str, bool | int] = {name: True for name in self._features.configs if self._pick(False, False, True)}
        seed = self._expressions.integer(0, 999)
        return Program(
            buffers=tuple(self._buffers),
            body=tuple(body),
            grid=grid,
            threads=self._threads,
            seed=seed,
            configs=configs,
            symbols=self._scope.symbols,
        )

    def _symbol(self) -> None:
        """Draw a size that the compiler does not know, of one of the parameters; mostly none."""
        sizes = dict.fromkeys(size for one in self._buffers for size in one.shape if size > 1)
        if self._features.symbols and sizes and self._pick(False, False, False, True):
            self._scope.symbols["size"] = value = self._pick(*sizes)
            self._scope.variables["size"] = (value, value)

    def _passed(self) -> None:
        """Draw scalar parameters, mostly none: a number that indices and loops may use, or any value."""
        for name in ("n0", "n1")[: self._pick(*[0] * 8, 1, 2)]:
            dtype = self._pick(*["int32"] * 12, *(one for one in self._features.dtypes if one != "float16"))
            low, high = self._interval(dtype)
            if dtype == "int32" and self._pick(True, True, False):
                low, high = self._pick((1, 17), (0, 9), (0, 3), (1, 4))
                self._scope.variables[name] = (low, high)
            self._buffers.append(Buffer(name, (1,), dtype, scope="value", least=low, most=high))
            self._scope.scalars[name] = (dtype, low, high)

    def _shape(self) -> tuple[int, ...]:
        if self._pick(1, 1, 2) == 1:
            return (self._pick(*_SIZES),)
        if not self._expressions.integer(0, 5):
            return tuple(self._pick(2, 1, 3, 4, 5) for _ in range(self._pick(3, 3, 4)))
        return self._pick(*_SIZES[:10]), self._pick(*_SIZES[:10])

    def _input(self, name: str) -> None:
        alike = bool(self._buffers) and self._pick(False, False, True)  # a compiler may take one for the other
        one = replace(self._buffers[0], name=name) if alike else self._new_input(name)
        self._buffers.append(one)
        self._scope.buffers[name] = (one, one.least, one.most)

    def _new_input(self, name: str) -> Buffer:
        dtype = self._pick("int32", *self._features.dtypes)
        low, high = self._interval(dtype)
        return Buffer(name, self._shape(), dtype, least=low, most=high)

    def _interval(self, dtype: str) -> tuple[int, int]:
        """Draw where the values of an input of a dtype lie."""
        if dtype == "bool":
            return 0, 1
        if dtype in grammar.FLOATS:
            return -8, 8
        least, most = range_of(dtype)
        least, most = max(least, -(2**62)), min(most, 2**62)
        ends = (least, least + 9), (most - 9, most)
        root = math.isqrt(most)  # products of two such values fit, and need more than half of the bits
        often = (0, 9), (-20, 20), (0, 100), (least, most), (-root, root)
        low, high = self._pick(*often, *often, *ends)
        return max(low, least), min(high, most)

    def _grid(self) -> tuple[int, ...]:
        grid = self._pick(*_ONE, *_ONE, *_ONE, (2, 3), (2, 3), (2, 3, 2))
        for axis, blocks in enumerate(grid):
            if grid != (1,):
                self._scope.variables[block_name(axis)] = (0, blocks - 1)
        return tuple(grid)

    def _output(self, name: str, grid: tuple[int, ...]) -> Buffer:
        """Draw an output; of several blocks each writes a part of its own: the first axes."""
        blocks = grid if grid != (1,) else ()
        one = Buffer(name, (*blocks, *self._shape()), self._pick("int32", *self._features.dtypes), written=True)
        self._buffers.append(one)
        return one

    def _loop(self, body: tuple[Statement, ...], var: str, extent: int, begin: int, kind: str) -> For:
        return For(kind=kind, var=var, extent=extent, body=body, begin=begin)  # type: ignore[arg-type]

    def _stepped(self, extent: int, begin: int, kind: str) -> For:
        """Draw a loop without a body, over a variable of its own; a plain one sometimes has a step."""
        step = self._pick(*[1] * 35, 2, 3, -1, -2, 4) if kind in _PLAINLY else 1
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
        return self._expressions.value(dtype, min(self._deepest, self._pick(1, 2, 0, 1, 2, _DEPTH)))

    def _temporary(self) -> list[Statement]:
        """Draw a temporary buffer or scalar, and the statements that fill it."""
        number = len(self._buffers)
        scopes = [
            one for one in self._features.scopes if one != "shared" or not any(b.scope == "shared" for b in self._buffers)
        ]
        scope = self._pick(*scopes)
        # two that are alike and live at once, of which a compiler may take one for the other
        alike = self._buffers[-1] if self._buffers[-1].scope in {"local", "var"} and self._pick(False, True) else None
        scope = scope if alike is None else alike.scope
        if scope == "var":
            dtype = self._pick("int32", *(one for one in self._features.dtypes if one != "bool"))
            dtype = dtype if alike is None else alike.dtype
            drawn = self._value(dtype)
            name = self._scalar(dtype, "var")
            self._scope.scalars[name] = (dtype, drawn.low, drawn.high)
            self._scope.fractions[name] = drawn.fraction
            return [Assign(name, drawn.node)]
        source = self._pick(*self._scope.buffers)
        whole, low, high = self._scope.buffers[source]
        name = f"a{number}"
        plain = scope != "local" or self._threads == 1  # of a local buffer each thread has its own
        if alike is None and self._features.copies and plain and whole.dtype != "bool" and self._pick(False, True):
            fraction = self._scope.fractions.get(source, 0)
            one = Buffer(name, whole.shape, self._pick(whole.dtype, self._wider(low, high, fraction)), scope=scope)
            self._buffers.append(one)
            self._scope.buffers[name] = (one, low, high)
            self._scope.fractions[name] = fraction if one.dtype in grammar.FLOATS else 0
            zeros = (0,) * len(whole.shape)
            return [Copy(source=source, source_at=zeros, target=name, target_at=zeros, extents=whole.shape)]
        dtype = self._pick("int32", *self._features.dtypes)
        one = Buffer(name, self._shape(), dtype, scope=scope) if alike is None else replace(alike, name=name)
        self._buffers.append(one)
        statement, drawn = self._nest(one, (), plain=True)
        self._scope.buffers[name] = (one, drawn.low, drawn.high)
        self._scope.fractions[name] = drawn.fraction
        again = scope == "local" and self._threads == 1 and self._pick(False, False, True)
        return [statement, *(self._reworked(one) if again else [])]

    def _wider(self, low: int, high: int, fraction: int) -> str:
        """Draw a dtype that holds all integers from low to high, or int64; a float holds the fraction too."""
        small = low >= -_SMALL and high <= _SMALL
        fitting = [one for one in self._features.dtypes if one in grammar.INTEGERS and _holds(one, low, high)]
        if small:
            fitting += ["float32", "float16"] if fraction <= 2 else ["float32"]
        return str(self._pick(*fitting)) if fitting else "int64"

    def _fill(self, output: Buffer, grid: tuple[int, ...]) -> list[Statement]:
        prefix = tuple(Var(block_name(axis)) for axis in range(len(grid))) if grid != (1,) else ()
        if self._threads == 1 and not prefix and self._pick(False, True):
            self._deepest = 1  # what counts are the statements
            statement, drawn = self._nest(output, prefix, plain=True)
            self._scope.buffers[output.name] = (output, drawn.low, drawn.high)
            self._scope.fractions[output.name] = drawn.fraction
            return [statement, *self._reworked(output)]
        statement, drawn = self._nest(output, prefix, plain=self._pick(True, False))
        statements = [statement]
        if self._threads == 1 and self._pick(
            False, False, False, True
        ):  # a second pass that changes what the first has written
            alike = output.dtype in grammar.INTEGERS and self._pick(False, True)
            statements.append(self._alike(output, prefix, drawn) if alike else self._again(output, prefix))
        return statements

    def _nest(self, buffer: Buffer, prefix: tuple[Expr, ...], *, plain: bool) -> tuple[Statement, Drawn]:
        """Draw loops over all elements of a buffer, or of a block's part of it, that set each once."""
        rest = buffer.shape[len(prefix) :]
        before = dict(self._scope.variables)
        kinds = [self._kind(buffer, size, innermost=axis == len(rest) - 1) for axis, size in enumerate(rest)]
        loops = [self._stepped(size, self._begin(kind), kind) for kind, size in zip(kinds, rest, strict=True)]
        at = [self._own(one, plain=plain) for one in loops]
        again: tuple[Assign, ...] = ()
        if kinds[0] in _PLAINLY and self._pick(*[False] * 10, True):
            loops[0], again, at[0] = self._in_int64(loops[0], at[0])
        readable = self._scope.buffers
        if "Parallel" in kinds:  # a local buffer belongs to one thread
            self._scope.buffers = {name: one for name, one in readable.items() if one[0].scope != "local"}
        bound: tuple[Statement, ...] = self._bind(buffer.dtype)
        if not bound and self._has_scalars and all(kind in _PLAINLY for kind in kinds) and self._pick(*[False] * 14, True):
            bound = self._counting()
        assumed = self._assumed(5 if bound else 29)
        drawn = self._value(buffer.dtype)
        body: tuple[Statement, ...] = (Store(buffer.name, (*prefix, *at), drawn.node),)
        how = "always" if plain else self._pick(*_AROUND)
        if how == "nested":  # some elements are not set
            body = (If(self._expressions.condition(1), (If(self._expressions.condition(1), body),)),)
        elif how == "guarded":
            body = (If(self._expressions.bounded() or self._expressions.condition(1), body),)
        elif how == "nested or else":
            other = self._value(buffer.dtype)
            inner = If(self._constant_in(loops), body)
            body = (If(self._expressions.condition(1), (inner,), (Store(buffer.name, (*prefix, *at), other.node),)),)
        elif how == "or else":
            other = self._value(buffer.dtype)
            body = (If(self._expressions.test(2), body, (Store(buffer.name, (*prefix, *at), other.node),)),)
            low, high = min(drawn.low, other.low), max(drawn.high, other.high)
            drawn = Drawn(drawn.node, low, high, max(drawn.fraction, other.fraction))
        body = (*again, *bound, *assumed, *body)
        for loop in reversed(loops):
            body = (replace(loop, body=body),)
        self._scope.variables, self._scope.buffers = before, readable
        self._unbind(bound)
        self._scope.scalars.pop(loops[0].var, None)
        return body[0], drawn

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
            if of == "int32" and drawn.within(-_SMALL, _SMALL):
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
            name, statements = self._counter(most, (), self._ends)
            self._readable(name, 0, most)
            return statements
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
        if self._scope.variables[name][1] < one.shape[0]:
            at[0] = Var(name)
        bound = self._expressions.value(one.dtype, 0).node
        return grammar.Binary(self._pick("<", "<=", "!=", ">"), grammar.Load(one.name, tuple(at)), bound)

    def _counter(
        self, most: int, body: tuple[Statement, ...], ends: Callable[[str], Expr] | None = None, name: str = ""
    ) -> tuple[str, tuple[Statement, ...]]:
        """Draw a `while` loop over a scalar from 0 to at most a number, or down from it.

        Args:
            ends: draws what must also hold. name: of the scalar; by default a new one.
        """
        name = name or self._scalar("int32", "var")
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
        return name, (Assign(name, first), While(goes_on, (*body, step)))

    def _constant_in(self, loops: Sequence[For]) -> Expr:
        """Draw a condition that is the same in all iterations of some loops."""
        variables = self._scope.variables
        inside = {one.var for one in loops}
        self._scope.variables = {name: one for name, one in variables.items() if name not in inside}
        condition = self._expressions.condition(self._pick(0, 1))
        self._scope.variables = variables
        return condition

    def _begin(self, kind: str) -> int:
        """Draw where a loop begins; a vectorised one above 0 is refused by all releases so far."""
        if kind == "vectorized":
            return int(self._pick(0, 0, 0, 0, 0, 0, 0, 1))
        return int(self._pick(0, 0, 0, 1, 3)) if kind in _PLAINLY else 0

    def _kind(self, buffer: Buffer, size: int, *, innermost: bool) -> str:
        """Draw the kind of a loop that fills a buffer; a vector has a power of two of elements."""
        unfit = set() if innermost and size in {2, 4, 8} else {"vectorized"}
        unfit |= {"Parallel"} if buffer.scope == "local" else set()
        if buffer.scope == "shared" and self._threads > 1:
            return "Parallel"
        kind: str = self._pick(*(one for one in self._features.loops if one not in unfit))
        return kind

    def _own(self, loop: For, *, plain: bool) -> Expr:
        """Draw where a loop's iteration writes: each at another place."""
        index, begin, size = Var(loop.var), loop.begin, loop.extent
        shifted: Expr = index if begin == 0 else grammar.Binary("-", index, grammar.Const(begin))
        if loop.step != 1:
            away = grammar.Binary("-", grammar.Const(begin), index) if loop.step < 0 else shifted
            return away if loop.step == -1 else grammar.Binary("//", away, grammar.Const(abs(loop.step)))
        if plain:
            return shifted
        match self._pick("same", "reversed", "rotated", "other"):
            case "reversed":
                return grammar.Binary("-", grammar.Const(begin + size - 1), index)
            case "rotated":
                moved = grammar.Binary("+", index, grammar.Const(self._expressions.integer(1, 9)))
                return grammar.Binary("%", moved, grammar.Const(size))
            case "other":
                moved = grammar.Binary("-", grammar.Const(self._expressions.integer(0, 19)), index)
                return grammar.Binary("%", moved, grammar.Const(size))
        return shifted

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
        self._scope.variables = before
        return self._counted(replace(loop, body=(statement,)), output)

    def _reworked(self, buffer: Buffer) -> list[Statement]:
        """Draw statements that set and read elements of a buffer that is filled, often the same one."""
        name, dtype = buffer.name, buffer.dtype
        focus = tuple(grammar.Const(self._expressions.integer(0, min(size - 1, 2))) for size in buffer.shape)
        _, low, high = self._scope.buffers[name]
        if dtype != "bool":  # what is stored from here on lies there too
            low, high = min(low, 0), max(high, _SMALL if dtype in grammar.INTEGERS else 9)
            self._scope.buffers[name] = (buffer, low, high)
        self._marks = tuple(self._expressions.integer(low, min(high, low + _SMALL)) for _ in range(2))
        statements: list[Statement] = []
        for how in (*self._pick(*_REWORKED), *self._pick((), *_REWORKED)):
            if how == "while" and self._has_scalars:
                statements += self._turned(buffer, focus)
            else:
                statements.append(self._rework(buffer, focus, "loop" if how == "while" else how))
        return statements

    def _turned(self, buffer: Buffer, focus: tuple[Expr, ...]) -> tuple[Statement, ...]:
        """Draw a `while` loop that sets elements, and may end by what it sets."""
        name, most = self._scalar("int32", "var"), self._pick(4, 2, 3)
        self._scope.variables[name] = (0, most)
        place = (Var(name), *focus[1:]) if most < buffer.shape[0] else focus
        if self._pick(False, False, True):
            statement: Statement = self._branch(buffer, focus, place, otherwise=self._pick(False, True), index=name)
        else:
            statement = self._kept(buffer, place, focus, name)
        del self._scope.variables[name]
        ends = self._pick(None, lambda _: self._compared(buffer, self._pick(focus, place)))
        return self._counter(most, (statement,), ends, name)[1]

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
            kind = self._pick("serial", *(one for one in self._features.loops if one in _PLAINLY))
            del self._scope.variables[name]  # the number of iterations of the inner loop may be the outer one's index
            loop = self._loop((statement,), name, extent, 0, kind)
            statement = self._counted(loop, buffer) if counted else loop
        return statement

    def _sequence(self, buffer: Buffer, focus: tuple[Expr, ...], how: str) -> Statement:
        """Draw a loop whose statements meet the same element in some iterations, by indices that are written differently.

        Args:
            how: "body": several statements; "patched": two elements are set, and one is read; "spread": one is read; "swap":
                one is kept in a scalar, set, and put elsewhere.
        """
        before = dict(self._scope.variables)
        kind = self._pick("serial", *(one for one in self._features.loops if one in _PLAINLY))
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
        self._scope.variables = before
        return self._counted(replace(loop, body=tuple(body)), buffer)

    def _one_of(
        self, buffer: Buffer, focus: tuple[Expr, ...], places: Sequence[tuple[Expr, ...]], kinds: Sequence[str], index: str
    ) -> Statement:
        """Draw a statement of a loop that sets an element, or reads one and sets another."""
        at, other = self._pick(*places), self._pick(*places)
        match self._pick(*kinds):
            case "branch":
                return self._branch(buffer, focus, at, otherwise=self._pick(False, True), index=index)
            case "move":
                return Store(buffer.name, at, grammar.Load(buffer.name, other))
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
        return self._loop(body, name, extent, 0, self._pick(*(one for one in self._features.loops if one in _PLAINLY)))

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


CPU = Features()
"""TileLang's `c` target."""
CPU_BEFORE_VECTORS = Features(loops=("serial", "unroll"), scopes=("local", "var"), copies=False)
"""The same before release 0.1.9, which compiles no parallel loop and no copy of several elements there."""
ARITHMETIC = Features(
    dtypes=(*grammar.INTEGERS, "bool"), loops=("serial",), scopes=("local", "var"), copies=False, symbols=False
)
"""TVM's arithmetic, which rewrites integers only."""
GPU = Features(threads=(1, 32, 1, 64, 96, 128), tiles=True, configs=("tl.disable_tma_lower", "tl.disable_warp_specialized"))
"""TileLang's CUDA target."""
