"""Names that are bound to values, and parameters that are passed by value: text, meaning, minimiser, and draws."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.fuzz.check.program_check import check
from mhc.oracles.verdict import Status
from mhc.programs import grammar
from mhc.programs.arithmetic import Invalid
from mhc.programs.edits import settings, statements
from mhc.programs.evaluate import evaluate, inputs_of, passed_of
from mhc.programs.first_wrong_pass import first_wrong_pass
from mhc.programs.grammar import (
    Assign,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    If,
    Load,
    Program,
    Statement,
    Store,
    Var,
    walk,
)
from mhc.programs.known import known
from mhc.programs.minimise import search
from mhc.programs.plain_c import prepare, source_of
from mhc.programs.targets import TARGETS
from mhc.programs.tile_edits import inlined
from mhc.programs.tilelang_text import render
from mhc.programs.tilelang_words import features, signature
from tests.support.drawn_programs import drawn
from tests.support.needs import needs_tilelang

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
B, I, ONE, ZERO = Var("b"), Var("i"), Const(1), Const(0)
X, Y = Buffer("x", (4,), "int32", least=1, most=9), Buffer("y", (4,), "int32", written=True)
LET = Buffer("b", (1,), "int32", scope="let")
BOUND = Assign("b", Load("x", (ZERO,)))


def program(*body: Statement, more: tuple[Buffer, ...] = (LET,)) -> Program:
    return Program(buffers=(X, Y, *more), body=body)


SWAP = program(
    Store("y", (ZERO,), Const(5)),
    Assign("b", Load("y", (ZERO,))),
    Store("y", (ZERO,), Const(7)),
    Store("y", (ONE,), Binary("+", B, B)),
)
"""y[0] = 7 and y[1] = 5 + 5: the name keeps the element that was there."""


def assert_both(one: Program, wanted: list[int], folder: Path) -> None:
    np.testing.assert_array_equal(evaluate(one)["y"][: len(wanted)], wanted)
    (run,) = prepare([one], [source_of(one)], folder)
    np.testing.assert_array_equal(run(one)["y"][: len(wanted)], wanted)  # type: ignore[operator]


def assert_refused(one: Program, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        evaluate(one)


# --- names that are bound


@needs_gcc
def test_a_name_keeps_the_value_that_it_is_bound_to(tmp_path: Path) -> None:
    assert "        b = y[0]\n        y[0] = 7\n        y[1] = b + b\n" in render(SWAP)
    assert "alloc" not in render(SWAP)
    assert_both(SWAP, [7, 10], tmp_path)
    assert Program.from_json(SWAP.to_json()) == SWAP


def test_a_name_is_bound_once_and_read_where_it_is_bound_only() -> None:
    use = Store("y", (ZERO,), B)
    always = Binary("<", ZERO, ONE)
    evaluate(program(BOUND, If(always, (use,))))
    assert_refused(program(BOUND, BOUND, use), "bound twice")
    assert_refused(program(use, BOUND), "not bound")
    assert_refused(program(If(always, (BOUND,)), use), "not bound")
    assert_refused(program(If(always, (BOUND,), (use,))), "not bound")
    assert_refused(program(For("serial", "i", 2, (BOUND,)), use), "not bound")
    assert_refused(program(Assign("b", ONE), use), "a constant")
    assert_refused(program(For("serial", "i", 2, (Assign("b", I), use))), "a name")


@needs_tilelang
def test_tilelang_agrees_on_bound_names() -> None:
    loop = For("serial", "i", 4, (Assign("b", Load("x", (I,))), Store("y", (I,), Binary("*", B, B))))
    for one in (SWAP, program(loop)):
        (verdict,) = check(TARGETS["tilelang-to-c"], one)
        assert verdict.status is Status.PASS, verdict.message


def test_the_minimiser_puts_the_value_in_the_place_of_the_name() -> None:
    assert inlined(SWAP, "b").body[-1] == Store("y", (ONE,), Binary("+", Load("y", (ZERO,)), Load("y", (ZERO,))))
    assert not any(isinstance(one, Assign) for one in walk(inlined(SWAP, "b")))
    loop = program(For("serial", "i", 4, (BOUND, Store("y", (I,), B))))
    assert program(For("serial", "i", 4, (Store("y", (I,), Load("x", (ZERO,))),))) in list(statements(loop))
    small = search(loop, lambda one: any(isinstance(node, Load) for node in walk(one)))
    assert [one.name for one in small.buffers] == ["x", "y"]


def test_reported_bugs_are_looked_for_behind_names_too() -> None:
    x = Buffer("x", (4,), "int32", least=-2_000_000_000, most=-1_900_000_000)
    large = Const(1_500_000_000)
    body = Assign("b", Binary("+", Load("x", (I,)), large)), Store("y", (I,), Binary("+", B, large))
    entry = known(Program(buffers=(x, Y, LET), body=(For("serial", "i", 4, body),)), "0.1.8")
    assert entry is not None
    assert entry.issue.endswith("/3002")


# --- parameters that are passed by value


def passed(dtype: str, value: int, used: Expr) -> Program:
    return program(Store("y", (ZERO,), used), more=(Buffer("n0", (1,), dtype, scope="value", least=value, most=value),))


@needs_gcc
def test_a_parameter_is_passed_by_value(tmp_path: Path) -> None:
    dtypes = [*grammar.INTEGERS, "float32", "float64", "bool"]
    many = [passed(dtype, 1, Var("n0") if dtype == "int32" else Cast("int32", Var("n0"))) for dtype in dtypes]
    for dtype, one, run in zip(dtypes, many, prepare(many, list(map(source_of, many)), tmp_path), strict=True):
        assert f"n0: T.{dtype})" in render(one)
        assert passed_of(one) == {"n0": 1}
        assert list(inputs_of(one)) == ["x", "y"]
        assert evaluate(one)["y"][0] == run(one)["y"][0] == 1  # type: ignore[operator]


@needs_tilelang
@pytest.mark.parametrize(("dtype", "value"), [("int32", 3), ("int8", -3), ("uint64", 3), ("float64", 3), ("bool", 1)])
def test_tilelang_is_given_the_value(dtype: str, value: int) -> None:
    one = passed(dtype, value, Var("n0") if dtype == "int32" else Cast("int32", Var("n0")))
    (verdict,) = check(TARGETS["tilelang-to-c"], one)
    assert verdict.status is Status.PASS, verdict.message
    assert first_wrong_pass(one).endswith("the generator of C"), "each pass is evaluated with the value"


@needs_tilelang
def test_tilelang_may_give_a_parameter_the_name_that_is_bound_to_it() -> None:
    one = passed("int32", 3, B)
    one = replace(one, buffers=(*one.buffers, LET), body=(Assign("b", Binary("*", Var("n0"), ONE)), *one.body))
    (verdict,) = check(TARGETS["tilelang-to-c"], one)
    assert verdict.status is Status.PASS, verdict.message
    assert first_wrong_pass(one) == "the generator of C"


def test_a_parameter_is_not_set_and_becomes_a_constant() -> None:
    one = passed("int32", 3, Binary("+", Var("n0"), ONE))
    assert_refused(replace(one, body=(Assign("n0", ZERO), *one.body)), "a parameter")
    assert all(isinstance(small, Program) for small in settings(one))
    assert Store("y", (ZERO,), Binary("+", Const(3), ONE)) in [small.body[0] for small in settings(one)]
    kept = search(one, lambda small: "n0" in render(small))
    assert kept.buffer("n0").scope == "value"
    assert render(kept).count("n0") == 2


# --- what is said of them, and how often they are drawn


def test_findings_and_coverage_name_them() -> None:
    assert signature(SWAP) == "+, a bound value"
    assert signature(passed("int32", 3, Var("n0"))) == "a scalar parameter"
    assert {"scope: let", "scope: global"} <= features(SWAP)


def test_some_programs_have_them() -> None:
    many = drawn(300)
    for scope in ("let", "value"):
        having = [one for one in many if any(buffer.scope == scope for buffer in one.buffers)]
        names = [(one, buffer.name) for one in having for buffer in one.buffers if buffer.scope == scope]
        assert len(many) / 10 < len(having) < len(many) / 2
        used = sum(any(isinstance(node, Var) and node.name == name for node in walk(one)) for one, name in names)
        assert used > len(names) / 3


# --- indices of int64


H, WIDE = Var("h"), Buffer("h", (1,), "int64", scope="index")
DOWN = Binary("-", Const(5, "int64"), H)
LOOP = program(For("serial", "h", 4, (Store("y", (DOWN,), Cast("int32", H)),), begin=2), more=(WIDE,))
"""y[5 - h] = h, for h from 2 to 5."""


@needs_gcc
def test_a_loop_may_have_an_index_of_int64(tmp_path: Path) -> None:
    assert "for h in T.serial(T.int64(2), T.int64(6)):\n            y[5 - h] = " in render(LOOP)
    assert_both(LOOP, [5, 4, 3, 2], tmp_path)
    stepped = replace(LOOP.body[0], step=2, extent=2)
    assert "T.serial(T.int64(2), T.int64(6), 2)" in render(replace(LOOP, body=(stepped,)))
    assert_refused(replace(LOOP, body=(replace(LOOP.body[0], kind="Parallel", begin=0),)), "int64")
    assert_refused(program(Store("y", (Cast("float32", ONE),), ONE)), "an index that is none")
    assert not replace(LOOP, symbols={"size": 4}).is_symbolic(replace(LOOP.body[0], begin=0))  # type: ignore[arg-type]


@needs_tilelang
def test_tilelang_agrees_on_indices_of_int64() -> None:
    for target in ("tilelang-to-c", "tilelang-arithmetic"):
        (verdict,) = check(TARGETS[target], LOOP)
        assert verdict.status is Status.PASS, verdict.message
    assert first_wrong_pass(LOOP) == "the generator of C"


def test_the_minimiser_takes_one_turn_or_int32() -> None:
    turn = Store("y", (Binary("-", Const(5, "int64"), Const(2, "int64")),), Cast("int32", Const(2, "int64")))
    assert (turn,) in [one.body for one in statements(LOOP)]
    small = search(LOOP, lambda one: "-" in render(one))
    assert "int64" not in render(small)
    kept = search(LOOP, lambda one: "T.serial(T.int64" in render(one))
    assert len(render(kept).splitlines()) == 5


def test_some_indices_are_of_int64() -> None:
    many = drawn(600)
    assert sum(any(buffer.scope == "index" for buffer in one.buffers) for one in many) > len(many) / 40
    at = [(one, place) for one in many for node in walk(one) for place in getattr(node, "at", ())]
    at = [(one, place) for one, place in at if not isinstance(place, Const)]
    assert sum(grammar.dtype_of(place, one) == "int64" for one, place in at) > len(at) / 100
