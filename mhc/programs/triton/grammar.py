"""The grammar of Triton programs: frozen records, stored as JSON. `mhc.programs.triton.operations` says what each means.

A program is a list of statements in which each name is set once. Its text is executed, so a file may hold nothing but names
of a fixed form, numbers, and operations of the tables here.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from mhc.programs.drawn_program import DrawnProgram, decoded
from mhc.programs.grammar import INTEGERS

FLOATS = ("float16", "float32", "float64", "bfloat16")
DTYPES = (*INTEGERS, *FLOATS, "bool")
VERSION = 1
FAR = 1 << 40

BINARY = ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "shl", "shr", "minimum", "maximum", "umulhi")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
UNARY = ("neg", "invert", "abs", "floor", "ceil", "cast", "bitcast", "full_like")
TERNARY = ("where", "fma", "clamp")
PLACES = ("swizzle2d",)
SOURCES = ("full", "arange", "program_id", "num_programs")
SHAPES = ("expand_dims", "broadcast_to", "reshape", "permute", "ravel", "join", "split", "interleave", "cat", "flip")
REDUCTIONS = ("sum", "max", "min", "xor_sum", "reduce_or", "argmax", "argmin", "reduce")
SCANS = ("cumsum", "cumprod", "associative_scan")
ORDERS = ("sort", "topk", "gather", "histogram", "dot")
NUMBERS = ("cdiv", "randint", "randint4x", "philox")
OPERATIONS = (
    *(*BINARY, *COMPARISONS, *UNARY, *TERNARY, *PLACES, *SOURCES),
    *(*SHAPES, *REDUCTIONS, *SCANS, *ORDERS, *NUMBERS),
)
PAIRS = ("each", "largest", "linear")
"""What they combine two pairs of elements with: each by itself, the larger first element, two steps `x * a + b`; the last in
a scan only."""
COMBINES = ("add", "mul", "and", "or", "xor", "min", "max", "left", "right", *PAIRS)
"""What `tl.reduce` and `tl.associative_scan` combine two elements with; `left` and `right`, `a` and `b`, in a scan only."""

Name = Annotated[str, Meta(pattern=r"^[a-z][0-9]{0,3}$")]
FunctionName = Annotated[str, Meta(pattern=r"^g_[0-9]$")]
Dtype = Annotated[str, Meta(pattern=f"^({'|'.join(DTYPES)})$")]
Operation = Annotated[str, Meta(pattern=f"^({'|'.join(OPERATIONS)})$")]
Combine = Annotated[str, Meta(pattern=f"^({'|'.join(COMBINES)})$")]
Extent = Annotated[int, Meta(ge=1, le=4096)]
Axis = Annotated[int, Meta(ge=-1, le=7)]
Policy = Literal["", "evict_first", "evict_last", ".cg"]
POLICIES = get_args(Policy)[1:]
"""How loads and stores go through the caches; what is at an address does not depend on it."""
LoopFlag = Literal["flatten", "disable_licm", "disallow_acc_multi_buffer"]


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A statement."""


class Op(_Node, frozen=True, tag="op"):
    """`name = op(args)`.

    Attributes:
        dtype: of `full`, and what casts give. shape: of the result, for `full`, `arange`, `reshape` and `broadcast_to`;
            rows, columns and rows of a group, for `swizzle2d`.
        axis: -1 for all of them; 1 where a number is the left operand; the rounds of random numbers, 0 for ten.
        axes: the order of `permute`.
        value: of `full`; the Python number that is an operand; where `arange` begins; which half of `split`; the axis of the
            grid; k of `topk`; the bins of `histogram`; 0 for the row and 1 for the column of `swizzle2d`; which of
            several results, where pairs are combined and of random numbers.
        flag: the axis is kept (reductions), from the end (scans), descending (sort), with TF32 (dot), written as
            an index (expand_dims), with a Python number (of two operands, also of those that `where` chooses from), given
            to the kernel as an argument (full).
        combine: of `reduce` and `associative_scan`.
        constant: that of the function, in the place of the axis (reductions, scans), of the size (arange) or of the value.
    """

    name: Name
    op: Operation
    args: tuple[Name, ...] = ()
    dtype: Dtype = "int32"
    shape: tuple[Extent, ...] = ()
    axis: Axis = 0
    axes: tuple[Axis, ...] = ()
    value: int | float = 0
    flag: bool = False
    combine: Combine = "add"
    constant: Name | None = None


class Load(_Node, frozen=True, tag="load"):
    """Elements of an input or of an updated buffer at indices or pointers; where a mask does not hold, those of `other`.

    Masks, `other` and what is stored may be one element, or have axes of length 1 where indices have longer ones.

    Attributes:
        late: `other` is chosen by a `tl.where` after the load. policy: how it goes through the caches.
    """

    name: Name
    buffer: Name
    index: Name
    mask: Name | None = None
    other: Name | None = None
    late: bool = False
    policy: Policy = ""


