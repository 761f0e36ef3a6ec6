"""Tile operations by hand, and programs whose result depends on an order that nobody promises."""

import numpy as np
import pytest

from mhc.programs.arithmetic import Invalid
from mhc.programs.compile_error import CompileError
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import (
    AtomicAdd,
    Binary,
    Buffer,
    Const,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    Load,
    Program,
    Reduce,
    Scan,
    Statement,
    Store,
    Var,
)
from mhc.programs.minimise import search
from mhc.programs.tilelang_text import render

I, BX = Var("i"), Var("bx")
X = Buffer("x", (2, 3), "int32", least=1, most=9)
F = Buffer("f", (2, 3), "int32", scope="fragment")
GIVEN = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


def run(body: tuple[Statement, ...], *temporary: Buffer, shape: tuple[int, ...] = (2, 3), **more: object) -> np.ndarray:
    """Return y, into which the last temporary buffer is copied at the end, with x = [[1, 2, 3], [4, 5, 6]]."""
    y = Buffer("y", shape, "int32", written=True)
    zeros = (0,) * len(shape)
    last = Copy(source=temporary[-1].name, source_at=zeros, target="y", target_at=zeros, extents=shape)
    program = Program(buffers=(X, *temporary, y), body=(*body, last), threads=32, **more)  # type: ignore[arg-type]
    return evaluate(program, {"x": GIVEN, "y": np.full(shape, 7, np.int32)})["y"]


WHOLE = Copy(source="x", source_at=(0, 0), target="f", target_at=(0, 0), extents=(2, 3))


@pytest.mark.parametrize(
    ("op", "axis", "clear", "wanted"),
    [
        ("sum", 1, True, [6, 15]),
        ("sum", 0, True, [5, 7, 9]),
        ("max", 1, False, [4, 6]),
        ("min", 0, False, [1, 2, 3]),
        ("abssum", 1, True, [6, 15]),
        ("absmax", 0, True, [4, 5, 6]),
        ("sum", 1, False, [10, 19]),
    ],
)
def test_a_reduction(op: str, axis: int, clear: bool, wanted: list[int]) -> None:
    r = Buffer("r", (len(wanted),), "int32", scope="fragment")
    reduced = Reduce(op=op, source="f", target="r", axis=axis, clear=clear)  # type: ignore[arg-type]
    assert run((WHOLE, Fill("r", Const(4)), reduced), F, r, shape=r.shape).tolist() == wanted


@pytest.mark.parametrize(
    ("axis", "reverse", "wanted"),
    [(1, False, [[1, 3, 6], [4, 9, 15]]), (0, False, [[1, 2, 3], [5, 7, 9]]), (1, True, [[6, 5, 3], [15, 11, 6]])],
)
def test_a_scan(axis: int, reverse: bool, wanted: list[list[int]]) -> None:
    assert run((WHOLE, Scan(source="f", target="f", axis=axis, reverse=reverse)), F).tolist() == wanted


def test_a_part_reads_0_over_the_end_and_writes_nothing_there() -> None:
    part = Copy(source="x", source_at=(0, Const(2)), target="f", target_at=(0, 0), extents=(2, 3))
    assert run((part,), F).tolist() == [[3, 0, 0], [6, 0, 0]]
    out = Copy(source="f", source_at=(0, 0), target="z", target_at=(1, 1), extents=(2, 3))
    z = Buffer("z", (2, 3), "int32", written=True)
    program = Program(buffers=(X, F, z), body=(WHOLE, out), threads=32)
    given = {"x": GIVEN, "z": np.full((2, 3), 7, np.int32)}
    assert evaluate(program, given)["z"].tolist() == [[7, 7, 7], [7, 1, 2]]


def test_a_product_and_its_options() -> None:
    a = Buffer("a", (2, 3), "float16", scope="shared")
    c = Buffer("c", (2, 2), "float32", scope="fragment")
    y = Buffer("y", (2, 2), "float32", written=True)
    x = Buffer("x", (2, 3), "float16", most=9)
    body = (
        Copy(source="x", source_at=(0, 0), target="a", target_at=(0, 0), extents=(2, 3)),
        Fill("c", Const(1.0, "float32")),
        Gemm(a="a", b="a", c="c", transpose_b=True),
        Copy(source="c", source_at=(0, 0), target="y", target_at=(0, 0), extents=(2, 2)),
    )
    program = Program(buffers=(x, a, c, y), body=body, threads=32)
    given: dict[str, np.ndarray] = {"x": GIVEN.astype(np.float16), "y": np.zeros((2, 2), np.float32)}
    assert evaluate(program, given)["y"].tolist() == [[15, 33], [33, 78]]
    text = render(program, "threads=32")
    assert "        T.gemm(a, a, c, transpose_B=True)" in text
    assert "        T.fill(c, 1.0)" in text


