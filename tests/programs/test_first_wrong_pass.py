"""Which pass goes wrong: evaluated IR against the evaluator, on bugs of the installed TileLang."""

from typing import Any

import numpy as np
import pytest

from mhc.fuzz.check.program_check import check, explained
from mhc.programs.evaluate import evaluate, inputs_of, passed_of
from mhc.programs.first_wrong_pass import GENERATOR, _stages, first_wrong_pass
from mhc.programs.grammar import (
    Assign,
    Binary,
    Bits,
    Buffer,
    Cast,
    Const,
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
from mhc.programs.targets import TARGETS
from mhc.programs.tilelang_c import source_of
from mhc.programs.tilelang_lower import build
from mhc.programs.tir_evaluate import evaluate_function
from tests.programs.test_tilelang_c import LOST_CONSTANT, NOT_TRUNCATED, I, X, loop
from tests.support.needs import needs_tilelang

pytestmark = needs_tilelang
C = TARGETS["tilelang-to-c"]
INDEX = Cast("uint32", I)
DIFFERENCE = Cast("int64", Binary("-", INDEX, Const(2, "uint32")))
LARGE = Buffer("x", (5,), "int64", least=2**31, most=2**31)
PRODUCT = Cast("int64", Binary("*", Cast("uint32", Load("x", (I,))), Const(3, "uint32")))
UNSIGNED_SUM = loop(Select(Binary(">", DIFFERENCE, Const(100, "int64")), Const(1), Const(0)))
UNSIGNED_MULTIPLE = loop(Binary("%", PRODUCT, Const(3, "int64")), "int64", LARGE)


@pytest.mark.parametrize(
    ("program", "where"),
    [
        (LOST_CONSTANT, "tl.FlattenBuffer"),
        (NOT_TRUNCATED, GENERATOR),
        (UNSIGNED_SUM, "tl.Simplify"),
        (UNSIGNED_MULTIPLE, "tl.Simplify"),
    ],
    ids=["index counts down", "uint8 not truncated", "unsigned sum", "unsigned multiple"],
)
def test_the_first_wrong_pass_is_named(program: Program, where: str) -> None:
    (verdict,) = check(C, program)
    assert verdict.symptom == "wrong value"
    assert first_wrong_pass(program) == where
    assert explained(C, program, verdict).message == f"{verdict.message}; goes wrong in {where}"


@pytest.mark.parametrize("program", [UNSIGNED_SUM, UNSIGNED_MULTIPLE], ids=["sum", "multiple"])
def test_unsigned_arithmetic_that_wraps_around_is_wrong_in_tvms_arithmetic_alone(program: Program) -> None:
    assert [one.symptom for one in check(TARGETS["tilelang-arithmetic"], program)] == ["wrong value"]


def test_passes_that_cannot_be_evaluated_are_named_beside_the_first_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def partly(function: Any, *given: Any) -> dict[str, np.ndarray[Any, Any]]:
        if len(function.buffer_map) and "-4" in str(function):  # from FlattenBuffer on, until the kernel is on its own
            raise NotImplementedError
        return evaluate_function(function, *given)

    monkeypatch.setattr("mhc.programs.first_wrong_pass.evaluate_function", partly)
    assert first_wrong_pass(LOST_CONSTANT).startswith("one of tl.FlattenBuffer, ")


def several_statements() -> Program:
    """Return a program with a scalar, a temporary buffer, an unrolled loop and a condition."""
    statements = (
        Assign("v", Const(3)),
        For("serial", "i", 4, (Store("a", (I,), Binary("*", Load("x", (I,)), Var("v"))),)),
        For(
            "unroll",
            "j",
            4,
            (
                If(
                    Binary("<", Var("j"), Var("v")),
                    (Store("y", (Var("j"),), Unary("-", Load("a", (Binary("-", Const(3), Var("j")),)))),),
                    (Store("y", (Var("j"),), Const(7)),),
                ),
            ),
        ),
    )
    buffers = (
        X,
        Buffer("v", (1,), "int32", scope="var"),
        Buffer("a", (4,), "int32", scope="local"),
        Buffer("y", (4,), "int32", written=True),
    )
    return Program(buffers=buffers, body=statements)


def test_what_the_front_end_makes_gives_what_the_evaluator_gives() -> None:
    program = several_statements()
    got = evaluate_function(build(source_of(program)), inputs_of(program))
    np.testing.assert_array_equal(got["y"], evaluate(program)["y"])


F32 = Buffer("w", (4,), "float32", least=1, most=9)
SQUARE = Binary("*", Load("w", (I,)), Load("w", (I,)))


@pytest.mark.filterwarnings("ignore:T.reinterpret")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint32", Bits("uint32", Load("w", (I,)))),
        ("float32", Bits("float32", Bits("int32", Load("w", (I,))))),
        ("uint32", Bits("uint32", Unary("-", Load("x", (I,))))),
        ("float32", Unary("floor", Binary("/", Load("w", (I,)), Const(-2.0, "float32")))),
        ("float32", Unary("sqrt", SQUARE)),
        ("int8", Binary("<<", Const(63, "int8"), Const(7, "int8"))),
    ],
    ids=["bits of a float", "bits and back", "bits below 0", "floor", "sqrt", "constant shifted into the sign"],
)
def test_the_ir_behind_every_pass_is_evaluated(dtype: str, value: Expr) -> None:
    program = Program(
        buffers=(X, F32, Buffer("y", (4,), dtype, written=True)),
        body=(For("serial", "i", 4, (Store("y", (I,), value),)),),
    )
    wanted = evaluate(program)["y"]
    for name, function in _stages(program):
        got = evaluate_function(function, inputs_of(program), passed_of(program))
        np.testing.assert_array_equal(got["y"], wanted, name)
