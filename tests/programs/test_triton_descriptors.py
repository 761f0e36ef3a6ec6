"""Descriptors of Triton programs, and atomic operations that set elements: meaning, text, JSON, words, simpler ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mhc import drawn_case
from mhc.case_json import CaseError
from mhc.programs.arithmetic import Invalid
from mhc.programs.minimise import means, search, simpler
from mhc.programs.triton.cuts import cut, stored_plainly
from mhc.programs.triton.edits import STEPS, rank
from mhc.programs.triton.evaluate import Machine, evaluate
from mhc.programs.triton.grammar import (
    Atomic,
    BlockLoad,
    BlockStore,
    Buffer,
    Carry,
    Descriptor,
    For,
    Load,
    Op,
    Statement,
    Store,
    TritonProgram,
    uses,
    walk,
)
from mhc.programs.triton.replaced import renamed
from mhc.programs.triton.text import render
from mhc.programs.triton.words import features, signature

POISON = 0x5A5A5A5A
X, Y = Buffer("x", 32, most=9), Buffer("y", 32, written=True)


def numbers(**values: int) -> tuple[Statement, ...]:
    return tuple(Op(name, "full", value=value) for name, value in values.items())


def matrix(buffer: str = "x", name: str = "d", **changes: Any) -> Descriptor:
    """Return a matrix of 3 rows and 5 columns, in rows of 8, of which blocks of 2 rows and 4 columns are taken."""
    return replace(Descriptor(name, buffer, ("r", "c"), (2, 4), 8), **changes)


SIZES = numbers(r=3, c=5)
READ = (BlockLoad("v0", "d", ("i", "j")), Op("v1", "arange", shape=(8,)), Op("v2", "reshape", ("v1",), shape=(2, 4)))
LOADED = (*SIZES, matrix(), *READ, Store("y", "v2", "v0"))


def block(i: int, j: int, *body: Statement) -> list[list[int]]:
    """Return the block at row i and column j of a matrix that holds 0, 1, ..., of which three more lie after each row."""
    program = TritonProgram(buffers=(X, replace(Y, size=8)), body=(*numbers(i=i, j=j), *(body or LOADED)))
    given = {"x": np.arange(32, dtype=np.int32), "y": np.zeros(8, dtype=np.int32)}
    found: list[list[int]] = evaluate(program, given)["y"].reshape(2, 4).tolist()
    return found


@pytest.mark.parametrize(
    ("i", "j", "wanted"),
    [
        (0, 0, [[0, 1, 2, 3], [8, 9, 10, 11]]),
        (1, 4, [[12, 0, 0, 0], [20, 0, 0, 0]]),  # the columns end at 5, whatever lies between the rows
        (2, 0, [[16, 17, 18, 19], [0, 0, 0, 0]]),
        (-1, 0, [[0, 0, 0, 0], [0, 1, 2, 3]]),
        (0, -4, [[0, 0, 0, 0], [0, 0, 0, 0]]),
        (3, 8, [[0, 0, 0, 0], [0, 0, 0, 0]]),
    ],
)
def test_what_is_outside_of_a_matrix_is_loaded_as_0(i: int, j: int, wanted: list[list[int]]) -> None:
    assert block(i, j) == wanted


def line(begin: int, length: int) -> TritonProgram:
    """Return a program that loads four elements of a line, and stores them in another one of three elements."""
    sizes = numbers(n=length, m=3, i=begin, j=0)
    descriptors = Descriptor("d", "x", ("n",), (4,)), Descriptor("e", "y", ("m",), (4,))
    body = (*sizes, *descriptors, BlockLoad("v0", "d", ("i",)), BlockStore("e", ("j",), "v0"))
    return TritonProgram(buffers=(X, replace(Y, size=4)), body=body)


@pytest.mark.parametrize(
    ("begin", "length", "wanted"),
    [(0, 32, [0, 1, 2]), (4, 6, [4, 5, 0]), (-4, 6, [0, 0, 0]), (28, 30, [28, 29, 0]), (32, 32, [0, 0, 0])],
)
def test_what_is_outside_of_a_line_is_not_stored(begin: int, length: int, wanted: list[int]) -> None:
    given = {"x": np.arange(32, dtype=np.int32), "y": np.full(4, POISON, dtype=np.int32)}
    assert evaluate(line(begin, length), given)["y"].tolist() == [*wanted, POISON]


@pytest.mark.parametrize(
    ("i", "j", "stored"), [(0, 0, (0, 1, 2, 3, 8, 9, 10, 11)), (-1, 0, (0, 1, 2, 3)), (2, 4, (20,)), (3, 0, ())]
)
def test_a_block_is_stored_where_it_is_in_the_matrix(i: int, j: int, stored: tuple[int, ...]) -> None:
    ones = Op("v0", "full", shape=(2, 4), value=1)
    body = (*SIZES, *numbers(i=i, j=j), matrix("y"), ones, BlockStore("d", ("i", "j"), "v0"))
    found = evaluate(TritonProgram(buffers=(Y,), body=body))["y"]
    assert [at for at, one in enumerate(found) if one != POISON] == list(stored)
    assert set(found.tolist()) <= {1, POISON}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ((*numbers(i=0, j=1), *LOADED), "within 16 bytes"),
        ((*numbers(i=1 << 21, j=0), *LOADED), "a block at"),
        ((*numbers(i=0, j=0), *SIZES, matrix(stride=10), *READ, Store("y", "v2", "v0")), "parts of 16 bytes"),
        ((*numbers(i=0, j=0), *SIZES, matrix(stride=4), *READ, Store("y", "v2", "v0")), "of sizes"),
        ((*numbers(i=0, j=0), *SIZES, matrix(block=(2, 2)), *READ, Store("y", "v2", "v0")), "parts of 16 bytes"),
        ((*numbers(i=0, j=0), *SIZES, matrix(block=(3, 4)), *READ, Store("y", "v2", "v0")), "of blocks"),
        ((*numbers(i=0, j=0), *SIZES, matrix(block=(4,)), *READ, Store("y", "v2", "v0")), "axes"),
        ((*numbers(i=0, j=0), *SIZES, matrix(stride=0), *READ, Store("y", "v2", "v0")), "axes"),
        ((*numbers(i=0, j=0), *numbers(r=0, c=5), *LOADED[2:]), "of sizes"),
        ((*numbers(i=0, j=0), *numbers(r=5, c=5), *LOADED[2:]), "more than x"),
        ((*numbers(i=0), Op("j", "full", dtype="int64"), *LOADED), "no int32"),
        ((*numbers(i=0, j=0), *SIZES, matrix("w"), *READ, Store("y", "v2", "v0")), "no buffer w"),
        ((*numbers(i=0, j=0), *SIZES, *READ, Store("y", "v2", "v0")), "no descriptor d"),
        ((*numbers(i=0, j=0), *LOADED, Op("v3", "neg", ("d",))), "no value d"),
        ((*numbers(i=0, j=0), *LOADED, matrix()), "set twice"),
        ((*numbers(i=0, j=0), *LOADED, matrix("u", "e")), "a descriptor of u"),
        ((*numbers(i=0, j=0), *LOADED, matrix("b", "e")), "parts of 16 bytes"),
        ((*numbers(i=0, j=0), *LOADED, BlockStore("d", ("i", "j"), "v0")), "a store of int32 to x"),
        ((*numbers(i=0, j=0), *LOADED, matrix("y", "e"), BlockLoad("v3", "e", ("i", "j"))), "is an output"),
        ((*numbers(i=0, j=0), *LOADED, matrix("y", "e"), BlockStore("e", ("i", "j"), "v1")), "a store of"),
        ((*numbers(i=0, j=0), *LOADED, matrix("y", "e"), BlockStore("e", ("j",), "v0")), "a block at"),
        ((*numbers(i=0, j=0), *LOADED, matrix("y", "e"), BlockStore("e", ("i", "j"), "v2")), "two values"),
    ],
)
def test_a_descriptor_that_breaks_a_rule_of_triton_is_refused(body: tuple[Statement, ...], reason: str) -> None:
    more = Buffer("u", 32, most=9, written=True, updated=True), Buffer("b", 32, most=9, offset=1)
    with pytest.raises(Invalid, match=reason):
        evaluate(TritonProgram(buffers=(X, Y, *more), body=body))


# --- atomic operations that set elements

I4 = Op("i", "arange", shape=(4,))
FOUR, FIVE = (Op(name, "full", shape=(4,), value=value) for name, value in (("v4", 4), ("v5", 5)))
HELD = Buffer("u", 4, written=True, updated=True)
ZEROED, Z = Buffer("y", 4, written=True, zeroed=True), Buffer("z", 4, written=True)


@pytest.mark.parametrize(
    ("atomic", "held", "before"),
    [
        (Atomic("xchg", "u", "i", "v5", name="v6"), [5, 5, 5, 5], [1, 4, 4, 2]),
        (Atomic("cas", "u", "i", "v5", name="v6", compare="v4"), [1, 5, 5, 2], [1, 4, 4, 2]),
        (Atomic("add", "u", "i", "v5", name="v6"), [6, 9, 9, 7], [1, 4, 4, 2]),
        (Atomic("max", "u", "i", "i", name="v6"), [1, 4, 4, 3], [1, 4, 4, 2]),
    ],
    ids=lambda one: one.op if isinstance(one, Atomic) else None,
)
def test_elements_are_set_in_place(atomic: Atomic, held: list[int], before: list[int]) -> None:
    program = TritonProgram(buffers=(HELD, Z), body=(I4, FOUR, FIVE, atomic, Store("z", "i", "v6")))
    given = {"u": np.array([1, 4, 4, 2], dtype=np.int32), "z": np.zeros(4, dtype=np.int32)}
    found = evaluate(program, given)
    assert (found["u"].tolist(), found["z"].tolist()) == (held, before)


def test_elements_that_are_0_are_set_where_the_mask_holds_or_0_is_expected() -> None:
    two, mask = Op("v2", "full", value=2), Op("v3", "ge", ("i", "v2"))
    masked = TritonProgram(buffers=(ZEROED,), body=(I4, FIVE, two, mask, Atomic("xchg", "y", "i", "v5", "v3")))
    assert evaluate(masked)["y"].tolist() == [0, 0, 5, 5]
    expected = TritonProgram(buffers=(ZEROED,), body=(I4, FIVE, Atomic("cas", "y", "i", "v5", compare="i")))
    assert evaluate(expected)["y"].tolist() == [5, 0, 0, 0]


@pytest.mark.parametrize(
    ("buffer", "body", "reason"),
    [
        (ZEROED, (Atomic("xchg", "y", "v0", "i"),), "depends on the order"),
        (ZEROED, (Atomic("xchg", "y", "i", "i"), Atomic("xchg", "y", "i", "v0")), "depends on the order"),
        (ZEROED, (Atomic("cas", "y", "i", "i"),), "compares"),
        (ZEROED, (Atomic("add", "y", "i", "i", compare="i"),), "compares"),
        (ZEROED, (Op("v1", "lt", ("i", "v0")), Atomic("cas", "y", "i", "i", "v1", compare="i")), "compares"),
        (ZEROED, (Op("v1", "full"), Atomic("cas", "y", "i", "i", compare="v1")), "compares"),
        (ZEROED, (Op("v1", "cast", ("i",), dtype="int64"), Atomic("cas", "y", "i", "i", compare="v1")), "compares"),
        (replace(HELD, name="y"), (Atomic("xchg", "y", "v0", "i"),), "depends on the order"),
        (replace(HELD, name="y"), (Atomic("add", "y", "v0", "i"),), "depends on the order"),
        (replace(ZEROED, dtype="int16"), (Op("v1", "cast", ("i",), dtype="int16"), Atomic("xchg", "y", "i", "v1")), "int16"),
        (Z, (Atomic("xchg", "z", "i", "i"),), "not for atomic"),
    ],
)
def test_a_set_element_whose_value_depends_on_the_order_is_refused(
    buffer: Buffer, body: tuple[Statement, ...], reason: str
) -> None:
    with pytest.raises(Invalid, match=reason):
        evaluate(TritonProgram(buffers=(buffer,), body=(I4, Op("v0", "full", shape=(4,)), *body)))


def test_two_blocks_may_not_set_one_element() -> None:
    program = TritonProgram(buffers=(HELD,), body=(I4, Atomic("xchg", "u", "i", "i")), grid=(2,))
    with pytest.raises(Invalid, match="two blocks"):
        evaluate(program)


# --- text, JSON, words

SET = (Load("v3", "u", "v1"), Atomic("cas", "u", "v1", "v1", name="v4", compare="v3"))
BOTH = TritonProgram(
    buffers=(X, Y, Buffer("u", 8, most=9, written=True, updated=True)),
    body=(
        *SIZES,
        *numbers(i=1, j=0),
        matrix(),
        *READ[:2],
        matrix("y", "e"),
        BlockStore("e", ("i", "j"), "v0"),
        *SET,
        Op("v5", "add", ("v4", "v1")),
        Atomic("xchg", "u", "v1", "v5"),
    ),
)
TEXT = """\
@triton.jit
def f(x, y, u):
    r = tl.full([], 3, tl.int32)
    c = tl.full([], 5, tl.int32)
    i = tl.full([], 1, tl.int32)
    j = tl.full([], 0, tl.int32)
    d = tl.make_tensor_descriptor(x, shape=[r, c], strides=[8, 1], block_shape=[2, 4])
    v0 = d.load([i, j])
    v1 = tl.arange(0, 8)
    e = tl.make_tensor_descriptor(y, shape=[r, c], strides=[8, 1], block_shape=[2, 4])
    e.store([i, j], v0)
    tl.debug_barrier()
    v3 = tl.load(u + v1)
    tl.debug_barrier()
    v4 = tl.atomic_cas(u + v1, v3, v1)
    v5 = v4 + v1
    tl.debug_barrier()
    tl.atomic_xchg(u + v1, v5)
