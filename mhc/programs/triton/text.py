"""The Triton source of a program: the text that is compiled is the text that a maintainer reads."""

from collections.abc import Iterator, Sequence

from mhc.programs.triton.grammar import Atomic, Carry, For, If, Load, Op, Statement, Store, TritonProgram, walk
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.reductions import COMBINE_TEXT

_INDENT = "    "


def render(program: TritonProgram) -> str:
    """Return the functions that combine elements, then the kernel `f`, and a comment that says how it is launched."""
    own = sorted(
        {one.combine for one in walk(program.body) if isinstance(one, Op) and one.op in {"reduce", "associative_scan"}}
    )
    lines = []
    for name in own:
        lines += ["@triton.jit", f"def {name}_(a, b):", f"{_INDENT}return {COMBINE_TEXT[name]}", "", ""]
    lines += ["@triton.jit", f"def f({', '.join(one.name for one in program.buffers)}):"]
    lines += _block(program.body, 1)
    grid = f"({', '.join(map(str, program.grid))}{',' if len(program.grid) == 1 else ''})"
    lines.append(f"# f[{grid}](..., num_warps={program.num_warps}, num_stages={program.num_stages})")
    return "\n".join(lines) + "\n"


def _block(body: Sequence[Statement], depth: int) -> Iterator[str]:
    for one in body:
        for line in _lines(one):
            yield _INDENT * depth + line


def _lines(node: Statement) -> Iterator[str]:
    match node:
        case Op(op="program_id" | "num_programs"):
            yield f"{node.name} = tl.{node.op}({node.axis})"
        case Op():
            yield f"{node.name} = {TABLE[node.op].text(node)}"
        case Load():
            more = f", mask={node.mask}" if node.mask else ""
            other = f", other={node.other}" if node.other else ""
            yield f"{node.name} = tl.load({node.buffer} + {node.index}{more}{other})"
        case Store():
            more = f", mask={node.mask}" if node.mask else ""
            yield f"tl.store({node.buffer} + {node.index}, {node.value}{more})"
        case Atomic():
            more = f", mask={node.mask}" if node.mask else ""
            name = f"{node.name} = " if node.name else ""
            yield f"{name}tl.atomic_{node.op}({node.buffer} + {node.index}, {node.value}{more})"
        case For():
            yield from _starts(node.carried)
            end = node.bound or node.end
            stages = f", num_stages={node.stages}" if node.stages else ""
            yield f"for {node.var}_ in {node.kind}({node.begin}, {end}, {node.step}{stages}):"
            yield f"{_INDENT}{node.var} = tl.full([], {node.var}_, tl.int32)"
            yield from _block(node.body, 1)
            yield from _passed_on(node.carried)
        case If():
            yield from _starts(node.carried)
            yield f"if {node.condition}:"
            yield from _block(node.body, 1)
            yield from _passed_on(node.carried)


def _starts(carried: Sequence[Carry]) -> Iterator[str]:
    for one in carried:
        yield f"{one.name} = {one.start}"


def _passed_on(carried: Sequence[Carry]) -> Iterator[str]:
    if carried:
        yield f"{_INDENT}{', '.join(one.name for one in carried)} = {', '.join(one.after for one in carried)}"
