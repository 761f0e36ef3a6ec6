"""The second evaluator: it agrees with the first, and says what it refuses."""

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mhc.programs import grammar, plain_c
from mhc.programs.compile_error import CompileError, Run
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import (
    AtomicAdd,
    Binary,
    Bits,
    Buffer,
    Cast,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Load,
    Program,
    Reduce,
    Scan,
    Select,
    Statement,
    Store,
    Unary,
    Var,
)
from mhc.programs.known import KNOWN, known
from mhc.programs.targets import TARGETS

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler here")
PLAIN = TARGETS["plain-c"]
I = Var("i")
X = Buffer("x", (5,), "int32", least=-50, most=50)


def loop(value: Expr, dtype: str = "int32", *more: Buffer) -> Program:
    """Return a program that sets y[i] to a value, for i from 0 to 4."""
    buffers = (*more, Buffer("y", (5,), dtype, written=True))
    return Program(buffers=buffers, body=(For("serial", "i", 5, (Store("y", (I,), value),)),))


def outcomes(programs: Sequence[Program], folder: Path) -> list[dict[str, np.ndarray] | str]:
    """Return the outputs of each program, or what it is refused for; all are compiled in one file."""

    def outcome(program: Program, run: Run | CompileError) -> dict[str, np.ndarray] | str:
        try:
            assert not isinstance(run, CompileError), run
            return run(program)
        except CompileError as error:
            return str(error)

    return list(map(outcome, programs, plain_c.prepare(programs, [plain_c.source_of(one) for one in programs], folder)))


def ran(program: Program, folder: Path) -> dict[str, np.ndarray]:
    (result,) = outcomes([program], folder)
    assert not isinstance(result, str), result
    return result


def assert_agreement(programs: Sequence[Program], folder: Path) -> None:
    for program, got in zip(programs, outcomes(programs, folder), strict=True):
        assert not isinstance(got, str), f"{got}: {program.json}"
        for name, wanted in evaluate(program).items():
            np.testing.assert_array_equal(got[name], wanted, err_msg=program.json)


def operated(op: str, dtype: str) -> Program:
    signed = dtype in grammar.SIGNED
    x = Buffer("x", (5,), dtype, least=0 if op == "<<" or not signed else -7, most=7 if signed else 100)
    right = Const(3 if op in {"<<", ">>"} or not signed else -3, dtype)
    return loop(Binary(op, Load("x", (I,)), right), dtype, x)


def test_integer_operations_agree_in_every_dtype(tmp_path: Path) -> None:
    operations = [one for one in grammar.ARITHMETIC if one != "/"]
    assert_agreement([operated(op, dtype) for op in operations for dtype in grammar.INTEGERS], tmp_path)


def test_expressions_agree(tmp_path: Path) -> None:
    values: list[tuple[Expr, str]] = [
        (Unary("-", I), "int32"),
        (Unary("~", Cast("uint8", I)), "uint8"),
        (Unary("~", Binary("<", I, Const(2))), "bool"),
        (Unary("+", Cast("uint8", I)), "uint8"),
        (Unary("+", Cast("float32", I)), "float32"),
        (Binary("<<", Const(3), Const(31)), "int32"),
        (Binary("<<", Const(1, "int8"), Const(7, "int8")), "int8"),
        (Binary("<<", Const(1, "int64"), Const(63, "int64")), "int64"),
        *((Binary("ceildiv", Binary("-", I, Const(2)), Const(by)), "int32") for by in (1, 2, 3, -1, -2, -3)),
        (Unary("abs", Binary("-", I, Const(3))), "int32"),
        (Unary("floor", Binary("/", Cast("float16", Binary("-", I, Const(3))), Const(2.0, "float16"))), "float16"),
        *(
            (Unary(op, Binary("/", Cast(dtype, Binary("-", I, Const(3))), Const(2.0, dtype))), dtype)
            for op in ("ceil", "trunc")
            for dtype in grammar.FLOATS
        ),
        *((Unary("sqrt", Binary("*", Cast(one, I), Cast(one, I))), one) for one in grammar.FLOATS),
        (Cast("int8", Binary("/", Cast("float32", Binary("-", I, Const(3))), Const(2.0, "float32"))), "int8"),
        (Cast("bool", Binary("-", I, Const(2))), "bool"),
        (Cast("int8", Binary("*", I, Const(100))), "int8"),
        (Cast("uint64", Binary("-", I, Const(3))), "uint64"),
        (Bits("int32", Cast("float32", Binary("+", I, Const(1)))), "int32"),
        (Bits("uint16", Cast("float16", Binary("+", I, Const(1)))), "uint16"),
        (Const(-(2**63), "int64"), "int64"),
        (Const(2**64 - 1, "uint64"), "uint64"),
        (
            Select(Binary("and", Binary(">", I, Const(1)), Binary(">", Binary("//", Const(8), I), Const(2))), I, Const(7)),
            "int32",
        ),
    ]
    assert_agreement([loop(value, dtype) for value, dtype in values], tmp_path)


