"""The big steps of the minimiser of Triton programs: a program that stores an earlier value, or loads it."""

import math
from collections import deque
from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from mhc.programs.arithmetic import Invalid
from mhc.programs.triton.evaluate import Machine, inputs_of
from mhc.programs.triton.functions import names_set
from mhc.programs.triton.grammar import (
    FLOATS,
    Atomic,
    BlockLoad,
    BlockStore,
    Buffer,
    Descriptor,
    For,
    Function,
    If,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
    walk,
    with_bodies,
)
from mhc.programs.triton.values import Pointed, Value

Body = tuple[Statement, ...]
LONG = 24
"""Statements of a program, more than which are halved first."""


def seen(program: TritonProgram) -> dict[str, Value]:
    """Return a value of each name, as it is in one of the blocks; none where the program has no meaning."""
    machine = _ran(program)
    return machine.seen if machine else {}


def dtypes_seen(program: TritonProgram) -> dict[str, set[str]]:
    """Return the dtypes that each name has; of a function, in all calls."""
    machine = _ran(program)
    return machine.dtypes if machine else {}


def stores_below_0(program: TritonProgram) -> bool:
    """Return whether a descriptor stores a block at an offset below 0, in any of the blocks."""
    machine = _ran(program)
    return machine is not None and machine.least_begin < 0


def rounds(program: TritonProgram) -> bool:
    """Return whether a cast to bfloat16 rounds, in any of the blocks."""
    machine = _ran(program)
    return machine is not None and machine.rounds


def _ran(program: TritonProgram) -> Machine | None:
    """Return the machine that ran a program; None where the program has no meaning."""
    machine = Machine(program.buffers, program.grid, inputs_of(program))
    try:
        machine.run(program.body)
    except Invalid:
        return None
    return machine


def outputs(program: TritonProgram) -> Iterator[TritonProgram]:
    """Write to one of the outputs alone."""
    for one in program.outputs:
        buffers = tuple(other for other in program.buffers if other == one or not other.written or other.updated)
        names = {other.name for other in buffers}
        names |= {other.name for other in walk(program.body) if isinstance(other, Descriptor) and other.buffer in names}
        yield replace(program, buffers=buffers, body=_without_stores(program.body, names))


def halves(program: TritonProgram) -> Iterator[TritonProgram]:
    """Leave out what comes after a statement of a long program, or what comes before it: of one in the middle first."""
    values = seen(program)
    for at, node in halving(program.body) if len(program.body) > LONG else ():
        yield from _cut_at(program, values, at, node)
        yield from _loaded_at(program, values, at, node)


def cut(program: TritonProgram) -> Iterator[TritonProgram]:
    """Store an earlier value in the place of all that comes after it."""
    values = seen(program)
    for at, node in enumerate(program.body):
        yield from _cut_at(program, values, at, node)


def _cut_at(program: TritonProgram, values: Mapping[str, Value], at: int, node: Statement) -> Iterator[TritonProgram]:
    for name in names_set(node):
        if isinstance(values.get(name), Pointed) or isinstance(node, Function):
            continue
        if name in values and name != getattr(node, "var", None):
            yield from _stored(program, program.body[: at + 1], name, values[name])


def halving(body: Body) -> Iterator[tuple[int, Statement]]:
    """Yield the statements with their places: the one in the middle, then those in the middle of either half, and so on."""
    ranges = deque([(0, len(body))])
    while ranges:
        begin, end = ranges.popleft()
        if begin < end:
            middle = (begin + end) // 2
            yield middle, body[middle]
            ranges += (begin, middle), (middle + 1, end)


