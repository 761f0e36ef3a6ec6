"""What is compiled decides what is drawn next where compiling takes the time."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from mhc import Case, default_case, load
from mhc.case import with_sizes
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.compile_budget import COMPILING, OPENING, CompileBudget, RoundPlan, opening
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.executors.local import LocalExecutor
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.protocol import Checked, Round
from mhc.strategies.cases import cases
from mhc.strategies.rounds import ROUND
from tests.support.fake_executor import CASE, WRONG

# Compiles 0.4 s for each (n, D, dtype).
COMPILER = """
import os, time
from dataclasses import replace
from mhc import load

healthy = load("manual")
compiled = set()

def forward(x, *args, **kwargs):
    key = (x.shape[2:], x.dtype)
    if key not in compiled:
        compiled.add(key)
        time.sleep(0.4)
    return healthy.forward(x, *args, **kwargs)

IMPL = replace(healthy, name="compiler", forward=forward, backward=None, compiles=lambda: len(compiled))
"""


def checked(case: Case, *, seconds: float, compiled: int) -> Checked:
    spent = {"checking": seconds, "compiling": seconds if compiled else 0.0}
    return Checked(case=case.json, seconds=spent, compiled=compiled)


def test_a_case_without_times_counts_as_none() -> None:
    """A worker that ended has told none: then nothing was checked, and nothing compiled."""
    programs = CompileBudget()
    case = default_case(B=1, S=2, n=1, D=3)
    programs.learn(checked(case, seconds=1e-3, compiled=1))
    programs.learn(Checked(case=case.json, seconds={}, compiled=0))
    assert programs.next().like == case.json, "a second of checking would outweigh a thousandth of compiling"


def test_a_case_without_times_compiled_for_none() -> None:
    programs = CompileBudget()
    case = default_case(B=1, S=2, n=1, D=3)
    programs.learn(checked(case, seconds=0.0, compiled=1))
    programs.learn(Checked(case=case.json, seconds={}, compiled=0))
    assert programs.next() == RoundPlan()


def test_free_until_compiling_takes_too_much_then_like_what_is_compiled_in_turn() -> None:
    programs = CompileBudget()
    assert programs.next() == RoundPlan()
    one, two = default_case(B=1, S=2, n=1, D=3), default_case(B=1, S=2, n=2, D=3)
    programs.learn(checked(one, seconds=3.0, compiled=4))
    programs.learn(checked(two, seconds=3.0, compiled=2))
    assert [programs.next() for _ in range(3)] == [RoundPlan(count=5 * ROUND, like=case.json) for case in (one, two, one)]
    programs.learn(checked(default_case(B=2, S=2, n=1, D=3), seconds=6.0 / COMPILING - 6.0, compiled=0))
    assert programs.next() == RoundPlan()


def test_the_first_round_is_of_one_program_and_the_second_free_whatever_that_took() -> None:
    programs = CompileBudget([OPENING, replace(OPENING, dtype="float16")])
    assert programs.next() == RoundPlan(like=OPENING.json, opening=True)
    programs.learn(checked(with_sizes(OPENING, B=2, S=3), seconds=9.0, compiled=4))
    assert programs.next() == RoundPlan()
    programs.learn(checked(default_case(), seconds=9.0, compiled=4))
    assert programs.next().like == with_sizes(OPENING, B=2, S=3).json


def test_slow_cases_that_compile_nothing_open_in_every_dtype_and_quick_ones_in_one() -> None:
    openings = opening(replace(load("manual"), dtypes=("bfloat16", "float32")))
    for seconds, wanted in (
        (0.7, [RoundPlan(like=openings[1].json, opening=True), RoundPlan()]),
        (0.03, [RoundPlan(), RoundPlan()]),
    ):
        programs = CompileBudget(openings)
        assert [programs.next(), programs.next()] == [RoundPlan(like=openings[0].json, opening=True), RoundPlan()], (
            "nothing is known"
        )
        programs.learn(checked(OPENING, seconds=seconds, compiled=0))
        assert [programs.next(), programs.next()] == wanted


def test_openings_have_the_dtypes_that_are_taken_the_simplest_first() -> None:
    manual = load("manual")
    for dtypes in (manual.dtypes, ("float64", "bfloat16")):
        drawn = [case.dtype for case in opening(replace(manual, dtypes=dtypes))]
        assert sorted(drawn) == sorted(dtypes)
        assert drawn[0] == ("float32" if "float32" in dtypes else "bfloat16")


def test_without_compiling_and_without_a_program_that_worked_it_stays_free() -> None:
    programs = CompileBudget()
    programs.learn(checked(default_case(), seconds=9.0, compiled=0))
    assert programs.next() == RoundPlan()
    refused = checked(default_case(), seconds=9.0, compiled=1)
    programs.learn(Checked(case=refused.case, seconds=refused.seconds, compiled=1, refused="odd D"))
    assert programs.next() == RoundPlan()


def test_cases_like_another_differ_in_what_programs_do_not_depend_on() -> None:
    space = {"mine": {"BLOCK": (64, 96)}}
    like = replace(default_case(B=1, S=2, n=5, D=7, dtype="float16"), schedules={"mine": {"BLOCK": 96}})
    drawn: list[Case] = []

    @settings(max_examples=60, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(cases(spaces=space, like=like))
    def draw(case: Case) -> None:
        drawn.append(case)

    draw()
    assert {(case.sizes["n"], case.sizes["D"], case.dtype, case.has("gamma")) for case in drawn} == {
        (5, 7, "float16", like.has("gamma"))
    }
    assert {case.schedules["mine"]["BLOCK"] for case in drawn} == {96}
    assert len({case.sizes["N"] for case in drawn}) > 5
    assert len({case.tensors["x"] for case in drawn}) > 20
    assert len({case.scalars["norm_eps"] for case in drawn}) > 3


@pytest.mark.slow
def test_a_campaign_spends_its_time_on_cases(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(COMPILER, encoding="utf-8")
    spec = f"{file}:IMPL"
    store = Store.create(tmp_path / FILE)
    specs = {"compiler": (spec, load(spec))}
    pool = Pool(specs, LocalExecutor(specs, "cpu", 1, Limits()))
    try:
        Campaign([Subject(spec=spec, implementation=load(spec))], store, pool, Budget(cases=110), seed=3).run()
        counts = store.counts()["compiler"]
    finally:
        store.close()
    assert counts["checked"] == 110
    assert counts["compiled"] < 24, "a free draw compiles for nearly every case"
    assert counts["compiling"] >= 0.4 * counts["compiled"]


def test_a_campaign_opens_once_and_a_leg_that_goes_on_with_it_does_not(tmp_path: Path) -> None:
    specs = {"manual": ("manual", load("manual"))}
    subject = Subject(spec="manual", implementation=load("manual"))
    store = Store.create(tmp_path / FILE)
    legs: list[set[str | None]] = []
    try:
        for cases in (ROUND, 2 * ROUND):
            seen: set[str | None] = set()
            legs.append(seen)
            pool = Pool(specs, LocalExecutor(specs, "cpu", 1, Limits()))

            def tick(campaign: Campaign, seen: set[str | None] = seen) -> None:
                seen.update(slot.request.like for slot in campaign.pool.busy() if isinstance(slot.request, Round))

            Campaign([subject], store, pool, Budget(cases=cases), on_tick=tick).run()
    finally:
        store.close()
    assert legs == [{OPENING.json}, {None}]


# Compiles the same kernel twice for a GPU that need not be here.
TRITON = """
import sys
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from mhc import load
from mhc.fuzz.worker.compile_count import compile_count, count_triton