# f[(1,)](..., num_warps=4, num_stages=3)
"""


def test_descriptors_and_atomic_operations_that_set_elements_have_this_text() -> None:
    assert render(BOTH) == TEXT
    assert "strides=[1], block_shape=[4]" in render(line(0, 4))
    assert drawn_case.read(BOTH.to_json()) == BOTH


def test_a_program_with_descriptors_is_named_by_what_may_be_a_bug_of_its_own() -> None:
    words = "a load of what was stored, add, atomic_cas and what was there, atomic_xchg, block load, block store"
    assert signature(BOTH) == words
    assert signature(line(0, 32)) == "block load of one axis, block store of one axis partly outside"
    assert signature(line(-4, 32)) == "block load of one axis partly outside, block store of one axis partly outside"
    labels = {"statement: descriptor", "statement: blockload", "statement: blockstore", "atomic: cas", "atomic: xchg"}
    assert labels <= features(BOTH)
    assert "descriptor: one axis" in features(line(0, 32)) - features(BOTH)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"sizes":["r","c"]', '"sizes":["r","exec(1)"]'),
        ('"sizes":["r","c"]', '"sizes":["r","c","c"]'),
        ('"sizes":["r","c"]', '"sizes":[]'),
        ('"offsets":["i","j"]', '"offsets":["i","1"]'),
        ('"descriptor":"d"', '"descriptor":"d.x"'),
        ('"block":[2,4]', '"block":[2,"4"]'),
        ('"stride":8', '"stride":-8'),
        ('"type":"block_load"', '"type":"block_add"'),
        ('"op":"xchg"', '"op":"swap"'),
        ('"compare":"v3"', '"compare":"v3, 1"'),
    ],
)
def test_json_with_anything_else_than_the_grammar_is_refused(old: str, new: str) -> None:
    assert old in BOTH.json
    with pytest.raises(CaseError, match="program"):
        drawn_case.read(BOTH.json.replace(old, new))


# --- simpler programs

LOOPED = TritonProgram(
    buffers=(Buffer("x", 64, "int8", most=9), Buffer("y", 64, "int8", written=True), Buffer("z", 32, "int8", written=True)),
    body=(
        *numbers(r=3, c=11, j=0, h=2),
        Descriptor("d", "x", ("r", "c"), (2, 16), 16),
        Op("v0", "full", dtype="int8", shape=(2, 16)),
        For(
            "v1",
            2,
            (
                Op("v2", "mul", ("v1", "h")),
                BlockLoad("v3", "d", ("v2", "j")),
                Op("v4", "add", ("b", "v3")),
                Descriptor("e", "y", ("r", "c"), (2, 16), 16),
                BlockStore("e", ("v2", "j"), "v3"),
            ),
            carried=(Carry("b", "v0", "v4"),),
            kind="tl.range",
            stages=2,
        ),
        Op("v5", "arange", shape=(32,)),
        Op("v6", "reshape", ("v5",), shape=(2, 16)),
        Store("z", "v6", "b"),
    ),
)


def test_every_step_that_has_a_meaning_is_one_of_the_grammar() -> None:
    for one in (BOTH, line(4, 6), LOOPED):
        for step in STEPS:
            for other in simpler(step, one):
                assert means(other)
                assert drawn_case.read(other.to_json()) == other


def test_the_search_goes_down_to_a_program_without_descriptors() -> None:
    for one in (BOTH, line(4, 6), LOOPED):
        seen = [one]

        def holds(candidate: TritonProgram, seen: list[TritonProgram] = seen) -> bool:
            assert rank(candidate) < rank(seen[-1])
            seen.append(candidate)
            return True

        small = search(one, holds)
        assert [type(node) for node in small.body] == [Op, Store]


def wrong(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[TritonProgram], bool]:
    """Return what says whether a program shows that a whole block is loaded or stored, what is outside at element 0."""
    right = Machine._block

    def holds(one: TritonProgram) -> bool:
        with monkeypatch.context() as patched:

            def whole(machine: Machine, node: BlockLoad | BlockStore, env: Any) -> tuple[Any, ...]:
                buffer, places, inside = right(machine, node, env)
                return buffer, places, inside | isinstance(node, kind)

            wanted = evaluate(one)
            patched.setattr(Machine, "_block", whole)
            try:
                return any(array.tobytes() != wanted[name].tobytes() for name, array in evaluate(one).items())
            except Invalid:
                return True

    return holds


@pytest.mark.parametrize(("kind", "words"), [(BlockLoad, "block load of one axis"), (BlockStore, "block store of one axis")])
def test_the_minimal_program_has_one_descriptor_of_one_axis(
    kind: type[Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = search(LOOPED, wrong(kind, monkeypatch))
    assert signature(small) == f"{words} partly outside"
    assert sum(isinstance(node, Descriptor) for node in walk(small.body)) == 1
    assert len(list(walk(small.body))) <= 7


def test_the_minimal_program_sets_elements_by_the_operation_that_fails() -> None:
    small = search(BOTH, lambda one: any(isinstance(node, Atomic) and node.op == "cas" for node in walk(one.body)))
    assert "atomic_cas" in signature(small)
    assert not any(isinstance(node, Descriptor) for node in walk(small.body))
    assert len(list(walk(small.body))) <= 4


def test_other_names_are_read_wherever_a_name_is_read() -> None:
    names = {"r": "r1", "j": "j1", "d": "d1", "v3": "v9"}
    for one in (matrix(), BlockLoad("v0", "d", ("i", "j")), BlockStore("d", ("i", "j"), "v3"), SET[1]):
        assert uses(renamed(one, names)) == tuple(names.get(name, name) for name in uses(one))


def test_a_value_is_stored_without_the_blocks_that_were_stored_before() -> None:
    assert any(isinstance(node, For) for other in simpler(cut, LOOPED) for node in other.body)


def test_a_block_is_stored_at_indices_instead() -> None:
    (plain,) = stored_plainly(line(0, 32))
    given = {"x": np.arange(32, dtype=np.int32), "y": np.zeros(4, dtype=np.int32)}
    assert evaluate(plain, given)["y"].tolist() == [0, 1, 2, 3]
