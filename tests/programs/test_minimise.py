"""The minimiser of programs, on failures that a function of the text stands for."""

from itertools import islice

import pytest
from msgspec.structs import replace

from mhc.programs.arithmetic import Invalid
from mhc.programs.edits import STEPS, parts, rank, statements, tidy
from mhc.programs.evaluate import evaluate
from mhc.programs.grammar import Assign, Binary, Buffer, Cast, Const, For, If, Load, Program, Select, Store, Var, walk
from mhc.programs.minimise import search
from mhc.programs.tilelang_text import render

I, J = Var("i"), Var("j")
BIG = Program(
    buffers=(
        Buffer("x", (5, 7), "int32", least=-20, most=100),
        Buffer("w", (6,), "uint8", most=255),
        Buffer("v", (1,), "int32", scope="var"),
        Buffer("y", (3, 5), "int32", written=True),
        Buffer("z", (4,), "uint8", written=True),
    ),
    grid=(3,),
    seed=7,
    configs={"tl.disable_safe_memory_legalize": True},
    body=(
        Assign("v", Const(5)),
        For(
            "unroll",
            "i",
            5,
            (
                If(
                    Binary("<", I, Const(9)),
                    (
                        Store(
                            "y",
                            (Var("bx"), Binary("-", I, Const(3))),
                            Binary(
                                "+",
                                Load("x", (Binary("%", Binary("-", Const(11), I), Const(5)), Const(2))),
                                Select(Binary(">", I, Const(4)), Var("v"), Const(8)),
                            ),
                        ),
                    ),
                ),
            ),
            begin=3,
        ),
        For("serial", "j", 4, (Store("z", (J,), Binary("+", Load("w", (J,)), Cast("uint8", Const(200)))),)),
    ),
)


@pytest.mark.parametrize("needed", ["%", "unroll", "if_then_else", "x[", "if "])
def test_the_minimal_program_has_what_the_failure_needs_and_little_else(needed: str) -> None:
    small = search(BIG, lambda one: needed in render(one))
    evaluate(small)
    assert needed in render(small)
    assert len(render(small).splitlines()) <= 5
    assert sum(1 for _ in walk(small)) <= 8
    assert not small.configs
    assert small.grid == (1,)


def test_a_loop_of_several_iterations_stays_where_it_is_needed() -> None:
    small = search(BIG, lambda one: any(isinstance(node, For) and node.extent > 2 for node in walk(one)))
    assert [node.extent for node in walk(small) if isinstance(node, For)] == [3]


def test_a_computed_number_of_iterations_goes_where_it_is_not_needed() -> None:
    loop = For(
        "serial",
        "i",
        5,
        (Store("z", (Const(0),), Const(1, "uint8")),),
        count=Binary("min", Load("x", (Const(0),) * 2), Const(0)),
    )
    z = replace(BIG, body=(replace(loop, count=Binary("%", Load("x", (Const(0), Const(0))), Const(5))),))
    plain = search(z, lambda one: any(isinstance(node, For) for node in walk(one)))
    assert [node.count for node in walk(plain) if isinstance(node, For)] == [None]
    counted = search(z, lambda one: any(isinstance(node, For) and node.count is not None for node in walk(one)))
    assert "for i in T.serial(0):" in render(counted)


def test_many_expressions_are_put_away_at_once() -> None:
    """Each program that is tried costs a compilation."""
    stores = tuple(Store("y", (Const(at), Const(0)), Binary("+", Load("x", (Const(at), Const(1))), I)) for at in range(3))
    first, *rest = map(render, parts(replace(BIG, body=(For("serial", "i", 2, stores),))))
    assert first.count("= 0\n") == 3
    assert [one.count("= 0\n") for one in rest] == [2, 1]


def test_statements_are_left_out_by_halves_first() -> None:
    stores = tuple(Store("z", (Const(at),), Const(at, "uint8")) for at in range(4))
    first, second = islice(map(render, statements(replace(BIG, body=stores))), 2)
    assert [first.count("z["), second.count("z[")] == [2, 2]


