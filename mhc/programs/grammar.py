"""The grammar of programs: frozen records, stored as JSON. What each node means is in `mhc.programs.evaluate`."""

import functools
import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mhc.programs.drawn_program import DrawnProgram, decoded

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = ("float16", "float32", "float64")
DTYPES = (*INTEGERS, *FLOATS, "bool")
VERSION = 1

ARITHMETIC = ("+", "-", "*", "//", "%", "min", "max", "&", "|", "^", "<<", ">>", "truncdiv", "truncmod", "ceildiv", "/")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
ROUNDING = ("floor", "ceil", "trunc")
FUNCTIONS = (*ROUNDING, "sqrt")
"""Functions of floats."""
SCALARS = ("var", "let", "value", "index")
"""Scopes of buffers that are one value."""
LOGIC = ("and", "or")

# What a file may hold: a program's text is executed, so that names in a file must be nothing but names.
Name = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9]{0,7}$")]
ConfigName = Annotated[str, Meta(pattern=r"^[a-z_.]{1,80}$")]
Dtype = Annotated[str, Meta(pattern=f"^({'|'.join(DTYPES)})$")]
Operation = Annotated[str, Meta(pattern=f"^({'|'.join(map(re.escape, (*ARITHMETIC, *COMPARISONS, *LOGIC)))})$")]
Extent = Annotated[int, Meta(ge=1, le=4096)]


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of a program."""


class Const(_Node, frozen=True, tag="const"):
    """A constant."""

    value: int | float
    dtype: Dtype = "int32"


class Var(_Node, frozen=True, tag="var"):
    """The value of a loop's index, of a block's index or of a scalar."""

    name: Name


class Load(_Node, frozen=True, tag="load"):
    """An element of a buffer."""

    buffer: Name
    at: tuple["Expr", ...]


class Binary(_Node, frozen=True, tag="binary"):
    """`a op b` of two operands of one dtype; comparisons and logic give bool, everything else that dtype."""

    op: Operation
    a: "Expr"
    b: "Expr"


class Unary(_Node, frozen=True, tag="unary"):
    """`-a`, `+a`, `~a`, `not a`, `abs(a)` or `floor(a)`."""

    op: Literal["-", "+", "~", "not", "abs", "floor", "ceil", "trunc", "sqrt"]
    a: "Expr"


class Cast(_Node, frozen=True, tag="cast"):
    """`a` in another dtype: integers wrap around, floats are truncated toward 0, `bool` is whether it is not 0."""

    dtype: Dtype
    a: "Expr"


class Bits(_Node, frozen=True, tag="bits"):
    """The bits of `a` as another dtype of the same size."""

    dtype: Dtype
    a: "Expr"


class Select(_Node, frozen=True, tag="select"):
    """`a` where the condition holds, else `b`; the other one is not evaluated."""

    condition: "Expr"
    a: "Expr"
    b: "Expr"


class For(_Node, frozen=True, tag="for"):
    """A loop of `extent` iterations over `begin, begin + step, ...`.

    Attributes:
        stages: of a loop of kind `Pipelined`.
        count: how many iterations a serial loop has, from 0 to `extent`; None: `extent`.
        first: where a serial loop begins that has no `begin`, and which has a `count`.
        step: not 0; other than 1 in serial and unrolled loops only. rest: so much the written end falls short of
            `begin + extent * step`, less than a step.
    """

    kind: Literal["serial", "unroll", "vectorized", "Parallel", "Pipelined"]
    var: Name
    extent: Extent
    body: tuple["Statement", ...]
    begin: int = 0
    stages: Annotated[int, Meta(ge=0, le=4)] = 0
    count: "Expr | None" = None
    step: Annotated[int, Meta(ge=-8, le=8)] = 1
    rest: Annotated[int, Meta(ge=0, le=7)] = 0
    first: "Expr | None" = None

    @property
    def indices(self) -> range:
        """Return its indices, of a loop whose number of iterations is not computed."""
        return range(self.begin, self.begin + self.extent * self.step, self.step or 1)


class While(_Node, frozen=True, tag="while"):
    """Run the body again and again, as long as the condition holds before it."""

    condition: "Expr"
    body: tuple["Statement", ...]


class Leave(_Node, frozen=True, tag="leave"):
    """Leave the innermost loop, or its iteration. It is the last of its statements, and that loop is plain or a `while`."""

    how: Literal["break", "continue"]


class Store(_Node, frozen=True, tag="store"):
    """Set an element of a buffer."""

    buffer: Name
    at: tuple["Expr", ...]
    value: "Expr"


class Assign(_Node, frozen=True, tag="assign"):
    """Set a scalar made by `T.alloc_var`, or bind a name to a value for the rest of the block of statements."""

    name: Name
    value: "Expr"


class If(_Node, frozen=True, tag="if"):
    """Run `then` where the condition holds, which of an integer means that it is not 0, else `otherwise`."""

    condition: "Expr"
    then: tuple["Statement", ...]
    otherwise: tuple["Statement", ...] = ()


class Assume(_Node, frozen=True, tag="assume"):
    """`T.assume`: say that a condition holds, which it must; it computes nothing."""

    condition: "Expr"


class Copy(_Node, frozen=True, tag="copy"):
    """`T.copy` of a part of a buffer to a part of another, from which its dtype may differ.

    A part may reach over the end of a parameter: what is read there is 0, what would be written there is not written.
    """

    source: Name
    source_at: tuple["int | Expr", ...]
    target: Name
    target_at: tuple["int | Expr", ...]
    extents: tuple[Extent, ...]


class Fill(_Node, frozen=True, tag="fill"):
    """`T.fill`: set all elements of a buffer."""

    buffer: Name
    value: Const


class Reduce(_Node, frozen=True, tag="reduce"):
    """`T.reduce_sum` and so on along an axis, which the target lacks, or has with one element.

    Attributes:
        clear: the target's elements before do not count.
    """

    op: Literal["sum", "max", "min", "abssum", "absmax"]
    source: Name
    target: Name
    axis: Annotated[int, Meta(ge=0, le=5)]
    clear: bool = True


class Scan(_Node, frozen=True, tag="scan"):
    """`T.cumsum` along an axis."""

    source: Name
    target: Name
    axis: Annotated[int, Meta(ge=0, le=5)]
    reverse: bool = False


class Gemm(_Node, frozen=True, tag="gemm"):
    """`T.gemm`: c += a @ b, of two axes each.

    Attributes:
        clear: c's elements before do not count.
    """

    a: Name
    b: Name
    c: Name
    transpose_a: bool = False
    transpose_b: bool = False
    clear: bool = False


class AtomicAdd(_Node, frozen=True, tag="atomic"):
    """`T.atomic_add` to an element of an output that begins as 0."""

    buffer: Name
    at: tuple["Expr", ...]
    value: "Expr"


Expr = Const | Var | Load | Binary | Unary | Cast | Bits | Select
Tile = Copy | Fill | Reduce | Scan | Gemm
"""Operations of all threads of a block together."""
Statement = For | While | Leave | Store | Assign | If | Assume | Copy | Fill | Reduce | Scan | Gemm | AtomicAdd
Node = Expr | Statement
EXPRESSIONS = (Const, Var, Load, Binary, Unary, Cast, Bits, Select)
TILES = (Copy, Fill, Reduce, Scan, Gemm)
NODES = (*EXPRESSIONS, For, While, Leave, Store, Assign, If, Assume, *TILES, AtomicAdd)


class Buffer(_Node, frozen=True):
    """A tensor.

    Attributes:
        scope: global for a parameter; else where a temporary one lies. Scalars, without a shape: `var`, made by
            `T.alloc_var`; `let`, a name that is bound once to a value, which stays when what it was read from changes;
            `value`, a parameter that is passed by value; `index`, the index of a loop that is not of int32.
        least, most: values of an input, or of a `value`, lie in between. Other buffers have none.
        zeroed: an output that is 0 before the program runs.
        special: an input of floats of which half are NaN, infinite, or -0.0.
    """

    name: Name
    shape: Annotated[tuple[Extent, ...], Meta(min_length=1, max_length=7)]
    dtype: Dtype
    scope: Literal["global", "local", "shared", "fragment", "var", "let", "value", "index"] = "global"
    least: int = 0
    most: int = 0
    written: bool = False
    zeroed: bool = False
    special: bool = False

    @property
    def size(self) -> int:
        """Return the number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def is_scalar(self) -> bool:
        """Return whether it is one value, which a `Var` of its name reads."""
        return self.scope in SCALARS


