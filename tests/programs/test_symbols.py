"""Sizes that the compiler does not know: their text, what they mean on every target, and how they become constants."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.fuzz.check.program_check import check
from mhc.oracles.verdict import Status
from mhc.programs.arithmetic import Invalid
from mhc.programs.edits import rank, tidy
from mhc.programs.evaluate import evaluate, inputs_of
from mhc.programs.first_wrong_pass import first_wrong_pass
from mhc.programs.grammar import Binary, Buffer, Const, Copy, For, Load, Program, Store, Var, walk
from mhc.programs.minimise import search
from mhc.programs.plain_c import prepare, source_of
from mhc.programs.targets import TARGETS
from mhc.programs.tilelang_lower import build
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import features, signature
from mhc.programs.tir_evaluate import evaluate_function
from mhc.strategies.programs.programs import ARITHMETIC
from tests.support.drawn_programs import drawn
from tests.support.needs import needs_tilelang

I, SIZE = Var("i"), Var("size")
X = Buffer("x", (5, 2), "int32", least=-50, most=50)
DOWN = Binary("-", Binary("-", SIZE, Const(1)), I)


def program(at: Binary = DOWN, kind: str = "serial") -> Program:
    """y[i] = x[size - 1 - i, 0] + size, for each i."""
    value = Binary("+", Load("x", (at, Const(0))), SIZE)
    loop = For(kind, "i", 5, (Store("y", (I,), value),))  # type: ignore[arg-type]
    return Program(buffers=(X, Buffer("y", (5,), "int32", written=True)), body=(loop,), symbols={"size": 5})


def test_axes_of_parameters_and_serial_loops_from_0_say_the_symbol() -> None:
    assert render(program()) == (
        'size = T.dynamic("size")\n'
        "@T.prim_func\n"
        'def f(x: T.Tensor((size, 2), "int32"), y: T.Tensor((size,), "int32")):\n'
        "    with T.Kernel(1) as bx:\n"
        "        for i in T.serial(size):\n"
        "            y[i] = x[size - 1 - i, 0] + size\n"
    )
    assert "for i in T.unroll(5):" in render(program(kind="unroll"))
    here = Buffer("a", (5, 2), "int32", scope="local")
    copied = Copy(source="x", source_at=(0, 0), target="a", target_at=(0, 0), extents=(5, 2))
    text = render(replace(program(), buffers=(*program().buffers, here), body=(copied, *program().body)))
    assert 'a = T.alloc_local((5, 2), "int32")' in text, "memory of a kernel has a known size"
    assert "T.copy(x[0:5, 0:2], a)" in text


def test_a_symbol_has_its_value_and_is_a_size_of_a_parameter(tmp_path: Path) -> None:
    one = program()
    wanted = inputs_of(one)["x"][::-1, 0] + 5
    np.testing.assert_array_equal(evaluate(one)["y"], wanted)
    (run,) = prepare([one], [source_of(one)], tmp_path)
    np.testing.assert_array_equal(run(one)["y"], wanted)  # type: ignore[operator]
    with pytest.raises(Invalid, match="no parameter has the size size"):
        evaluate(replace(one, symbols={"size": 7}))
    assert Program.from_json(one.to_json()) == one
    assert "symbolic size" in features(one)
    assert "a symbolic size" in signature(one)


@needs_tilelang
def test_the_compiler_is_given_the_value() -> None:
    (verdict,) = check(TARGETS["tilelang-to-c"], program())
    assert verdict.status is Status.PASS
    text = render(program(), "is_cpu=True")
    given = inputs_of(program())
    np.testing.assert_array_equal(evaluate_function(build(text), given, {"size": 5})["y"], given["x"][::-1, 0] + 5)


@needs_tilelang
def test_the_pass_that_goes_wrong_is_named_all_the_same() -> None:
    wrong = program(Binary("%", Binary("-", Const(1), I), Const(4)))
    (verdict,) = check(TARGETS["tilelang-to-c"], wrong)
    assert verdict.symptom == "wrong value"
    assert first_wrong_pass(wrong) == "tl.FlattenBuffer"


def test_the_minimiser_makes_constants_of_symbols_and_shrinks_what_must_stay() -> None:
    plain = search(program(), lambda one: any(isinstance(node, Load) for node in walk(one)))
    assert plain.symbols == {}
    kept = search(program(), lambda one: bool(one.symbols) and any(node == SIZE for node in walk(one)))
    assert kept.symbols == {"size": 1}
    assert rank(kept) < rank(program())
    assert tidy(replace(program(), symbols={"size": 5, "more": 9})).symbols == {"size": 5}


def test_symbols_are_drawn_with_indices_of_them_and_not_for_arithmetic() -> None:
    many = drawn(400)
    named = [one for one in many if one.symbols]
    assert len(named) > len(many) / 10
    assert sum(any(node == SIZE for node in walk(one)) for one in named) > len(named) / 4
    assert sum(any(isinstance(node, For) and one.is_symbolic(node) for node in walk(one)) for one in named) > 3
    assert not any(one.symbols for one in drawn(200, ARITHMETIC))
