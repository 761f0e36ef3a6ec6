"""The evaluator: worked examples by hand, and every rule that a program may break."""

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.programs.arithmetic import Invalid
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import (
    Assign,
    Binary,
    Bits,
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    For,
    If,
    Load,
    Program,
    Select,
    Statement,
    Store,
    Unary,
    Var,
)

I = Var("i")


def of(value: Expr, dtype: str = "int32", *more: Buffer) -> list[float]:
    """Return y[0..3] = value of i."""
    buffers = (*more, Buffer("y", (4,), dtype, written=True))
    program = Program(buffers=buffers, body=(For("serial", "i", 4, (Store("y", (I,), value),)),))
    return [float(one) for one in evaluate(program)["y"]]


def ints(op: str, a: int, b: int, dtype: str = "int32") -> float:
    return of(Binary(op, Const(a, dtype), Const(b, dtype)), dtype)[0]


@pytest.mark.parametrize(
    ("op", "a", "b", "wanted"),
    [
        ("+", 7, -3, 4),
        ("-", 7, 9, -2),
        ("*", -4, 6, -24),
        ("//", -7, 2, -4),
        ("%", -7, 4, 1),
        ("%", 7, -4, -1),
        ("truncdiv", -7, 2, -3),
        ("truncmod", -7, 4, -3),
        ("truncmod", 7, -4, 3),
        ("ceildiv", 7, 3, 3),
        ("ceildiv", -7, 3, -2),
        ("ceildiv", 7, -3, -2),
        ("ceildiv", -7, -3, 3),
        ("ceildiv", 6, -3, -2),
        ("min", -1, 2, -1),
        ("max", -1, 2, 2),
        ("&", 12, 10, 8),
        ("|", 12, 10, 14),
        ("^", 12, 10, 6),
        ("<<", 3, 4, 48),
        (">>", -5, 1, -3),
    ],
)
def test_an_integer_operation_has_the_value_of_a_worked_example(op: str, a: int, b: int, wanted: int) -> None:
    assert ints(op, a, b) == wanted


@pytest.mark.parametrize(
    ("op", "a", "b", "wanted"), [("+", 200, 100, 44), ("-", 1, 2, 255), ("*", 16, 17, 16), ("<<", 129, 1, 2)]
)
def test_an_unsigned_integer_wraps_around(op: str, a: int, b: int, wanted: int) -> None:
    assert ints(op, a, b, "uint8") == wanted


@pytest.mark.parametrize(
    ("op", "wanted"), [("==", 0), ("!=", 1), ("<", 1), ("<=", 1), (">", 0), (">=", 0), ("and", 1), ("or", 1)]
)
def test_a_comparison_gives_a_bool(op: str, wanted: int) -> None:
    dtype = "bool" if op in {"and", "or"} else "int32"
    a, b = Const(1, dtype), Const(1 if dtype == "bool" else 2, dtype)
    assert of(Binary(op, a, b), "bool")[0] == wanted


@pytest.mark.parametrize(
    ("a", "by", "dtype", "wanted"),
    [
        (1, 31, "int32", -(2**31)),
        (3, 31, "int32", -(2**31)),
        (5, 7, "int8", -128),
        (3, 7, "uint8", 128),
        (1, 4, "int32", 16),
    ],
)
def test_a_constant_shifted_by_a_constant_wraps_around(a: int, by: int, dtype: str, wanted: int) -> None:
    assert ints("<<", a, by, dtype) == wanted


def test_an_integer_is_a_condition_of_an_if_where_it_is_not_0() -> None:
    branch = If(Binary("-", I, Const(1)), (Store("y", (I,), Const(7)),), (Store("y", (I,), Const(8)),))
    assert evaluate(whole((For("serial", "i", 4, (branch,)),)))["y"].tolist() == [7, 8, 7, 7]


def test_a_vectorised_loop_may_begin_above_0() -> None:
    store = Store("y", (I,), Binary("*", I, Const(2)))
    assert evaluate(whole((For("vectorized", "i", 2, (store,), begin=2),)))["y"].tolist()[2:] == [4, 6]


