"""Programs that differ from a program by one step: what the minimiser tries, the biggest steps first."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.evaluate import block_name, passed_of
from mhc.programs.grammar import Const, Expr, Load, Node, Program, Statement, Var, children, dtype_of, walk
from mhc.programs.tile_edits import BODIES, inlined, mapped, put, tiles

Step = Callable[[Program], Iterator[Program]]
_SIMPLE = ("+", "-")
_STATEMENTS = (grammar.For, grammar.While, grammar.Store, grammar.Assign, grammar.If, grammar.AtomicAdd)
_KINDS = {"serial": 0, "unroll": 1}


def rank(program: Program) -> tuple[Any, ...]:
    """Return how simple a program is; the minimiser never goes up."""
    nodes = list(walk(program))
    constants = [one for one in nodes if isinstance(one, Const)]
    loops = [one for one in nodes if isinstance(one, grammar.For)]
    return (
        len(program.configs),
        len(program.symbols),
        program.threads,
        len(nodes) + len(program.buffers),
        sum(isinstance(one, (Var, Load)) for one in nodes),
        len(program.grid),
        sum(one.size for one in program.buffers) + sum(program.grid) + sum(one.extent for one in loops),
        sum(one != "int32" for one in (*(one.dtype for one in program.buffers), *(one.dtype for one in constants))),
        sum(_KINDS.get(one.kind, 2) + abs(one.begin) + 2 * (one.step != 1) + (one.rest > 0) for one in loops),
        sum(abs(one.value) for one in constants),
        sum(one.value < 0 for one in constants),
        sum(abs(one.least) + abs(one.most) + one.special for one in program.buffers),
        program.seed,
        sum(one is True for node in nodes if isinstance(node, grammar.TILES) for one in _fields(node)),
        sum(one.op not in _SIMPLE for one in nodes if isinstance(one, grammar.Binary)),
    )


def _fields(node: Node) -> Iterator[Any]:
    return (getattr(node, name) for name in node.__struct_fields__)


def tidy(program: Program) -> Program:
    """Return the program without buffers that it does not name, and without symbols that no parameter has."""
    used = grammar.buffers_in(program) | {one.name for one in walk(program) if isinstance(one, (Var, grammar.Assign))}
    used |= {one.var for one in walk(program) if isinstance(one, grammar.For)}
    buffers = tuple(one for one in program.buffers if one.name in used)
    sizes = {size for one in buffers if one.scope == "global" for size in one.shape}
    symbols = {name: size for name, size in program.symbols.items() if size in sizes}
    return replace(program, buffers=buffers, symbols=symbols)


def statements(program: Program) -> Iterator[Program]:
    """Leave out many statements at once, or a single one, or put what is in a loop or a branch in its place."""
    yield from (replace(program, body=body) for body in _shortened(program.body))

    def change(node: Statement) -> Iterator[tuple[Statement, ...]]:
        yield ()
        if isinstance(node, grammar.For):
            for at in dict.fromkeys((*node.indices[:2], *node.indices[-1:])):
                index: Expr = Const(at, program.index_dtype(node))
                index = index if node.first is None else grammar.Binary("+", node.first, index)
                yield tuple(put(one, {node.var: index}) for one in node.body)
        elif isinstance(node, grammar.While):
            yield node.body
            yield (grammar.If(node.condition, node.body),)
        elif isinstance(node, grammar.If):
            yield node.then
            yield node.otherwise
            if node.otherwise:
                yield (replace(node, otherwise=()),)

    for body in _bodies(program.body, change):
        yield replace(program, body=body)
    yield from (inlined(program, one.name) for one in program.buffers if one.scope == "let")


def settings(program: Program) -> Iterator[Program]:
    """Leave out pass configs, symbols, scalar parameters, threads and blocks."""
    for name, value in program.symbols.items():
        body = tuple(put(one, {name: Const(value)}) for one in program.body)
        yield replace(program, body=body, symbols={one: size for one, size in program.symbols.items() if one != name})
    for one in program.buffers:
        if one.scope == "value":
            at: dict[str, Expr] = {one.name: Const(passed_of(program)[one.name], one.dtype)}
            yield replace(program, body=tuple(put(node, at) for node in program.body))
    for threads in (1, 32, 128):
        if threads < program.threads:
            yield replace(program, threads=threads)
    for name in program.configs:
        yield replace(program, configs={one: value for one, value in program.configs.items() if one != name})
    if program.grid != (1,):
        for index in (0, 1):
            at = {block_name(axis): Const(min(index, size - 1)) for axis, size in enumerate(program.grid)}
            yield replace(program, grid=(1,), body=tuple(put(one, at) for one in program.body))


def parts(program: Program) -> Iterator[Program]:
    """Put 0 in the place of many expressions at once: all values, indices and conditions, halves of them, and so on."""
    whole = [one for node in walk(program) if isinstance(node, _STATEMENTS) for one in children(node)]
    found = list(dict.fromkeys(one for one in whole if isinstance(one, grammar.EXPRESSIONS) and not isinstance(one, Const)))
    size = len(found)
    while size > 1:
        for begin in range(0, len(found), size):
            zeros = {one: _zero(dtype_of(one, program)) for one in found[begin : begin + size]}
            yield replace(program, body=tuple(mapped(one, partial(_in_place, zeros)) for one in program.body))
        size = (size + 1) // 2


def _in_place(others: Mapping[Any, Any], node: Any) -> Any:
    return others.get(node, node)


def _zero(dtype: str) -> Const:
    return Const(0.0 if dtype in grammar.FLOATS else 0, dtype)


def expressions(program: Program) -> Iterator[Program]:
    """Put an operand, a loaded element, an index or a small constant in the place of an expression."""

    def change(node: Expr) -> Iterator[Expr]:
        dtype = dtype_of(node, program)
        if not isinstance(node, Const):  # what is simplest first: most expressions of a program do not matter to its failure
            kind = float if dtype in grammar.FLOATS else int
            yield from (Const(kind(value), dtype) for value in (0, 1))
        for one in _below(node):
            if dtype_of(one, program) == dtype:
                yield one
        if isinstance(node, (grammar.Select, Const, Var)):
            return
        if dtype == "int32":
            yield from (Var(name) for name in _indices(program))
        if not isinstance(node, Load):
            for buffer in program.buffers:
                if buffer.dtype == dtype and not buffer.is_scalar and not buffer.written and len(buffer.shape) == 1:
                    yield from (Load(buffer.name, (Var(name),)) for name in _indices(program))

    for body in _expressions(program.body, change):
        yield replace(program, body=body)


def sizes(program: Program) -> Iterator[Program]:
    """Make loops shorter and buffers smaller."""

    def change(node: Statement) -> Iterator[tuple[Statement, ...]]:
        if isinstance(node, grammar.For):
            for extent in dict.fromkeys((1, 2, node.extent // 2, node.extent - 1)):
                if 0 < extent < node.extent:
                    yield (replace(node, extent=extent),)
            if node.count is not None:
                yield (replace(node, count=None, first=None),)
                yield (replace(node, first=None),)
            if node.begin:
                yield (replace(node, begin=0),)
            if node.step != 1:
                yield (replace(node, step=1, rest=0),)
            if node.rest:
                yield (replace(node, rest=0),)
            if node.kind != "serial":
                yield (replace(node, kind="serial"),)

    for number, one in enumerate(program.buffers):
        for axis, size in enumerate(one.shape):
            for smaller in dict.fromkeys((1, 2, size // 2, size - 1)):
                if 0 < smaller < size and not one.is_scalar:
                    shape = (*one.shape[:axis], smaller, *one.shape[axis + 1 :])
                    yield _with_buffer(program, number, shape=shape)
        if len(one.shape) > 1:
            for axis in range(len(one.shape)):
                yield _without_axis(program, one.name, axis)
    for axis, blocks in enumerate(program.grid):
        for smaller in dict.fromkeys((2, blocks - 1)):
            if 0 < smaller < blocks:
                yield replace(program, grid=(*program.grid[:axis], smaller, *program.grid[axis + 1 :]))
    for body in _bodies(program.body, change):
        yield replace(program, body=body)


def values(program: Program) -> Iterator[Program]:
    """Make constants, dtypes, inputs and operations simpler."""

    def change(node: Expr) -> Iterator[Expr]:
        if isinstance(node, Const) and node.dtype not in grammar.FLOATS:
            value = int(node.value)
            near = (value - 1,) if 0 < value < 64 else ()
            for other in dict.fromkeys((0, 1, 2, 3, abs(value), value // 16, value // 2, *near)):
                if abs(other) < abs(value) or 0 <= other == -value:
                    yield replace(node, value=other)
            if node.dtype != "int32" and -(2**31) <= value < 2**31:
                yield replace(node, dtype="int32")
        elif isinstance(node, grammar.Binary) and node.op not in _SIMPLE and node.op not in grammar.LOGIC:
            if node.op not in grammar.COMPARISONS:
                yield replace(node, op="+")
        elif isinstance(node, (grammar.Cast, grammar.Bits)) and node.dtype != "int32":
            yield replace(node, dtype="int32")

    for number, one in enumerate(program.buffers):
        if one.special:
            yield _with_buffer(program, number, special=False)
        if one.dtype != "int32":
            yield _with_buffer(program, number, dtype="int32")
            yield _all_in_int32(program, one.dtype)
        for least, most in ((0, 9), (0, 1), (0, one.most), (max(one.least, -9), min(one.most, 9))):
            nearer = least <= most and abs(least) + abs(most) < abs(one.least) + abs(one.most)
            if not one.written and one.scope in {"global", "value"} and nearer:
                yield _with_buffer(program, number, least=least, most=most)
    if any(isinstance(one, (Const, grammar.Cast)) and one.dtype == "int64" for one in walk(program)):
        yield _all_in_int32(program, "int64")
    if program.seed:
        yield replace(program, seed=0)
    for body in _expressions(program.body, change):
        yield replace(program, body=body)


STEPS: tuple[Step, ...] = (settings, statements, tiles, parts, expressions, sizes, values)


def _with_buffer(program: Program, number: int, **changes: Any) -> Program:
    changed = replace(program.buffers[number], **changes)
    return replace(program, buffers=(*program.buffers[:number], changed, *program.buffers[number + 1 :]))


def _all_in_int32(program: Program, dtype: str) -> Program:
    """Return the program with int32 wherever it names the dtype."""

    def change(node: Node) -> Node:
        if isinstance(node, Const) and node.dtype == dtype:
            return replace(node, dtype="int32", value=int(node.value))
        if isinstance(node, (grammar.Cast, grammar.Bits)) and node.dtype == dtype:
            return replace(node, dtype="int32")
        return node

    kept = (one for one in program.buffers if one.scope != "index" or one.dtype != dtype)
    buffers = tuple(replace(one, dtype="int32") if one.dtype == dtype else one for one in kept)
    return replace(program, buffers=buffers, body=tuple(mapped(one, change) for one in program.body))


def _without_axis(program: Program, name: str, axis: int) -> Program:
    """Return the program with one axis of a buffer fewer."""

    def shorter(at: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*at[:axis], *at[axis + 1 :])

    def change(node: Node) -> Node:
        indexed = isinstance(node, (Load, grammar.Store)) and node.buffer == name
        return replace(node, at=shorter(node.at)) if indexed else node  # type: ignore[union-attr]

    buffers = tuple(replace(one, shape=shorter(one.shape)) if one.name == name else one for one in program.buffers)
    copied = any(isinstance(one, grammar.TILES) and name in grammar.tile_buffers(one) for one in walk(program))
    return program if copied else replace(program, buffers=buffers, body=tuple(mapped(one, change) for one in program.body))


def _indices(program: Program) -> list[str]:
    loops = (one for one in walk(program) if isinstance(one, grammar.For))
    return [one.var for one in loops if program.index_dtype(one) == "int32"]


def _below(node: Expr) -> Iterator[Expr]:
    for one in children(node):
        yield one  # type: ignore[misc]  # below an expression are expressions
        yield from _below(one)  # type: ignore[arg-type]


def _shortened(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """Yield the statements without many of them, at any depth: halves, quarters, and so on."""
    size = len(body) // 2
    while size > 1:
        for begin in range(0, len(body), size):
            yield (*body[:begin], *body[begin + size :])
        size //= 2
    for at, node in enumerate(body):
        for one in _with_inner(node, _shortened):
            yield (*body[:at], one, *body[at + 1 :])


def _bodies(
    body: tuple[Statement, ...], change: Callable[[Statement], Iterator[tuple[Statement, ...]]]
) -> Iterator[tuple[Statement, ...]]:
    """Yield the statements with one of them, at any depth, replaced by others."""
    for at, node in enumerate(body):
        before, after = body[:at], body[at + 1 :]
        for others in change(node):
            yield (*before, *others, *after)
        for one in _with_inner(node, partial(_bodies, change=change)):
            yield (*before, one, *after)


def _with_inner(
    node: Statement, change: Callable[[tuple[Statement, ...]], Iterator[tuple[Statement, ...]]]
) -> Iterator[Statement]:
    """Yield a statement with the statements inside of it replaced by others."""
    for name in BODIES:
        for inner in change(getattr(node, name, ())):
            yield replace(node, **{name: inner})


def _expressions(body: tuple[Statement, ...], change: Callable[[Expr], Iterator[Expr]]) -> Iterator[tuple[Statement, ...]]:
    """Yield the statements with one expression, at any depth, replaced by another."""
    for at, node in enumerate(body):
        for other in _inside(node, change):
            yield (*body[:at], other, *body[at + 1 :])


def _inside(node: Any, change: Callable[[Expr], Iterator[Expr]]) -> Iterator[Any]:
    """Yield a node with one expression below it replaced."""
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, tuple):
            for at, one in enumerate(value):
                if isinstance(one, grammar.NODES):
                    for other in _one(one, change):
                        yield replace(node, **{name: (*value[:at], other, *value[at + 1 :])})
        elif isinstance(value, grammar.EXPRESSIONS):
            for other in _one(value, change):
                yield replace(node, **{name: other})


def _one(node: Any, change: Callable[[Expr], Iterator[Expr]]) -> Iterator[Any]:
    if isinstance(node, grammar.EXPRESSIONS):
        yield from change(node)
    yield from _inside(node, change)
