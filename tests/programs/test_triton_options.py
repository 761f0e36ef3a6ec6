"""Pointers, options of loads and loops, and what atomic operations find: their text, their meaning, and Triton's."""

import numpy as np
import pytest
from msgspec.structs import replace

from mhc.oracles.verdict import Status
from mhc.programs.arithmetic import Invalid
from mhc.programs.minimise import search
from mhc.programs.triton.cuts import rounds
from mhc.programs.triton.evaluate import evaluate
from mhc.programs.triton.grammar import Atomic, Buffer, Carry, For, Load, Op, Pointer, Statement, Store, TritonProgram, walk
from mhc.programs.triton.text import render
from mhc.programs.triton.values import rounded
from mhc.programs.triton.words import signature
from tests.programs.conftest import Judge
from tests.programs.test_triton_targets import program

WALK = TritonProgram(
    buffers=(Buffer("x", 16, least=-9, most=9), Buffer("y", 4, written=True)),
    body=(
        Op("v0", "arange", shape=(4,)),
        Op("v1", "sub", ("v0",), value=3, flag=True),
        Pointer("p0", "x", "v1"),
        Op("v2", "full", value=3),
        Pointer("p1", "x", "v2", "p0"),
        Op("v3", "full", shape=(4,)),
        Op("v4", "full", value=4),
        For(
            "v5",
            4,
            (Load("v6", "x", "p2"), Pointer("p3", "x", "v4", "p2"), Op("v7", "sub", ("v6", "c0"))),
            carried=(Carry("p2", "p1", "p3"), Carry("c0", "v3", "v7")),
            kind="tl.range",
            stages=2,
        ),
        Store("y", "v0", "c0"),
    ),
)
STEP = Op("n2", "full", value=2)
SWAP = program(
    Op("n0", "full", value=1, flag=True),
    Op("n1", "full", value=6),
    STEP,
    For(
        "v2",
        5,
        (Op("v3", "sub", ("c0", "v2")),),
        carried=(Carry("c0", "v1", "c1"), Carry("c1", "v0", "v3")),
        kind="tl.range",
        bound="n1",
        first="n0",
        by="n2",
        unroll=2,
        flags=("flatten", "disable_licm"),
    ),
    Op("v9", "add", ("c0", "c1")),
)
LATE = program(
    Op("v2", "lt", ("v0",), value=2, flag=True),
    Op("v3", "full", shape=(4,), value=7),
    Load("v4", "x", "v0", "v2", "v3", late=True, policy="evict_last"),
    Op("v9", "neg", ("v4",)),
)
FOUND = TritonProgram(
    buffers=(
        Buffer("u", 8, "float32", least=-9, most=9, written=True, updated=True),
        Buffer("y", 8, "float32", written=True),
    ),
    body=(
        Op("v0", "arange", shape=(8,)),
        Op("v1", "cast", ("v0",), dtype="float32"),
        Op("v2", "ge", ("v0",), value=3, flag=True),
        Atomic("max", "u", "v0", "v1", "v2", "v3", order="relaxed"),
        Store("y", "v0", "v3", policy=".cg"),
    ),
)
PAIRS = program(
    Op("v2", "full", dtype="float16", shape=(2, 16, 16), value=0.5),
    Op("v3", "full", dtype="float16", shape=(2, 16, 16), value=2.0),
    Op("v4", "full", dtype="float32", shape=(2, 16, 16), value=1.0),
    Op("v5", "dot", ("v2", "v3", "v4")),
    Op("v6", "max", ("v5",), axis=-1),
    Op("v7", "cast", ("v6",), dtype="int32"),
    Op("v9", "add", ("v1", "v7")),
)
ALL = (WALK, SWAP, LATE, FOUND, PAIRS)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_triton_takes_them_and_its_interpreter_gives_what_the_evaluator_gives(
    one: TritonProgram, interpreted: Judge, compiled: Judge
) -> None:
    assert TritonProgram.from_json(one.json) == one
    assert {verdict.status for verdict in (*interpreted(one), *compiled(one))} == {Status.PASS}


