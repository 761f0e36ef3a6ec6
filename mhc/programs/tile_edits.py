"""Programs that differ from one by a step that keeps its buffers fitting one another: sizes that change together."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from mhc.programs import grammar
from mhc.programs.grammar import Copy, Expr, For, Node, Program, Var, walk


def tiles(program: Program) -> Iterator[Program]:
    """Use a copy's source in the place of its target, leave out options of tile operations, and change sizes together."""
    for node in walk(program):
        if isinstance(node, Copy) and node.extents == program.buffer(node.target).shape and not any(node.source_at):
            yield _renamed(program, node)
        if isinstance(node, grammar.TILES) or (isinstance(node, For) and node.kind == "Pipelined"):
            for other in _plainer(node):
                yield replace(program, body=tuple(mapped(one, _swapped(node, other)) for one in program.body))
    sizes = {extent for one in program.buffers for extent in one.shape}
    for size in sorted(sizes, reverse=True):
        for smaller in dict.fromkeys((1, 2, 16, 32, size // 2, size - 16, size - 1)):
            if 0 < smaller < size:
                yield _resized(program, size, smaller)


def _plainer(node: Any) -> Iterator[Any]:
    if isinstance(node, For):
        yield replace(node, kind="serial", stages=0)
        if node.stages:
            yield replace(node, stages=node.stages - 1)
    for name in ("transpose_a", "transpose_b", "reverse"):
        if getattr(node, name, False):
            yield replace(node, **{name: False})
    if getattr(node, "op", "sum") != "sum":
        yield replace(node, op="sum")


def _swapped(node: Node, other: Node) -> Callable[[Any], Any]:
    return lambda one: other if one == node else one


def _renamed(program: Program, copied: Copy) -> Program:
    """Return the program without a copy, and with its source where its target was."""

    def change(node: Any) -> Any:
        names = ("buffer", "source", "target", "a", "b", "c")
        here = {name: copied.source for name in names if getattr(node, name, None) == copied.target}
        return replace(node, **here) if here else node

    def without(body: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = (one for one in body if one != copied)
        return tuple(replace(one, body=without(one.body)) if isinstance(one, For) else one for one in kept)

    return replace(program, body=tuple(mapped(one, change) for one in without(program.body)))


def _resized(program: Program, size: int, other: int) -> Program:
    """Return the program with another size wherever it has this one."""

    def shape(extents: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(other if one == size else one for one in extents)

    def change(node: Any) -> Any:
        if isinstance(node, Copy):
            return replace(node, extents=shape(node.extents))
        return replace(node, extent=other) if isinstance(node, For) and node.extent == size else node

    buffers = tuple(one if one.is_scalar else replace(one, shape=shape(one.shape)) for one in program.buffers)
    symbols = {name: other if value == size else value for name, value in program.symbols.items()}
    return replace(program, buffers=buffers, body=tuple(mapped(one, change) for one in program.body), symbols=symbols)


def mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a node with `change` made to it and to every node below it, the innermost first."""
    changes = {}
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, tuple) and any(isinstance(one, grammar.NODES) for one in value):
            changes[name] = tuple(mapped(one, change) if isinstance(one, grammar.NODES) else one for one in value)
        elif isinstance(value, grammar.EXPRESSIONS):
            changes[name] = mapped(value, change)
    return change(replace(node, **changes) if changes else node)


def put(node: Node, at: Mapping[str, Expr]) -> Any:
    """Return a node with expressions in the place of variables."""
    return mapped(node, lambda one: at.get(one.name, one) if isinstance(one, Var) else one)


def inlined(program: Program, name: str) -> Program:
    """Return the program with the value that a name is bound to wherever the name is read."""
    value = next((one.value for one in walk(program) if isinstance(one, grammar.Assign) and one.name == name), None)
    if value is None:
        return program

    def change(node: Any) -> Any:
        changes = {part: _unbound(getattr(node, part), name) for part in BODIES if getattr(node, part, ())}
        return replace(node, **changes) if changes else node

    body = tuple(mapped(one, change) for one in _unbound(program.body, name))
    return replace(program, body=tuple(put(one, {name: value}) for one in body))


BODIES = ("body", "then", "otherwise")
"""The fields of statements that hold statements."""


def _unbound(body: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    return tuple(one for one in body if not (isinstance(one, grammar.Assign) and one.name == name))
