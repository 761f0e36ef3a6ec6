"""Functions of Triton programs and their calls: what they compute, their text, and what the minimiser makes of them."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from mhc import drawn_case
from mhc.case_json import CaseError
from mhc.programs.arithmetic import Invalid
from mhc.programs.minimise import search
from mhc.programs.triton.edits import calls, rank, tidy
from mhc.programs.triton.evaluate import evaluate
from mhc.programs.triton.grammar import (
    Buffer,
    Call,
    Carry,
    For,
    Function,
    If,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
    walk,
)
from mhc.programs.triton.text import render
from mhc.programs.triton.words import features, signature

AGAIN = For(
    "c1", 0, (Op("c2", "add", ("c0", "a1")),), carried=(Carry("c0", "a0", "c2"),), kind="tl.static_range", bound="n0"
)
TIMES = Function("g_0", ("a0", "a1"), (AGAIN, Op("c3", "sub", ("c0",), flag=True, constant="n0")), ("c3", "a1"), "n0")
"""a0 + n0 * a1 - n0, and a1."""
EARLY = Function(
    "g_1",
    ("b0",),
    (
        If("n1", (Op("b1", "full_like", ("b0",), value=7),), results=("b1",)),
        Load("b2", "x", "b0"),
        Call(("b3", "b4"), "g_0", ("b2", "b0"), 2),
        Store("z", "b0", "b3"),
    ),
    ("b3",),
    "n1",
)
BUFFERS = Buffer("x", 4, least=1, most=1), Buffer("y", 4, written=True), Buffer("z", 4, written=True)


def program(*body: Statement) -> TritonProgram:
    """Return a program that stores v9."""
    return TritonProgram(buffers=BUFFERS, body=(TIMES, EARLY, Op("v0", "arange", shape=(4,)), *body, Store("y", "v0", "v9")))


NESTED = program(Call(("v9",), "g_1", ("v0",)))
RETURNED = program(Call(("v9",), "g_1", ("v0",), 1))
TWICE = program(
    Op("v1", "cast", ("v0",), dtype="int8"),
    Call(("v2", "v3"), "g_0", ("v1", "v1"), 3),
    Op("v4", "sum", ("v2",)),
    Call(("v5", "v6"), "g_0", ("v0", "v4"), 1),
    Op("v9", "add", ("v5", "v6")),
)
ALL = NESTED, RETURNED, TWICE


def test_a_call_gives_what_the_function_computes_of_blocks_of_any_dtype_and_shape() -> None:
    assert evaluate(TWICE)["y"].tolist() == [4 * 6 - 3 * 4 + 4 * 6 - 3 * 4 - 1 + one for one in range(4)]


def test_what_comes_after_a_return_does_not_count() -> None:
    assert {name: one.tolist() for name, one in evaluate(NESTED).items()} == {"y": [-1, 1, 3, 5], "z": [-1, 1, 3, 5]}
    assert {name: one.tolist() for name, one in evaluate(RETURNED).items()} == {"y": [7] * 4, "z": [0x5A5A5A5A] * 4}


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_program_with_functions_is_the_same_after_its_json(one: TritonProgram) -> None:
    assert drawn_case.read(one.to_json()) == one
    assert tidy(one) == replace(
        one, body=tuple(each for each in one.body if each != EARLY or one != TWICE), buffers=used(one)
    )


def used(one: TritonProgram) -> tuple[Buffer, ...]:
    return (BUFFERS[1],) if one == TWICE else BUFFERS


TEXT = """\
@triton.jit
def g_0(a0, a1, n0: tl.constexpr):
    c0 = a0
    for c1_ in tl.static_range(0, n0, 1):
        c1 = tl.full([], c1_, tl.int32)
        c2 = c0 + a1
        c0 = c2
    c3 = c0 - n0
    return c3, a1


@triton.jit
def g_1(b0, x, z, n1: tl.constexpr):
    if n1:
        b1 = tl.full(b0.shape, 7, b0.dtype)
        return b1
    b2 = tl.load(x + b0)
    b3, b4 = g_0(b2, b0, n0=2)
    tl.store(z + b0, b3)
    return b3


@triton.jit
def f(x, y, z):
    v0 = tl.arange(0, 4)
    v9 = g_1(v0, x, z, n1=0)
    tl.store(y + v0, v9)