def test_unary_operations() -> None:
    assert of(Unary("+", Binary("-", I, Const(2)))) == [-2, -1, 0, 1]
    assert of(Unary("~", Binary("<", I, Const(2))), "bool") == [0, 0, 1, 1]
    assert of(Unary("-", I)) == [0, -1, -2, -3]
    assert of(Unary("~", I)) == [-1, -2, -3, -4]
    assert of(Unary("abs", Binary("-", I, Const(2)))) == [2, 1, 0, 1]
    half = Binary("/", Cast("float32", I), Const(2.0, "float32"))
    assert of(Unary("floor", Unary("-", half)), "float32") == [0, -1, -1, -2]
    assert of(Unary("ceil", half), "float32") == [0, 1, 1, 2]
    assert of(Unary("trunc", Unary("-", half)), "float32") == [0, 0, -1, -1]
    assert of(Unary("sqrt", Binary("*", half, half)), "float32") == [0, 0.5, 1, 1.5]
    assert of(Unary("not", Binary("<", I, Const(2))), "bool") == [0, 0, 1, 1]


def test_casts_wrap_truncate_and_test() -> None:
    assert of(Cast("uint8", Const(-1)), "uint8")[0] == 255
    assert of(Cast("int8", Const(200)), "int8")[0] == -56
    assert of(Cast("int32", Const(-2.5, "float32")))[0] == -2
    assert of(Cast("bool", I), "bool") == [0, 1, 1, 1]
    assert of(Cast("float16", I), "float16") == [0, 1, 2, 3]


def test_bits_are_kept() -> None:
    assert of(Bits("uint8", Const(-1, "int8")), "uint8")[0] == 255
    assert of(Bits("int32", Const(1.0, "float32")))[0] == 0x3F800000


def test_the_other_side_of_a_select_is_not_evaluated() -> None:
    inside = Select(Binary("<", I, Const(2)), Load("x", (I,)), Const(7))
    x = Buffer("x", (2,), "int32", least=5, most=5)
    assert of(inside, "int32", x) == [5, 5, 7, 7]


def whole(
    body: tuple[Statement, ...], *more: Buffer, grid: tuple[int, ...] = (1,), shape: tuple[int, ...] = (4,)
) -> Program:
    return Program(buffers=(*more, Buffer("y", shape, "int32", written=True)), body=body, grid=grid)


def test_statements_run_in_order_and_what_is_not_written_keeps_its_poison() -> None:
    total = Buffer("v", (1,), "int32", scope="var")
    add = Assign("v", Binary("+", Var("v"), I))
    branch = If(Binary("==", I, Const(2)), (Store("y", (Const(0),), Var("v")),), (Store("y", (Const(1),), I),))
    program = whole((Assign("v", Const(10)), For("serial", "i", 3, (add, branch), begin=1)), total)
    assert evaluate(program)["y"].tolist() == [13, 3, 0x5A5A5A5A, 0x5A5A5A5A]


def counted(count: Expr, *, begin: int = 0, value: Expr = I) -> Program:
    """Return y[i] = value in a loop with a computed number of iterations, at most 3."""
    x = Buffer("x", (4,), "int32", least=2, most=2)
    return whole((For("serial", "i", 3, (Store("y", (I,), value),), begin=begin, count=count),), x)


@pytest.mark.parametrize(("less", "written"), [(0, 2), (1, 1), (2, 0), (-1, 3)])
def test_a_loop_may_compute_its_number_of_iterations_which_may_be_0(less: int, written: int) -> None:
    got = evaluate(counted(Binary("-", Load("x", (Const(1),)), Const(less)), begin=1))["y"].tolist()
    assert got == [0x5A5A5A5A, *[1, 2, 3][:written], *[0x5A5A5A5A] * (3 - written)]


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (counted(Const(4)), "4 iterations"),
        (counted(Const(-1)), "-1 iterations"),
        (counted(Const(1, "int64")), "in int32"),
        (
            replace(
                counted(Load("y", (Const(0),))),
                body=(Store("y", (Const(0),), Const(1)), *counted(Load("y", (Const(0),))).body),
            ),
            "changes its own",
        ),
    ],
)
def test_a_number_of_iterations_without_a_meaning_is_invalid(program: Program, match: str) -> None:
    with pytest.raises(Invalid, match=match):
        evaluate(program)


