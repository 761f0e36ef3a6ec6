"""Draws programs: buffers, a grid of blocks, and the loops that fill the buffers. The simplest come first."""

import math
from collections.abc import Sequence
from functools import partial

from hypothesis import strategies as st
from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.arithmetic import has_meaning
from mhc.programs.evaluate import block_name, evaluate
from mhc.programs.grammar import Assign, Buffer, Copy, Expr, For, If, Program, Statement, Store, Var, range_of
from mhc.strategies.programs.indices import Draw, Drawn
from mhc.strategies.programs.reworked import Reworked
from mhc.strategies.programs.statements import PLAINLY, SMALL, Features
from mhc.strategies.programs.tile_programs import draw_tiles

_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 17)
_AROUND = ("always", "or else", "always", "or else", "nested", "nested or else", "guarded", "guarded")
"""What is around a store that a loop repeats."""
_ONE = ((1,), (1,), (1,), (2,), (3,))
"""Grids of one axis."""


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


class _Builder(Reworked):
    """Draws one program."""

    def program(self) -> Program:
        """Draw all of it."""
        for name in ("x", "w")[: self._pick(1, 2)]:
            self._input(name)
        self._special("u")
        if self._threads == 1 and (many := self._pick(None, None, None, self._list, self._blocks)) is not None:
            self._passed()
            return self._made_of(many())
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
        return self._made_of(body, grid)

    def _made_of(self, body: Sequence[Statement], grid: tuple[int, ...] = (1,)) -> Program:
        """Return the program with a body."""
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

    def _blocks(self) -> list[Statement]:
        """Draw outputs that are filled, each of which several blocks of statements then set and read again."""
        body: list[Statement] = []
        self._deepest = 0
        for name in ("y", "z", "v")[: self._pick(3, 2)]:
            one = self._output(name, (1,))
            statement, drawn = self._nest(one, (), plain=True)
            most = SMALL if one.dtype in grammar.INTEGERS else 9  # of what the blocks store
            self._scope.buffers[name] = (one, min(drawn.low, 0), max(drawn.high, most))
            self._scope.fractions[name] = drawn.fraction
            body.append(statement)
            for _ in range(self._pick(3, 2, 4)):
                body += self._dependent(one) if self._pick(True, True, False) else self._reworked(one)
        return body

    def _list(self) -> list[Statement]:
        """Draw a loop over many stores, each of an element and a value of its own.

        To compile one more takes little time beside a program, so that very many expressions are met.
        """
        rows = self._pick(4, 1, 3, 8)
        loop = self._loop((), self._variable(0, rows - 1), rows, 0, self._pick(*self._plain))
        bound = self._bind("int32")
        whole = [one for one in self._features.dtypes if one in grammar.INTEGERS]
        stores: list[Statement] = []
        for name in ("y", "z", "v")[: self._pick(3, 2, 1)]:
            dtype = self._pick("int32", "int64", "uint32", self._pick("int32", "int64"), self._pick(*whole))
            one = Buffer(name, (rows, self._pick(12, 8, 16)), dtype, written=True)
            self._buffers.append(one)
            values = [self._expressions.woven(dtype, conditions=True).node for _ in range(one.shape[1])]
            stores += [Store(name, (Var(loop.var), grammar.Const(at)), value) for at, value in enumerate(values)]
        return [replace(loop, body=(*bound, *stores))]

    def _symbol(self) -> None:
        """Draw a size that the compiler does not know, of one of the parameters; mostly none."""
        sizes = dict.fromkeys(size for one in self._buffers for size in one.shape if size > 1)
        if self._features.symbols and sizes and self._pick(False, False, False, True):
            self._scope.symbols["size"] = value = self._pick(*sizes)
            self._scope.variables["size"] = (value, value)

    def _passed(self) -> None:
        """Draw scalar parameters, mostly none: a number that indices and loops may use, or any value."""
        for name in ("n0", "n1")[: self._pick(*[0] * 6, 1, 1, 2)]:
            dtype = self._pick(*["int32"] * 12, *(one for one in self._features.dtypes if one != "float16"))
            low, high = self._interval(dtype)
            if dtype == "int32" and self._pick(True, True, False):
                low, high = self._pick((1, 17), (0, 9), (0, 3), (1, 4))
                self._scope.variables[name] = (low, high)
            elif low < 0 and dtype in grammar.SIGNED and self._pick(False, True):
                high = -1
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

    def _special(self, name: str) -> None:
        """Draw an input with NaN and infinities, or none."""
        dtypes = [one for one in self._features.dtypes if one in grammar.FLOATS]
        if dtypes and self._pick(False, True):
            low, high = self._interval("float32")
            one = Buffer(name, self._shape(), self._pick(*dtypes), least=low, most=high, special=True)
            self._buffers.append(one)
            self._scope.special[name] = one

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
        often = (0, 9), (0, 100), (least, most), (-root, root), (-20, 20)
        half = 1 << (grammar.bits_of(dtype) - 1)  # from where on an unsigned value is below 0 where its sign is mistaken
        near = (half - 20, half + 20) if not least and half + 20 <= most else (-20, 20)
        low, high = self._pick(*often, *often[:-1], near, *ends)
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
        small = low >= -SMALL and high <= SMALL
        fitting = [one for one in self._features.dtypes if one in grammar.INTEGERS and _holds(one, low, high)]
        if small:
            fitting += ["float32", "float16"] if fraction <= 2 else ["float32"]
        return str(self._pick(*fitting)) if fitting else "int64"

    def _fill(self, output: Buffer, grid: tuple[int, ...]) -> list[Statement]:
        prefix = tuple(Var(block_name(axis)) for axis in range(len(grid))) if grid != (1,) else ()
        if self._threads == 1 and not prefix and self._pick(False, True):
            self._deepest = self._pick(1, 2)  # what counts are the statements
            statement, drawn = self._nest(output, prefix, plain=True)
            self._scope.buffers[output.name] = (output, drawn.low, drawn.high)
            self._scope.fractions[output.name] = drawn.fraction
            return [statement, *self._reworked(output)]
        if self._threads == 1 and prefix and self._pick(False, False, True):
            self._deepest = self._pick(1, 2)
            statement, _ = self._nest(output, prefix, plain=True)
            return [statement, *self._dependent(output, prefix)]
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
        if kinds[0] in PLAINLY and self._pick(*[False] * 10, True):
            loops[0], again, at[0] = self._in_int64(loops[0], at[0])
        readable = self._scope.buffers
        if "Parallel" in kinds:  # a local buffer belongs to one thread
            self._scope.buffers = {name: one for name, one in readable.items() if one[0].scope != "local"}
        bound: tuple[Statement, ...] = self._bind(buffer.dtype)
        if not bound and self._has_scalars and all(kind in PLAINLY for kind in kinds) and self._pick(*[False] * 9, True):
            bound = self._counting()
        assumed = self._assumed(5 if bound else 29)
        plainly = all(kind in PLAINLY for kind in kinds)
        filled = self._filled(buffer.dtype) if plainly else ()
        drawn = self._value(buffer.dtype)
        body: tuple[Statement, ...] = (Store(buffer.name, (*prefix, *at), drawn.node),)
        how = "always" if plain else self._pick(*_AROUND)
        if how == "nested":  # some elements are not set
            body = (If(self._expressions.condition(1), (If(self._expressions.condition(1), body),)),)
        elif how == "guarded":
            every = self._every(loops) if self._pick(False, True) else self._expressions.bounded()
            body = (If(every or self._expressions.condition(1), body),)
        elif how == "nested or else":
            other = self._value(buffer.dtype)
            inner = If(self._constant_in(loops), body)
            body = (If(self._expressions.condition(1), (inner,), (Store(buffer.name, (*prefix, *at), other.node),)),)
        elif how == "or else":
            other = self._value(buffer.dtype)
            body = (If(self._expressions.test(2), body, (Store(buffer.name, (*prefix, *at), other.node),)),)
            low, high = min(drawn.low, other.low), max(drawn.high, other.high)
            drawn = Drawn(drawn.node, low, high, max(drawn.fraction, other.fraction))
        elif how == "always" and plainly and buffer.dtype != "bool" and self._pick(*[False] * 7, True):
            more, drawn = self._changed(buffer, (*prefix, *at), drawn)
            body += more
        elif how == "always" and plainly and buffer.dtype in grammar.INTEGERS:
            more, drawn = self._mixed(buffer, (*prefix, *at), drawn)
            body += more
        body = body if plain or not plainly else self._leaving(body)
        body = (*again, *bound, *assumed, *filled, *body)
        for loop in reversed(loops):
            body = (replace(loop, body=body),)
        self._scope.variables, self._scope.buffers = before, readable
        self._unbind(bound)
        self._scope.scalars.pop(loops[0].var, None)
        return body[0], drawn

    def _every(self, loops: Sequence[For]) -> Expr:
        """Draw a condition that holds in every second iteration or so of a loop."""
        names = self._scope.variables  # without those of int64
        name = self._pick(*([one.var for one in loops if one.var in names] or list(names)))
        by = self._pick(2, 3, 4)
        return grammar.Binary(
            "==", grammar.Binary("%", Var(name), grammar.Const(by)), grammar.Const(self._pick(0, 1, by - 1))
        )

    def _changed(self, buffer: Buffer, at: tuple[Expr, ...], drawn: Drawn) -> tuple[tuple[Statement, ...], Drawn]:
        """Draw what changes an element that was just set, and return where it lies then."""
        filled = self._filled(buffer.dtype, 1)
        other = self._value(buffer.dtype)
        op = self._pick("max", "min", *(("^", "|", "&") if buffer.dtype in grammar.INTEGERS else ()))
        store = Store(buffer.name, at, grammar.Binary(op, grammar.Load(buffer.name, at), other.node))
        low, high = min(drawn.low, other.low), max(drawn.high, other.high)
        if op not in {"max", "min"}:
            low, high = range_of(buffer.dtype)
        return (*filled, store), Drawn(drawn.node, low, high, max(drawn.fraction, other.fraction))

    def _mixed(self, buffer: Buffer, at: tuple[Expr, ...], drawn: Drawn) -> tuple[tuple[Statement, ...], Drawn]:
        """Draw what changes an element further by values of few operands: all of their bits matter to it."""
        more: list[Statement] = []
        for _ in range(self._pick(0, 0, 1, 2)):
            mixed: Expr = grammar.Load(buffer.name, at)
            for _ in range(self._pick(1, 2)):
                mixed = grammar.Binary("^", mixed, self._expressions.woven(buffer.dtype, conditions=True).node)
            more.append(Store(buffer.name, at, mixed))
        return tuple(more), Drawn(drawn.node, *range_of(buffer.dtype)) if more else drawn

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
        shifted: Expr = index if begin == 0 else grammar.Binary("-" if begin > 0 else "+", index, grammar.Const(abs(begin)))
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


CPU = Features()
"""TileLang's `c` target."""
CPU_BEFORE_VECTORS = Features(loops=("serial", "unroll"), scopes=("local", "var"), copies=False)
"""The same before release 0.1.9, which compiles no parallel loop and no copy of several elements there."""
ARITHMETIC = Features(
    dtypes=(*grammar.INTEGERS, "bool"), loops=("serial",), scopes=("local", "var"), copies=False, symbols=False, lazy=False
)
"""TVM's arithmetic, which rewrites integers only. Its choice is `tir.Select`, which may evaluate both sides."""
GPU = Features(threads=(1, 32, 1, 64, 96, 128), tiles=True, configs=("tl.disable_tma_lower", "tl.disable_warp_specialized"))
"""TileLang's CUDA target."""
