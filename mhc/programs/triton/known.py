"""Bugs of Triton that are reported or written up, as `mhc.programs.known` has them for TileLang.

One is no bug but what Triton's documentation says that the interpreter does not do.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from mhc.programs.grammar import INTEGERS, SIGNED, UNSIGNED, bits_of, range_of
from mhc.programs.known import UNSENT, Known
from mhc.programs.triton.cuts import dtypes_seen, rounds, seen, stores_below_0
from mhc.programs.triton.functions import functions_of
from mhc.programs.triton.grammar import (
    COMPARISONS,
    FLOATS,
    SCANS,
    SHAPES,
    Atomic,
    BlockStore,
    Buffer,
    Call,
    Carry,
    Descriptor,
    For,
    Function,
    If,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
    uses,
    walk,
)
from mhc.programs.triton.values import Value

_TRACKER = "https://github.com/triton-lang/triton"
_NO_BFLOAT16 = "https://triton-lang.org/main/programming-guide/chapter-3/debugging.html"
_MOVES = {"bitcast", "where", *SHAPES} - {"flip"}
_COMPILED = ("compiled", "cuda")
_RESHAPED = ("cat", "reshape", "ravel", "interleave", "flip", "sort", "topk")
"""Operations that end with a `tt.reshape`."""
_PLACES = ("argmax", "argmin", "reduce")
_BITS = ("and", "or", "xor")
_GENERIC = ("reduce", "reduce_or", "xor_sum")
"""Reductions that the interpreter does element by element, with the function that combines two."""


def _of(*ops: str, holds: Callable[[Op, Value], bool]) -> Callable[[TritonProgram], bool]:
    """Return what says whether this holds of one of such operations and its first operand, as it is in one of the blocks."""

    def has(program: TritonProgram) -> bool:
        nodes = [one for one in walk(program.body) if isinstance(one, Op) and one.op in ops]
        values = seen(program) if nodes else {}
        return any(one.args[0] in values and holds(one, values[one.args[0]]) for one in nodes)

    return has


def _takes(op: str, dtypes: tuple[str, ...]) -> Callable[[TritonProgram], bool]:
    """Return what says whether an operation takes a value of one of the dtypes."""

    def takes(program: TritonProgram) -> bool:
        nodes = [one for one in walk(program.body) if isinstance(one, Op) and one.op == op]
        found = dtypes_seen(program) if nodes else {}
        return any(found.get(name, set()) & {*dtypes} for one in nodes for name in one.args)

    return takes


def _takes_over_an_equal(program: TritonProgram) -> bool:
    """Return whether a loop passes a carried value on to another that begins as the same."""
    loops = [one for one in walk(program.body) if isinstance(one, For) and one.kind != "tl.static_range"]
    values = seen(program) if any(len(one.carried) > 1 for one in loops) else {}
    for loop in loops:
        starts = {one.name: values.get(one.start) for one in loop.carried}
        for one in loop.carried:
            own, other = starts[one.name], starts.get(one.after)
            if one.after != one.name and isinstance(own, Value) and isinstance(other, Value):
                alike = (own.dtype, own.shape) == (other.dtype, other.shape)
                if alike and np.array_equal(own.data, other.data, equal_nan=own.dtype in FLOATS):
                    return True
    return False


def _sums_too_much(node: Op, operand: Value) -> bool:
    """Return whether a sum of all elements of integers may leave their dtype."""
    if operand.dtype not in INTEGERS or bits_of(operand.dtype) == 64:
        return False
    least, most = range_of(operand.dtype if bits_of(operand.dtype) == 32 else "int32")
    ends = (int(operand.data.min()), int(operand.data.max())) if operand.data.size else (0, 0)
    return not all(least <= end * operand.data.size <= most for end in ends)


def _is_narrow(operand: Value) -> bool:
    return operand.dtype != "bool" and bits_of(operand.dtype) < bits_of("int32")


def _of_a_part(node: Op, operand: Value) -> bool:
    return _is_narrow(operand) and node.value < operand.shape[-1]


def _of_length_one(node: Op, operand: Value) -> bool:
    return _is_narrow(operand) and operand.shape[-1] == 1


def _of_a_flattened_block(program: TritonProgram) -> bool:
    """Return whether the place of an extreme element is looked for in a block that was brought into one axis."""
    ops = [one for one in walk(program.body) if isinstance(one, Op)]
    values = seen(program) if any(one.op in _PLACES for one in ops) else {}
    flat = {one.name for one in ops if one.op in _RESHAPED and one.name in values and values[one.name].data.ndim == 1}
    return any(name in flat for one in ops if one.op in _PLACES for name in one.args)


def _keeps_all_axes(node: Op, operand: Value) -> bool:
    return node.axis < 0 and node.flag and len(operand.shape) > 1


def _given(call: Call, functions: Mapping[str, Function]) -> Iterator[tuple[str, str]]:
    """Yield the names that a call sets, each with the names of the function that it may be."""
    for one in walk((functions[call.function],) if call.function in functions else ()):
        if isinstance(one, (Function, If)):  # a branch may return early
            yield from zip(call.names, one.results, strict=False)


def _out_of_order_into_an_atomic(program: TritonProgram) -> bool:
    """Return whether an atomic operation takes a reversed scan, also by a function, or a block spread along an axis."""
    atomics = [one for one in walk(program.body) if isinstance(one, Atomic)]
    values = seen(program) if atomics else {}
    shapes = {name: one.shape for name, one in values.items()}
    apart: set[str] = set()
    functions = functions_of(program.body)
    for one in walk(program.body):
        if isinstance(one, Call):
            apart |= {name for name, result in _given(one, functions) if result in apart}
        if isinstance(one, Op) and one.args:
            first = one.args[0]
            spread = one.op == "broadcast_to" and shapes.get(first, ()) not in {(), one.shape}
            view = one.op == "expand_dims" and first in apart
            apart |= {one.name} if spread or view or (one.op in SCANS and one.flag) else set()
    return any(
        name in apart or shapes.get(name, ()) not in {(), shapes.get(one.index, ())}
        for one in atomics
        for name in (one.value, one.compare, one.mask)
        if name is not None
    )


def _stores_within_16_bytes(program: TritonProgram) -> bool:
    """Return whether a block is stored by a descriptor of rows that end within 16 bytes."""
    nodes = list(walk(program.body))
    stored = {one.descriptor for one in nodes if isinstance(one, BlockStore)}
    values = seen(program) if stored else {}
    for one in nodes:
        if isinstance(one, Descriptor) and one.name in stored and one.sizes[-1] in values:
            buffer = program.buffer(one.buffer)
            if buffer is not None and int(values[one.sizes[-1]].data) * bits_of(buffer.dtype) % 128:
                return True
    return False


def _counts_up_from_below_0(node: Op, operand: Value) -> bool:
    """Return whether a dividend has consecutive numbers along an axis, some of them below 0."""
    if operand.dtype not in SIGNED or not operand.data.size or operand.data.min() >= 0:
        return False
    wide = operand.data.astype(object)
    return any(size > 1 and (np.diff(wide, axis=axis) == 1).all() for axis, size in enumerate(operand.shape))


def _integer_of_two_halves(program: TritonProgram) -> bool:
    """Return whether a float16 becomes a bfloat16, or the other way round, and then an integer."""
    casts = {one.name: one for one in walk(program.body) if isinstance(one, Op) and one.op == "cast"}
    dtypes = dtypes_seen(program) if casts else {}

    def half(name: str) -> set[str]:
        return dtypes.get(name, set()) & {"float16", "bfloat16"}

    return any(
        one.dtype in INTEGERS and half(one.args[0]) and half(between.args[0]) not in (set(), half(one.args[0]))
        for one in casts.values()
        if (between := casts.get(one.args[0])) is not None
    )


def _spreads_a_bool_of_floats(program: TritonProgram) -> bool:
    """Return whether a bool of one element, made of floats, may be combined with a block, or may be a mask of one.

    So may bools of a uint64 and of signed integers: the interpreter spreads each as what it is made of.
    """
    nodes = list(walk(program.body))
    ops = {*COMPARISONS, "cast", "where", "invert", *_BITS}
    made = any(isinstance(one, Op) and one.op in ops for one in nodes)
    values, dtypes = (seen(program), dtypes_seen(program)) if made else ({}, {})
    single = {name for name, one in values.items() if one.dtype == "bool" and not one.shape}
    functions = functions_of(program.body)
    kinds: dict[str, set[str]] = {}
    for one in nodes:
        if isinstance(one, Op) and one.op in ops and one.name in single:
            kinds[one.name] = {dtype for name in one.args for dtype in dtypes.get(name, set())}
            kinds[one.name].update(*(kinds.get(name, set()) for name in one.args))
        elif isinstance(one, Call):
            for name, result in _given(one, functions):
                kinds.setdefault(name, set()).update(kinds.get(result, set()) if name in single else ())
    spread = (one for one in nodes if not isinstance(one, Op) or one.op in {*_BITS, "invert", "broadcast_to"})
    read = {name for one in spread for name in uses(one) if not isinstance(one, If) or name != one.condition}
    found = set[str]().union(*(kinds[name] for name in read & {*kinds}))
    return bool(found & {*FLOATS}) or ("uint64" in found and bool(found & {*SIGNED}))


def _unsigned(program: TritonProgram) -> bool:
    """Return whether a bound of a loop is a number that is a uint32."""
    loops = (one for one in walk(program.body) if isinstance(one, For) and one.kind in {"range", "tl.range"})
    return any(1 << 31 <= end < 1 << 32 for one in loops for end in (one.begin, one.end))


def _example(dtype: str, *body: Statement, size: int = 4, least: int = 0, most: int = 100, out: str = "") -> TritonProgram:
    """Return a program that loads v1 from four elements of x, and stores v2."""
    buffers = Buffer("x", 4, dtype, least=least, most=most), Buffer("y", size, out or dtype, written=True)
    indices = Op("v0", "arange", shape=(4,)), Op("v3", "arange", shape=(size,))
    return TritonProgram(buffers=buffers, body=(*indices, Load("v1", "x", "v0"), *body, Store("y", "v3", "v2")))


_REVERSED = TritonProgram(
    buffers=(Buffer("x", 4, most=100, least=1), Buffer("y", 4, written=True, zeroed=True)),
    body=(
        Op("v0", "arange", shape=(4,)),
        Load("v1", "x", "v0"),
        Op("v2", "cumsum", ("v1",), flag=True),
        Atomic("add", "y", "v0", "v2"),
    ),
)
_COUNTED = TritonProgram(
    buffers=(Buffer("x", 4, "uint32", most=3), Buffer("y", 4, written=True, zeroed=True)),
    body=(
        Op("v0", "arange", shape=(4,)),
        Load("v1", "x", "v0"),
        Op("v2", "histogram", ("v1",), value=4),
        Atomic("max", "y", "v0", "v2"),
    ),
)
_LIMITS = (
    Op("v4", "full", dtype="float64", shape=(4,), value=-0.5),
    Op("v5", "full", dtype="float64", shape=(4,), value=0.5),
)


def _computes_in_bfloat16(program: TritonProgram) -> bool:
    """Return whether a program does anything with bfloat16 but to move elements, and to convert them exactly."""
    found = dtypes_seen(program) if "bfloat16" in program.json else {}
    for one in walk(program.body):
        if isinstance(one, Op) and one.op not in _MOVES:
            made, taken = found.get(one.name, set()), {dtype for name in one.args for dtype in found.get(name, set())}
            casts = one.op == "cast" and "bool" not in made and ("bfloat16" not in made or taken <= {"float32", "bfloat16"})
            if "bfloat16" in made | taken and not casts:
                return True
    return bool(found) and rounds(program)  # the interpreter truncates


KNOWN: tuple[Known, ...] = (
    Known(
        issue=f"{_TRACKER}/issues/11210",
        kinds=("interpreted",),
        before="3.9.0",
        holds=_takes("invert", UNSIGNED),
        example=_example("uint8", Op("v2", "invert", ("v1",))),
    ),
    Known(
        issue=f"{_TRACKER}/issues/11390",
        kinds=("interpreted",),
        before="3.9.0",
        holds=_takes("umulhi", SIGNED),
        example=_example("int32", Op("v2", "umulhi", ("v1", "v1")), least=-2_000_000_000, most=-1_900_000_000),
    ),
    Known(
        issue=_NO_BFLOAT16,
        kinds=("interpreted",),
        holds=_computes_in_bfloat16,
        example=_example("bfloat16", Op("v2", "add", ("v1", "v1")), most=60),
    ),
    Known(
        issue=f"{_TRACKER}/issues/10952",
        before="3.9.0",
        holds=_of("topk", holds=lambda node, operand: node.value == 1),
        example=_example("int32", Op("v2", "topk", ("v1",), value=1), size=1),
    ),
    Known(
        issue=f"{_TRACKER}/pull/11531",
        kinds=("interpreted",),
        before="3.9.0",
        holds=_of("sum", holds=_sums_too_much),
        example=_example(
            "int32",
            Op("v4", "sum", ("v1",)),
            Op("v2", "broadcast_to", ("v4",), shape=(4,)),
            least=2_000_000_000,
            most=2_100_000_000,
        ),
    ),
    Known(
        issue="docs/results/programs.md",
        kinds=("interpreted",),
        before="3.9.0",
        holds=_out_of_order_into_an_atomic,
        example=_REVERSED,
    ),
    Known(
        issue="docs/results/programs.md",
        kinds=("interpreted",),
        before="3.9.0",
        holds=_takes("histogram", ("uint32",)),
        example=_COUNTED,
    ),
    Known(
        issue=f"{UNSENT}/triton_keep_dims",
        kinds=("interpreted",),
        holds=_of(*_GENERIC, holds=_keeps_all_axes),
        example=_example(
            "int32",
            Op("v4", "reshape", ("v1",), shape=(2, 2)),
            Op("v5", "xor_sum", ("v4",), axis=-1, flag=True),
            Op("v6", "permute", ("v5",), axes=(1, 0)),
            Op("v2", "ravel", ("v6",)),
            size=1,
        ),
    ),
    Known(
        issue=f"{UNSENT}/triton_spread_bool",
        kinds=("interpreted",),
        holds=_spreads_a_bool_of_floats,
        example=_example(
            "float32",
            Op("v4", "full", dtype="float32"),
            Op("v5", "ge", ("v4", "v4")),
            Op("v6", "gt", ("v1", "v4")),
            Op("v7", "and", ("v6", "v5")),
            Op("v2", "cast", ("v7",), dtype="float32"),
        ),
    ),
    Known(
        issue=f"{UNSENT}/triton_flip_of_one",
        holds=_of("flip", holds=lambda node, operand: operand.shape == (1,)),
        example=_example("int32", Op("v4", "full", shape=(1,)), Op("v2", "flip", ("v4",)), size=1),
    ),
    Known(
        issue=f"{UNSENT}/triton_topk_dtype",
        holds=_of("topk", holds=_of_a_part),
        example=_example(
            "float16",
            Op("v4", "topk", ("v1",), value=2),
            Op("v2", "bitcast", ("v4",), dtype="int16"),
            size=2,
            least=1,
            out="int16",
        ),
    ),
    Known(
        issue=f"{UNSENT}/triton_topk_dtype",
        kinds=("cuda", "compiled"),
        holds=_of("topk", "sort", holds=_of_length_one),
        example=_example("float16", Op("v4", "full", dtype="float16", shape=(1,)), Op("v2", "sort", ("v4",)), size=1),
    ),
    Known(
        issue=f"{UNSENT}/triton_argmin_of_reshape",
        kinds=("cuda",),
        holds=_of_a_flattened_block,
        example=_example(
            "int32",
            Op("v4", "reshape", ("v1",), shape=(2, 2)),
            Op("v5", "ravel", ("v4",)),
            Op("v6", "argmin", ("v5",)),
            Op("v2", "broadcast_to", ("v6",), shape=(4,)),
        ),
    ),
    Known(
        issue=f"{_TRACKER}/issues/11583",
        kinds=("cuda",),
        holds=_stores_within_16_bytes,
        example=TritonProgram(
            buffers=(Buffer("y", 7, written=True),),
            body=(
                Op("v0", "full", value=7),
                Op("v1", "full", value=4),
                Op("v2", "full", shape=(4,), value=1),
                Descriptor("d", "y", ("v0",), (4,)),
                BlockStore("d", ("v1",), "v2"),
            ),
        ),
    ),
    Known(
        issue=f"{UNSENT}/descriptor_store_below_0",
        kinds=("cuda",),
        ends=True,
        holds=lambda program: any(isinstance(one, BlockStore) for one in walk(program.body)) and stores_below_0(program),
        example=TritonProgram(
            buffers=(Buffer("y", 8, written=True),),
            body=(
                Op("v0", "full", value=8),
                Op("v1", "full", value=-4),
                Op("v2", "full", shape=(4,), value=1),
                Descriptor("d", "y", ("v0",), (4,)),
                BlockStore("d", ("v1",), "v2"),
            ),
        ),
    ),
    Known(
        issue=f"{_TRACKER}/issues/7749",
        kinds=("cuda",),
        holds=_of("floordiv", "mod", holds=_counts_up_from_below_0),
        example=TritonProgram(
            buffers=(Buffer("x", 512, "float32", least=-4, most=4), Buffer("y", 512, "float32", written=True)),
            body=(
                Op("v0", "arange", shape=(512,)),
                Op("v1", "reshape", ("v0",), shape=(16, 32)),
                Load("v2", "x", "v1"),
                Op("v3", "arange", shape=(32,)),
                Op("v4", "full", shape=(1, 32), value=8),
                Op("v5", "sub", ("v3", "v4")),
                Op("v6", "floordiv", ("v5",), value=4, flag=True),
                Op("v7", "mul", ("v6", "v2")),
                Store("y", "v1", "v7"),
            ),
        ),
    ),
    Known(
        issue=f"{UNSENT}/ptxas_integer_of_two_halves",
        kinds=("cuda",),
        holds=_integer_of_two_halves,
        example=_example(
            "float16",
            Op("v4", "cast", ("v1",), dtype="bfloat16"),
            Op("v2", "cast", ("v4",), dtype="int32"),
            out="int32",
        ),
    ),
    Known(
        issue=f"{UNSENT}/triton_unsigned_loop",
        kinds=("cuda",),
        holds=_unsigned,
        example=_example(
            "int32",
            For(
                "v4",
                (1 << 31) + 1,
                (Op("v5", "neg", ("v2",)),),
                (1 << 31) - 1,
                carried=(Carry("v2", "v1", "v5"),),
                wide=True,
            ),
        ),
    ),
    Known(
        issue=f"{UNSENT}/triton_equal_carries",
        kinds=("cuda",),
        holds=_takes_over_an_equal,
        example=_example(
            "int32",
            For("v4", 4, (Op("v5", "neg", ("v1",)),), carried=(Carry("v2", "v1", "v6"), Carry("v6", "v1", "v5"))),
        ),
    ),
    Known(
        issue=f"{UNSENT}/triton_clamp_float64",
        kinds=_COMPILED,
        holds=_takes("clamp", ("float64",)),
        example=_example("float64", *_LIMITS, Op("v2", "clamp", ("v1", "v4", "v5"))),
    ),
)
