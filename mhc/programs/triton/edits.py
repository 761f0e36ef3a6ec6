"""Programs that differ from a Triton program by one step: what the minimiser tries, the biggest steps first."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from mhc.programs.triton.cuts import Body, cut, fresh, halves, loaded, outputs, seen, stored_plainly
from mhc.programs.triton.functions import fewer, functions_of, inlined, writers
from mhc.programs.triton.grammar import (
    Atomic,
    BlockLoad,
    BlockStore,
    Call,
    Descriptor,
    For,
    Function,
    If,
    Load,
    Op,
    Pointer,
    Statement,
    Store,
    TritonProgram,
    uses,
    walk,
)
from mhc.programs.triton.replaced import changed, mapped, ops_of, renamed, with_buffer
from mhc.programs.triton.smaller import sizes

Step = Callable[[TritonProgram], Iterator[TritonProgram]]
_KINDS = {"range": 0, "tl.static_range": 1, "tl.range": 2, "while": 3}


def rank(program: TritonProgram) -> tuple[Any, ...]:
    """Return how simple a program is; the minimiser never goes up."""
    nodes = list(walk(program.body))
    ops = [one for one in nodes if isinstance(one, Op)]
    loops = [one for one in nodes if isinstance(one, For)]
    names = [name for one in nodes for name in uses(one)]
    calls = [one for one in nodes if isinstance(one, Call)]
    return (
        len(calls) + sum(bool(one.results) for one in nodes if isinstance(one, If)),
        len(nodes) + sum(len(one.carried) for one in nodes if isinstance(one, (For, If))),
        len(program.buffers),
        sum(len(one.args) + len(one.names) for one in calls),
        sum(one.constant is not None for one in nodes if isinstance(one, (Op, Function))),
        sum(one.op not in {"full", "arange"} for one in ops),
        len(names),
        len(program.grid),
        sum(program.grid) + sum(len(one.indices) for one in loops),
        sum(one.size for one in program.buffers),
        sum(size for one in ops for size in one.shape)
        + sum(len(one.shape) for one in ops)
        + sum(sum(one.block) + len(one.block) + one.stride for one in nodes if isinstance(one, Descriptor)),
        sum(one.dtype != "int32" for one in program.buffers) + sum(one.dtype != "int32" for one in ops),
        sum(_loop_rank(one) for one in loops),
        (program.num_warps != 4, program.num_stages != 3, program.num_warps, program.num_stages),
        sum(one.offset for one in program.buffers),
        sum(one.flag + abs(one.axis) + (one.combine != "add") for one in ops)
        + sum((one.op != "add") + bool(one.order) for one in nodes if isinstance(one, Atomic))
        + sum(bool(one.policy) + getattr(one, "late", False) for one in nodes if isinstance(one, (Load, Store))),
        sum(abs(one.value) for one in ops) + sum(one.constant for one in calls),
        sum(one.value < 0 for one in ops),
        sum(abs(one.least) + abs(one.most) for one in program.buffers),
        program.seed,
    )


def _loop_rank(one: For) -> int:
    ends = abs(one.begin) + (one.begin < 0) + abs(one.end)
    return _KINDS[one.kind] + ends + abs(one.step) + 9 * (one.step < 0) + one.stages + one.wide + one.unroll + len(one.flags)


def tidy(program: TritonProgram) -> TritonProgram:
    """Return the program without values and buffers that it does not use."""
    body = program.body
    while True:
        writing = writers(body)
        reads = Counter(name for one in walk(body) for name in uses(one))
        reads.update(one.names[0] for one in walk(body) if isinstance(one, Call) and one.function in writing)
        shorter = _without_unused(body, reads)
        if shorter == body:
            break
        body = shorter
    named = {one.buffer for one in walk(body) if isinstance(one, (Load, Store, Atomic, Descriptor))}
    return replace(program, body=body, buffers=tuple(one for one in program.buffers if one.name in named))


def _without_unused(body: Body, reads: Mapping[str, int]) -> Body:
    """Return the statements without values that nothing reads.

    Args:
        reads: how often each name is read, in all of the program.
    """
    kept: list[Statement] = []
    for one in body:
        if isinstance(one, (Op, Load, Descriptor, Pointer, BlockLoad)) and not reads[one.name]:
            continue
        if isinstance(one, Function):
            if reads[one.name]:
                kept.append(replace(one, body=_without_unused(one.body, reads)))
        elif isinstance(one, Call):
            if any(reads[name] for name in one.names):
                kept.append(one)
        elif isinstance(one, (For, If)):
            carried = tuple(
                carry for carry in one.carried if reads[carry.name] > (carry.after, carry.otherwise).count(carry.name)
            )
            inner = _without_unused(one.body, reads)
            other = _without_unused(one.otherwise, reads) if isinstance(one, If) else ()
            returns = isinstance(one, If) and one.results
            if not inner and not other and not carried and not returns:
                continue
            kept.append(replace(one, body=inner if returns else inner or one.body, carried=carried))
            if isinstance(one, If) and not (one.otherwise and any(carry.otherwise for carry in carried) and not other):
                kept[-1] = replace(kept[-1], otherwise=other)
        elif isinstance(one, Atomic) and one.name is not None and not reads[one.name]:
            kept.append(replace(one, name=None))
        else:
            kept.append(one)
    return tuple(kept)


def settings(program: TritonProgram) -> Iterator[TritonProgram]:
    """Leave out blocks, and use the usual numbers of warps and stages."""
    if program.grid != (1,):
        yield replace(program, grid=(1,))
        for axis, blocks in enumerate(program.grid):
            for fewer in range(1, blocks):
                yield replace(program, grid=(*program.grid[:axis], fewer, *program.grid[axis + 1 :]))
            if axis:
                yield replace(program, grid=program.grid[:axis])
    if program.num_warps != 4 or program.num_stages != 3:
        yield replace(program, num_warps=4, num_stages=3)
    for warps in (4, 1, 2):
        if warps != program.num_warps:
            yield replace(program, num_warps=warps)
    for stages in range(1, program.num_stages):
        yield replace(program, num_stages=stages)
    if program.num_stages != 3:
        yield replace(program, num_stages=3)


def statements(program: TritonProgram) -> Iterator[TritonProgram]:
    """Leave out a statement, use an operand in the place of a result, or put what is in a loop in its place."""

    def change(node: Statement) -> Iterator[tuple[Body, Mapping[str, str]]]:
        if isinstance(node, (Store, Atomic, BlockStore)):
            yield (), {}
        elif isinstance(node, Op):
            for name in dict.fromkeys(node.args):
                yield (), {node.name: name}
        elif isinstance(node, Pointer):
            yield (), {node.name: node.start or node.index}
        elif isinstance(node, Call):
            for name in dict.fromkeys(node.args):
                yield (), dict.fromkeys(node.names, name)
        elif isinstance(node, (For, If)):
            starts = {one.name: one.start for one in node.carried}
            yield (), starts
            iterations = (node.indices or range(node.begin, node.begin + 1)) if isinstance(node, For) else (0,)
            for at in dict.fromkeys((iterations[0], iterations[-1])):
                index: Body = (Op(node.var, "full", dtype=node.dtype, value=at),) if isinstance(node, For) else ()
                inside = tuple(renamed(one, starts) for one in node.body)
                yield (*index, *inside), {one.name: starts.get(one.after, one.after) for one in node.carried}
            if isinstance(node, If) and node.otherwise:
                inside = tuple(renamed(one, starts) for one in node.otherwise)
                ends = {one.name: one.otherwise or one.name for one in node.carried}
                yield inside, {name: starts.get(after, after) for name, after in ends.items()}
                yield (replace(node, otherwise=(), carried=tuple(replace(one, otherwise=None) for one in node.carried)),), {}
            for one in node.carried:
                fewer = tuple(other for other in node.carried if other != one)
                yield (replace(node, carried=fewer),), {one.name: one.start}

    for body, names in changed(program.body, change):
        yield replace(program, body=tuple(renamed(one, names) for one in body))


def constants(program: TritonProgram) -> Iterator[TritonProgram]:
    """Use a constant, or another value of the same dtype and shape, in the place of a result."""
    values = seen(program)
    described = [one for one in walk(program.body) if isinstance(one, Descriptor)]

    def change(node: Statement) -> Iterator[tuple[Body, Mapping[str, str]]]:
        if isinstance(node, Descriptor):
            yield from (
                ((), {node.name: one.name}) for one in described if one.name != node.name and one.block == node.block
            )
        if isinstance(node, Op) and node.op == "full":
            alike = (one.name for one in ops_of(program) if replace(one, name=node.name) == node and one.name != node.name)
            yield from (((), {node.name: name}) for name in alike)
            return
        if not isinstance(node, (Op, Load, BlockLoad)):
            return
        now = values.get(node.name)
        if now is None:
            return
        for name, other in values.items():
            if name != node.name and (other.dtype, other.shape) == (now.dtype, now.shape):
                yield (), {node.name: name}
        for number in (0, 1):
            yield (Op(node.name, "full", dtype=now.dtype, shape=now.shape, value=number),), {}

    for body, names in changed(program.body, change):
        yield replace(program, body=tuple(renamed(one, names) for one in body))
    for body, _ in changed(program.body, _unmasked):
        yield replace(program, body=body)


def _unmasked(node: Any) -> Iterator[tuple[Body, Mapping[str, str]]]:
    if getattr(node, "mask", None) is not None:
        yield (replace(node, mask=None, **({"other": None, "late": False} if isinstance(node, Load) else {})),), {}


def values(program: TritonProgram) -> Iterator[TritonProgram]:
    """Make dtypes, constants, axes, flags and inputs simpler."""
    for dtype in dict.fromkeys([*(one.dtype for one in program.buffers), *(one.dtype for one in ops_of(program))]):
        if dtype != "int32":
            yield _all_in_int32(program, dtype)

    def change(node: Statement) -> Iterator[tuple[Body, Mapping[str, str]]]:
        if isinstance(node, Atomic) and node.op != "add":
            yield (replace(node, op="add", compare=None),), {}
        if isinstance(node, Atomic) and node.order:
            yield (replace(node, order=""),), {}
        if isinstance(node, (Load, Store)) and node.policy:
            yield (replace(node, policy=""),), {}
        if isinstance(node, Load) and node.late:
            yield (replace(node, late=False),), {}
        if isinstance(node, Call):
            for number in dict.fromkeys((0, 1, 2, node.constant // 2)):
                if number < node.constant:
                    yield (replace(node, constant=number),), {}
        if not isinstance(node, Op):
            return
        if node.dtype != "int32":
            yield (replace(node, dtype="int32", value=int(node.value)),), {}
        whole = int(node.value)
        near = (whole - 1,) if 0 < whole < 64 else ()
        for number in dict.fromkeys((0, 1, 2, 3, abs(whole), whole // 16, whole // 2, *near)):
            if abs(number) < abs(node.value) or 0 <= number == -node.value:
                yield (replace(node, value=number),), {}
        if node.flag:
            yield (replace(node, flag=False),), {}
        if node.combine != "add":
            yield (replace(node, combine="add"),), {}
        if node.axis:
            yield (replace(node, axis=0),), {}

    for number, one in enumerate(program.buffers):
        if one.offset:
            yield with_buffer(program, number, offset=0)
        if one.dtype != "int32":
            yield with_buffer(program, number, dtype="int32")
        for least, most in ((0, 9), (0, 1), (0, one.most), (max(one.least, -9), min(one.most, 9))):
            if (
                (not one.written or one.updated)
                and least <= most
                and abs(least) + abs(most) < abs(one.least) + abs(one.most)
            ):
                yield with_buffer(program, number, least=least, most=most)
    if program.seed:
        yield replace(program, seed=0)
    for body, _ in changed(program.body, change):
        yield replace(program, body=body)


def calls(program: TritonProgram) -> Iterator[TritonProgram]:
    """Write what a function does in the place of a call, or leave out what functions have but need not have."""
    functions = functions_of(program.body)

    def change(node: Statement) -> Iterator[tuple[Body, Mapping[str, str]]]:
        if isinstance(node, Call) and node.function in functions:
            yield from inlined(functions[node.function], node, fresh(program))

    for body, names in changed(program.body, change):
        yield replace(program, body=tuple(renamed(one, names) for one in body))
    yield from fewer(program, fresh(program))


STEPS: tuple[Step, ...] = (
    settings,
    outputs,
    halves,
    cut,
    calls,
    statements,
    loaded,
    stored_plainly,
    constants,
    sizes,
    values,
)


def _all_in_int32(program: TritonProgram, dtype: str) -> TritonProgram:
    """Return the program with int32 wherever it names the dtype."""

    def change(node: Op) -> Op:
        return replace(node, dtype="int32", value=int(node.value)) if node.dtype == dtype else node

    buffers = tuple(replace(one, dtype="int32") if one.dtype == dtype else one for one in program.buffers)
    return replace(program, buffers=buffers, body=mapped(program.body, change))
