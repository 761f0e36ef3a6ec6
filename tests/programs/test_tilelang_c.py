"""TileLang's `c` target: programs that it gets right, bugs that it has, and those that are reported."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.fuzz.check.program_check import check
from mhc.oracles.verdict import Status
from mhc.programs import arithmetic, grammar, tilelang_c
from mhc.programs.compile_error import CompileError
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import (
    Assign,
    Assume,
    Binary,
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
from mhc.programs.known import KNOWN, Known, is_before, known
from mhc.programs.targets import TARGETS
from mhc.programs.tilelang_c import source_of
from mhc.programs.tilelang_lower import release, tilelang
from mhc.programs.tilelang_words import features, signature
from tests.support.needs import needs_tilelang

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
C = TARGETS["tilelang-to-c"]
I = Var("i")


def loop(value: Expr, dtype: str = "int32", *more: Buffer, count: int = 5, begin: int = 0, at: Expr = I) -> Program:
    """Return a program that sets y[at] to a value, for i from `begin` to `count` - 1."""
    buffers = (*more, Buffer("y", (count,), dtype, written=True))
    body = (For("serial", "i", count - begin, (Store("y", (at,), value),), begin=begin),)
    return Program(buffers=buffers, body=body)


X = Buffer("x", (4,), "int32", least=-50, most=50)
BYTES = Buffer("x", (5,), "uint8", least=60, most=255)
LOST_CONSTANT = loop(Load("x", (Binary("%", Binary("-", Const(1), I), Const(4)),)), "int32", X)
NOT_TRUNCATED = loop(Cast("int32", Binary("+", Load("x", (I,)), Const(200, "uint8"))), "int32", BYTES)


@needs_tilelang
@pytest.mark.parametrize(
    "program",
    [
        loop(Binary("+", Load("x", (Binary("%", I, Const(4)),)), Const(1)), "int32", X),
        loop(Select(Binary("<", I, Const(4)), Load("x", (Binary("min", I, Const(3)),)), Const(7)), "int32", X),
        loop(Binary("//", Binary("-", I, Const(3)), Const(2))),
        loop(Cast("float32", Binary("*", I, Const(3))), "float32"),
        loop(Binary("<", I, Const(2)), "bool"),
        loop(Unary("~", Load("x", (Const(0),))), "int32", X),
    ],
    ids=lambda one: one.id,
)
def test_the_compiled_program_gives_what_the_evaluator_gives(program: Program) -> None:
    verdicts = check(C, program)
    assert [(one.subject, one.status) for one in verdicts] == [("y", Status.PASS)]


@needs_tilelang
@pytest.mark.parametrize(
    ("program", "needed"),
    [(LOST_CONSTANT, "% in an index, - in an index"), (NOT_TRUNCATED, "narrow integer arithmetic")],
    ids=["a constant lost in an index", "uint8 not truncated"],
)
def test_wrong_code_of_this_release_is_found(program: Program, needed: str) -> None:
    (verdict,) = check(C, program)
    assert (verdict.status, verdict.oracle, verdict.symptom) == (Status.FAIL, "evaluator", "wrong value")
    assert verdict.subject == signature(program) == needed
    assert f"of {program.outputs[0].size} differ" in verdict.message
    assert known(program, release()) is None


def ends(program: Program) -> bool:
    """Return whether the process that runs a program ends by a signal."""
    text = (
        "import sys; from mhc.fuzz.check.program_check import check; from mhc.programs.grammar import Program;"
        "from mhc.programs.targets import TARGETS; check(TARGETS['tilelang-to-c'], Program.from_json(sys.argv[1]))"
    )
    return subprocess.run([sys.executable, "-c", text, program.json], check=False, timeout=120).returncode < 0


@needs_tilelang
@pytest.mark.parametrize("entry", KNOWN, ids=lambda one: one.issue.rpartition("/")[2])
def test_a_reported_bug_is_still_there(entry: Known) -> None:
    """An entry whose example passes is out of date: strike it, or say which release mended it."""
    others = {"cuda": TARGETS["tilelang-for-sm_90"], "arithmetic": TARGETS["tilelang-arithmetic"]}
    target = others.get(entry.kinds[0], C) if entry.kinds else C
    assert entry.is_in(release(), target.kind)
    assert entry.holds(entry.example)
    assert ends(entry.example) if entry.ends else any(one.status is Status.FAIL for one in check(target, entry.example))
    assert known(entry.example, release(), target.kind) is not None


@pytest.mark.parametrize("entry", ["interval_of_a_cast", "stale_assumption", "short_circuit", "hoisted_condition"])
def test_what_fits_or_is_guarded_or_does_not_change_is_judged(entry: str) -> None:
    by_name = {one.issue.rpartition("/")[2]: one for one in KNOWN}
    x, y = Buffer("x", (1,), "int32", least=3, most=3), Buffer("y", (4,), "int32", written=True)
    never_0 = replace(by_name[entry].example, buffers=(x, y))
    fits = For("serial", "i", 2, (Assign("b", Cast("bool", I)), Store("y", (I,), Cast("int32", Var("b")))))
    assumed = Assume(Binary(">", Load("x", (Const(0),)), Const(2))), Store("y", (Const(0),), Load("x", (Const(0),)))
    judged = {
        "interval_of_a_cast": Program(buffers=(Buffer("b", (1,), "bool", scope="let"), y), body=(fits,)),
        "stale_assumption": Program(buffers=(x, y), body=assumed),
    }.get(entry, never_0)
    evaluate(judged)
    assert not by_name[entry].holds(judged)


def test_an_entry_ends_with_the_release_that_mends_it() -> None:
    vectors = next(one for one in KNOWN if one.before is not None)
    assert vectors.before is not None
    assert not vectors.is_in(vectors.before)
    assert not vectors.is_in("0.1.8", "cuda")
    assert is_before("0.1.8", "0.1.15")
    assert not is_before("0.1.9+cuda", "0.1.9")
    assert not any(one.holds(LOST_CONSTANT) for one in KNOWN)


@needs_tilelang
@pytest.mark.parametrize("dtype", [one for one in grammar.DTYPES if one != "bool"])
def test_the_text_of_an_operation_has_its_dtype_in_the_front_end(dtype: str) -> None:
    """A bare constant beside a narrow integer would make int32 of both."""
    given, x, constant = Buffer("x", (1,), dtype), Load("x", (Const(0),)), Const(3, dtype)
    if dtype in grammar.FLOATS:
        constant = Const(1.0, dtype)
    scope = {"T": tilelang().language, "x": [tilelang().tvm.tir.Var("x", dtype)]}
    operations = [op for op in grammar.ARITHMETIC if has(op, dtype)]
    assert len(operations) >= 6
    for op in operations:
        for node in (Binary(op, x, constant), Binary(op, constant, x), Binary(op, x, x)):
            text = source_of(loop(node, dtype, given)).splitlines()[-1].partition(" = ")[2]
            assert str(eval(text, scope).dtype) == dtype, text


@needs_tilelang
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_the_text_of_a_large_constant_has_its_dtype_in_the_front_end(dtype: str) -> None:
    """A bare constant from 2**31 on would make int64 of a uint32 beside it."""
    given, x = Buffer("x", (1,), dtype), Load("x", (Const(0),))
    scope = {"T": tilelang().language, "x": [tilelang().tvm.tir.Var("x", dtype)]}
    for largest in (2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1):
        if largest <= np.iinfo(dtype).max:
            text = source_of(loop(Binary("+", x, Const(largest, dtype)), dtype, given)).splitlines()[-1].partition(" = ")[2]
            assert str(eval(text, scope).dtype) == dtype, text


def has(op: str, dtype: str) -> bool:
    try:
        arithmetic.operation(op, dtype)
    except arithmetic.Invalid:
        return False
    return True


def test_a_program_without_a_meaning_is_not_judged() -> None:
    (verdict,) = check(C, loop(Load("x", (I,)), "int32", X))
    assert verdict.status is Status.NOT_APPLICABLE
    assert "no element 4" in verdict.message


@needs_tilelang
def test_several_programs_are_compiled_in_one_file_and_one_that_does_not_compile_stops_no_other(tmp_path) -> None:  # type: ignore[no-untyped-def]
    right = loop(Binary("*", I, Const(3)))
    sources = [tilelang_c.lower(right), "int32_t f_kernel(int32_t* y) { return nothing; }", tilelang_c.lower(right)]
    first, bad, last = tilelang_c.prepare([right] * 3, sources, tmp_path, exact=False)
    assert isinstance(bad, CompileError)
    assert bad.stage == "cc"
    for one in (first, last):
        assert not isinstance(one, CompileError)
        np.testing.assert_array_equal(one(right)["y"], evaluate(right)["y"])


def test_a_write_where_none_may_be_is_seen(tmp_path) -> None:  # type: ignore[no-untyped-def]
    program = loop(Load("x", (Const(0),)), "int32", X)
    outside = "void f_kernel(int32_t* x, int32_t* y) { for (int i = 0; i < 6; ++i) y[i] = 0; }"
    before = "void f_kernel(int32_t* x, int32_t* y) { y[-1] = 0; }"
    inside = "void f_kernel(int32_t* x, int32_t* y) { x[1] ^= 1; }"
    ready = tilelang_c.prepare([program] * 3, [outside, before, inside], tmp_path)
    for one, message in zip(ready, ("outside y", "outside y", "the input x"), strict=True):
        assert not isinstance(one, CompileError)
        with pytest.raises(CompileError, match=message):
            one(program)


def test_the_features_of_a_program_are_named() -> None:
    program = Program(
        buffers=(X, Buffer("y", (4,), "float16", written=True)),
        body=(For("unroll", "i", 4, (If(Binary("<", I, Const(2)), (Store("y", (I,), Const(1.0, "float16")),)),)),),
        grid=(2,),
    )
    assert {"loop: unroll", "node: if", "operation: <", "dtype: float16", "scope: global", "grid: 1 axes"} <= features(
        program
    )
    assert signature(program) == "<, T.unroll, if"