class Program(DrawnProgram, frozen=True):
    """A kernel: its buffers, its grid of blocks and its body.

    Attributes:
        threads: of a block, on a GPU.
        seed: of the elements of its inputs.
        configs: TileLang's pass configs, by name.
        symbols: sizes that the compiler does not know, by name. An axis of a parameter, or a serial loop from 0, that is as
            long as one of them is that long by its name. Its value is a `Var` of this name.
    """

    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    grid: Annotated[tuple[Extent, ...], Meta(min_length=1, max_length=3)] = (1,)
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1
    seed: int = 0
    configs: dict[ConfigName, bool | int] = msgspec.field(default_factory=dict)
    symbols: dict[Name, Extent] = msgspec.field(default_factory=dict)
    version: int = VERSION

    @property
    def words(self) -> str:
        """Return its size in words, for reports."""
        return f"{sum(1 for _ in walk(self))} nodes, {', '.join(dict.fromkeys(one.dtype for one in self.buffers))}"

    def symbol(self, extent: int) -> str | None:
        """Return the name of a size; None if the compiler knows it."""
        return next((name for name, value in self.symbols.items() if value == extent), None)

    def is_symbolic(self, node: For) -> bool:
        """Return whether the compiler does not know how many iterations a loop has."""
        plain = node.kind == "serial" and not node.begin and node.step == 1 and node.count is None
        return plain and self.index_dtype(node) == "int32" and self.symbol(node.extent) is not None

    def index_dtype(self, node: For) -> str:
        """Return the dtype of a loop's index."""
        return next((one.dtype for one in self.buffers if one.name == node.var), "int32")

    def buffer(self, name: str) -> Buffer:
        """Return the buffer of this name."""
        return next(one for one in self.buffers if one.name == name)

    @property
    def parameters(self) -> tuple[Buffer, ...]:
        """Return the buffers that the caller passes."""
        return tuple(one for one in self.buffers if one.scope == "global")

    @property
    def arguments(self) -> tuple[Buffer, ...]:
        """Return what the caller passes, in order: the parameters, and what is passed by value."""
        return tuple(one for one in self.buffers if one.scope in {"global", "value"})

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """Return the parameters that are only read."""
        return tuple(one for one in self.parameters if not one.written)

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """Return the parameters that are written."""
        return tuple(one for one in self.parameters if one.written)

    @staticmethod
    def from_json(text: str | bytes) -> "Program":
        """Read a program.

        Raises:
            CaseError: names what is wrong.
        """
        return decoded(_DECODER, text, VERSION)


