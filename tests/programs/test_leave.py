"""`break` and `continue`: text, meaning, what is refused, and draws."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from mhc.fuzz.check.program_check import check
from mhc.oracles.verdict import Status
from mhc.programs.arithmetic import Invalid
from mhc.programs.evaluate import evaluate, inputs_of
from mhc.programs.first_wrong_pass import first_wrong_pass
from mhc.programs.grammar import (
    Assign,
    Binary,
    Buffer,
    Const,
    For,
    If,
    Leave,
    Load,
    Program,
    Statement,
    Store,
    Var,
    While,
    walk,
)
from mhc.programs.known import known
from mhc.programs.plain_c import prepare, source_of
from mhc.programs.targets import TARGETS
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import signature
from mhc.strategies.programs.programs import CPU_BEFORE_VECTORS, programs
from mhc.strategies.rounds import drawn
from tests.support.needs import needs_tilelang

I, V, ONE = Var("i"), Var("v"), Const(1)
X, Y, SCALAR = (
    Buffer("x", (8,), "int32", most=9),
    Buffer("y", (8,), "int32", written=True),
    Buffer("v", (1,), "int32", scope="var"),
)
LARGE = Binary(">", Load("x", (I,)), Const(5))
BREAK, CONTINUE = Leave("break"), Leave("continue")


def program(*body: Statement) -> Program:
    return Program(buffers=(X, Y, SCALAR), body=body, seed=1)


def loop(leave: Leave, kind: str = "serial") -> Program:
    """Return a program whose loop sets elements of y up to, or but for, those of x above 5."""
    return program(For(kind, "i", 8, (If(LARGE, (leave,)), Store("y", (I,), ONE))))  # type: ignore[arg-type]


COUNT = Assign("v", Binary("+", V, ONE))
WHILE = program(
    Assign("v", Const(0)),
    While(Binary("<", V, Const(8)), (If(Binary(">", Load("x", (V,)), Const(5)), (BREAK,)), Store("y", (V,), ONE), COUNT)),
)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
def test_a_loop_or_an_iteration_ends_early(tmp_path: Path) -> None:
    some = [loop(BREAK), loop(CONTINUE), loop(CONTINUE, "unroll"), WHILE]
    assert "            if x[i] > 5:\n                break\n            y[i] = 1\n" in render(some[0])
    large = inputs_of(some[0])["x"] > 5
    first = int(np.argmax(large))
    assert 0 < first < 7
    after = np.array([np.arange(8) >= first, large, large, np.arange(8) >= first])
    for one, run, left in zip(some, prepare(some, [source_of(one) for one in some], tmp_path), after, strict=True):
        np.testing.assert_array_equal(evaluate(one)["y"] == 1, ~left)
        np.testing.assert_array_equal(run(one)["y"], evaluate(one)["y"])  # type: ignore[operator]
        assert Program.from_json(one.to_json()) == one
    assert "continue" in signature(some[1])


def test_only_a_plain_loop_may_be_left_and_nothing_follows() -> None:
    inner = For("serial", "j", 2, (If(LARGE, (BREAK,)), Store("y", (I,), ONE)))
    for wrong in (
        program(BREAK),
        loop(BREAK, "vectorized"),
        loop(CONTINUE, "Parallel"),
        program(For("Parallel", "i", 8, (inner,))),
    ):
        with pytest.raises(Invalid, match="outside of a plain loop"):
            evaluate(wrong)
    with pytest.raises(Invalid, match="nothing reaches"):
        evaluate(program(For("serial", "i", 8, (BREAK, Store("y", (I,), ONE)))))


@needs_tilelang
@pytest.mark.parametrize("one", [loop(BREAK), loop(CONTINUE), WHILE])
def test_tilelang_agrees_and_each_pass_is_evaluated(one: Program) -> None:
    (verdict,) = check(TARGETS["tilelang-to-c"], one)
    assert verdict.status is Status.PASS, verdict.message
    assert first_wrong_pass(one) == "the generator of C"


def test_a_loop_of_several_iterations_inside_is_judged() -> None:
    outer = For("serial", "j", 1, (*loop(BREAK).body,))
    assert known(program(outer), "0.1.8") is None
    assert known(program(For("serial", "i", 1, (BREAK,))), "0.1.8") is not None


def test_loops_are_left_in_drawn_programs() -> None:
    found = [one for seed in range(20) for one in drawn(programs(CPU_BEFORE_VECTORS), 10, seed)]
    leaves = [node.how for one in found for node in walk(one) if isinstance(node, Leave)]
    assert leaves.count("break") > 5
    assert leaves.count("continue") > 5