def test_a_copy_of_a_part_converts() -> None:
    x = Buffer("x", (3, 4), "float32", least=3, most=3)
    copy = Copy(source="x", source_at=(1, 2), target="y", target_at=(0, 1), extents=(2, 2))
    wanted = np.full((2, 4), 0x5A5A5A5A)
    wanted[:, 1:3] = 3
    assert evaluate(whole((copy,), x, shape=(2, 4)))["y"].tolist() == wanted.tolist()


def test_each_block_has_its_index_and_its_own_temporary_buffers() -> None:
    store = Store("y", (Var("bx"), Var("by")), Binary("+", Binary("*", Var("bx"), Const(10)), Var("by")))
    assert evaluate(whole((store,), grid=(2, 3), shape=(2, 3)))["y"].tolist() == [[0, 1, 2], [10, 11, 12]]
    local = Buffer("a", (1,), "int32", scope="local")
    first = If(Binary("==", Var("bx"), Const(0)), (Store("a", (Const(0),), Const(1)),))
    with pytest.raises(Invalid, match="nobody wrote"):
        evaluate(whole((first, Store("y", (Var("bx"),), Load("a", (Const(0),)))), local, grid=(2,)))


@pytest.mark.parametrize(
    ("value", "dtype", "match"),
    [
        (Load("x", (Const(4),)), "int32", "no element 4"),
        (Load("x", (Const(-1),)), "int32", "no element -1"),
        (Load("x", (I, I)), "int32", "1 axes"),
        (Binary("//", Const(1), Const(0)), "int32", "division by 0"),
        (Binary("ceildiv", Const(1), Const(0)), "int32", "division by 0"),
        (Binary("ceildiv", Const(2**31 - 2), Const(4)), "int32", "overflows int32"),
        (Binary("ceildiv", Const(-(2**31) + 1), Const(-4)), "int32", "overflows int32"),
        (Binary("ceildiv", Const(250, "uint8"), Const(7, "uint8")), "uint8", "overflows uint8"),
        (Binary("<<", Const(1.0, "float32"), Const(1.0, "float32")), "float32", "<< of float32"),
        (Binary("<<", Binary("+", I, Const(1)), Const(31)), "int32", "overflows"),
        (Binary("+", Const(2**31 - 1), Const(1)), "int32", "overflows"),
        (Binary("-", Const(-(2**31)), Const(1)), "int32", "overflows"),
        (Binary("<<", Const(1), Const(32)), "int32", "shift by 32"),
        (Binary("<<", Const(-1), Const(1)), "int32", "to the left"),
        (Binary("+", Const(1), Const(1, "uint8")), "int32", "uint8"),
        (Binary("+", Const(1, "bool"), Const(1, "bool")), "bool", "of bool"),
        (Binary("&", Const(1.0, "float32"), Const(1.0, "float32")), "float32", "of float32"),
        (Binary("/", Const(1), Const(1)), "int32", "of int32"),
        (Binary("/", Const(1.0, "float32"), Const(3.0, "float32")), "float32", "rounded"),
        (Binary("*", Const(512.0, "float16"), Const(2.0, "float16")), "float16", "rounded"),
        (Const(300, "uint8"), "uint8", "no uint8"),
        (Const(1.5), "int32", "no int32"),
        (Const(1, "uint8"), "int32", "stored"),
        (Cast("uint8", Const(300.0, "float32")), "uint8", "no uint8"),
        (Bits("int32", Const(1, "int8")), "int32", "bits"),
        (Select(Const(1, "bool"), Const(1), Const(1, "uint8")), "int32", "two dtypes"),
        (Select(Const(1), Const(1), Const(1)), "int32", "condition of int32"),
        (Binary("and", Const(1), Const(1)), "bool", "and of int32"),
        (Unary("not", Const(1)), "int32", "not of int32"),
        (Unary("abs", Const(1, "uint8")), "uint8", "abs of uint8"),
        (Unary("~", Const(1.0, "float32")), "float32", "~ of float32"),
        (Unary("-", Const(-(2**31))), "int32", "overflows"),
    ],
)
def test_what_has_no_one_meaning_is_invalid(value: Expr, dtype: str, match: str) -> None:
    with pytest.raises(Invalid, match=match):
        of(value, dtype, Buffer("x", (4,), "int32", most=9))


