"""The Triton source of a program: the text that is compiled is the text that a maintainer reads."""

from collections.abc import Container, Iterator, Sequence

from msgspec.structs import replace

from mhc.programs.triton.grammar import (
    Atomic,
    BlockLoad,
    BlockStore,
    Carry,
    Descriptor,
    For,
    If,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
    walk,
)
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.reductions import COMBINE_TEXT, PAIRS_TEXT

_INDENT = "    "


def render(program: TritonProgram) -> str:
    """Return the functions that combine elements, then the kernel `f`, and a comment that says how it is launched."""
    own = sorted(
        {one.combine for one in walk(program.body) if isinstance(one, Op) and one.op in {"reduce", "associative_scan"}}
    )
    lines = []
    for name in own:
        text = PAIRS_TEXT.get(name) or (f"return {COMBINE_TEXT[name]}",)
        operands = "a, b, c, d" if name in PAIRS_TEXT else "a, b"
        lines += ["@triton.jit", f"def {name}_({operands}):", *(f"{_INDENT}{line}" for line in text), "", ""]
    parameters = *(one.name for one in program.buffers), *program.arguments
    lines += ["@triton.jit", f"def f({', '.join(parameters)}):"]
    updated = {one.name for one in program.buffers if one.updated}
    lines += _block(program.body, 1, updated)
    grid = f"({', '.join(map(str, program.grid))}{',' if len(program.grid) == 1 else ''})"
    given = "".join(f"{name}={number}, " for name, number in program.arguments.items())
    lines.append(f"# f[{grid}](..., {given}num_warps={program.num_warps}, num_stages={program.num_stages})")
    return "\n".join(lines) + "\n"


def _block(body: Sequence[Statement], depth: int, updated: Container[str]) -> Iterator[str]:
    for one in body:
        for line in _lines(one, updated):
            yield _INDENT * depth + line


def _lines(node: Statement, updated: Container[str]) -> Iterator[str]:
    if isinstance(node, (Load, Store, Atomic)) and node.buffer in updated:  # another thread may have had the element before
        yield "tl.debug_barrier()"
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
            compare = f"{node.compare}, " if node.compare else ""
            yield f"{name}tl.atomic_{node.op}({node.buffer} + {node.index}, {compare}{node.value}{more})"
        case Descriptor():
            strides = f"[{node.stride}, 1]" if len(node.sizes) > 1 else "[1]"
            sizes = f"shape=[{', '.join(node.sizes)}], strides={strides}, block_shape={list(node.block)}"
            yield f"{node.name} = tl.make_tensor_descriptor({node.buffer}, {sizes})"
        case BlockLoad():
            yield f"{node.name} = {node.descriptor}.load([{', '.join(node.offsets)}])"
        case BlockStore():
            yield f"{node.descriptor}.store([{', '.join(node.offsets)}], {node.value})"
        case For():
            yield from _for(node, updated)
        case If():
            yield from _starts(node.carried)
            yield f"if {node.condition}:"
            yield from _block(node.body, 1, updated)
            yield from _passed_on(node.carried)
            if node.otherwise:
                yield "else:"
                yield from _block(node.otherwise, 1, updated)
                yield from _passed_on([replace(one, after=one.otherwise) for one in node.carried if one.otherwise])


def _for(node: For, updated: Container[str]) -> Iterator[str]:
    yield from _starts(node.carried)
    end = node.end if node.bound is None else node.bound
    if node.kind == "while":
        yield f"{node.var}_ = tl.full([], {node.begin}, tl.{node.dtype})"
        yield f"while {node.var}_ {'<' if node.step > 0 else '>'} {end}:"
        yield f"{_INDENT}{node.var} = {node.var}_"
        yield from _block(node.body, 1, updated)
        yield from _passed_on(node.carried)
        yield f"{_INDENT}{node.var}_ += {node.step}"
        return
    stages = f", num_stages={node.stages}" if node.stages else ""
    yield f"for {node.var}_ in {node.kind}({node.begin}, {end}, {node.step}{stages}):"
    yield f"{_INDENT}{node.var} = tl.full([], {node.var}_, tl.{node.dtype})"
    yield from _block(node.body, 1, updated)
    yield from _passed_on(node.carried)


def _starts(carried: Sequence[Carry]) -> Iterator[str]:
    for one in carried:
        yield f"{one.name} = {one.start}"


def _passed_on(carried: Sequence[Carry]) -> Iterator[str]:
    if carried:
        yield f"{_INDENT}{', '.join(one.name for one in carried)} = {', '.join(one.after for one in carried)}"