def _stored(program: TritonProgram, body: Body, name: str, one: Value) -> Iterator[TritonProgram]:
    """Yield the program that ends with a store of a value; of a bool, as an integer."""
    unused = fresh(program)
    if one.dtype == "bool":
        widened = next(unused)
        body, name, one = (*body, Op(widened, "cast", (name,))), widened, Value("int32", one.data.astype(np.int32))
    indices, index = _indices(unused, one.shape)
    inputs = tuple(buffer for buffer in program.buffers if not buffer.written or buffer.updated)
    output = Buffer("y", max(1, one.data.size), one.dtype, written=True)
    body = _without_stores(body, {buffer.name for buffer in inputs})
    yield replace(program, grid=(1,), buffers=(*inputs, output), body=(*body, *indices, Store("y", index, name)))
    if program.grid != (1,):
        yield replace(program, buffers=(*inputs, output), body=(*body, *indices, Store("y", index, name)))


def _without_stores(body: Body, written: Container[str]) -> Body:
    """Return the statements that write nothing but to some buffers, or by some descriptors."""
    kept: list[Statement] = []
    for one in body:
        if isinstance(one, (For, If, Function)):
            inner: Any = with_bodies(one, lambda body: _without_stores(body, written))
            if inner.body or isinstance(one, Function) or (isinstance(one, If) and one.results):
                kept.append(inner)
        elif (
            not isinstance(one, (Store, Atomic, BlockStore))
            or (one.descriptor if isinstance(one, BlockStore) else one.buffer) in written
        ):
            kept.append(one)
    return tuple(kept)


def loaded(program: TritonProgram) -> Iterator[TritonProgram]:
    """Load a value from an input of its own in the place of what computes it."""
    values = seen(program)
    for at, node in reversed(list(enumerate(program.body))):
        yield from _loaded_at(program, values, at, node)


def _loaded_at(program: TritonProgram, values: Mapping[str, Value], at: int, node: Statement) -> Iterator[TritonProgram]:
    if not isinstance(node, (Op, BlockLoad)) or node.name not in values or getattr(node, "op", "") in {"full", "arange"}:
        return
    names = {one.name for one in program.buffers}
    buffer, one = next((name for name in "abcdeghk" if name not in names), None), values[node.name]
    if buffer is None or one.dtype == "bool":
        return
    low, high = _limits(one)
    indices, index = _indices(fresh(program), one.shape)
    added = Buffer(buffer, max(1, one.data.size), one.dtype, least=low, most=high)
    body = (*program.body[:at], *indices, Load(node.name, buffer, index), *program.body[at + 1 :])
    yield replace(program, buffers=(added, *program.buffers), body=body)


def stored_plainly(program: TritonProgram) -> Iterator[TritonProgram]:
    """Store a block at indices in the place of a descriptor, all of it."""
    values = seen(program)
    described = {one.name: one.buffer for one in walk(program.body) if isinstance(one, Descriptor)}
    for at, node in reversed(list(enumerate(program.body))):
        if not isinstance(node, BlockStore) or node.value not in values or node.descriptor not in described:
            continue
        one, buffer = values[node.value], described[node.descriptor]
        indices, index = _indices(fresh(program), one.shape)
        buffers = tuple(
            replace(other, size=max(other.size, one.data.size)) if other.name == buffer else other
            for other in program.buffers
        )
        body = (*program.body[:at], *indices, Store(buffer, index, node.value), *program.body[at + 1 :])
        yield replace(program, buffers=buffers, body=body)


def _limits(one: Value) -> tuple[int, int]:
    """Return between which numbers an input lies that takes the place of a value."""
    if one.dtype in FLOATS:
        return math.floor(2 * one.data.min()), math.ceil(2 * one.data.max())
    return int(one.data.min()), int(one.data.max())


def _indices(unused: Iterator[str], shape: tuple[int, ...]) -> tuple[Body, str]:
    """Return statements that make indices of a shape, 0, 1, ..., and their name."""
    index = next(unused)
    if not shape:
        return (Op(index, "full"),), index
    flat = Op(index, "arange", shape=(math.prod(shape),))
    if len(shape) == 1:
        return (flat,), index
    name = next(unused)
    return (flat, Op(name, "reshape", (index,), shape=shape)), name


def fresh(program: TritonProgram) -> Iterator[str]:
    """Yield names that are not used."""
    used = {name for one in walk(program.body) for name in names_set(one)}
    return (name for name in (f"v{number}" for number in range(1000)) if name not in used)
