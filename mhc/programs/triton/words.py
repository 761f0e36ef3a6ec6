"""The operations of a Triton program in words: what findings are named by, and what was covered."""

from mhc.programs.triton.cuts import seen
from mhc.programs.triton.grammar import SOURCES, Atomic, For, If, Load, Op, Store, TritonProgram, walk

_BOTH = {"reduce", "associative_scan"}


def signature(program: TritonProgram) -> str:
    """Return the operations of a program in words: of a minimal one it says which are needed for the failure.

    What every program has is left out: sources, and loads and stores without a mask.
    """
    return ", ".join(sorted(_words(program))) or "none"


def _words(program: TritonProgram) -> set[str]:
    dtypes = {name: one.dtype for name, one in seen(program).items()}
    found: set[str] = set()
    for node in walk(program.body):
        match node:
            case Op(op=op) if op not in SOURCES:
                dtype = dtypes.get(node.args[0], "int32") if node.args else "int32"
                name = f"{op} by {node.combine}" if op in _BOTH else op
                name = f"{name} to {node.dtype}" if op in {"cast", "bitcast"} else name
                found.add(f"{name} {dtype}" if dtype != "int32" else name)
            case Load(mask=str()):
                found.add("masked load")
            case Store(mask=str()):
                found.add("masked store")
            case Atomic():
                found.add(f"atomic_{node.op}")
            case For():
                found.add(f"for {node.kind}")
            case If():
                found.add("if")
    return found


def features(program: TritonProgram) -> frozenset[str]:
    """Return the labels of what a program has, for the map of what was covered."""
    labels = {f"statement: {type(node).__name__.lower()}" for node in walk(program.body)}
    labels |= {f"operation: {node.op}" for node in walk(program.body) if isinstance(node, Op)}
    labels |= {f"loop: {node.kind}" for node in walk(program.body) if isinstance(node, For)}
    labels |= {f"dtype: {one.dtype}" for one in program.buffers}
    labels.add(f"warps: {program.num_warps}")
    labels.add(f"grid: {len(program.grid)} axes" if program.grid != (1,) else "grid: one block")
    return frozenset(labels)
