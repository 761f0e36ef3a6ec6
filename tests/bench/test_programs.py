"""The bench of programs: faults are planted and found, differences are told, and each cell of the table can be 0."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc.bench.cli import main
from mhc.bench.programs import report
from mhc.bench.programs.coverage import PAIRS, SINGLES, Covered, excluded, productions
from mhc.bench.programs.evaluators import Chunk, chunks, compare, judge, sample
from mhc.bench.programs.faults import FAULTS
from mhc.bench.programs.hunt import Hunted, Lowered, hunt
from mhc.bench.programs.plant import GENERATED, EditError, Fault, edited, planted
from mhc.oracles.verdict import Status
from mhc.programs import plain_c
from mhc.programs.grammar import Binary, Buffer, Const, For, Program, Store, Var, walk
from mhc.programs.targets import TARGETS
from mhc.strategies.programs.programs import CPU, CPU_BEFORE_VECTORS, GPU
from tests.support.needs import needs_tilelang

I = Var("i")
REMAINDER = Program(
    buffers=(Buffer("y", (5,), "int32", written=True),),
    body=(For("serial", "i", 5, (Store("y", (I,), Binary("%", Binary("-", I, Const(3)), Const(4))),)),),
)
RIGHT = Program(buffers=REMAINDER.buffers, body=(For("serial", "i", 5, (Store("y", (I,), I),)),))
TRUNCATES = next(one for one in FAULTS if one.name == "% truncates")
BEGINS_AT_0 = next(one for one in FAULTS if one.name == "a serial loop begins at 0")


def prelude() -> str:
    text: str = vars(plain_c)["PRELUDE"]
    return text


def lowered(*programs: Program) -> list[Lowered]:
    rows = [(number, one.json, plain_c.source_of(one)) for number, one in enumerate(programs, start=1)]
    return [Lowered(name="plain-c 0", programs=rows, drawn=len(rows), wrong=0)]


def test_faults_have_names_of_their_own_and_those_in_our_code_apply() -> None:
    assert len({one.name for one in FAULTS}) == len(FAULTS) >= 80
    for one in FAULTS:
        if one.place.startswith("mhc."):
            with planted(one):
                pass


@needs_tilelang
def test_faults_in_tilelang_apply_to_the_pinned_release() -> None:
    for one in FAULTS:
        if not one.place.startswith("mhc."):
            with planted(one):
                pass


def test_a_planted_fault_is_there_within_the_block_only() -> None:
    before = plain_c.source_of(REMAINDER), prelude()
    loops = Program(buffers=REMAINDER.buffers, body=(For("serial", "i", 2, RIGHT.body[0].body, begin=3),))  # type: ignore[union-attr]
    with planted(BEGINS_AT_0):
        assert "int32_t i_ = 0; i_ < 0 + 2" in plain_c.source_of(loops)
    assert "int32_t i_ = 3; i_ < 3 + 2" in plain_c.source_of(loops)
    with planted(TRUNCATES):
        assert before[1] != prelude()
    assert before == (plain_c.source_of(REMAINDER), prelude())


def test_an_edit_that_does_not_apply_is_refused() -> None:
    for place in ("mhc.programs.plain_c:_Text._scan", "mhc.programs.plain_c:PRELUDE"):
        with pytest.raises(EditError, match="old text"), planted(Fault(name="none", place=place, old="absent", new="")):
            pass


def test_generated_c_is_edited_but_for_its_head() -> None:
    fault = Fault(name="<", place=GENERATED, old="<", new="<=")
    source = "#include <math.h>\nvoid f_kernel(int* y);\nvoid f_kernel(int* y) { for (int i = 0; i < 5; ++i) y[i] = i; }"
    assert edited(fault, source) == source.replace("i < 5", "i <= 5")


def test_a_fault_is_found_after_the_first_program_that_shows_it_and_minimised() -> None:
    found = hunt(TRUNCATES, lowered(RIGHT, RIGHT, REMAINDER, RIGHT))
    assert (found.after, found.symptom) == (3, "wrong value")
    assert "%" in found.operations.split(", ")
    assert 0 < found.small <= found.nodes == sum(1 for _ in walk(REMAINDER))


def test_a_fault_that_no_program_shows_is_not_found() -> None:
    assert hunt(TRUNCATES, lowered(RIGHT)).after == 0
    unchanged = hunt(BEGINS_AT_0, lowered(RIGHT))
    assert (unchanged.after, unchanged.tried) == (0, 0)  # its text is as before, so that it is not run


def test_a_fault_that_ends_the_process_is_found_by_it() -> None:
    ends = Fault(
        name="ends",
        place="mhc.programs.plain_c:PRELUDE",
        old="static int32_t floormod_int32(int32_t a, int32_t b) {",
        new="static int32_t floormod_int32(int32_t a, int32_t b) { __builtin_trap();",
    )
    found = hunt(ends, lowered(RIGHT, REMAINDER))
    assert (found.after, found.symptom) == (2, "status -4")


def test_chunks_share_out_the_programs_and_their_seeds() -> None:
    made = chunks(1200, 7)
    assert [one.name for one in made] == ["c 7", "cuda 57", "c 107"]


def test_the_evaluators_agree_on_drawn_programs_and_a_difference_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhc.bench.programs.evaluators.CHUNK", 40)
    result = compare(Chunk(kind="c", seed=3))
    assert (result.judged, result.differences) == (40, [])
    with planted(TRUNCATES):
        wrong = compare(Chunk(kind="c", seed=3))
    assert wrong.differences
    assert "outside" not in report.render([result], [], [], [], "command")
    text = report.render([result, wrong], [], [], [], "command")
    assert f"**80 programs, {len(wrong.differences)} differences.**" in text
    assert wrong.differences[0][1] in text


def test_each_sample_is_judged_once() -> None:
    programs = sample(CPU, 20, 5)
    results = list(judge(TARGETS["plain-c"], programs))
    assert sorted(one.id for one, _ in results) == sorted(one.id for one in programs)
    assert {verdict.status for _, verdicts in results for verdict in verdicts} == {Status.PASS}


def test_the_productions_of_a_program_are_among_those_of_the_table() -> None:
    known = {one for group in (SINGLES, PAIRS) for labels in group.values() for one in labels}
    assert {"operation %", "% of int32", "node For", "loop serial", "one block"} <= productions(REMAINDER) <= known
    drawn = {label for program in sample(GPU, 60, 2) for label in productions(program)}
    assert {one for one in drawn - known if not one.startswith(("fill", "axes", "loop unroll", "loop serial"))} == set()


def test_a_production_that_a_target_cannot_have_has_a_reason() -> None:
    assert excluded("node Gemm", CPU)
    assert excluded("loop Parallel", CPU_BEFORE_VECTORS)
    assert not excluded("loop Parallel", CPU)
    assert {one for labels in SINGLES.values() for one in labels if excluded(one, GPU)} == {"constant bool"}


def test_the_page_tells_survivors_and_empty_cells() -> None:
    survivor = Hunted(name=TRUNCATES.name, target="plain-c")
    explained = Hunted(name=next(one.name for one in FAULTS if one.why), target="plain-c")
    assert report.survivors([survivor, explained]) == [survivor]
    labels = dict.fromkeys([one for group in SINGLES.values() for one in group], 3)
    whole = Covered(name="plain-c 0", spec="plain-c", target="plain-c, 12", judged=9, productions=labels)
    assert report.gaps([whole]) == []
    empty = replace(whole, productions={one: 3 for one in labels if one != "node Gemm"})
    assert report.gaps([empty]) == [("plain-c", "node Gemm")]
    text = report.render([], lowered(RIGHT), [survivor, explained], [empty], "command")
    assert "**1 survive**" in text
    assert "**1 cells are 0**" in text
    assert "| Gemm | **0** |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "absent"], "no such part"),
        (["--only", "absent"], "no such fault"),
        (["--target", "absent"], "no such target"),
    ],
)
def test_bad_usage_exits_2(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["programs", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_fault_is_hunted_from_the_command_line(tmp_path: Path) -> None:
    arguments = ["programs", "--part", "faults", "--only", "a serial loop begins at 0", "--hunted", "200", "--jobs", "1"]
    whole = [sys.executable, "-m", "mhc.bench", *arguments, "--state", str(tmp_path / "state.json")]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)  # it forks, which other tests may prevent here
    assert done.returncode == 0, done.stderr
    assert "**1 of 1 faults are found**" in done.stdout
    assert (tmp_path / "state.faults.plain-c.json").exists()
