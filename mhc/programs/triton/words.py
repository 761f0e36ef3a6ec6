"""The operations of a Triton program in words: what findings are named by, and what was covered."""

from collections.abc import Mapping, Sequence

from mhc.programs.triton.cuts import seen
from mhc.programs.triton.functions import functions_of
from mhc.programs.triton.grammar import (
    BINARY,
    COMPARISONS,
    PAIRS,
    REDUCTIONS,
    SCANS,
    SOURCES,
    Atomic,
    BlockLoad,
    BlockStore,
    Call,
    Descriptor,
    For,
    If,
    Load,
    Op,
    Pointer,
    Store,
    TritonProgram,
    walk,
)
from mhc.programs.triton.values import Value

_BOTH = {"reduce", "associative_scan"}


def signature(program: TritonProgram) -> str:
    """Return the operations of a program in words: of a minimal one it says which are needed for the failure.

    What every program has is left out: sources, and loads and stores without a mask.
    """
    return ", ".join(sorted(_words(program))) or "none"


def _words(program: TritonProgram) -> set[str]:
    values = seen(program)
    found: set[str] = set()
    for node in walk(program.body):
        match node:
            case Op(op=op) if op not in SOURCES:
                found.add(_word(node, [values.get(name) for name in node.args]))
            case Load(buffer=name) if (loaded := program.buffer(name)) is not None and loaded.updated:
                found.add("a load of what was stored")
            case Load(mask=str()):
                found.add("masked load, then a choice" if node.late else "masked load")
            case Store(mask=str()):
                found.add("masked store")
            case Atomic():
                found.add(f"atomic_{node.op}{' and what was there' if node.name else ''}")
            case Pointer():
                found.add("a pointer")
            case BlockLoad() | BlockStore():
                found.add(_block_word(program, node, values))
            case For():
                kind = "while" if node.kind == "while" else f"for {node.kind}"
                found.add(f"{kind}{_last(node)}{_options(node)}{' that stores' if _writes(node) else ''}")
            case Call():
                found.add("call")
            case If(results=(_, *_)):
                found.add("early return")
            case If():
                found.add(f"if{' else' if node.otherwise else ''}{' that stores' if _writes(node) else ''}")
            case Op(op="full", flag=True):
                found.add("an argument")
    return found


def _writes(node: For | If) -> bool:
    return any(isinstance(one, (Store, Atomic, BlockStore)) for one in walk((node,)))


def _block_word(program: TritonProgram, node: BlockLoad | BlockStore, values: Mapping[str, Value]) -> str:
    """Return what a descriptor does, with what may be a bug of its own: one axis, parts that are outside, a dtype."""
    word = "block load" if isinstance(node, BlockLoad) else "block store"
    one = next((one for one in walk(program.body) if isinstance(one, Descriptor) and one.name == node.descriptor), None)
    if one is None:
        return word
    buffer = program.buffer(one.buffer)
    dtype = f" {buffer.dtype}" if buffer is not None and buffer.dtype != "int32" else ""
    outside = " partly outside" if _reaches_over(one, node, values) else ""
    return f"{word}{' of one axis' if len(one.block) == 1 else ''}{outside}{dtype}"


def _reaches_over(one: Descriptor, node: BlockLoad | BlockStore, values: Mapping[str, Value]) -> bool:
    """Return whether a block, as far as its numbers are known, is not all in its line or matrix."""
    if len(one.sizes) != len(node.offsets) or not {*one.sizes, *node.offsets} <= {*values}:
        return False
    ends = zip(node.offsets, one.block, one.sizes, strict=True)
    return any(
        values[begin].data < 0 or int(values[begin].data) + extent > values[size].data for begin, extent, size in ends
    )


def _options(node: For) -> str:
    """Return the options of a loop in words, which may be a bug of their own."""
    unknown = " from or by a number of a value" if node.first or node.by else ""
    return f"{unknown}{' unrolled' if node.unroll else ''}{''.join(f' with {one}' for one in node.flags)}"


def _last(node: For) -> str:
    """Return in words how a loop ends, where that may be a bug of its own."""
    if node.first or node.by:
        return ""
    if node.bound is None and not node.indices:
        return " without an iteration"
    backwards = f"{' far from 0' if abs(node.begin) >= 1 << 30 else ''}{' backwards' if node.step < 0 else ''}"
    return f"{backwards} with a rest" if node.bound is None and (node.end - node.begin) % (node.step or 1) else backwards