class Store(_Node, frozen=True, tag="store"):
    """Set elements of an output at indices, where the mask holds."""

    buffer: Name
    index: Name
    value: Name
    mask: Name | None = None
    policy: Policy = ""


class Atomic(_Node, frozen=True, tag="atomic"):
    """Combine elements of an output with values, one after the other, in any order; the output begins as 0, or is updated.

    Attributes:
        op: `xchg` sets an element, `cas` only where it is what `compare` is; each element is combined with one value only.
        name: of what was there before, where each element is combined with one value only; 0 where a mask does not hold.
    """

    op: Literal["add", "max", "min", "and", "or", "xor", "xchg", "cas"]
    buffer: Name
    index: Name
    value: Name
    mask: Name | None = None
    name: Name | None = None
    compare: Name | None = None
    order: Literal["", "acquire", "release", "relaxed"] = ""


class Descriptor(_Node, frozen=True, tag="descriptor"):
    """`name` stands for a line or a matrix in a buffer, of which blocks are loaded or stored.

    What is outside of it is loaded as 0, and not stored.

    Attributes:
        sizes: int32 numbers, the length of the line, or rows and columns. block: the shape of the blocks.
        stride: elements from the begin of a row to that of the next, a multiple of 16 bytes; 0 for a line.
    """

    name: Name
    buffer: Name
    sizes: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)]
    block: Annotated[tuple[Extent, ...], Meta(min_length=1, max_length=2)]
    stride: Annotated[int, Meta(ge=0, le=65536)] = 0


class Pointer(_Node, frozen=True, tag="pointer"):
    """`name = buffer + index`, or `start + index` of another pointer; the index of loads, stores and atomic operations.

    Loops and branches may carry it.
    """

    name: Name
    buffer: Name
    index: Name
    start: Name | None = None


class BlockLoad(_Node, frozen=True, tag="block_load"):
    """The block of a descriptor that begins at int32 offsets."""

    name: Name
    descriptor: Name
    offsets: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)]


class BlockStore(_Node, frozen=True, tag="block_store"):
    """Set the block of a descriptor of an output that begins at int32 offsets."""

    descriptor: Name
    offsets: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=2)]
    value: Name


class Carry(_Node, frozen=True):
    """A value that an iteration passes on: `name` is `start` in the first, and in each later one what `after` was.

    Attributes:
        otherwise: of a branch, what it is where the condition does not hold; without it, `start`.
    """

    name: Name
    start: Name
    after: Name
    otherwise: Name | None = None


class For(_Node, frozen=True, tag="for"):
    """A loop over `begin, begin + step, ...` below `end`, or above it where the step is negative. The step is not 0.

    All that is carried is set at once at the end of an iteration.

    Attributes:
        kind: `range`, `tl.range`, which is pipelined, `tl.static_range`, which is unrolled, or `while`.
        bound: an integer of one element, loaded from memory, in the place of `end`; the loop is then not known ahead. Or the
            constant of the function.
        wide: the index and the bounds are int64, else int32.
        first, by: such integers in the place of `begin` and of a `step` that is above 0.
        unroll: times the body is written in one iteration, 0 for once. flags: other options of `tl.range`.
    """

    var: Name
    end: Annotated[int, Meta(ge=-FAR, le=FAR)]
    body: tuple["Statement", ...]
    begin: Annotated[int, Meta(ge=-FAR, le=FAR)] = 0
    step: Annotated[int, Meta(ge=-4, le=8)] = 1
    carried: tuple[Carry, ...] = ()
    kind: Literal["range", "tl.range", "tl.static_range", "while"] = "range"
    stages: Annotated[int, Meta(ge=0, le=8)] = 0
    bound: Name | None = None
    wide: bool = False
    first: Name | None = None
    by: Name | None = None
    unroll: Annotated[int, Meta(ge=0, le=8)] = 0
    flags: tuple[LoopFlag, ...] = ()

    @property
    def dtype(self) -> str:
        """Return the dtype of its index."""
        return "int64" if self.wide else "int32"

    @property
    def indices(self) -> range:
        """Return its indices, of a loop that is known ahead."""
        return range(self.begin, self.end, self.step or 1)


class If(_Node, frozen=True, tag="if"):
    """Run the body where a bool of one element, or the constant of the function, holds.

    Attributes:
        otherwise: what is run where it does not hold, if there are such statements.
        results: what the function that it is in returns then; none where it goes on.
    """

    condition: Name
    body: tuple["Statement", ...]
    carried: tuple[Carry, ...] = ()
    otherwise: tuple["Statement", ...] = ()
    results: tuple[Name, ...] = ()


