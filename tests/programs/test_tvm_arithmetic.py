"""TVM's arithmetic on programs: bugs that it has, and no alarm where nothing is rewritten."""

from typing import Any

import pytest

from mhc.fuzz.check.program_check import check
from mhc.oracles.verdict import Status
from mhc.programs import tvm_arithmetic
from mhc.programs.compile_error import CompileError
from mhc.programs.grammar import Binary, Buffer, Cast, Const, Expr, For, If, Load, Program, Select, Store, Unary, Var
from mhc.programs.known import known
from mhc.programs.targets import TARGETS
from mhc.strategies.programs.programs import ARITHMETIC, programs
from mhc.strategies.rounds import drawn
from tests.programs.test_tilelang_c import LOST_CONSTANT, I, X, loop
from tests.support.needs import needs_tilelang
from tests.support.own_constants import no_constants_of_modules

pytestmark = needs_tilelang
TARGET = TARGETS["tilelang-arithmetic"]
J = Var("j")
BYTES = Buffer("x", (4,), "int8", least=-9, most=-1)


def element(index: Expr) -> Expr:
    return Load("x", (index,))


WRAPPED = Cast("int32", Cast("uint8", element(Const(1))))
QUOTIENT = Program(
    buffers=(Buffer("x", (1,), "int64", least=-9, most=9), Buffer("y", (1,), "bool", written=True)),
    body=(
        Store(
            "y",
            (Const(0),),
            Binary(">", Binary("//", element(Const(0)), Const(3, "int64")), Const(3074457345618258602, "int64")),
        ),
    ),
)


def statuses(program: Program) -> list[Status]:
    return [one.status for one in check(TARGET, program)]


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (LOST_CONSTANT, "(1 - i) % 4  ->  i % -4 * -1"),
        (loop(element(Binary("//", Binary("-", Const(7), I), Const(2))), "int32", X), "(7 - i) // 2  ->  "),
        (loop(Select(Binary(">", WRAPPED, Const(200)), Const(1), Const(0)), "int32", BYTES), "->  T.min(T.max(0, 0), 1)"),
        (QUOTIENT, "->  T.int64(-9223372036854775808) < x0"),
    ],
    ids=["index counts down", "quotient counts down", "narrowing cast", "quotient compared"],
)
def test_what_it_rewrites_wrongly_is_a_wrong_value(program: Program, line: str) -> None:
    assert statuses(program) == [Status.FAIL]
    assert line in tvm_arithmetic.lower(program)


@pytest.mark.parametrize(
    "program",
    [
        loop(element(Binary("%", Binary("+", I, Const(4)), Const(4))), "int32", X),
        loop(element(Binary("//", Binary("+", I, Const(3)), Const(2))), "int32", X, begin=1),
        loop(
            Select(Binary("<", I, Const(9)), Binary("*", element(Binary("min", I, Const(3))), Const(2)), Const(7)),
            "int32",
            X,
        ),
        loop(Unary("-", Binary("truncdiv", element(Const(2)), Const(3))), "int32", X, at=Binary("-", Const(4), I)),
    ],
)
def test_what_it_rewrites_rightly_passes(program: Program) -> None:
    assert statuses(program) == [Status.PASS]
    assert "->" in tvm_arithmetic.lower(program)


def test_a_flat_index_has_all_axes() -> None:
    buffers = (Buffer("y", (3, 4), "int32", written=True),)
    store = Store("y", (Binary("-", Const(2), I), Binary("%", Binary("+", J, Const(1)), Const(4))), Binary("+", I, J))
    program = Program(buffers=buffers, body=(For("serial", "i", 3, (For("serial", "j", 4, (store,)),)),))
    assert statuses(program) == [Status.PASS]
    assert "(2 - i) * 4 + (j + 1) % 4" in tvm_arithmetic.lower(program)


