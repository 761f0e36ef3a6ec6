"""The text of Triton programs, and their JSON."""

import pytest

from mhc import drawn_case
from mhc.case_json import CaseError
from mhc.programs.triton.grammar import Atomic, Buffer, Carry, For, If, Load, Op, Store, TritonProgram
from mhc.programs.triton.operations import TABLE
from mhc.programs.triton.text import render
from mhc.programs.triton.words import features, signature

PROGRAM = TritonProgram(
    buffers=(
        Buffer("x", 16, "int8", least=-9, most=9),
        Buffer("y", 16, "int8", written=True),
        Buffer("z", 1, zeroed=True, written=True),
    ),
    grid=(2,),
    num_warps=8,
    body=(
        Op("v0", "arange", shape=(16,)),
        Op("v1", "full", value=3),
        Op("v2", "lt", ("v0", "v1")),
        Op("v3", "full", dtype="int8", shape=(16,)),
        Load("v4", "x", "v0", "v2", "v3"),
        For("v6", 4, (Op("v7", "xor", ("c0", "v4")),), carried=(Carry("c0", "v4", "v7"),), kind="tl.range", stages=2),
        Op("v8", "reduce", ("c0",), axis=-1, combine="xor"),
        Op("v9", "cast", ("v8",)),
        Op("u0", "gt", ("v9", "v1")),
        If("u0", (Op("u1", "add", ("c1", "v1")),), (Carry("c1", "v9", "u1"),)),
        Store("y", "v0", "c0"),
        Op("u2", "full"),
        Atomic("max", "z", "u2", "c1"),
    ),
)
TEXT = """\
@triton.jit
def xor_(a, b):
    return a ^ b


@triton.jit
def f(x, y, z):
    v0 = tl.arange(0, 16)
    v1 = tl.full([], 3, tl.int32)
    v2 = v0 < v1
    v3 = tl.full([16], 0, tl.int8)
    v4 = tl.load(x + v0, mask=v2, other=v3)
    c0 = v4
    for v6_ in tl.range(0, 4, 1, num_stages=2):
        v6 = tl.full([], v6_, tl.int32)
        v7 = c0 ^ v4
        c0 = v7
    v8 = tl.reduce(c0, axis=None, combine_fn=xor_)
    v9 = v8.to(tl.int32)
    u0 = v9 > v1
    c1 = v9
    if u0:
        u1 = c1 + v1
        c1 = u1
    tl.store(y + v0, c0)
    u2 = tl.full([], 0, tl.int32)
    tl.atomic_max(z + u2, c1)
# f[(2,)](..., num_warps=8, num_stages=3)
"""


def test_a_program_has_this_text() -> None:
    assert render(PROGRAM) == TEXT


def test_a_program_is_the_same_after_its_json() -> None:
    again = drawn_case.read(PROGRAM.to_json())
    assert again == PROGRAM
    assert again.id == PROGRAM.id
    assert hash(again) == hash(PROGRAM)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name":"v8"', '"name":"os.system(1)"'),
        ('"args":["v8"]', '"args":["v8, exec(1)"]'),
        ('"op":"gt"', '"op":"import"'),
        ('"dtype":"int8"', '"dtype":"void"'),
        ('"combine":"xor"', '"combine":"exec"'),
        ('"kind":"tl.range"', '"kind":"iter"'),
        ('"op":"max"', '"op":"swap"'),
        ('"condition":"u0"', '"condition":"True or u0"'),
        ('"num_warps":8', '"num_warps":"8"'),
        ('"type":"if"', '"type":"while"'),
        ('"value":3', '"value":"3"'),
        ('"var":"v6"', '"var":"v6","more":1'),
    ],
)
def test_json_with_anything_else_than_the_grammar_is_refused(old: str, new: str) -> None:
    assert old in PROGRAM.json
    with pytest.raises(CaseError, match="program"):
        drawn_case.read(PROGRAM.json.replace(old, new))


