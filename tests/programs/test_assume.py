"""`T.assume`: text, meaning, minimiser, and draws."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from mhc.fuzz.check.program_check import check
from mhc.oracles.verdict import Status
from mhc.programs.arithmetic import Invalid
from mhc.programs.evaluate import evaluate
from mhc.programs.first_wrong_pass import first_wrong_pass
from mhc.programs.grammar import Assume, Binary, Buffer, Const, For, Load, Program, Store, Var, walk
from mhc.programs.minimise import search
from mhc.programs.plain_c import prepare, source_of
from mhc.programs.targets import TARGETS
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import signature
from tests.support.drawn_programs import drawn
from tests.support.needs import needs_tilelang

I = Var("i")
ELEMENT = Load("x", (I,))
BELOW = Binary("<", ELEMENT, Const(4))
PROGRAM = Program(
    buffers=(Buffer("x", (5,), "int32", most=3), Buffer("y", (5,), "int32", written=True)),
    body=(For("serial", "i", 5, (Assume(BELOW), Store("y", (I,), Binary("//", ELEMENT, Const(4))))),),
)
WRONG = replace(PROGRAM, buffers=(Buffer("x", (5,), "int32", least=4, most=9), PROGRAM.buffers[1]))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
def test_an_assumption_must_hold_and_computes_nothing(tmp_path: Path) -> None:
    assert "            T.assume(x[i] < 4)\n            y[i] = x[i] // 4\n" in render(PROGRAM)
    right, wrong = prepare([PROGRAM, WRONG], [source_of(PROGRAM), source_of(WRONG)], tmp_path)
    assert list(evaluate(PROGRAM)["y"]) == list(right(PROGRAM)["y"]) == [0] * 5  # type: ignore[operator]
    with pytest.raises(Invalid, match="does not hold"):
        evaluate(WRONG)
    with pytest.raises(Exception, match="does not hold"):
        wrong(WRONG)  # type: ignore[operator]
    with pytest.raises(Invalid, match="constant"):
        evaluate(replace(PROGRAM, body=(Assume(Binary("<", Const(0), Const(1))), *PROGRAM.body)))
    assert Program.from_json(PROGRAM.to_json()) == PROGRAM


@needs_tilelang
def test_tilelang_agrees_and_each_pass_is_evaluated() -> None:
    for target in ("tilelang-to-c", "tilelang-arithmetic"):
        (verdict,) = check(TARGETS[target], PROGRAM)
        assert verdict.status is Status.PASS, verdict.message
    assert first_wrong_pass(PROGRAM) == "the generator of C"


def test_the_minimiser_leaves_it_out() -> None:
    small = search(PROGRAM, lambda one: "//" in render(one))
    assert "assume" not in render(small)
    assert signature(PROGRAM) == "//, <, T.assume"


def test_some_programs_have_one() -> None:
    many = drawn(200)
    having = [one for one in many if any(isinstance(node, Assume) for node in walk(one))]
    assert len(many) / 20 < len(having) < len(many) / 4
