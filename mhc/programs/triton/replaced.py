"""Programs with other statements, names and buffers in the place of some, for the minimiser of Triton programs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from mhc.programs.triton.cuts import Body
from mhc.programs.triton.grammar import For, Function, If, Op, Statement, TritonProgram, walk, with_bodies

_NAMES = ("index", "mask", "other", "value", "bound", "first", "by", "condition", "compare", "descriptor", "start")


def changed(
    body: Body, change: Callable[[Statement], Iterator[tuple[Body, Mapping[str, str]]]]
) -> Iterator[tuple[Body, Mapping[str, str]]]:
    """Yield the statements with one of them, at any depth, replaced by others; and names to put in the place of names."""
    for at, node in reversed(list(enumerate(body))):
        before, after = body[:at], body[at + 1 :]
        for others, names in change(node):
            yield (*before, *others, *after), names
        if isinstance(node, (For, If, Function)):
            for inner, names in changed(node.body, change):
                yield (*before, replace(node, body=inner), *after), names
        if isinstance(node, If):
            for inner, names in changed(node.otherwise, change):
                yield (*before, replace(node, otherwise=inner), *after), names


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    """Return a statement, with all that is in it, that reads other names."""
    if not names:
        return node
    changes: dict[str, Any] = {}
    for name in _NAMES:
        if getattr(node, name, None) in names and not (name == "value" and isinstance(node, Op)):
            changes[name] = names[getattr(node, name)]
    for several in ("args", "sizes", "offsets", "results"):
        if hasattr(node, several):
            changes[several] = tuple(names.get(one, one) for one in getattr(node, several))
    if isinstance(node, (For, If)):
        changes["carried"] = tuple(
            replace(one, **{key: names.get(getattr(one, key), getattr(one, key)) for key in ("start", "after", "otherwise")})
            for one in node.carried
        )
    return with_bodies(replace(node, **changes), lambda body: tuple(renamed(one, names) for one in body))


def ops_of(program: TritonProgram) -> list[Op]:
    """Return the operations of a program."""
    return [one for one in walk(program.body) if isinstance(one, Op)]


def with_buffer(program: TritonProgram, number: int, **changes: Any) -> TritonProgram:
    """Return the program with another buffer."""
    one = replace(program.buffers[number], **changes)
    return replace(program, buffers=(*program.buffers[:number], one, *program.buffers[number + 1 :]))


def mapped(body: Body, change: Callable[[Op], Op], described: Callable[[Any], Any] = lambda one: one) -> Body:
    """Return the statements with others in the place of operations, and of what has to do with descriptors."""
    return tuple(
        change(one) if isinstance(one, Op) else described(with_bodies(one, lambda inner: mapped(inner, change, described)))
        for one in body
    )