def test_atomic_additions_meet_and_nothing_else_may() -> None:
    y = Buffer("y", (2,), "int32", written=True, zeroed=True)
    add = AtomicAdd("y", (Binary("%", I, Const(2)),), I)
    program = Program(buffers=(y,), body=(For("Parallel", "i", 5, (add,)),), threads=32, grid=(2,))
    assert evaluate(program)["y"].tolist() == [12, 8]
    assert "T.atomic_add(y[i % 2], i)" in render(program)
    with pytest.raises(Invalid, match="added to atomically"):
        evaluate(Program(buffers=(y,), body=(*program.body, Store("y", (Const(0),), Const(1))), threads=32))
    with pytest.raises(Invalid, match=r"outside of T\.Parallel"):
        evaluate(Program(buffers=(y,), body=(For("serial", "i", 5, (add,)),), threads=32))


def loop(kind: str, at: Expr, value: Expr, count: int = 4) -> Statement:
    return For(kind, "i", count, (Store("y", (at,), value),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "threads", "grid", "reason"),
    [
        ((loop("Parallel", Const(0), I),), 1, (1,), "two iterations meet"),
        (
            (loop("serial", I, Const(0)), loop("Parallel", I, Load("y", (Binary("-", Const(3), I),)))),
            1,
            (1,),
            "two iterations",
        ),
        ((loop("serial", I, I),), 1, (2,), "two blocks write"),
        ((loop("serial", I, Const(0)), loop("Parallel", I, I)), 32, (1,), "two threads write"),
        ((loop("serial", I, Const(0)), loop("serial", I, Load("y", (I,)))), 32, (1,), "nothing orders threads"),
    ],
    ids=["one element", "another's element", "blocks", "threads", "read back"],
)
def test_a_result_that_depends_on_an_order_has_no_meaning(
    body: tuple[Statement, ...], threads: int, grid: tuple[int, ...], reason: str
) -> None:
    y = Buffer("y", (4,), "int32", written=True)
    with pytest.raises(Invalid, match=reason):
        evaluate(Program(buffers=(y,), body=body, threads=threads, grid=grid))


def test_a_fragment_is_read_where_the_iteration_is() -> None:
    f = Buffer("f", (4,), "int32", scope="fragment")
    y = Buffer("y", (4,), "int32", written=True)
    fill = Fill("f", Const(3))
    own = Program(buffers=(f, y), body=(fill, loop("Parallel", I, Load("f", (I,)))), threads=32)
    assert evaluate(own)["y"].tolist() == [3, 3, 3, 3]
    other = Program(buffers=(f, y), body=(fill, loop("Parallel", I, Load("f", (Const(0),)))), threads=32)
    with pytest.raises(Invalid, match="an iteration has one element"):
        evaluate(other)


def test_blocks_may_write_parts_of_their_own_and_loops_are_written_as_one() -> None:
    y = Buffer("y", (2, 3, 2), "int32", written=True)
    store = Store("y", (BX, I, Var("j")), Binary("+", I, Var("j")))
    program = Program(
        buffers=(y,), body=(For("Parallel", "i", 3, (For("Parallel", "j", 2, (store,)),)),), threads=64, grid=(2,)
    )
    assert evaluate(program)["y"].tolist() == [[[0, 1], [1, 2], [2, 3]]] * 2
    assert "        for i, j in T.Parallel(3, 2):\n            y[bx, i, j] = i + j\n" in render(program, "threads=64")


def test_sizes_that_fit_one_another_shrink_together() -> None:
    buffers = tuple(
        Buffer(name, shape, "int32", scope=scope, written=name == "y", most=9 if name == "x" else 0)  # type: ignore[arg-type]
        for name, shape, scope in (
            ("x", (12, 7), "global"),
            ("s", (12, 7), "shared"),
            ("f", (12, 7), "fragment"),
            ("r", (12,), "fragment"),
            ("y", (12,), "global"),
        )
    )
    copies: list[Statement] = [
        Copy(source=a, source_at=(0,) * len(size), target=b, target_at=(0,) * len(size), extents=size)
        for a, b, size in (("x", "s", (12, 7)), ("s", "f", (12, 7)), ("r", "y", (12,)))
    ]
    body: tuple[Statement, ...] = (*copies[:2], Reduce(op="max", source="f", target="r", axis=1), copies[2])
    program = Program(buffers=buffers, body=body, threads=128)
    small = search(program, lambda one: any(isinstance(node, Reduce) for node in one.body))
    assert {one.name: one.shape for one in small.buffers} == {"x": (1, 1), "f": (1, 1), "r": (1,), "y": (1,)}
    assert small.threads == 1


def test_what_the_compiler_says_it_lacks_is_told_from_a_failure() -> None:
    lacks = "InternalError: No valid warp partition for T.gemm: M=16, N=24 cannot be evenly covered by 8 warps"
    assert CompileError("lower", lacks).is_limit
    assert not CompileError("lower", "InternalError: Check failed: vars.size() == InputDim()").is_limit
