"""The operations of a TileLang program in words: what findings are named by, and what was covered."""

from typing import Any

from mhc.programs import grammar
from mhc.programs.grammar import Program, children, walk

_SCOPES = {"let": "a bound value", "value": "a scalar parameter", "index": "a loop of int64"}
NARROW = "narrow integer arithmetic"
_NARROW = ("int8", "int16")  # and the unsigned ones, whose names end in the same way


def signature(program: Program) -> str:
    """Return the operations of a program in words: of a minimal one it says which are needed for the failure.

    Arithmetic of 8 and 16 bits is one operation, since compilers go wrong in all of it together: they leave out what
    truncates the result.
    """
    found: set[str] = set()

    def look(node: Any, *, index: bool) -> None:
        match node:
            case grammar.For(kind=kind) if kind != "serial":
                found.add(f"T.{kind}")
            case grammar.For(count=count) if count is not None:
                found.add("a computed number of iterations" if node.first is None else "a computed begin")
            case grammar.For(step=step) if step != 1:
                found.add("a step")
            case grammar.Leave():
                found.add(node.how)
            case grammar.While():
                found.add("while")
            case grammar.Assume():
                found.add("T.assume")
            case grammar.If():
                found.add("if")
            case grammar.Copy():
                found.add("T.copy" if _is_whole(node, program) else "T.copy of a part")
            case grammar.Fill():
                found.add("T.fill")
            case grammar.Reduce():
                found.add(f"T.reduce_{node.op}")
            case grammar.Scan():
                found.add("T.cumsum")
            case grammar.Gemm():
                found.add("T.gemm")
            case grammar.AtomicAdd():
                found.add("T.atomic_add")
        for one in _operation(node, program):
            narrow = isinstance(node, (grammar.Binary, grammar.Unary)) and one.endswith(_NARROW)
            found.add(NARROW if narrow else f"{one} in an index" if index else one)
        places = getattr(node, "at", ())
        for below in children(node):
            look(below, index=index or any(below is place for place in places))

    for statement in program.body:
        look(statement, index=False)
    scopes = [one.scope for one in program.buffers if one.scope in {"shared", "fragment"}]
    found |= {f"{'several ' if scopes.count(one) > 1 else ''}alloc_{one}" for one in scopes}
    found |= {"a symbolic size"} if program.symbols else set()
    found |= {_SCOPES[one.scope] for one in program.buffers if one.scope in _SCOPES}
    if NARROW in found:
        found = {one for one in found if not one.startswith(("cast to", "int32 cast"))}
    return ", ".join(sorted(found)) or "none"


def _is_whole(node: grammar.Copy, program: Program) -> bool:
    return all(program.buffer(name).shape == node.extents for name in (node.source, node.target))


def _operation(node: Any, program: Program) -> list[str]:
    match node:
        case grammar.Binary(op=op) if op in grammar.LOGIC:
            return [op]
        case grammar.Binary(op=op, a=a):
            return [_of(op, grammar.dtype_of(a, program))]
        case grammar.Unary(op="not"):
            return ["not"]
        case grammar.Unary(op=op, a=a):
            return [_of(f"unary {op}", grammar.dtype_of(a, program))]
        case grammar.Cast(dtype=dtype):
            return [_of("cast to", dtype, "int32 cast")]
        case grammar.Bits():
            return ["reinterpret"]
        case grammar.Select():
            return ["if_then_else"]
    return []


def _of(what: str, dtype: str, plain: str = "") -> str:
    """Return an operation with its dtype, unless that is int32."""
    return f"{what} {dtype}" if dtype != "int32" else plain or what


def features(program: Program) -> frozenset[str]:
    """Return the labels of what a program has, for the map of what was covered."""
    labels = {f"node: {type(node).__name__.lower()}" for node in walk(program)}
    labels |= {f"operation: {one}" for node in walk(program) for one in _operation(node, program)}
    labels |= {f"dtype: {one.dtype}" for one in program.buffers}
    labels |= {f"scope: {one.scope}" for one in program.buffers}
    labels |= {f"loop: {one.kind}" for one in walk(program) if isinstance(one, grammar.For)}
    labels |= {"loop: with a step" for one in walk(program) if isinstance(one, grammar.For) and one.step != 1}
    labels |= {"loop: from a computed begin" for one in walk(program) if isinstance(one, grammar.For) and one.first}
    labels |= {"symbolic size"} if program.symbols else set()
    labels |= {"NaN and infinities"} if any(one.special for one in program.buffers) else set()
    labels.add(f"threads: {program.threads}")
    labels.add(f"grid: {len(program.grid)} axes" if program.grid != (1,) else "grid: one block")
    return frozenset(labels)