@pytest.mark.parametrize(
    ("one", "lines"),
    [
        (WALK, ("p0 = x + v1", "p1 = p0 + v2", "v6 = tl.load(p2)", "p2, c0 = p3, v7")),
        (SWAP, ("tl.range(n0, n1, n2, loop_unroll_factor=2, flatten=True, disable_licm=True):", "c0, c1 = c1, v3")),
        (LATE, ('v4 = tl.load(x + v0, mask=v2, eviction_policy="evict_last")', "v4 = tl.where(v2, v4, v3)")),
        (FOUND, ('tl.atomic_max(u + v0, v1, mask=v2, sem="relaxed")', "v3 = tl.where(v2, v3, 0)", 'cache_modifier=".cg"')),
    ],
)
def test_they_have_this_text(one: TritonProgram, lines: tuple[str, ...]) -> None:
    assert [line for line in lines if line not in render(one)] == []


def test_they_have_this_meaning() -> None:
    x = np.arange(16, dtype=np.int32) ** 2
    assert evaluate(WALK, {"x": x, "y": np.zeros(4, np.int32)})["y"].tolist() == [96, 112, 128, 144]
    given = {"x": np.array([5, 6, 7, 8], np.int32), "y": np.zeros(4, np.int32)}
    assert evaluate(LATE, given)["y"].tolist() == [-5, -6, -7, -7]
    assert evaluate(SWAP, given)["y"].tolist() == [-4, -2, 0, 2]
    before = np.array([9, 9, 9, 9, 1, 9, 2, 3], np.float32)
    found = evaluate(FOUND, {"u": before, "y": np.zeros(8, np.float32)})
    assert found["y"].tolist() == [0, 0, 0, 9, 1, 9, 2, 3]
    assert found["u"].tolist() == [9, 9, 9, 9, 4, 9, 6, 7]


@pytest.mark.parametrize(
    "changed",
    [
        replace(WALK, buffers=(replace(WALK.buffers[0], size=15), WALK.buffers[1])),
        replace(WALK, body=(*WALK.body[:-1], Op("v9", "add", ("p1", "v0")), *WALK.body[-1:])),
        replace(LATE, body=tuple(replace(one, mask=None, other=None) if one == LATE.body[5] else one for one in LATE.body)),
        replace(SWAP, body=tuple(replace(one, kind="range") if isinstance(one, For) else one for one in SWAP.body)),
        replace(
            SWAP,
            body=tuple(replace(one, value=-2) if one.name == "n2" else one for one in SWAP.body if hasattr(one, "name")),
        ),
    ],
    ids=["outside", "a pointer is added", "no mask", "options of range", "a step below 0"],
)
def test_what_has_no_meaning_is_refused(changed: TritonProgram) -> None:
    with pytest.raises(Invalid):
        evaluate(changed)


def test_floats_that_may_be_rounded_are_not_added_up_by_an_atomic_operation() -> None:
    one = replace(FOUND, body=tuple(replace(node, op="add") if isinstance(node, Atomic) else node for node in FOUND.body))
    evaluate(one, {"u": np.zeros(8, np.float32), "y": np.zeros(8, np.float32)})
    with pytest.raises(Invalid, match="rounded"):
        evaluate(one, {"u": np.full(8, 1 << 17, np.float32), "y": np.zeros(8, np.float32)})


def test_casts_round_to_the_nearest_and_of_two_to_the_even_one() -> None:
    x = np.array([33.0625, 33.125, 33.1875, 33.375, -33.375, 0.0, 1.5])
    assert rounded(x, "bfloat16").tolist() == [33.0, 33.0, 33.25, 33.5, -33.5, 0.0, 1.5]
    assert rounded(np.array([256.125, 256.375, -256.3125]), "float16").tolist() == [256.0, 256.5, -256.25]
    cast: tuple[Statement, ...] = (
        Op("v2", "full", dtype="float32", shape=(4,), value=33.125),
        Op("v3", "cast", ("v2",), dtype="bfloat16"),
        Op("v4", "cast", ("v3",), dtype="int32"),
        Op("v9", "add", ("v4", "v1")),
    )
    assert rounds(program(*cast))
    assert not rounds(program(replace(cast[0], value=33.25), *cast[1:]))


@pytest.mark.parametrize("one", [WALK, SWAP, LATE, FOUND], ids=lambda one: one.id)
def test_the_minimiser_leaves_them_out(one: TritonProgram) -> None:
    small = search(one, lambda candidate: evaluate(candidate) is not None)
    assert [type(node) for node in small.body] == [Op, Store]


def test_the_minimal_program_has_the_option_that_the_failure_needs() -> None:
    small = search(SWAP, lambda one: any(isinstance(node, For) and node.unroll for node in walk(one.body)))
    assert "unrolled" in signature(small)
    assert "flatten" not in signature(small)