def _word(node: Op, operands: Sequence[Value | None]) -> str:
    """Return an operation with what may be a bug of its own: a combination, dtypes, an axis of length 1, all axes kept.

    Args:
        operands: None for one that is not known.
    """
    first = operands[0] if operands else None
    name = f"{node.op} by {node.combine}" if node.op in _BOTH else node.op
    if node.op in {"cast", "bitcast"}:
        name += f" to {node.dtype}"
    if node.flag and node.op in SCANS:
        name = f"reverse {name}"
    if node.flag and node.axis < 0 and node.op in REDUCTIONS:
        name += " that keeps all axes"
    if node.flag and node.op == "expand_dims":
        name = "None as an index"
    if node.op == "histogram" and len(node.args) > 1:
        name = "masked histogram"
    if first is None:
        return name
    if node.op in {"flip", "sort", "topk"} and first.shape[node.axis if node.op == "flip" else -1] == 1:
        name += " of length 1"
    elif node.op == "topk" and node.value < first.shape[-1]:
        name += " of a part"
    second = operands[1] if node.op in (*BINARY, *COMPARISONS) and len(operands) > 1 else None
    if second is not None and second.dtype != first.dtype:
        return f"{name} of {first.dtype} and {second.dtype}"
    return name if first.dtype == "int32" else f"{name} {first.dtype}"


def features(program: TritonProgram) -> frozenset[str]:
    """Return the labels of what a program has, for the map of what was covered."""
    labels = {f"statement: {type(node).__name__.lower()}" for node in walk(program.body)}
    labels |= {f"operation: {node.op}" for node in walk(program.body) if isinstance(node, Op)}
    numbers = {*BINARY, *COMPARISONS, "where"}
    labels |= {"operand: number" for node in walk(program.body) if isinstance(node, Op) and node.flag and node.op in numbers}
    labels |= {"atomic: what was there" for node in walk(program.body) if isinstance(node, Atomic) and node.name}
    labels |= {
        "index: None" for node in walk(program.body) if isinstance(node, Op) and node.flag and node.op == "expand_dims"
    }
    labels |= {"operation: of pairs" for node in walk(program.body) if isinstance(node, Op) and node.combine in PAIRS}
    labels |= {"buffer: updated" for one in program.buffers if one.updated}
    labels |= {"operand: argument" for _ in program.arguments}
    labels |= {"branch: else" for node in walk(program.body) if isinstance(node, If) and node.otherwise}
    labels |= {
        f"atomic: {node.op}" for node in walk(program.body) if isinstance(node, Atomic) and node.op in {"xchg", "cas"}
    }
    labels |= {"descriptor: one axis" for node in walk(program.body) if isinstance(node, Descriptor) and not node.stride}
    labels |= {f"loop: {node.kind}" for node in walk(program.body) if isinstance(node, For)}
    functions = functions_of(program.body)
    calls = [node for node in walk(program.body) if isinstance(node, Call)]
    labels |= {"call: several results" for node in calls if len(node.names) > 1}
    labels |= {"call: constant" for node in calls if functions[node.function].constant}
    labels |= {"call: in a function" for one in functions.values() if any(isinstance(node, Call) for node in walk(one.body))}
    labels |= {"call: early return" for node in walk(program.body) if isinstance(node, If) and node.results}
    if len(calls) > len({node.function for node in calls}):
        labels.add("call: again")
    labels |= {f"loop:{_options(node)}" for node in walk(program.body) if isinstance(node, For) and _options(node)}
    labels |= {"load: then a choice" for node in walk(program.body) if isinstance(node, Load) and node.late}
    labels |= {"loop: int64" for node in walk(program.body) if isinstance(node, For) and node.wide}
    labels |= {f"loop:{_last(node)}" for node in walk(program.body) if isinstance(node, For) and _last(node)}
    bodies = [node for node in walk(program.body) if isinstance(node, (For, If))]
    labels |= {f"store: in {type(node).__name__.lower()}" for node in bodies if _writes(node)}
    labels |= {f"dtype: {one.dtype}" for one in program.buffers}
    labels.add(f"warps: {program.num_warps}")
    labels.add(f"grid: {len(program.grid)} axes" if program.grid != (1,) else "grid: one block")
    if len(set(program.grid)) > 1:
        labels.add("grid: axes of several sizes")
    return frozenset(labels)