_DECODER = msgspec.json.Decoder(Program)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes right below one."""
    match node:
        case Load():
            return node.at
        case Binary():
            return node.a, node.b
        case Unary() | Cast() | Bits():
            return (node.a,)
        case Select():
            return node.condition, node.a, node.b
        case For():
            return (*(one for one in (node.first, node.count) if one is not None), *node.body)
        case While():
            return node.condition, *node.body
        case Store() | AtomicAdd():
            return *node.at, node.value
        case Copy():
            return tuple(one for one in (*node.source_at, *node.target_at) if not isinstance(one, int))
        case Assign():
            return (node.value,)
        case Assume():
            return (node.condition,)
        case If():
            return node.condition, *node.then, *node.otherwise
    return ()


def walk(node: Node | Program) -> Iterator[Node]:
    """Yield all nodes, parents first."""
    below = node.body if isinstance(node, Program) else children(node)
    if not isinstance(node, Program):
        yield node
    for one in below:
        yield from walk(one)


def buffers_in(node: Node | Program) -> set[str]:
    """Return the names of the buffers whose elements are read or written."""
    found: set[str] = set()
    for one in walk(node):
        if isinstance(one, (Load, Store, AtomicAdd)):
            found.add(one.buffer)
        elif isinstance(one, TILES):
            found.update(tile_buffers(one))
    return found


def tile_buffers(node: Tile) -> tuple[str, ...]:
    """Return the buffers of a tile operation, the one that it writes last."""
    match node:
        case Fill():
            return (node.buffer,)
        case Gemm():
            return node.a, node.b, node.c
    return node.source, node.target


def dtype_of(node: Expr, program: Program) -> str:
    """Return the dtype of an expression."""
    match node:
        case Const():
            return node.dtype
        case Var():
            return next((one.dtype for one in program.buffers if one.name == node.name), "int32")
        case Load():
            return program.buffer(node.buffer).dtype
        case Binary():
            return "bool" if node.op in COMPARISONS or node.op in LOGIC else dtype_of(node.a, program)
        case Unary():
            return dtype_of(node.a, program)
        case Cast() | Bits():
            return node.dtype
        case Select():
            return dtype_of(node.a, program)
    raise AssertionError(node)


@functools.cache
def bits_of(dtype: str) -> int:
    """Return the size of a dtype in bits."""
    return 8 if dtype == "bool" else int("".join(one for one in dtype if one.isdigit()))


@functools.cache
def range_of(dtype: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer dtype or of bool."""
    if dtype == "bool":
        return 0, 1
    bits = bits_of(dtype)
    return (0, 2**bits - 1) if dtype in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
