"""`while` loops, and `for` loops whose ends are computed: text, meaning, minimiser, and draws."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.fuzz.check.program_check import check
from mhc.oracles.verdict import Status
from mhc.programs.arithmetic import Invalid
from mhc.programs.edits import sizes, statements
from mhc.programs.evaluate import evaluate, inputs_of
from mhc.programs.first_wrong_pass import first_wrong_pass
from mhc.programs.grammar import Assign, Binary, Buffer, Const, For, If, Load, Program, Statement, Store, Var, While, walk
from mhc.programs.plain_c import prepare, source_of
from mhc.programs.targets import TARGETS
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import signature
from mhc.strategies.programs.programs import ARITHMETIC, CPU
from tests.support.drawn_programs import drawn, others
from tests.support.needs import needs_tilelang

V, ZERO, ONE = Var("v"), Const(0), Const(1)
X, Y = Buffer("x", (8,), "int32", most=99), Buffer("y", (2,), "int32", written=True)
SCALAR = Buffer("v", (1,), "int32", scope="var")
MORE = Binary("and", Binary("<", V, Const(8)), Binary("<", Load("x", (V,)), Const(90)))
NEXT = Assign("v", Binary("+", V, ONE))


def program(*body: Statement) -> Program:
    return Program(buffers=(X, Y, SCALAR), body=(Assign("v", ZERO), *body), seed=3)


FOUND = program(While(MORE, (NEXT,)), Store("y", (ZERO,), V))
"""y[0] is where the first element of 90 or more is."""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
def test_the_body_runs_as_long_as_the_condition_holds(tmp_path: Path) -> None:
    assert "        while v < 8 and x[v] < 90:\n            v = v + 1\n        y[0] = v\n" in render(FOUND)
    never = program(While(Binary("<", V, ZERO), (Store("y", (ONE,), ONE), NEXT)), Store("y", (ZERO,), V))
    (found, not_once) = prepare([FOUND, never], [source_of(FOUND), source_of(never)], tmp_path)
    x = inputs_of(FOUND)["x"]
    where = next((at for at in range(8) if x[at] >= 90), 8)
    assert evaluate(FOUND)["y"][0] == found(FOUND)["y"][0] == where > 0  # type: ignore[operator]
    np.testing.assert_array_equal(evaluate(never)["y"], not_once(never)["y"])  # type: ignore[operator]
    assert Program.from_json(FOUND.to_json()) == FOUND


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
def test_a_loop_that_does_not_end_is_refused(tmp_path: Path) -> None:
    endless = program(While(Binary(">=", V, ZERO), (Store("y", (ZERO,), ONE),)))
    with pytest.raises(Invalid, match="more than 1000 turns"):
        evaluate(endless)
    (run,) = prepare([endless], [source_of(endless)], tmp_path)
    with pytest.raises(Exception, match="too many turns"):
        run(endless)  # type: ignore[operator]
    for wrong in (While(Binary("<", ONE, ZERO), (NEXT,)), While(MORE, ())):
        with pytest.raises(Invalid, match="without a body, or whose condition is constant"):
            evaluate(program(wrong))


@needs_tilelang
def test_tilelang_agrees_and_each_pass_is_evaluated() -> None:
    (verdict,) = check(TARGETS["tilelang-to-c"], FOUND)
    assert verdict.status is Status.PASS, verdict.message
    assert first_wrong_pass(FOUND) == "the generator of C"


def test_the_minimiser_takes_the_body_once_or_under_the_condition() -> None:
    tried = list(statements(FOUND))
    assert program(NEXT, Store("y", (ZERO,), V)) in tried
    assert program(If(MORE, (NEXT,)), Store("y", (ZERO,), V)) in tried
    assert "while" in signature(FOUND)


def test_some_programs_have_them_and_they_turn() -> None:
    for features in (CPU, ARITHMETIC):
        many = others(200, features)
        having = [one for one in many if any(isinstance(node, While) for node in walk(one))]
        assert len(many) / 25 < len(having) < len(many) / 4


# --- for loops whose ends are computed


I = Var("i")
FROM = Binary("%", Load("x", (ZERO,)), Const(3))
RANGE = For("serial", "i", 8, (Store("y", (ZERO,), I),), first=FROM, count=Binary("-", Const(8), FROM))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
def test_a_loop_may_begin_at_what_is_computed(tmp_path: Path) -> None:
    seen = For(
        "serial", "i", 8, (NEXT, If(Binary("<", V, Const(2)), (Store("y", (ONE,), I),))), first=FROM, count=RANGE.count
    )
    one = program(RANGE, seen)
    assert "for i in T.serial(x[0] % 3, 8):" in render(one)
    assert "for i in T.serial(x[0] % 3, x[0] % 3 + 2):" in render(program(replace(RANGE, count=Const(2))))
    (run,) = prepare([one], [source_of(one)], tmp_path)
    assert list(evaluate(one)["y"]) == list(run(one)["y"]) == [7, inputs_of(one)["x"][0] % 3]  # type: ignore[operator]
    for wrong in (replace(RANGE, count=None), replace(RANGE, begin=1)):
        with pytest.raises(Invalid, match="a begin that is computed"):
            evaluate(program(wrong))
    below = replace(RANGE, first=Var("v"), body=(NEXT,))
    with pytest.raises(Invalid, match="changes its own"):
        evaluate(program(below))


@needs_tilelang
def test_tilelang_agrees_on_computed_ends() -> None:
    for target in ("tilelang-to-c", "tilelang-arithmetic"):
        (verdict,) = check(TARGETS[target], program(RANGE))
        assert verdict.status is Status.PASS, verdict.message
    assert first_wrong_pass(program(RANGE)) == "the generator of C"


def test_a_computed_begin_is_drawn_and_left_out() -> None:
    many = drawn(300)
    begins = [node for one in many for node in walk(one) if isinstance(node, For) and node.first is not None]
    assert len(begins) > 8
    assert "a computed begin" in signature(program(RANGE))
    assert program(Store("y", (ZERO,), Binary("+", FROM, ONE))) in list(statements(program(RANGE)))
    assert program(replace(RANGE, first=None, count=None)) in list(sizes(program(RANGE)))
