"""The text of programs, and their JSON."""

import pytest

from mhc.case_json import CaseError
from mhc.programs.grammar import (
    Assign,
    Binary,
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
    Store,
    Unary,
    Var,
)
from mhc.programs.tilelang_text import render

I = Var("i")


def value_text(value: Expr, dtype: str = "int32") -> str:
    program = Program(buffers=(Buffer("y", (4,), dtype, written=True),), body=(Store("y", (Const(0),), value),))
    return render(program).splitlines()[-1].partition(" = ")[2]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Binary("*", Binary("+", I, Const(1)), Const(2)), "(i + 1) * 2"),
        (Binary("+", I, Binary("*", Const(1), Const(2))), "i + 1 * 2"),
        (Binary("-", I, Binary("-", I, Const(2))), "i - (i - 2)"),
        (Binary("-", I, Const(-2)), "i - -2"),
        (Unary("-", Binary("+", I, Const(1))), "-(i + 1)"),
        (Binary("%", Binary("-", Const(1), I), Const(4)), "(1 - i) % 4"),
        (Binary("|", Binary("^", I, Const(1)), Binary("&", I, Const(3))), "i ^ 1 | i & 3"),
        (Binary("&", Binary("|", I, Const(1)), Const(3)), "(i | 1) & 3"),
        (Binary("<<", Binary("+", I, Const(1)), Const(2)), "i + 1 << 2"),
        (Binary("min", I, Const(2)), "T.min(i, 2)"),
        (Unary("abs", I), "T.abs(i)"),
        (Unary("+", Binary("+", I, Const(1))), "+(i + 1)"),
        (Unary("~", Binary("<", I, Const(2))), "~(i < 2)"),
        (Binary("ceildiv", I, Const(-3)), "T.ceildiv(i, -3)"),
        (Unary("floor", Cast("float32", I)), 'T.floor(T.cast(i, "float32"))'),
        (Unary("sqrt", Cast("float32", I)), 'T.sqrt(T.cast(i, "float32"))'),
        (Cast("uint8", I), 'T.cast(i, "uint8")'),
        (Select(Binary("<", I, Const(2)), I, Const(-1)), "T.if_then_else(i < 2, i, -1)"),
        (Binary("==", Binary("<", I, Const(2)), Const(1, "bool")), "(i < 2) == True"),
        (Binary("and", Unary("not", Binary("<", I, Const(2))), Binary("or", I, I)), "not i < 2 and (i or i)"),
        (Const(3, "uint8"), "T.uint8(3)"),
        (Const(1.5, "float16"), "T.float16(1.5)"),
        (Const(1, "bool"), "T.bool(True)"),
        (Binary("+", Const(1, "uint8"), Const(2, "uint8")), "T.uint8(1) + T.uint8(2)"),
        (Binary("+", Cast("uint8", I), Const(2, "uint8")), 'T.cast(i, "uint8") + T.uint8(2)'),
        (Binary("min", Const(2, "int16"), Cast("int16", I)), 'T.min(T.int16(2), T.cast(i, "int16"))'),
        (Binary("+", Cast("uint32", I), Const(2, "uint32")), 'T.cast(i, "uint32") + 2'),
    ],
)
def test_an_expression_has_no_brackets_but_those_that_it_needs(value: Expr, wanted: str) -> None:
    assert value_text(value) == wanted