def test_branches_on_integers_and_vectors_above_0_agree(tmp_path: Path) -> None:
    branch = If(Load("x", (I,)), (Store("y", (I,), Const(7)),), (Store("y", (I,), Const(8)),))
    x, y = Buffer("x", (5,), "int32", most=1), Buffer("y", (5,), "int32", written=True)
    loops: list[Statement] = [For("serial", "i", 5, (branch,)), For("vectorized", "i", 2, (Store("y", (I,), I),), begin=1)]
    assert_agreement([Program(buffers=(x, y), body=(one,)) for one in loops], tmp_path)


def tiles(*body: Statement, shape: tuple[int, ...] = (2, 3), more: tuple[Buffer, ...] = (), last: str = "f") -> Program:
    """Return a program that copies x to f and what is in `last` to y."""
    x, f = Buffer("x", (3, 3), "int32", least=-9, most=9), Buffer("f", (2, 3), "int32", scope="fragment")
    copied = Copy(source="x", source_at=(Const(2), 0), target="f", target_at=(0, 0), extents=(2, 3))
    out = Copy(source=last, source_at=(0,) * len(shape), target="y", target_at=(0,) * len(shape), extents=shape)
    buffers = (x, f, *more, Buffer("y", shape, "int32", written=True))
    return Program(buffers=buffers, body=(copied, *body, out), threads=32)


LINE = Buffer("r", (2,), "int32", scope="fragment")


def test_loops_with_a_computed_number_of_iterations_agree(tmp_path: Path) -> None:
    x, y = Buffer("x", (5,), "int32", most=2), Buffer("y", (5,), "int32", written=True)
    counts: list[Expr] = [*(Load("x", (Const(at),)) for at in range(5)), Const(0), Const(3)]
    loops = [For("serial", "i", 3, (Store("y", (I,), I),), begin=begin, count=one) for one in counts for begin in (0, 2)]
    assert_agreement([Program(buffers=(x, y), body=(one,)) for one in loops], tmp_path)


def test_loops_with_a_step_agree(tmp_path: Path) -> None:
    y = Buffer("y", (9,), "int32", written=True)
    steps = (0, 3, 2), (8, -4, 3), (1, 2, 0), (5, -1, 0)  # begin, step, rest
    store = Store("y", (I,), I)
    loops = [For("unroll", "i", 3, (store,), begin=begin, step=step, rest=rest) for begin, step, rest in steps]
    assert_agreement([Program(buffers=(y,), body=(one,)) for one in loops], tmp_path)


def test_tile_operations_agree(tmp_path: Path) -> None:
    reductions = [
        tiles(
            Fill("r", Const(4)),
            Reduce(op=op, source="f", target="r", axis=1, clear=clear),
            shape=(2,),
            more=(LINE,),
            last="r",
        )
        for op in ("sum", "max", "min")
        for clear in (False, True)
    ]
    absolute = tiles(Reduce(op="absmax", source="f", target="r", axis=1), shape=(2,), more=(LINE,), last="r")
    scans = [tiles(Scan(source="f", target="f", axis=axis, reverse=back)) for axis in (0, 1) for back in (False, True)]
    added = Program(
        buffers=(X, Buffer("y", (2,), "int32", written=True, zeroed=True)),
        body=(For("Parallel", "i", 5, (AtomicAdd("y", (Binary("%", I, Const(2)),), Load("x", (I,))),)),),
        threads=32,
    )
    assert_agreement([tiles(), *reductions, absolute, *scans, added], tmp_path)