class Function(_Node, frozen=True, tag="function"):
    """A function beside the kernel. It knows its parameters, and has all buffers.

    Attributes:
        constant: the name of an integer that the compiler knows.
    """

    name: FunctionName
    parameters: Annotated[tuple[Name, ...], Meta(max_length=8)]
    body: tuple["Statement", ...]
    results: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=4)]
    constant: Name | None = None


class Call(_Node, frozen=True, tag="call"):
    """`names = function(args)`, of a function that comes before."""

    names: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=4)]
    function: FunctionName
    args: Annotated[tuple[Name, ...], Meta(max_length=8)]
    constant: Annotated[int, Meta(ge=0, le=64)] = 0


Statement = Op | Load | Store | Atomic | Descriptor | Pointer | BlockLoad | BlockStore | For | If | Function | Call


class Buffer(_Node, frozen=True):
    """A tensor of one axis in global memory.

    Attributes:
        least, most: values of an input lie in between. zeroed: an output that is 0 before the program runs.
        updated: an output that holds such values before the program runs, and that is loaded too; each block has elements of
            its own.
        offset: elements by which it begins behind an address that is a multiple of 16 bytes.
    """

    name: Name
    size: Annotated[int, Meta(ge=1, le=65536)]
    dtype: Dtype = "int32"
    least: int = 0
    most: int = 0
    written: bool = False
    zeroed: bool = False
    updated: bool = False
    offset: Annotated[int, Meta(ge=0, le=16)] = 0


class TritonProgram(DrawnProgram, frozen=True, tag_field="language", tag="triton"):
    """A kernel: its buffers, its statements, and how it is launched."""

    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    grid: Annotated[tuple[Annotated[int, Meta(ge=1, le=4)], ...], Meta(min_length=1, max_length=3)] = (1,)
    num_warps: Literal[1, 2, 4, 8] = 4
    num_stages: Annotated[int, Meta(ge=1, le=8)] = 3
    seed: Annotated[int, Meta(ge=0)] = 0
    version: int = VERSION

    def __hash__(self) -> int:
        return hash(self.json)

    @property
    def words(self) -> str:
        """Return its size in words, for reports."""
        return f"{sum(1 for _ in walk(self.body))} statements, {', '.join(dict.fromkeys(one.dtype for one in self.buffers))}"

    def buffer(self, name: str) -> Buffer | None:
        """Return the buffer of this name."""
        return next((one for one in self.buffers if one.name == name), None)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """Return the buffers that are written."""
        return tuple(one for one in self.buffers if one.written)

    @property
    def arguments(self) -> dict[str, int | float]:
        """Return the numbers that the kernel is given beside its buffers, by the names of its parameters."""
        given = (one for one in walk(self.body) if isinstance(one, Op) and one.op == "full" and one.flag)
        return {argument(one): float(one.value) if one.dtype in FLOATS else int(one.value) for one in given}

    @staticmethod
    def from_json(text: str | bytes) -> "TritonProgram":
        """Read a program.

        Raises:
            CaseError: names what is wrong.
        """
        return decoded(_DECODER, text, VERSION)


_DECODER = msgspec.json.Decoder(TritonProgram)


def walk(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """Yield all statements, a loop, branch or function before its body."""
    for one in body:
        yield one
        if isinstance(one, (For, If, Function)):
            yield from walk(one.body)
        if isinstance(one, If):
            yield from walk(one.otherwise)


def with_bodies(node: Statement, change: Callable[[tuple[Statement, ...]], tuple[Statement, ...]]) -> Statement:
    """Return a statement with other statements in its bodies, where it has some."""
    if isinstance(node, If):
        return replace(node, body=change(node.body), otherwise=change(node.otherwise))
    return replace(node, body=change(node.body)) if isinstance(node, (For, Function)) else node


def argument(node: Op) -> str:
    """Return the name of the kernel's parameter that holds a number."""
    return f"{node.name}_"


def uses(node: Statement) -> tuple[str, ...]:
    """Return the names that a statement reads; of a loop, branch or function, without its body."""
    match node:
        case Op():
            return node.args
        case Load():
            found: tuple[str | None, ...] = node.index, node.mask, node.other
        case Store():
            found = node.index, node.value, node.mask
        case Atomic():
            found = node.index, node.value, node.mask, node.compare
        case Descriptor():
            return node.sizes
        case Pointer():
            found = node.index, node.start
        case BlockLoad():
            return node.descriptor, *node.offsets
        case BlockStore():
            return node.descriptor, *node.offsets, node.value
        case For():
            found = (node.bound, node.first, node.by, *(name for one in node.carried for name in (one.start, one.after)))
        case If():
            carried = (name for one in node.carried for name in (one.start, one.after, one.otherwise))
            found = (node.condition, *node.results, *carried)
        case Function():
            found = node.results
        case Call():
            found = node.function, *node.args
    return tuple(one for one in found if one is not None)