def test_json_of_another_language_or_version_is_refused() -> None:
    with pytest.raises(CaseError, match="language"):
        drawn_case.read(PROGRAM.json.replace('"language":"triton"', '"language":"cuda"'))
    with pytest.raises(CaseError, match="version"):
        drawn_case.read(PROGRAM.json.replace('"version":1', '"version":2'))


def test_a_program_is_named_by_its_operations() -> None:
    words = "add, atomic_max, cast to int32 int8, for tl.range, gt, if, lt, masked load, reduce by xor int8, xor int8"
    assert signature(PROGRAM) == words
    labels = {"statement: for", "operation: reduce", "loop: tl.range", "dtype: int8", "warps: 8", "grid: 1 axes"}
    assert labels <= features(PROGRAM)


@pytest.mark.parametrize(
    ("op", "word"),
    [
        (Op("v1", "flip", ("v0",)), "flip"),
        (Op("v1", "flip", ("v0",), axis=1), "flip of length 1"),
        (Op("v1", "sort", ("v0",), flag=True), "sort of length 1"),
        (Op("v1", "topk", ("v0",), value=1), "topk of length 1"),
        (Op("v1", "cumsum", ("v0",), flag=True), "reverse cumsum"),
        (Op("v1", "sum", ("v0",), axis=-1, flag=True), "sum that keeps all axes"),
        (Op("v1", "maximum", ("v0", "w0")), "maximum of int32 and uint32"),
    ],
)
def test_what_may_be_a_bug_of_its_own_has_a_name_of_its_own(op: Op, word: str) -> None:
    body = (
        Op("v0", "full", shape=(4, 1)),
        Op("w0", "full", dtype="uint32"),
        op,
        Op("v2", "full"),
        Op("v3", "sum", ("v1",), axis=-1),
        Store("y", "v2", "v3"),
    )
    program = TritonProgram(buffers=(Buffer("y", 1, "uint32" if len(op.args) > 1 else "int32", written=True),), body=body)
    assert set(signature(program).split(", ")) == {"sum uint32" if len(op.args) > 1 else "sum", word}


def test_an_atomic_operation_and_an_index_of_groups_have_this_text() -> None:
    group = Op("v1", "swizzle2d", ("v0", "v0"), shape=(4, 4, 2), value=1)
    body = (Op("v0", "arange", shape=(4,)), group, Atomic("add", "y", "v1", "v0", name="v2"), Store("z", "v0", "v2"))
    program = TritonProgram(buffers=(Buffer("y", 4, written=True, zeroed=True), Buffer("z", 4, written=True)), body=body)
    lines = render(program).splitlines()
    assert "    v1 = tl.swizzle2d(v0, v0, 4, 4, 2)[1]" in lines
    assert "    v2 = tl.atomic_add(y + v1, v0)" in lines
    assert signature(program) == "atomic_add and what was there, swizzle2d"
    assert TritonProgram.from_json(program.json) == program


