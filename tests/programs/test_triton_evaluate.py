"""The evaluator of Triton programs, against results worked out by hand, and the programs that it refuses."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.programs.arithmetic import Invalid
from mhc.programs.triton.evaluate import evaluate, inputs_of
from mhc.programs.triton.grammar import (
    COMBINES,
    OPERATIONS,
    Atomic,
    Buffer,
    Carry,
    For,
    If,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
)
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.philox import philox
from mhc.programs.triton.reductions import COMBINE, COMBINE_PAIRS, COMBINE_TEXT, PAIRS_TEXT
from mhc.programs.triton.values import MEMORY

I4 = Op("i0", "arange", shape=(4,))


def result(x: list[Any], dtype: str, *body: Statement, size: int = 4, out: str | None = None) -> list[Any]:
    """Return the first elements of v9, of a program in which v1 is x."""
    count = len(x)
    buffers = Buffer("x", count, dtype), Buffer("y", size, out or dtype, written=True)
    indices = Op("i1", "arange", shape=(count,)), Op("i2", "arange", shape=(size,))
    program = TritonProgram(buffers=buffers, body=(*indices, Load("v1", "x", "i1"), *body, Store("y", "i2", "v9")))
    given = {"x": np.array(x, dtype=dtype), "y": np.zeros(size, dtype=MEMORY[out or dtype])}
    found: list[Any] = evaluate(program, given)["y"].tolist()
    return found


def full(name: str, value: float, dtype: str, shape: tuple[int, ...] = ()) -> Op:
    return Op(name, "full", dtype=dtype, shape=shape, value=value)


@pytest.mark.parametrize(
    ("x", "dtype", "op", "b", "wanted"),
    [
        ([100, -100, 127, 0], "int8", "add", 100, [-56, 0, -29, 100]),
        ([200, 1, 255, 56], "uint8", "mul", 3, [88, 3, 253, 168]),
        ([7, -7, 6, -6], "int32", "floordiv", 2, [3, -3, 3, -3]),
        ([7, -7, 6, -6], "int32", "floordiv", -4, [-1, 1, -1, 1]),
        ([7, -7, 6, -6], "int32", "mod", 4, [3, -3, 2, -2]),
        ([-8, 7, -1, 0], "int16", "shr", 2, [-2, 1, -1, 0]),
        ([3, 128, 64, 255], "uint8", "shl", 1, [6, 0, 128, 254]),
        ([2**31, 3, 2**32 - 1, 0], "uint32", "umulhi", 4, [2, 0, 3, 0]),
        ([5, 200, 7, 0], "uint8", "minimum", 7, [5, 7, 7, 0]),
        ([1.5, -2.0, 0.0, 4.0], "float32", "sub", 0.5, [1.0, -2.5, -0.5, 3.5]),
    ],
)
def test_arithmetic_of_two_operands(x: list[Any], dtype: str, op: str, b: float, wanted: list[Any]) -> None:
    assert result(x, dtype, full("v2", b, dtype), Op("v9", op, ("v1", "v2"))) == wanted


@pytest.mark.parametrize(
    ("x", "dtype", "op", "out", "wanted"),
    [
        ([1, -1, 300, -129], "int32", Op("v9", "cast", ("v1",), dtype="int8"), "int8", [1, -1, 44, 127]),
        ([1.5, -1.5, 7.0, 0.0], "float32", Op("v9", "cast", ("v1",), dtype="int32"), "int32", [1, -1, 7, 0]),
        ([1, 255, 128, 127], "uint8", Op("v9", "bitcast", ("v1",), dtype="int8"), "int8", [1, -1, -128, 127]),
        (
            [1.0, 2.0, 1.0, 0.5],
            "float32",
            Op("v9", "bitcast", ("v1",), dtype="uint32"),
            "uint32",
            [127 << 23, 128 << 23, 127 << 23, 126 << 23],
        ),
        ([4, 1, 3, 1], "int32", Op("v9", "sort", ("v1",)), "int32", [1, 1, 3, 4]),
        ([4, 1, 3, 1], "int32", Op("v9", "sort", ("v1",), flag=True), "int32", [4, 3, 1, 1]),
        ([1, 2, 3, 4], "int32", Op("v9", "flip", ("v1",)), "int32", [4, 3, 2, 1]),
        ([1, 2, 3, 4], "int32", Op("v9", "cumsum", ("v1",)), "int32", [1, 3, 6, 10]),
        ([1, 2, 3, 4], "int32", Op("v9", "cumsum", ("v1",), flag=True), "int32", [10, 9, 7, 4]),
        ([100, 100, 3, 4], "int8", Op("v9", "cumsum", ("v1",)), "int32", [100, 200, 203, 207]),
        ([1, 2, 3, 4], "int32", Op("v9", "cumprod", ("v1",)), "int32", [1, 2, 6, 24]),
        ([3, 1, 2, 5], "int32", Op("v9", "associative_scan", ("v1",), combine="max"), "int32", [3, 3, 3, 5]),
        ([3, 1, 2, 5], "int32", Op("v9", "associative_scan", ("v1",), combine="left"), "int32", [3, 3, 3, 3]),
        ([3, 1, 2, 5], "int32", Op("v9", "associative_scan", ("v1",), combine="left", flag=True), "int32", [5, 5, 5, 5]),
        ([0, 3, 3, 1], "int32", Op("v9", "histogram", ("v1",), value=4), "int32", [1, 1, 0, 2]),
        ([5, 6, 7, 8], "int32", Op("v9", "topk", ("v1",), value=4), "int32", [8, 7, 6, 5]),
        ([3, 0, 1, 2], "int32", Op("v9", "gather", ("v1", "v1")), "int32", [2, 3, 0, 1]),
    ],
    ids=lambda one: one.op if isinstance(one, Op) else None,
)
def test_operations_on_one_block(x: list[Any], dtype: str, op: Op, out: str, wanted: list[Any]) -> None:
    assert result(x, dtype, op, out=out) == wanted


@pytest.mark.parametrize(
    ("op", "dtype", "wanted"),
    [
        (Op("v8", "sum", ("v1",), axis=-1), "int8", 250),
        (Op("v8", "max", ("v1",)), "int8", 100),
        (Op("v8", "min", ("v1",)), "int8", -50),
        (Op("v8", "argmax", ("v1",)), "int8", 0),
        (Op("v8", "argmin", ("v1",)), "int8", 3),
        (Op("v8", "reduce", ("v1",), combine="add"), "int8", -6),
        (Op("v8", "xor_sum", ("v1",)), "int8", 100 ^ 100 ^ 100 ^ -50),
        (Op("v8", "reduce_or", ("v1",)), "int8", -50 | 100),
    ],
    ids=lambda one: one.op if isinstance(one, Op) else None,
)
def test_reductions(op: Op, dtype: str, wanted: int) -> None:
    wide = Op("v9", "cast", ("v7",), dtype="int32")
    spread = Op("v7", "broadcast_to", ("v8",), shape=(1,))
    assert result([100, 100, 100, -50], dtype, op, spread, wide, size=1, out="int32") == [wanted]


SQUARE = Op("v2", "reshape", ("v1",), shape=(2, 2))
LEFT, RIGHT = (Op(f"v{4 + half}", "split", ("v2",), value=half) for half in (0, 1))
ROWS = Op("v4", "sum", ("v2",), axis=1)


@pytest.mark.parametrize(
    ("ops", "wanted"),
    [
        ((Op("v3", "permute", ("v2",), axes=(1, 0)),), [1, 3, 2, 4]),
        ((LEFT, RIGHT, Op("v3", "interleave", ("v5", "v4"))), [2, 1, 4, 3]),
        ((Op("v3", "flip", ("v2",), axis=1),), [2, 1, 4, 3]),
        ((LEFT, RIGHT, Op("v3", "join", ("v5", "v4"))), [2, 1, 4, 3]),
        ((ROWS, Op("v5", "expand_dims", ("v4",), axis=1), Op("v3", "broadcast_to", ("v5",), shape=(2, 2))), [3, 3, 7, 7]),
        ((LEFT, Op("v3", "cat", ("v4", "v4"))), [1, 3, 1, 3]),
    ],
    ids=["permute", "interleave", "flip", "join", "broadcast_to", "cat"],
)
def test_operations_that_move_elements(ops: tuple[Op, ...], wanted: list[int]) -> None:
    assert result([1, 2, 3, 4], "int32", SQUARE, *ops, Op("v9", "ravel", ("v3",))) == wanted


def test_a_product_of_matrices_is_exact() -> None:
    ones, threes = full("v2", 1, "int8", (16, 32)), full("v3", 3, "int8", (32, 16))
    product = Op("v5", "dot", ("v2", "v3", "v4"))
    last = (Op("v6", "ravel", ("v5",)), Op("v9", "topk", ("v6",), value=4))
    assert result([1], "int32", ones, threes, full("v4", 7, "int32", (16, 16)), product, *last) == [103] * 4


def test_a_product_of_int8_that_may_saturate_has_no_one_result() -> None:
    ones, product = full("v2", 1, "int8", (16, 32)), Op("v5", "dot", ("v2", "v3", "v4"))
    last = (Op("v6", "ravel", ("v5",)), Op("v9", "topk", ("v6",), value=4))

    def added_to(number: int) -> list[int]:
        return result(
            [1], "int32", ones, full("v3", 1, "int8", (32, 16)), full("v4", number, "int32", (16, 16)), product, *last
        )

    assert added_to(2**31 - 33) == [2**31 - 1] * 4
    for number in (2**31 - 32, -(2**31) + 32):
        with pytest.raises(Invalid, match="may leave int32"):
            added_to(number)


def test_a_loop_sets_all_that_it_carries_at_once() -> None:
    swap = (Carry("c0", "v1", "c1"), Carry("c1", "v2", "c0"))
    loop = For("v3", 3, (Op("v4", "add", ("c0", "v3")),), carried=swap)
    assert result([1, 2, 3, 4], "int32", Op("v2", "neg", ("v1",)), loop, Op("v9", "add", ("c0", "i1"))) == [-1, -1, -1, -1]


@pytest.mark.parametrize(
    ("begin", "end", "step", "wanted"),
    [(0, 4, 3, [0, 3]), (1, 6, 2, [1, 3, 5]), (2, 2, 1, []), (3, 1, 2, []), (3, 0, -2, [3, 1]), (2, 0, -1, [2, 1])],
)
def test_a_loop_ends_before_its_end_whatever_its_step(begin: int, end: int, step: int, wanted: list[int]) -> None:
    ten = full("v2", 10, "int32")
    body = (Op("v4", "mul", ("c0", "v2")), Op("v5", "add", ("v4", "v3")))
    loop = For("v3", end, body, begin=begin, step=step, carried=(Carry("c0", "v1", "v5"),))
    assert result([1], "int32", ten, loop, Op("v9", "abs", ("c0",)), size=1) == [int("1" + "".join(map(str, wanted)))]


def test_a_branch_that_is_not_taken_changes_nothing_but_must_have_a_meaning() -> None:
    never = Op("v3", "lt", ("v2", "v2"))
    branch = If("v3", (Op("v4", "add", ("c0", "c0")),), (Carry("c0", "v1", "v4"),))
    assert result([1, 2, 3, 4], "int32", full("v2", 0, "int32"), never, branch, Op("v9", "abs", ("c0",))) == [1, 2, 3, 4]
    broken = If("v3", (Op("v4", "floordiv", ("c0", "v2")),), (Carry("c0", "v1", "v4"),))
    with pytest.raises(Invalid, match="division by 0"):
        result([1, 2, 3, 4], "int32", full("v2", 0, "int32"), never, broken, Op("v9", "abs", ("c0",)))


@pytest.mark.parametrize(("op", "wanted"), [("lt", [9, 9, 9, 9]), ("ge", [-1, -2, -3, -4])])
def test_one_of_two_bodies_counts_and_both_must_have_a_meaning(op: str, wanted: list[int]) -> None:
    two = full("v2", 2, "int32"), full("v6", 9, "int32", (4,)), Op("v3", op, ("v2", "i3"))
    carried = (Carry("c0", "v1", "v4", "v5"), Carry("c1", "v1", "c1", "v6"))
    branch = If("v3", (Op("v4", "neg", ("c0",)),), carried, (Op("v5", "sub", ("c0", "c0")),))
    last = Op("v9", "add", ("c0", "c1"))
    got = result([1, 2, 3, 4], "int32", full("i3", 2, "int32"), *two, branch, last)
    assert got == (wanted if op == "lt" else [0, 0, 0, 0])
    broken = replace(branch, otherwise=(Op("v5", "floordiv", ("c0", "i0")),))
    with pytest.raises(Invalid):
        result([1, 2, 3, 4], "int32", full("i3", 2, "int32"), *two, broken, last)


def test_masks_of_loads_stores_and_atomic_operations() -> None:
    two, ones = full("v2", 2, "int32"), full("v6", 1, "int32", (4,))
    body = (
        I4,
        two,
        ones,
        Op("v3", "lt", ("i0", "v2")),
        full("v4", 9, "int32", (4,)),
        Load("v5", "x", "i0", "v3", "v4"),
        Store("y", "i0", "v5", "v3"),
        Op("v7", "floordiv", ("i0", "v2")),
        Atomic("add", "z", "v7", "v5"),
    )
    buffers = (
        Buffer("x", 2, "int32", least=5, most=5),
        Buffer("y", 4, written=True),
        Buffer("z", 2, written=True, zeroed=True),
    )
    found = evaluate(TritonProgram(buffers=buffers, body=body))
    assert found["y"].tolist() == [5, 5, 0x5A5A5A5A, 0x5A5A5A5A]
    assert found["z"].tolist() == [10, 18]


def test_an_atomic_operation_gives_what_was_there() -> None:
    body = (I4, full("v0", 7, "int32", (4,)), Atomic("max", "y", "i0", "v0", name="v1"), Store("z", "i0", "v1"))
    buffers = Buffer("y", 4, written=True, zeroed=True), Buffer("z", 4, written=True)
    found = evaluate(TritonProgram(buffers=buffers, body=body))
    assert (found["y"].tolist(), found["z"].tolist()) == ([7] * 4, [0] * 4)


@pytest.mark.parametrize(
    ("dtype", "op", "out", "wanted"),
    [
        ("uint32", "lt", "bool", [1, 1]),  # -1 is 2**32 - 1
        ("int64", "lt", "bool", [0, 0]),
        ("uint8", "lt", "bool", [0, 0]),
        ("uint32", "maximum", "uint32", [2**32 - 1, 2**32 - 3]),
        ("float64", "add", "float64", [1.0, -1.0]),
    ],
)
def test_operands_of_two_dtypes_are_computed_in_the_wider_and_of_one_size_in_the_unsigned(
    dtype: str, op: str, out: str, wanted: list[Any]
) -> None:
    two = full("v2", 2, dtype)
    one = Op("v8" if out == "bool" else "v9", op, ("v2", "v1"))
    as_int = (Op("v9", "cast", ("v8",)),) if out == "bool" else ()
    assert result([-1, -3], "int32", two, one, *as_int, size=2, out="int32" if out == "bool" else out) == wanted


def brain(x: list[float], *body: Statement, out: str = "bfloat16") -> list[Any]:
    """Return the elements of v9, of a program in which v2 is x as bfloat16."""
    return result(x, "float32", Op("v2", "cast", ("v1",), dtype="bfloat16"), *body, size=len(x), out=out)


def test_bfloat16_is_computed_as_other_floats_are_but_has_other_bits() -> None:
    assert brain([1.5, -2.0], Op("v9", "add", ("v2", "v2"))) == [3.0, -4.0]
    assert brain([1.5, -2.0], Op("v9", "bitcast", ("v2",), dtype="uint16"), out="uint16") == [0x3FC0, 0xC000]
    assert brain([64.0], Op("v3", "bitcast", ("v2",), dtype="int16"), Op("v9", "bitcast", ("v3",), dtype="bfloat16")) == [64]
    both = Op("v3", "cast", ("v1",), dtype="float16"), Op("v9", "add", ("v2", "v3"))
    assert brain([1.5, -2.0], *both, out="float16") == [3.0, -4.0]


@pytest.mark.parametrize(
    ("x", "body", "reason"),
    [
        (65.0, (), "rounded in bfloat16"),
        (0.125, (), "rounded in bfloat16"),
        (33.0, (Op("v9", "add", ("v2", "v2")),), "rounded in bfloat16"),
        (33.0, (Op("v9", "maximum", ("v2", "v2")),), "releases differ"),
        (33.0, (Op("v9", "add", ("v2", "i1")),), "differ"),
        (33.0, (Op("v9", "cumsum", ("v2",)),), "cumsum of bfloat16"),
        (33.0, (Op("v9", "max", ("v2",)),), "max of bfloat16"),
        (33.0, (Op("v9", "reduce", ("v2",), combine="max"),), "releases differ"),
    ],
)
def test_what_bfloat16_does_not_hold_or_releases_do_not_agree_on_is_refused(
    x: float, body: tuple[Statement, ...], reason: str
) -> None:
    with pytest.raises(Invalid, match=reason):
        brain([x], *body)


def test_places_are_counted_by_groups_of_rows() -> None:
    rows, columns = full("v2", 3, "int32"), (Op("v3", "floordiv", ("v1", "v2")), Op("v4", "mod", ("v1", "v2")))
    body = (rows, *columns, Op("v5", "swizzle2d", ("v3", "v4"), shape=(5, 3, 2)))
    more = (Op("v6", "swizzle2d", ("v3", "v4"), shape=(5, 3, 2), value=1), Op("v7", "mul", ("v6", "v2")))
    wanted = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, 12, 13, 14]  # row + 3 * column would be another order
    found = result(list(range(15)), "int32", *body, *more, Op("v9", "neg", ("v5",)), size=15)
    assert [-one for one in found] == [one // 3 for one in wanted]
    assert [one // 3 for one in result(list(range(15)), "int32", *body, *more, Op("v9", "abs", ("v7",)), size=15)] == [
        one % 3 for one in wanted
    ]


def test_blocks_have_their_numbers() -> None:
    number = (Op("v0", "program_id", axis=1), Op("v1", "program_id", axis=0), Op("v2", "num_programs", axis=1))
    index = (Op("v3", "mul", ("v1", "v2")), Op("v4", "add", ("v3", "v0")))
    program = TritonProgram(
        buffers=(Buffer("y", 6, written=True),), grid=(2, 3), body=(*number, *index, Store("y", "v4", "v1"))
    )
    assert evaluate(program)["y"].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        ((full("v2", 0, "int32"), Op("v9", "floordiv", ("v1", "v2"))), "division by 0"),
        ((full("v2", 32, "int32"), Op("v9", "shl", ("v1", "v2"))), "shift"),
        ((full("v2", 1, "uint8"), Op("v9", "shl", ("v1", "v2"))), "shl of int32 and uint8"),
        ((Op("v2", "ge", ("v1", "v1")), Op("v9", "mod", ("v1", "v2"))), "mod of int32 and bool"),
        ((Op("v2", "ge", ("v1", "v1")), Op("v9", "mul", ("v2", "v2"))), "mul of bool"),
        ((Op("v2", "ge", ("v1", "v1")), Op("v9", "associative_scan", ("v2",), combine="max")), "of bool by max"),
        ((full("v2", 1, "float16"), Op("v9", "and", ("v1", "v2"))), "and of int32 and float16"),
        ((full("v2", 1, "float16"), Op("v9", "add", ("v1", "v2"))), "rounded in float16"),
        ((Op("v9", "swizzle2d", ("i1", "i1"), shape=(3, 4, 2)),), "not in the matrix"),
        ((Op("v9", "swizzle2d", ("i1", "i1"), shape=(3, 4)),), "swizzle2d of these shapes"),
        ((Op("v9", "add", ("v1",)),), "of 1 operands"),
        ((Op("v9", "add", ("v1", "v7")),), "no value v7"),
        ((Op("v1", "neg", ("v1",)), Op("v9", "neg", ("v1",))), "set twice"),
        ((Op("v2", "cast", ("v1",), dtype="float16"), Op("v9", "cast", ("v2",), dtype="int32")), "rounded in float16"),
        ((Op("v9", "cumprod", ("v8",)),), "no value v8"),
        ((Op("v9", "reduce", ("v1",), combine="left"),), "depends on the order"),
        ((full("v2", 1, "int32"), Op("v9", "gather", ("v1", "v1"))), "gather out of bounds"),
        ((Op("v9", "histogram", ("v1",), value=4),), "without a bin"),
        ((Op("v2", "full", dtype="int32", value=0), Load("v9", "x", "i1", "v2")), "a mask"),
        ((full("v2", 7, "int32"), Op("v3", "add", ("i1", "v2")), Load("v9", "x", "v3")), "no such element"),
        ((Load("v9", "y", "i1"),), "is an output"),
        ((For("v2", 3, ()), Op("v9", "neg", ("v1",))), "without a body"),
        ((For("v2", 60, (For("v3", 60, (For("v4", 2, (I4,)),)),)), Op("v9", "neg", ("v1",))), "steps"),
    ],
)
def test_a_program_without_one_meaning_is_refused(ops: tuple[Statement, ...], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        result([2000, 3, 5, 2001], "int32", *ops)


OUTPUT, ZEROED = Buffer("y", 4, written=True), Buffer("y", 4, written=True, zeroed=True)
ONES = full("v0", 1, "int32", (4,))


@pytest.mark.parametrize(
    ("buffer", "body", "reason"),
    [
        (OUTPUT, (ONES, Store("y", "v0", "i0")), "two values"),
        (OUTPUT, (ONES, Store("y", "i0", "i0"), Store("y", "i0", "v0")), "two values"),
        (ZEROED, (Store("y", "i0", "i0"),), "for atomic"),
        (OUTPUT, (Atomic("add", "y", "i0", "i0"),), "not for atomic"),
        (ZEROED, (Atomic("add", "y", "i0", "i0"), Atomic("max", "y", "i0", "i0")), "two atomic"),
        (ZEROED, (Atomic("add", "y", "i0", "i0"), Atomic("add", "y", "i0", "i0", name="v1")), "two atomic"),
        (ZEROED, (ONES, Atomic("add", "y", "v0", "i0", name="v1")), "depends on the order"),
        (ZEROED, (*(Atomic("add", "y", "i0", "i0", name=name) for name in ("v1", "v2")),), "depends on the order"),
        (Buffer("y", 4), (), "does nothing"),
    ],
)
def test_a_store_that_may_end_in_two_ways_is_refused(buffer: Buffer, body: tuple[Statement, ...], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        evaluate(TritonProgram(buffers=(buffer,), body=(I4, *body)))


@pytest.mark.parametrize(("dtype", "least", "most"), [("uint64", 2**64 - 9, 2**64 - 1), ("int64", -(2**63), 9 - 2**63)])
def test_inputs_reach_the_end_of_their_dtype(dtype: str, least: int, most: int) -> None:
    program = TritonProgram(
        buffers=(Buffer("x", 64, dtype, least=least, most=most), OUTPUT), body=(I4, Store("y", "i0", "i0"))
    )
    x = inputs_of(program)["x"]
    assert (int(x.min()), int(x.max())) == (least, most)


@pytest.mark.parametrize(("dtype", "least", "most"), [("uint64", -1, 2**63), ("int64", 0, 2**63), ("uint8", -(2**64), 0)])
def test_inputs_beyond_every_integer_are_refused(dtype: str, least: int, most: int) -> None:
    program = TritonProgram(
        buffers=(Buffer("x", 4, dtype, least=least, most=most), OUTPUT), body=(I4, Store("y", "i0", "i0"))
    )
    with pytest.raises(Invalid, match="numbers that no"):
        evaluate(program)


def test_a_histogram_counts_where_its_mask_holds() -> None:
    body = (full("v2", 2, "int32"), Op("v3", "lt", ("v1", "v2")), Op("v9", "histogram", ("v1", "v3"), value=4))
    assert result([0, 3, 1, 0], "int32", *body) == [2, 1, 0, 0]


@pytest.mark.parametrize(
    ("op", "dtype", "value", "axis", "wanted"),
    [
        ("add", "int8", 100, 0, [-56, 103]),
        ("sub", "uint8", 1, 1, [157, 254]),
        ("shr", "int16", 1, 0, [50, 1]),
        ("sub", "float32", 0.5, 1, [-99.5, -2.5]),
    ],
)
def test_a_number_takes_the_dtype_of_the_other_operand(
    op: str, dtype: str, value: float, axis: int, wanted: list[Any]
) -> None:
    one = Op("v9", op, ("v1",), value=value, axis=axis, flag=True)
    assert result([100, 3], dtype, one, size=2) == wanted


@pytest.mark.parametrize(("dtype", "value"), [("int8", 200), ("uint8", -1), ("int32", 0.5), ("bool", 1)])
def test_a_number_that_the_other_dtype_does_not_hold_is_refused(dtype: str, value: float) -> None:
    with pytest.raises(Invalid, match=r"number|is no"):
        result([1, 0], dtype, Op("v9", "xor", ("v1",), value=value, flag=True), size=2)


@pytest.mark.parametrize(
    ("bits", "counter", "key", "wanted"),
    [
        (32, 0, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (32, 2**32 - 1, 2**32 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (64, 0, 0, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
        (
            *(64, 2**64 - 1, 2**64 - 1),
            [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0],
        ),
    ],
)
def test_philox_gives_the_numbers_that_its_authors_publish(bits: int, counter: int, key: int, wanted: list[int]) -> None:
    found = philox([np.full(1, counter, dtype=np.uint64)] * 4, (key, key), bits)
    assert [int(one[0]) for one in found] == wanted


@pytest.mark.parametrize(
    ("seed", "dtype", "x", "wanted"),
    [
        (0, "int8", 0, 0x6627E8D5),
        (-1, "int8", -1, philox([np.array(one) for one in (2**32 - 1, 0, 0, 0)], (2**32 - 1, 2**32 - 1), 32)[0]),
        (5, "int64", 3 << 32, philox([np.array(one) for one in (0, 3, 0, 0)], (5, 0), 32)[0]),
    ],
)
def test_the_counter_of_random_numbers_is_the_offset_and_their_key_the_seed(
    seed: int, dtype: str, x: int, wanted: int
) -> None:
    ops = full("v2", seed, "int32"), Op("v9", "randint", ("v2", "v1"))
    assert result([x], dtype, *ops, size=1, out="uint32") == [wanted]


def test_one_of_four_random_numbers_is_taken_after_fewer_rounds() -> None:
    ops = full("v2", 7, "uint64"), Op("v9", "randint4x", ("v2", "v1"), value=2, axis=3)
    assert result([4], "int32", *ops, size=1, out="uint32") == [
        philox([np.array([one]) for one in (4, 0, 0, 0)], (7, 0), 32, 3)[2]
    ]
    ops = full("v2", 7, "uint64"), Op("v9", "philox", ("v2", *["v1"] * 4), value=3)
    assert result([4], "int64", *ops, size=1, out="uint64") == [philox([np.array([4])] * 4, (7, 0), 64)[3]]


def test_quotients_are_rounded_up() -> None:
    assert result([0, 1, 8, 9], "int8", Op("v9", "cdiv", ("v1",), value=4, flag=True)) == [0, 1, 2, 3]
    assert result([1, 2, 3, 200], "uint8", Op("v9", "cdiv", ("v1",), value=7, flag=True, axis=1)) == [7, 4, 3, 1]
    assert result([7, 8], "int32", full("v2", 4, "int32"), Op("v9", "cdiv", ("v1", "v2")), size=2) == [2, 2]


@pytest.mark.parametrize(("x", "b"), [(-1, 4), (4, 0), (4, -2), (120, 9)])
def test_quotients_are_not_rounded_up_where_the_sum_overflows_or_numbers_are_negative(x: int, b: int) -> None:
    with pytest.raises(Invalid, match="cdiv"):
        result([x], "int8", Op("v9", "cdiv", ("v1",), value=b, flag=True), size=1)


def test_two_blocks_may_not_store_different_values() -> None:
    body = (Op("v0", "program_id"), full("v1", 0, "int32"), Store("y", "v1", "v0"))
    with pytest.raises(Invalid, match="two values"):
        evaluate(TritonProgram(buffers=(Buffer("y", 1, written=True),), grid=(2,), body=body))


def test_every_operation_of_the_grammar_has_a_meaning() -> None:
    assert set(TABLE) | {"program_id", "num_programs"} == set(OPERATIONS)
    assert {*COMBINE, *COMBINE_PAIRS} == {*COMBINE_TEXT, *PAIRS_TEXT} == set(COMBINES)


@pytest.mark.parametrize(
    ("op", "combine", "which", "flag", "wanted"),
    [
        ("reduce", "largest", 0, True, [9]),
        ("reduce", "largest", 1, True, [1]),
        ("reduce", "each", 0, True, [20]),
        ("reduce", "each", 1, True, [3]),
        ("associative_scan", "linear", 0, False, [2, 18, 0, 0]),
        ("associative_scan", "linear", 1, False, [0, 1, 2, 21]),
        ("associative_scan", "linear", 1, True, [38, 19, 2, 3]),
    ],
)
def test_pairs_are_combined(op: str, combine: str, which: int, flag: bool, wanted: list[int]) -> None:
    node = Op("v9", op, ("v1", "i1"), flag=flag, combine=combine, value=which)
    assert result([2, 9, 0, 9], "int32", node, size=len(wanted)) == wanted


@pytest.mark.parametrize(("op", "combine"), [("reduce", "linear"), ("reduce", "add"), ("associative_scan", "left")])
def test_pairs_are_not_combined_in_any_other_way(op: str, combine: str) -> None:
    with pytest.raises(Invalid, match=r"two operands|order"):
        result([2, 9, 0, 9], "int32", Op("v9", op, ("v1", "i1"), combine=combine))


UPDATED = Buffer("u", 4, least=5, most=5, written=True, updated=True)


def test_elements_are_changed_in_place_in_every_iteration() -> None:
    body = (Load("v1", "u", "i0"), Op("v2", "add", ("v1", "v0")), Store("u", "i0", "v2"))
    program = TritonProgram(buffers=(UPDATED,), body=(I4, For("v0", 4, body)))
    assert evaluate(program)["u"].tolist() == [11] * 4


@pytest.mark.parametrize("first", [Load("v1", "u", "i0"), Store("u", "i0", "i0")])
def test_two_blocks_may_not_have_one_element_that_is_updated(first: Statement) -> None:
    body = (Op("i0", "program_id"), first, Op("v3", "full", value=1), Load("v2", "u", "v3"))
    with pytest.raises(Invalid, match="two blocks"):
        evaluate(TritonProgram(buffers=(UPDATED,), grid=(2,), body=body))


def test_an_output_that_is_not_updated_is_not_loaded() -> None:
    with pytest.raises(Invalid, match="an output"):
        evaluate(TritonProgram(buffers=(Buffer("y", 4, written=True),), body=(I4, Load("v1", "y", "i0"))))


@pytest.mark.parametrize("begin", [-2, 2**33, -(2**31) - 1])
def test_a_loop_begins_below_0_or_far_from_it(begin: int) -> None:
    wide = abs(begin) > 2**30
    dtype = "int64" if wide else "int32"
    body = (Op("v1", "sub", ("v0", "i1")), Store("y", "v1", "v0"))
    loop = For("v0", begin + 3, body, begin=begin, step=2, wide=wide)
    program = TritonProgram(buffers=(Buffer("y", 3, dtype, written=True),), body=(full("i1", begin, dtype), loop))
    assert evaluate(program)["y"].tolist()[::2] == [begin, begin + 2]


def test_a_loop_does_not_leave_its_dtype() -> None:
    loop = For("v0", 2**31 + 2, (Op("v1", "full"),), begin=2**31)
    with pytest.raises(Invalid, match="in int32"):
        evaluate(TritonProgram(buffers=(Buffer("y", 3, written=True),), body=(loop,)))


@pytest.mark.parametrize(
    ("op", "out", "wanted"),
    [
        (Op("v9", "cumsum", ("v2",)), "uint32", [1, 1, 2, 3]),
        (Op("v9", "add", ("v2", "v1")), "int8", [-128, -5, 4, 8]),
        (Op("v9", "mul", ("v1", "v2")), "int8", [127, 0, 3, 7]),
        (Op("v9", "where", ("v2", "v2", "v1")), "int8", [1, -5, 1, 1]),
        (Op("v8", "xor_sum", ("v2",), flag=True), "bool", [1]),
        (Op("v8", "associative_scan", ("v2",), combine="xor"), "bool", [1, 1, 0, 1]),
        (Op("v8", "ne", ("v2", "v4")), "bool", [0, 1, 1, 0]),
        (Op("v8", "lt", ("v2", "v4")), "bool", [0, 1, 0, 0]),
        (Op("v9", "sum", ("v2",), flag=True), "uint32", [3]),
        (Op("v9", "min", ("v2",), flag=True), "int32", [0]),
        (Op("v9", "max", ("v2",), flag=True), "int32", [1]),
    ],
    ids=lambda one: one.op if isinstance(one, Op) else None,
)
def test_bools_are_operands_as_unsigned_numbers_of_one_bit_are(op: Op, out: str, wanted: list[int]) -> None:
    bools = full("v3", 0, "int8"), Op("v2", "gt", ("v1", "v3")), Op("v5", "flip", ("v2",)), Op("v4", "or", ("v5", "v6"))
    first = full("v7", 127, "int8", (4,)), Op("v6", "eq", ("v1", "v7"))
    as_int = (Op("v9", "cast", ("v8",)),) if out == "bool" else ()
    found = result([127, -5, 3, 7], "int8", *first, *bools, op, *as_int, size=len(wanted), out="int32" if as_int else out)
    assert found == wanted


@pytest.mark.parametrize(
    ("op", "dtype", "b", "wanted"),
    [
        ("shl", "int8", 3, [-8, 1024]),
        ("floordiv", "int64", 2, [0, 64]),
        ("shr", "int8", 1, [-1, 64]),
        ("mod", "int8", 3, [-1, 2]),
    ],
)
def test_integers_of_two_dtypes_of_one_sign_are_divided_and_shifted(op: str, dtype: str, b: int, wanted: list[int]) -> None:
    out = "int64" if dtype == "int64" else "int16"
    assert result([-1, 128], "int16", full("v2", b, dtype), Op("v9", op, ("v1", "v2")), size=2, out=out) == wanted


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (Op("v8", "where", ("v4", "v3", "v5")), [1, 9, 3, 9]),  # a row, and one element
        (Op("v8", "where", ("v4", "v3"), value=-5, flag=True), [1, -5, 3, -5]),
        (Op("v8", "where", ("v4", "v3"), value=-5, flag=True, axis=1), [-5, 2, -5, 4]),
        (Op("v8", "where", ("v7", "v3", "v5")), [1, 2, 9, 9]),  # a column
    ],
)
def test_a_choice_spreads_its_operands(op: Op, wanted: list[int]) -> None:
    row = Op("v2", "arange", shape=(2,)), Op("v6", "eq", ("v2",), value=0, flag=True)
    lines = Op("v4", "expand_dims", ("v6",)), Op("v7", "expand_dims", ("v6",), axis=1)
    square = Op("v3", "reshape", ("v1",), shape=(2, 2)), full("v5", 9, "int32")
    assert result([1, 2, 3, 4], "int32", *row, *lines, *square, op, Op("v9", "ravel", ("v8",))) == wanted


def test_masks_and_values_spread_over_indices() -> None:
    square = I4, Op("i5", "reshape", ("i0",), shape=(2, 2)), Op("v2", "arange", shape=(2,))
    masks = (
        Op("v3", "eq", ("v2",), value=0, flag=True),
        Op("v4", "expand_dims", ("v3",)),
        Op("v5", "expand_dims", ("v3",), axis=1),
    )
    body = full("v6", 7, "int32"), Store("y", "i5", "v6", "v4"), Atomic("add", "z", "i5", "v6", "v5")
    buffers = Buffer("y", 4, written=True), Buffer("z", 4, written=True, zeroed=True)
    found = evaluate(TritonProgram(buffers=buffers, body=(*square, *masks, *body)))
    assert (found["y"].tolist(), found["z"].tolist()) == ([7, 0x5A5A5A5A, 7, 0x5A5A5A5A], [7, 7, 0, 0])


def test_elements_are_gathered_by_indices_of_any_dtype() -> None:
    body = Op("v2", "cast", ("v1",), dtype="uint8"), Op("v9", "gather", ("v1", "v2"))
    assert result([3, 0, 1, 2], "int32", *body) == [2, 3, 0, 1]