STORE = Store("y", (Var("bx"), Binary("-", I, Const(2))), Var("v"))
PROGRAM = Program(
    buffers=(
        Buffer("x", (4, 2), "float32", most=3),
        Buffer("a", (4, 2), "float32", scope="local"),
        Buffer("v", (1,), "int32", scope="var"),
        Buffer("y", (2, 4), "int32", written=True),
    ),
    grid=(2, 3),
    body=(
        Copy(source="x", source_at=(0, 0), target="a", target_at=(0, 0), extents=(4, 2)),
        Copy(source="x", source_at=(1, 0), target="a", target_at=(0, 1), extents=(2, 1)),
        Assign("v", Const(1)),
        For(
            "unroll",
            "i",
            4,
            (
                If(
                    Binary(">", I, Const(2)),
                    (Store("y", (Var("bx"), Binary("-", I, Const(2))), Var("v")),),
                    (Assign("v", I),),
                ),
            ),
            begin=2,
        ),
        For("serial", "j", 2, (If(Binary(">", Var("j"), Const(0)), (Assign("v", Var("j")),)),)),
    ),
)
TEXT = """\
@T.prim_func
def f(x: T.Tensor((4, 2), "float32"), y: T.Tensor((2, 4), "int32")):
    with T.Kernel(2, 3, is_cpu=True) as (bx, by):
        a = T.alloc_local((4, 2), "float32")
        v = T.alloc_var("int32")
        T.copy(x, a)
        T.copy(x[1:3, 0:1], a[0:2, 1:2])
        v = 1
        for i in T.unroll(2, 6):
            if i > 2:
                y[bx, i - 2] = v
            else:
                v = i
        for j in T.serial(2):
            if j > 0:
                v = j
"""


def test_a_program_has_this_text() -> None:
    assert render(PROGRAM, "is_cpu=True") == TEXT


def test_a_loop_says_the_number_of_iterations_that_it_computes() -> None:
    y = Buffer("y", (9,), "int32", written=True)
    x = Buffer("x", (1,), "int32", most=2)
    count = Binary("%", Load("x", (Const(0),)), Const(3))
    loops = [For("serial", "i", 3, (Store("y", (I,), I),), begin=begin, count=count) for begin in (0, 2)]
    lines = render(Program(buffers=(x, y), body=tuple(loops), symbols={"size": 3})).splitlines()
    assert [one.strip() for one in lines if "for " in one] == [
        "for i in T.serial(x[0] % 3):",
        "for i in T.serial(2, 2 + x[0] % 3):",
    ]


def test_a_loop_says_its_step() -> None:
    y = Buffer("y", (9,), "int32", written=True)
    loops = (
        For("serial", "i", 3, (Store("y", (I,), I),), step=3, rest=2),
        For("unroll", "i", 3, (Store("y", (I,), I),), begin=8, step=-4, rest=3),
        For("serial", "i", 3, (Store("y", (I,), I),), begin=2, step=2),
    )
    lines = render(Program(buffers=(y,), body=loops, symbols={"size": 3})).splitlines()
    assert [one.strip() for one in lines if "for " in one] == [
        "for i in T.serial(0, 7, 3):",
        "for i in T.unroll(8, -1, -4):",
        "for i in T.serial(2, 8, 2):",
    ]


def test_a_program_is_the_same_after_its_json() -> None:
    again = Program.from_json(PROGRAM.to_json())
    assert again == PROGRAM
    assert again.id == PROGRAM.id
    assert hash(again) == hash(PROGRAM)


def test_json_that_is_no_program_says_what_is_wrong() -> None:
    with pytest.raises(CaseError, match="version"):
        Program.from_json(PROGRAM.json.replace('"version":1', '"version":2'))
    with pytest.raises(CaseError, match="until"):
        Program.from_json(PROGRAM.json.replace('"type":"for"', '"type":"until"'))
    for old, new in (
        ('"name":"v"', '"name":"os.system(1)"'),
        ('"dtype":"float32"', '"dtype":"void"'),
        ('"op":">"', '"op":";"'),
    ):
        assert old in PROGRAM.json
        with pytest.raises(CaseError, match="matching"):
            Program.from_json(PROGRAM.json.replace(old, new))
    with pytest.raises(CaseError, match=">= 1"):
        Program.from_json(PROGRAM.json.replace('"shape":[4,2]', '"shape":[0,2]'))
    with pytest.raises(CaseError, match="body"):
        Program.from_json('{"buffers": []}')


def test_loads_name_their_buffer() -> None:
    program = Program(
        buffers=(Buffer("x", (4,), "int32", most=3), Buffer("y", (4,), "int32", written=True)),
        body=(Store("y", (Const(0),), Load("x", (Const(1),))),),
    )
    assert render(program).splitlines()[-1].strip() == "y[0] = x[1]"
    assert [one.name for one in program.inputs] == ["x"]
    assert [one.name for one in program.outputs] == ["y"]
