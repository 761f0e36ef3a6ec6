"""The big steps of the minimiser of Triton programs: one output alone, and a value from the middle of a program."""

import pytest
from msgspec.structs import replace

from mhc.programs.minimise import search
from mhc.programs.triton.cuts import halving, outputs
from mhc.programs.triton.edits import tidy
from mhc.programs.triton.grammar import BlockStore, Buffer, Descriptor, Op, Statement, Store, TritonProgram, walk


def long(wrong: int, steps: int = 60) -> TritonProgram:
    """Return a program of many values, each made of the one before; `wrong` says which one is a maximum."""
    body: list[Statement] = [Op("i", "arange", shape=(8,)), Op("v0", "cast", ("i",), dtype="int32")]
    body += [Op(f"v{at + 1}", "maximum" if at == wrong else "add", (f"v{at}", "i")) for at in range(steps)]
    stores = (Store("y", "i", f"v{steps}"), Store("z", "i", f"v{steps // 2}"))
    buffers = tuple(Buffer(name, 8, "int32", written=True) for name in "yz")
    return TritonProgram(buffers=buffers, body=(*body, *stores))


@pytest.mark.parametrize("wrong", [1, 17, 31, 45, 58])
def test_a_long_program_is_small_after_few_checks(wrong: int) -> None:
    def holds(one: TritonProgram) -> bool:
        return any(isinstance(node, Op) and node.op == "maximum" for node in walk(one.body))

    assert len(list(walk(search(long(wrong), holds, checks=24).body))) < 20


def test_places_are_tried_from_the_middle_and_each_once() -> None:
    body = long(0).body
    assert [at for at, _ in halving(body[:7])] == [3, 1, 5, 0, 2, 4, 6]
    assert sorted(at for at, _ in halving(body)) == list(range(len(body)))
    assert not list(halving(()))


def test_one_output_alone_keeps_what_a_descriptor_stores_to_it() -> None:
    numbers = [Op("n", "full", value=8), Op("at", "full", value=0)]
    described = [Descriptor("d", "y", ("n",), (8,)), BlockStore("d", ("at",), "v1")]
    program = long(1)
    program = replace(program, body=(*program.body[:-2], *numbers, *described, program.body[-1]))
    found = [
        [type(one) for one in walk(tidy(alone).body) if isinstance(one, (Store, BlockStore))] for alone in outputs(program)
    ]
    assert found == [[BlockStore], [Store]]