@triton.jit
def twice(pointer, N: tl.constexpr):
    at = pointer + tl.arange(0, N)
    tl.store(at, 2 * tl.load(at))

told = []
triton.knobs.compilation.listener = lambda **what: told.append(what["cache_hit"])
count_triton()
for _ in range(2):
    source = ASTSource(twice, signature={"pointer": "*fp32", "N": "constexpr"}, constexprs={"N": 16})
    triton.compile(source, target=GPUTarget("cuda", 90, 32))
print(compile_count(load("manual")), told)
"""


def test_what_triton_compiles_is_counted_and_what_its_cache_has_is_not(tmp_path: Path) -> None:
    script = tmp_path / "compile_twice.py"
    script.write_text(TRITON, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON")}
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1 [False, True]\n", 0), done.stderr


def result(case: Case, *, checking: float = 1.0, compiling: float = 0.0, compiled: int = 0, **fields: Any) -> Checked:
    return Checked(case=case.json, seconds={"checking": checking, "compiling": compiling}, compiled=compiled, **fields)


def test_programs_are_shared_where_compiling_takes_more_than_a_quarter() -> None:
    assert COMPILING == 0.25
    for compiling, wanted in ((1.0, RoundPlan()), (1.1, RoundPlan(count=50, like=CASE.json))):
        programs = CompileBudget()
        programs.learn(result(CASE, checking=compiling, compiling=compiling, compiled=1))
        programs.learn(result(CASE, checking=4.0 - compiling))
        assert programs.next() == wanted
    failing = CompileBudget()
    failing.learn(result(CASE, checking=1.0, compiling=1.0, compiled=1, findings=(WRONG,)))
    assert failing.next() == RoundPlan(), "what failed is no program to go on with"
    other = replace(CASE, schedules={"mine": {"BLOCK": 8}})
    each = CompileBudget()
    for case in (CASE, other, default_case(B=2, S=2, n=1, D=2, dtype="float16")):
        each.learn(result(case, compiling=1.0, compiled=1))
    assert [each.next().like for _ in range(4)] == [
        *(CASE.json, other.json, default_case(B=2, S=2, n=1, D=2, dtype="float16").json, CASE.json)
    ]
    many = CompileBudget()
    for width in range(1, 67):
        many.learn(result(default_case(D=width), compiling=1.0, compiled=1))
    likes = {Case.from_json(str(many.next().like)).sizes["D"] for _ in range(70)}
    assert likes == set(range(3, 67)), "64 are kept, the least recently used go"


def test_where_cases_are_slow_and_nothing_is_compiled_more_rounds_open() -> None:
    other = replace(OPENING, dtype="float16")
    for checking, wanted in ((0.25, False), (0.26, True)):
        programs = CompileBudget([OPENING, other])
        assert programs.next().opening
        programs.learn(result(CASE, checking=checking))
        assert programs.next().opening is wanted
    assert (OPENING.sizes["n"], OPENING.sizes["D"], OPENING.dtype) == (4, 40, "float32")