def test_arguments_both_bodies_of_a_branch_and_a_while_loop_have_this_text() -> None:
    body = (
        Op("v0", "full", value=16, flag=True),
        Op("v1", "full", dtype="float32", shape=(4,), value=1, flag=True),
        Op("v2", "lt", ("v0", "v0")),
        For("v3", 0, (Op("v4", "add", ("c0", "v3")),), 4, -2, (Carry("c0", "v0", "v4"),), "while"),
        If("v2", (Op("v5", "neg", ("c1",)),), (Carry("c1", "v0", "v5", "v0"),), (Op("v6", "neg", ("c0",)),)),
        Store("y", "v6", "v1"),
    )
    program = TritonProgram(buffers=(Buffer("y", 4, "float32", written=True),), body=body)
    assert (
        render(program)
        == """\
@triton.jit
def f(y, v0_, v1_):
    v0 = tl.full([], v0_, tl.int32)
    v1 = tl.full([4], v1_, tl.float32)
    v2 = v0 < v0
    c0 = v0
    v3_ = tl.full([], 4, tl.int32)
    while v3_ > 0:
        v3 = v3_
        v4 = c0 + v3
        c0 = v4
        v3_ += -2
    c1 = v0
    if v2:
        v5 = -c1
        c1 = v5
    else:
        v6 = -c0
        c1 = v0
    tl.store(y + v6, v1)
# f[(1,)](..., v0_=16, v1_=1.0, num_warps=4, num_stages=3)
"""
    )
    words = {"an argument", "if else", "while backwards"}
    assert words < set(signature(program).split(", "))
    assert TritonProgram.from_json(program.json) == program


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Op("v1", "cdiv", ("v0",), value=4, flag=True), "tl.cdiv(v0, 4)"),
        (Op("v1", "cdiv", ("v0", "v0")), "tl.cdiv(v0, v0)"),
        (Op("v1", "randint", ("v2", "v0"), axis=3), "tl.randint(v2, v0, n_rounds=3).to(tl.uint32, bitcast=True)"),
        (Op("v1", "randint4x", ("v2", "v0"), value=1), "tl.randint4x(v2, v0)[1].to(tl.uint32, bitcast=True)"),
        (Op("v1", "philox", ("v2", *["v0"] * 4), value=3), "tl.philox(v2, v0, v0, v0, v0)[3]"),
        (Op("v1", "full_like", ("v0",), value=2), "tl.full(v0.shape, 2, v0.dtype)"),
        (Op("v1", "sum", ("v0",), constant="n0"), "tl.sum(v0, axis=n0)"),
        (Op("v1", "arange", constant="n0"), "tl.arange(0, n0)"),
        (Op("v1", "sub", ("v0",), constant="n0", flag=True, axis=1), "n0 - v0"),
        (Op("v1", "where", ("v2", "v0", "v3")), "tl.where(v2, v0, v3)"),
        (Op("v1", "where", ("v2", "v0"), value=-1, flag=True), "tl.where(v2, v0, -1)"),
        (Op("v1", "where", ("v2", "v0"), value=-1, flag=True, axis=1), "tl.where(v2, -1, v0)"),
    ],
)
def test_an_operation_has_this_text(op: Op, text: str) -> None:
    assert TABLE[op.op].text(op) == text


def test_pairs_a_buffer_that_is_updated_and_a_loop_far_from_0_have_this_text() -> None:
    largest = Op("v1", "reduce", ("v0", "v0"), axis=0, combine="largest", value=1, flag=True)
    change = (Load("v3", "u", "v0"), Op("v4", "add", ("v3", "v1")), Store("u", "v0", "v4"))
    body = (Op("v0", "arange", shape=(4,)), largest, For("v2", 2**33 + 2, change, begin=2**33, wide=True))
    program = TritonProgram(buffers=(Buffer("u", 4, most=9, written=True, updated=True),), body=body)
    assert (
        render(program)
        == """\
@triton.jit
def largest_(a, b, c, d):
    left = (a > c) | ((a == c) & (b < d))
    return tl.where(left, a, c), tl.where(left, b, d)


@triton.jit
def f(u):
    v0 = tl.arange(0, 4)
    v1 = tl.reduce((v0, v0), axis=0, combine_fn=largest_, keep_dims=True)[1]
    for v2_ in range(8589934592, 8589934594, 1):
        v2 = tl.full([], v2_, tl.int64)
        tl.debug_barrier()
        v3 = tl.load(u + v0)
        v4 = v3 + v1
        tl.debug_barrier()
        tl.store(u + v0, v4)
# f[(1,)](..., num_warps=4, num_stages=3)
"""
    )
    assert signature(program) == "a load of what was stored, add, for range far from 0 that stores, reduce by largest"
    assert TritonProgram.from_json(program.json) == program