def test_nothing_is_found_where_nothing_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the front end folds of constants is left: those are refused, not wrong. So is what it is known to get wrong."""
    monkeypatch.setattr(tvm_arithmetic, "_simplified", lambda terms, term, proves=False: term)
    monkeypatch.setattr(tvm_arithmetic, "_iter_map", lambda terms, term: term)
    with no_constants_of_modules():
        found = drawn(programs(ARITHMETIC), 80, 3)
    found = [one for one in found if known(one, "0.1.8") is None]
    verdicts = [one for program in found for one in check(TARGET, program)]
    assert [one for one in verdicts if one.status is Status.FAIL and one.oracle == "evaluator"] == []
    assert sum(one.status is Status.PASS for one in verdicts) > 50


def test_what_a_condition_guards_is_not_evaluated() -> None:
    """x has no element 4, and nothing is divided by 0."""
    inside = Binary("and", Binary("<", I, Const(4)), Binary("!=", element(I), Const(99)))
    outside = Binary("or", Binary("==", I, Const(0)), Binary(">", Binary("//", Const(8), I), Const(1)))
    for condition in (inside, outside):
        assert statuses(loop(Select(condition, Const(1), Const(0)), "int32", X)) == [Status.PASS]


def test_an_index_has_the_range_of_its_own_loop() -> None:
    first, second = (loop(Binary("//", I, Const(3)), begin=begin).body[0] for begin in (0, 3))
    program = Program(buffers=loop(I).buffers, body=(first, second))
    assert statuses(program) == [Status.PASS]
    bounds = [line.rpartition("->")[2].strip() for line in tvm_arithmetic.lower(program).splitlines()]
    assert bounds == ["T.min(T.max(i // 3, 0), 1)", "T.min(T.max(i // 3, 1), 1)"]


def _halved(terms: Any, term: Any) -> Any:
    return term // 2


def _beyond(terms: Any, term: Any) -> Any:
    return term + 99


@pytest.mark.parametrize(
    ("wrong", "symptom"), [(_halved, "wrong value"), (_beyond, "there is no element N of N")], ids=["another", "none"]
)
def test_an_index_that_is_rewritten_wrongly_is_found(wrong: Any, symptom: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_arithmetic, "_iter_map", wrong)
    (verdict,) = check(TARGET, loop(Const(1), at=Binary("-", Const(4), I)))
    assert (verdict.status, verdict.symptom) == (Status.FAIL, symptom)


def test_a_condition_that_is_proved_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    branch = If(Binary("<", I, Const(2)), (Store("y", (I,), Const(1)),), (Store("y", (I,), Const(2)),))
    program = Program(buffers=(Buffer("y", (5,), "int32", written=True),), body=(For("serial", "i", 5, (branch,)),))
    assert statuses(program) == [Status.PASS]
    true = tvm_arithmetic._simplified
    monkeypatch.setattr(
        tvm_arithmetic, "_simplified", lambda terms, term, proves=False: true(terms, term <= 9, proves=proves)
    )
    assert statuses(program) == [Status.FAIL]


def test_an_expression_that_tvm_refuses_is_a_finding() -> None:
    zero = loop(Cast("int32", Unary("-", Const(0, "uint16"))))
    (verdict,) = check(TARGET, zero)
    assert (verdict.status, verdict.subject) == (Status.FAIL, "lower")
    with pytest.raises(CompileError, match="cannot make uint from negative value"):
        tvm_arithmetic.lower(zero)


def test_a_value_that_its_dtype_does_not_hold_is_a_finding() -> None:
    """TVM folds 3 << 14 of int16 to 49152, which no int16 is."""
    folded = Binary("+", Const(8, "int16"), Binary("<<", Const(3, "int16"), Const(14, "int16")))
    program = Program(buffers=(Buffer("y", (1,), "int16", written=True),), body=(Store("y", (Const(0),), folded),))
    (verdict,) = check(TARGET, program)
    assert (verdict.status, verdict.subject) == (Status.FAIL, "run")
    assert "49160 out of bounds for int16" in verdict.message


def test_a_node_that_no_rewriting_makes_is_an_error() -> None:
    terms = tvm_arithmetic._Terms({}, lambda node: "int32")
    with pytest.raises(NotImplementedError, match="a rewritten expression has"):
        tvm_arithmetic.computed(tvm_arithmetic._tir().Broadcast(terms.term(Const(1)), 4), lambda term: None)