# f[(1,)](..., num_warps=4, num_stages=3)
"""


def test_functions_come_before_the_kernel_and_are_given_the_buffers_that_they_name() -> None:
    assert render(NESTED) == TEXT


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"function":"g_1"', '"function":"print"'),
        ('"parameters":["b0"]', '"parameters":["b0=exec(1)"]'),
        ('"constant":"n1"', '"constant":"n1: exec(1)"'),
        ('"results":["b3"]', '"results":["b3, exec(1)"]'),
        ('"results":["b3"]', '"results":[]'),
        ('"names":["v9"]', '"names":["v9.x"]'),
        ('"constant":2,"function"', '"constant":"2","function"'),
    ],
)
def test_functions_with_anything_else_than_names_are_refused(old: str, new: str) -> None:
    assert old in NESTED.json
    with pytest.raises(CaseError, match="program"):
        drawn_case.read(NESTED.json.replace(old, new))


LATER = Function("g_0", ("a0",), (Call(("c0",), "g_2", ("a0",)),), ("c0",))
ITSELF = Function("g_2", ("a0",), (Call(("c0",), "g_2", ("a0",)),), ("c0",))
WITHIN = Function("g_2", ("a0",), (For("c0", 1, (If("n0", (), results=("a0",)),)),), ("a0",), "n0")
OTHERS = Function("g_2", ("a0",), (If("n0", (Op("c0", "sum", ("a0",)),), results=("c0",)),), ("a0",), "n0")
UNKNOWN = Function("g_2", ("a0",), (Op("c0", "add", ("a0",), flag=True, constant="n0"),), ("c0",))
OUTER = Function("g_2", ("a0",), (Op("c0", "add", ("a0", "v0")),), ("c0",))
SHADOW = Function("g_2", ("a0",), (Op("n0", "neg", ("a0",)),), ("n0",), "n0")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ((LATER,), "later function"),
        ((ITSELF,), "later function"),
        ((WITHIN,), "a return in a body"),
        ((replace(OTHERS, name="g_0"),), "defined twice"),
        ((OTHERS, Call(("v9",), "g_2", ("v0",), 1)), "several dtypes or shapes"),
        ((OTHERS, Call(("v9",), "g_2", ("v0",))), "several dtypes or shapes"),
        ((UNKNOWN, Call(("v9",), "g_2", ("v0",))), "no constant n0"),
        ((OUTER, Call(("v9",), "g_2", ("v0",))), "no value v0"),
        ((SHADOW, Call(("v9",), "g_2", ("v0",))), "set twice"),
        ((Call(("v9",), "g_3", ("v0",)),), "no function"),
        ((Call(("v9",), "g_1", ("v0", "v0")),), "a call"),
        ((Call(("v8", "v9"), "g_1", ("v0",)),), "a call"),
        ((Op("v1", "eq", ("v0", "v0")), Op("v2", "max", ("v1",)), If("v2", (), results=("v0",))), "a condition of several"),
        ((Op("v1", "full", dtype="bool"), If("v1", (), results=("v0",))), "outside of a function"),
    ],
)
def test_functions_and_calls_without_one_meaning_are_refused(body: tuple[Statement, ...], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        evaluate(program(*body))


def inlined(one: TritonProgram) -> Iterator[TritonProgram]:
    """Yield the program with fewer and fewer calls, until it has none."""
    while any(isinstance(node, Call) for node in walk(one.body)):
        one = next(tidy(other) for other in calls(one) if rank(tidy(other)) < rank(one) and same(one, other))
        yield one


def same(one: TritonProgram, other: TritonProgram) -> bool:
    """Return whether another program has the same outputs, as far as they are used."""
    try:
        found = evaluate(other)
    except Invalid:
        return False
    return all(array.tobytes() == evaluate(one)[name].tobytes() for name, array in found.items())


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_function_may_be_written_in_the_place_of_its_calls(one: TritonProgram) -> None:
    last = list(inlined(one))[-1]
    assert same(one, last)
    assert not any(isinstance(node, (Call, Function)) for node in walk(last.body))


def test_the_minimal_program_has_a_call_where_the_failure_needs_one() -> None:
    small = search(TWICE, lambda one: any(isinstance(node, Call) for node in walk(one.body)))
    assert signature(small) == "call"
    assert len(list(walk(small.body))) <= 4
    (function,) = (node for node in small.body if isinstance(node, Function))
    assert (function.constant, function.body, len(function.results)) == (None, (), 1)
    assert signature(search(TWICE, lambda one: "sub" in signature(one))) == "sub"


def test_calls_are_named() -> None:
    assert signature(RETURNED) == "add, call, early return, for tl.static_range, full_like, sub"
    labels = {"statement: call", "call: early return", "call: in a function", "call: constant", "call: several results"}
    assert labels <= features(NESTED)
    assert "call: again" in features(TWICE)