def product(flips: Sequence[bool], *, clear: bool) -> Program:
    a, b = ((4, 2) if flips[0] else (2, 4)), ((3, 4) if flips[1] else (4, 3))
    buffers = [Buffer(name, shape, "int8", least=-128, most=127) for name, shape in (("x", a), ("w", b))]
    held = [Buffer(name, shape, "int8", scope="shared") for name, shape in (("a", a), ("b", b))]
    zeros = (0, 0)
    copies = [
        Copy(source=one.name, source_at=zeros, target=to.name, target_at=zeros, extents=one.shape)
        for one, to in zip(buffers, held, strict=True)
    ]
    step = Gemm(a="a", b="b", c="c", transpose_a=flips[0], transpose_b=flips[1], clear=clear)
    out = Copy(source="c", source_at=zeros, target="y", target_at=zeros, extents=(2, 3))
    c = Buffer("c", (2, 3), "int32", scope="fragment")
    body: tuple[Statement, ...] = (*copies, Fill("c", Const(5)), step, step, out)
    return Program(buffers=(*buffers, *held, c, Buffer("y", (2, 3), "int32", written=True)), body=body, threads=32)


def test_products_agree(tmp_path: Path) -> None:
    every = [product(flips, clear=clear) for *flips, clear in itertools.product((False, True), repeat=3)]
    assert_agreement(every, tmp_path)


def test_what_has_no_one_meaning_is_refused_here_too(tmp_path: Path) -> None:
    cases: list[tuple[Expr, str, str]] = [
        (Binary("+", Const(2**31 - 1), I), "int32", "+ overflows"),
        (Binary("*", Const(100, "int8"), Cast("int8", I)), "int8", "* overflows"),
        (Unary("-", Const(-128, "int8")), "int8", "- overflows"),
        (Binary("//", Const(1), I), "int32", "a division by 0"),
        (Binary("%", Const(-(2**31)), Binary("-", I, Const(1))), "int32", "a division overflows"),
        (Binary("<<", Const(1), Binary("*", I, Const(8))), "int32", "a shift by too much"),
        (Binary("<<", Const(-1), I), "int32", "<< overflows"),
        (Binary("<<", Const(-1), Const(1)), "int32", "<< of a negative constant"),
        (Binary("<<", Const(1), Const(32)), "int32", "a shift by too much"),
        (Binary("ceildiv", Const(2**31 - 2), Binary("+", I, Const(4))), "int32", "ceildiv overflows"),
        (Cast("uint8", Binary("*", Cast("float32", I), Const(100.0, "float32"))), "uint8", "a float that is no uint8"),
        (Unary("sqrt", Cast("float32", I)), "float32", "a square root that is rounded"),
        (Load("x", (Binary("+", I, Const(1)),)), "int32", "an index out of bounds"),
        (Load("x", (Binary("-", I, Const(1)),)), "int32", "an index out of bounds"),
    ]
    refused = outcomes([loop(value, dtype, X) for value, dtype, _ in cases], tmp_path)
    assert refused == [f"run: {message}" for _, _, message in cases]


def test_an_unsigned_integer_wraps_around(tmp_path: Path) -> None:
    program = loop(Binary("-", Cast("uint8", I), Const(2, "uint8")), "uint8")
    assert ran(program, tmp_path)["y"].tolist() == [254, 255, 0, 1, 2]


def test_parallel_iterations_run_backwards_and_serial_ones_do_not(tmp_path: Path) -> None:
    """A program whose result depends on the order is one that the evaluator refuses."""
    for number, (kind, wanted) in enumerate((("serial", 4), ("Parallel", 0))):
        store = Store("y", (Const(0),), I)
        program = Program(
            buffers=(Buffer("y", (1,), "int32", written=True),),
            body=(For(kind, "i", 5, (store,)),),  # type: ignore[arg-type]
        )
        folder = tmp_path / str(number)
        folder.mkdir()
        assert ran(program, folder)["y"].tolist() == [wanted]


def test_several_programs_are_in_one_file(tmp_path: Path) -> None:
    programs = [loop(Binary("*", I, Const(factor))) for factor in (2, 3)]
    ready = plain_c.prepare(programs, [plain_c.source_of(one) for one in programs], tmp_path)
    for program, run in zip(programs, ready, strict=True):
        assert not isinstance(run, CompileError)
        np.testing.assert_array_equal(run(program)["y"], evaluate(program)["y"])
    assert [one.name for one in tmp_path.glob("*.so")] == ["all.so"]


def test_no_bug_of_a_compiler_is_known_of_it() -> None:
    assert all(known(one.example, PLAIN.release(), PLAIN.kind) is None for one in KNOWN)
    assert known(KNOWN[-1].example, "0.1.8") is not None