def test_statements_without_a_meaning_are_invalid() -> None:
    x = Buffer("x", (4,), "int32", most=9)
    with pytest.raises(Invalid, match="is an input"):
        evaluate(whole((Store("x", (Const(0),), Const(1)),), x))
    with pytest.raises(Invalid, match="without an iteration"):
        evaluate(whole((For("serial", "i", 0, ()),)))
    with pytest.raises(Invalid, match="begin at 0"):
        evaluate(whole((For("Parallel", "i", 2, (Store("y", (I,), I),), begin=1),)))
    local = Buffer("a", (4,), "int32", scope="local")
    with pytest.raises(Invalid, match="local buffer"):
        evaluate(whole((For("Parallel", "i", 2, (Store("a", (I,), I),)),), local))
    with pytest.raises(Invalid, match="without a body"):
        evaluate(whole((If(Const(1, "bool"), ()),)))
    with pytest.raises(Invalid, match="condition of float32"):
        evaluate(whole((If(Const(1.0, "float32"), (Store("y", (Const(0),), Const(1)),)),)))
    with pytest.raises(Invalid, match="condition of int32"):
        of(Select(Const(1), I, I))
    with pytest.raises(Invalid, match="nobody wrote"):
        evaluate(whole((Store("y", (Const(0),), Load("y", (Const(1),))),)))
    with pytest.raises(Invalid, match="steps"):
        evaluate(whole((For("serial", "i", 300_000, (Store("y", (Const(0),), I),)),)))


def test_the_elements_of_inputs_follow_from_the_seed() -> None:
    x = Buffer("x", (4,), "int32", least=-9, most=9)
    body = (For("serial", "i", 4, (Store("y", (I,), Load("x", (I,))),)),)
    one, again, other = (
        evaluate(Program(buffers=(x, Buffer("y", (4,), "int32", written=True)), body=body, seed=seed))["y"].tolist()
        for seed in (1, 1, 2)
    )
    assert one == again != other
    assert all(-9 <= value <= 9 for value in one)


@pytest.mark.parametrize(
    ("loop", "wanted"),
    [
        (For("serial", "i", 3, (), step=3, rest=2), [7, 0, 0, 7, 0, 0, 7, 0]),
        (For("unroll", "i", 2, (), begin=5, step=-4), [0, 7, 0, 0, 0, 7, 0, 0]),
    ],
)
def test_a_loop_with_a_step_leaves_out_what_lies_between(loop: For, wanted: list[int]) -> None:
    body = (For("serial", "j", 8, (Store("y", (Var("j"),), Const(0)),)), replace(loop, body=(Store("y", (I,), Const(7)),)))
    assert evaluate(Program(buffers=(Buffer("y", (8,), "int32", written=True),), body=body))["y"].tolist() == wanted


@pytest.mark.parametrize(
    "loop",
    [
        For("Parallel", "i", 2, (), step=2),
        For("serial", "i", 2, (), step=2, count=Const(1)),
        For("serial", "i", 2, (), step=0),
        For("serial", "i", 2, (), step=2, rest=2),
    ],
)
def test_a_step_that_no_loop_has_is_refused(loop: For) -> None:
    body = (replace(loop, body=(Store("y", (I,), Const(7)),)),)
    with pytest.raises(Invalid, match="step"):
        evaluate(Program(buffers=(Buffer("y", (8,), "int32", written=True),), body=body))