def test_statements_of_a_loop_are_left_out_by_halves_too() -> None:
    stores = tuple(Store("z", (Const(at),), Const(at, "uint8")) for at in range(4))
    found = list(map(render, statements(replace(BIG, body=(For("serial", "i", 2, stores),)))))
    assert [one.count("z[") for one in found[:2]] == [2, 2]
    assert all("for i in" in one for one in found[:2])


def test_every_step_leads_to_another_program_and_the_search_never_goes_up() -> None:
    seen = [BIG]

    def holds(candidate: Program) -> bool:
        assert rank(candidate) < rank(seen[-1])
        seen.append(candidate)
        return True

    small = search(BIG, holds)
    assert len(list(walk(small))) <= 3
    for step in STEPS:
        assert BIG not in list(step(BIG))


def test_it_stops_at_its_limits() -> None:
    asked = []

    def holds(candidate: Program) -> bool:
        asked.append(candidate)
        return False

    assert search(BIG, holds, checks=3) == BIG
    assert len(asked) == 3
    assert search(BIG, holds, seconds=0, clock=iter(range(10_000)).__next__) == BIG
    assert len(asked) == 3


def test_tidy_leaves_out_what_is_not_named() -> None:
    store = For("serial", "j", 4, (Store("z", (J,), Load("w", (J,))),))
    assert [one.name for one in tidy(Program(buffers=BIG.buffers, body=(store,))).buffers] == ["w", "z"]


@pytest.mark.parametrize("ends", [(-(2**31), -(2**31) + 9), (2**31 - 10, 2**31 - 1)])
def test_values_of_an_input_that_lie_near_an_end_keep_an_interval(ends: tuple[int, int]) -> None:
    least, most = ends
    program = Program(
        buffers=(Buffer("x", (4,), "int32", least=least, most=most), Buffer("y", (4,), "int32", written=True)),
        body=(For("serial", "i", 4, (Store("y", (Var("i"),), Load("x", (Var("i"),))),)),),
    )
    small = search(program, lambda one: one.buffers[0].least != 0)
    assert all(one.least <= one.most for one in small.buffers)


def test_an_input_has_nan_only_where_the_failure_needs_it() -> None:
    condition = Binary(">=", Load("u", (I,)), Const(0.0, "float32"))
    body = (For("serial", "i", 9, (Store("y", (I,), Select(condition, Const(1), Const(2))),)),)
    buffers = (Buffer("u", (9,), "float32", least=1, most=8, special=True), Buffer("y", (9,), "int32", written=True))
    program = Program(buffers=buffers, body=body, seed=2)
    assert set(evaluate(program)["y"].tolist()) == {1, 2}, "NaN and -infinity are not at least 0"
    kept = search(program, lambda one: 2 in evaluate(one)["y"].tolist() and ">=" in render(one), checks=300, seconds=60)
    assert [one.special for one in kept.buffers if one.dtype == "float32"] == [True]
    plain = search(program, lambda one: "float32" in render(one) and ">=" in render(one), checks=300, seconds=60)
    assert not any(one.special for one in plain.buffers)


def test_what_may_be_nan_is_read_by_comparisons_alone_in_every_step() -> None:
    x, u = Load("x", (I,)), Load("u", (I,))
    chosen = Select(Binary("<", u, Const(2.0, "float32")), Binary("+", x, Const(1.0, "float32")), Const(3.0, "float32"))
    body = (For("serial", "i", 9, (Store("y", (I,), Cast("int32", chosen)),)),)
    buffers = tuple(Buffer(name, (9,), "float32", least=1, most=8, special=name == "u") for name in "xu")
    program = Program(buffers=(*buffers, Buffer("y", (9,), "int32", written=True)), body=body, seed=2)
    evaluate(program)
    for step in STEPS:
        for simpler in step(program):
            try:
                found = evaluate(simpler)
            except Invalid:
                continue
            assert all(isinstance(one, int) for one in found["y"].tolist())
    for value, dtype in ((u, "float32"), (Cast("int32", u), "int32"), (Binary("min", u, x), "float32")):
        loop = For("serial", "i", 9, (Store("y", (I,), value),))
        with pytest.raises(Invalid, match="outside of a comparison"):
            evaluate(Program(buffers=(*buffers, Buffer("y", (9,), dtype, written=True)), body=(loop,)))
