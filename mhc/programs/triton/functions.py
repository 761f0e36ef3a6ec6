"""The functions of a Triton program: what they write and name, and steps of the minimiser that make them simpler."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from mhc.programs.triton.grammar import (
    REDUCTIONS,
    SCANS,
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
    with_bodies,
)

Body = tuple[Statement, ...]


def functions_of(body: Iterable[Statement]) -> dict[str, Function]:
    """Return the functions by name, in the order in which they are defined."""
    return {one.name: one for one in walk(tuple(body)) if isinstance(one, Function)}


def buffers_of(body: Body) -> dict[str, tuple[str, ...]]:
    """Return the buffers that each function is given: those that it, or a function that it calls, reads or writes."""
    found: dict[str, tuple[str, ...]] = {}
    for name, function in functions_of(body).items():
        inner = list(walk(function.body))
        own = [one.buffer for one in inner if isinstance(one, (Load, Store, Atomic, Descriptor, Pointer))]
        called = [buffer for one in inner if isinstance(one, Call) for buffer in found.get(one.function, ())]
        found[name] = tuple(dict.fromkeys((*own, *called)))
    return found


def writers(body: Body) -> set[str]:
    """Return the names of the functions that write to a buffer."""
    found: set[str] = set()
    for name, function in functions_of(body).items():
        if any(
            isinstance(one, (Store, Atomic, BlockStore)) or (isinstance(one, Call) and one.function in found)
            for one in walk(function.body)
        ):
            found.add(name)
    return found


def names_set(node: Statement) -> tuple[str, ...]:
    """Return the names that a statement sets; of a loop, branch or function, without those set in its body."""
    match node:
        case Op() | Load() | Descriptor() | Pointer() | BlockLoad():
            return (node.name,)
        case Atomic():
            return (node.name,) if node.name else ()
        case For():
            return node.var, *(one.name for one in node.carried)
        case If():
            return tuple(one.name for one in node.carried)
        case Call():
            return node.names
        case Function():
            return (*node.parameters, *((node.constant,) if node.constant else ()))
    return ()


def inlined(function: Function, call: Call, fresh: Iterator[str]) -> Iterator[tuple[Body, Mapping[str, str]]]:
    """Yield what may stand in the place of a call: the body as if no branch returned, and as if the first one did.

    Args:
        fresh: names that are not used.
    """
    body = _without_constant(function.body, function.constant, call.constant, fresh)
    for early in (False, True):
        first = next((at for at, one in enumerate(body) if isinstance(one, If) and one.results), None)
        if early and first is None:
            return
        results, kept = function.results, tuple(one for one in body if not (isinstance(one, If) and one.results))
        if early and first is not None:
            branch = body[first]
            assert isinstance(branch, If)
            results, kept = branch.results, (*body[:first], *branch.body)
        names = dict(zip(function.parameters, call.args, strict=True))
        for one in walk(kept):
            names.update((name, next(fresh)) for name in names_set(one))
        moved = msgspec.convert(_mapped(msgspec.to_builtins(kept), names), Body)
        yield moved, {name: names.get(result, result) for name, result in zip(call.names, results, strict=True)}


def _mapped(data: Any, names: Mapping[str, str]) -> Any:
    """Return JSON data with names in the place of names; no other text looks like one."""
    if isinstance(data, dict):
        return {key: _mapped(one, names) for key, one in data.items()}
    if isinstance(data, (list, tuple)):
        return [_mapped(one, names) for one in data]
    return names.get(data, data) if isinstance(data, str) else data


def with_number(node: Op, number: int) -> Op:
    """Return an operation with a number in the place of the function's constant."""
    if node.op == "arange":
        return replace(node, constant=None, shape=(number,))
    if node.op in {*REDUCTIONS, *SCANS}:
        return replace(node, constant=None, axis=number)
    return replace(node, constant=None, value=number)


def _without_constant(body: Body, constant: str | None, number: int, fresh: Iterator[str]) -> Body:
    """Return statements with a number in the place of a constant."""
    kept: list[Statement] = []
    for one in body if constant else ():
        new = one
        if isinstance(new, Op) and new.constant == constant:
            new = with_number(new, number)
        if isinstance(new, For) and new.bound == constant:
            new = replace(new, bound=None, end=number)
        if isinstance(new, If) and new.condition == constant:
            name = next(fresh)
            kept.append(Op(name, "full", dtype="bool", value=int(number != 0)))
            new = replace(new, condition=name)
        kept.append(with_bodies(new, lambda inner: _without_constant(inner, constant, number, fresh)))
    return tuple(kept) if constant else body


def fewer(program: TritonProgram, fresh: Iterator[str]) -> Iterator[TritonProgram]:
    """Leave out a result, a parameter that is not read, or the constant of a function.

    Args:
        fresh: names that are not used.
    """
    for name, function in functions_of(program.body).items():
        if len(function.results) > 1:
            for at in range(len(function.results)):
                yield replace(program, body=_all(program.body, partial(_without_result, name=name, at=at)))
        read = {used for one in walk(function.body) for used in uses(one)} | {*function.results}
        for at, parameter in enumerate(function.parameters):
            if parameter not in read:
                yield replace(program, body=_all(program.body, partial(_without_argument, name=name, at=at)))
        calls = [one for one in walk(program.body) if isinstance(one, Call) and one.function == name]
        if function.constant and calls:
            plain = _without_constant(function.body, function.constant, calls[0].constant, fresh)
            new = replace(function, constant=None, body=plain)
            yield replace(program, body=_all(program.body, partial(_with_function, new=new)))


def _without_result(node: Statement, name: str, at: int) -> Statement:
    if isinstance(node, Function) and node.name == name:
        body = tuple(
            replace(one, results=_without(one.results, at)) if isinstance(one, If) and one.results else one
            for one in node.body
        )
        return replace(node, body=body, results=_without(node.results, at))
    return replace(node, names=_without(node.names, at)) if isinstance(node, Call) and node.function == name else node


def _without_argument(node: Statement, name: str, at: int) -> Statement:
    if isinstance(node, Function) and node.name == name:
        return replace(node, parameters=_without(node.parameters, at))
    return replace(node, args=_without(node.args, at)) if isinstance(node, Call) and node.function == name else node


def _with_function(node: Statement, new: Function) -> Statement:
    if isinstance(node, Function) and node.name == new.name:
        return new
    return replace(node, constant=0) if isinstance(node, Call) and node.function == new.name else node


def _without(names: tuple[str, ...], at: int) -> tuple[str, ...]:
    return (*names[:at], *names[at + 1 :])


def _all(body: Body, change: Callable[[Statement], Statement]) -> Body:
    """Return statements of which each, also those in bodies, is changed."""
    return tuple(with_bodies(change(one), lambda inner: _all(inner, change)) for one in body)
