"""The Triton source of a program: the text that is compiled is the text that a maintainer reads."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from mhc.programs.triton.functions import buffers_of, functions_of
from mhc.programs.triton.grammar import (
    Atomic,
    BlockLoad,
    BlockStore,
    Call,
    Carry,
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
    walk,
)
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.reductions import COMBINE_TEXT, PAIRS_TEXT

_INDENT = "    "


@dataclass(frozen=True)
class _Whole:
    """What the text of a statement depends on.

    Attributes:
        updated: the buffers that are updated. functions: by name. given: the buffers that each is given.
        pointers: the names of pointers, also of those that loops and branches carry.
    """

    updated: Container[str]
    functions: Mapping[str, Function]
    given: Mapping[str, Sequence[str]]
    pointers: Container[str] = ()


def render(program: TritonProgram) -> str:
    """Return the functions that combine elements, others, the kernel `f`, and a comment that says how it is launched."""
    own = sorted(
        {one.combine for one in walk(program.body) if isinstance(one, Op) and one.op in {"reduce", "associative_scan"}}
    )
    lines = []
    for name in own:
        text = PAIRS_TEXT.get(name) or (f"return {COMBINE_TEXT[name]}",)
        operands = "a, b, c, d" if name in PAIRS_TEXT else "a, b"
        lines += ["@triton.jit", f"def {name}_({operands}):", *(f"{_INDENT}{line}" for line in text), "", ""]
    updated = {one.name for one in program.buffers if one.updated}
    whole = _Whole(updated, functions_of(program.body), buffers_of(program.body), _pointers(program.body))
    for function in whole.functions.values():
        constant = (f"{function.constant}: tl.constexpr",) if function.constant else ()
        operands = ", ".join((*function.parameters, *whole.given[function.name], *constant))
        lines += ["@triton.jit", f"def {function.name}({operands}):", *_block(function.body, 1, whole)]
        lines += [f"{_INDENT}return {', '.join(function.results)}", "", ""]
    parameters = *(one.name for one in program.buffers), *program.arguments
    lines += ["@triton.jit", f"def f({', '.join(parameters)}):"]
    lines += _block(program.body, 1, whole)
    grid = f"({', '.join(map(str, program.grid))}{',' if len(program.grid) == 1 else ''})"
    given = "".join(f"{name}={number}, " for name, number in program.arguments.items())
    lines.append(f"# f[{grid}](..., {given}num_warps={program.num_warps}, num_stages={program.num_stages})")
    return "\n".join(lines) + "\n"


def _block(body: Sequence[Statement], depth: int, whole: _Whole) -> Iterator[str]:
    for one in body:
        for line in _lines(one, whole):
            yield _INDENT * depth + line


def _lines(node: Statement, whole: _Whole) -> Iterator[str]:
    # another thread may have had the element before
    if isinstance(node, (Load, Store, Atomic)) and node.buffer in whole.updated:
        yield "tl.debug_barrier()"
    match node:
        case Op(op="program_id" | "num_programs"):
            yield f"{node.name} = tl.{node.op}({node.axis})"
        case Op():
            yield f"{node.name} = {TABLE[node.op].text(node)}"
        case Load() | Store() | Atomic():
            yield from _access(node, whole)
        case Pointer():
            yield f"{node.name} = {node.start or node.buffer} + {node.index}"
        case Descriptor():
            strides = f"[{node.stride}, 1]" if len(node.sizes) > 1 else "[1]"
            sizes = f"shape=[{', '.join(node.sizes)}], strides={strides}, block_shape={list(node.block)}"
            yield f"{node.name} = tl.make_tensor_descriptor({node.buffer}, {sizes})"
        case BlockLoad():
            yield f"{node.name} = {node.descriptor}.load([{', '.join(node.offsets)}])"
        case BlockStore():
            yield f"{node.descriptor}.store([{', '.join(node.offsets)}], {node.value})"
        case For():
            yield from _for(node, whole)
        case If():
            yield from _starts(node.carried)
            yield f"if {node.condition}:"
            yield from _block(node.body, 1, whole)
            yield from _passed_on(node.carried)
            if node.results:
                yield f"{_INDENT}return {', '.join(node.results)}"
            if node.otherwise:
                yield "else:"
                yield from _block(node.otherwise, 1, whole)
                yield from _passed_on([replace(one, after=one.otherwise) for one in node.carried if one.otherwise])
        case Call():
            function = whole.functions[node.function]
            constant = (f"{function.constant}={node.constant}",) if function.constant else ()
            operands = ", ".join((*node.args, *whole.given[node.function], *constant))
            yield f"{', '.join(node.names)} = {node.function}({operands})"


def _access(node: Load | Store | Atomic, whole: _Whole) -> Iterator[str]:
    more = f", mask={node.mask}" if node.mask else ""
    match node:
        case Load():
            other = f", other={node.other}" if node.other and not node.late else ""
            yield f"{node.name} = tl.load({_place(node, whole)}{more}{other}{_policy(node)})"
            if node.late:
                yield f"{node.name} = tl.where({node.mask}, {node.name}, {node.other})"
        case Store():
            yield f"tl.store({_place(node, whole)}, {node.value}{more}{_policy(node)})"
        case Atomic():
            name = f"{node.name} = " if node.name else ""
            compare = f"{node.compare}, " if node.compare else ""
            order = f', sem="{node.order}"' if node.order else ""
            yield f"{name}tl.atomic_{node.op}({_place(node, whole)}, {compare}{node.value}{more}{order})"
            if node.name and node.mask:  # elsewhere it is not defined
                yield f"{node.name} = tl.where({node.mask}, {node.name}, 0)"


def _pointers(body: tuple[Statement, ...]) -> set[str]:
    found: set[str] = set()
    for one in walk(body):
        if isinstance(one, Pointer):
            found.add(one.name)
        found |= {carry.name for carry in getattr(one, "carried", ()) if carry.start in found}
    return found


def _place(node: Load | Store | Atomic, whole: _Whole) -> str:
    """Return the pointers of an access."""
    return node.index if node.index in whole.pointers else f"{node.buffer} + {node.index}"


def _policy(node: Load | Store) -> str:
    """Return the argument that says how an access goes through the caches."""
    if not node.policy:
        return ""
    return f', cache_modifier="{node.policy}"' if node.policy.startswith(".") else f', eviction_policy="{node.policy}"'


def _for(node: For, whole: _Whole) -> Iterator[str]:
    yield from _starts(node.carried)
    begin, end, step = node.first or node.begin, node.bound or node.end, node.by or node.step
    if node.kind == "while":
        yield f"{node.var}_ = tl.full([], {begin}, tl.{node.dtype})"
        yield f"while {node.var}_ {'<' if node.step > 0 else '>'} {end}:"
        yield f"{_INDENT}{node.var} = {node.var}_"
        yield from _block(node.body, 1, whole)
        yield from _passed_on(node.carried)
        yield f"{_INDENT}{node.var}_ += {step}"
        return
    options = f", num_stages={node.stages}" if node.stages else ""
    options += f", loop_unroll_factor={node.unroll}" if node.unroll else ""
    options += "".join(f", {one}=True" for one in node.flags)
    yield f"for {node.var}_ in {node.kind}({begin}, {end}, {step}{options}):"
    yield f"{_INDENT}{node.var} = tl.full([], {node.var}_, tl.{node.dtype})"
    yield from _block(node.body, 1, whole)
    yield from _passed_on(node.carried)


def _starts(carried: Sequence[Carry]) -> Iterator[str]:
    for one in carried:
        yield f"{one.name} = {one.start}"


def _passed_on(carried: Sequence[Carry]) -> Iterator[str]:
    if carried:
        yield f"{_INDENT}{', '.join(one.name for one in carried)} = {', '.join(one.after for one in carried)}"
