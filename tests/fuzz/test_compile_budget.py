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
from mhc.fuzz.campaign.compile_budget import COMPILING, FEW, FIRST, OPENING, SHARED, CompileBudget, RoundPlan, opening
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


def learn(budget: CompileBudget, checked: Checked, **fields: Any) -> None:
    """Give the budget a case of a round, by default of one that is drawn freely."""
    budget.learn(checked, Round(seed=0, count=ROUND, **fields))


def give(budget: CompileBudget, seed: int = 0) -> Round:
    """Return the next round, which is under way from now on."""
    plan = budget.next()
    request = Round(seed=seed, count=plan.count, like=plan.like, fresh=plan.fresh, until_compiled=plan.until_compiled)
    budget.given(request)
    return request


def compiling(*, programs: int = 4, seconds: float = 1.0) -> CompileBudget:
    """Return a budget whose every free case compiles, three so far, the first of which is not charged."""
    budget = CompileBudget()
    for D in (3, 5, 7):
        learn(budget, checked(default_case(B=1, S=2, n=1, D=D), seconds=seconds, compiled=programs))
    return budget


def quick(budget: CompileBudget, cases: int, *, seconds: float = 0.03) -> None:
    """Let so many cases pass that reuse programs."""
    for _ in range(cases):
        learn(budget, checked(CASE, seconds=seconds, compiled=0), like=CASE.json, alike=True)


def test_a_case_without_times_counts_as_none() -> None:
    """A worker that ended has told none: then nothing was checked, and nothing compiled."""
    budget = compiling()
    learn(budget, Checked(case=CASE.json, seconds={}, compiled=0))
    assert budget.next().like is not None, "a second of checking would outweigh a thousandth of compiling"
    learn(budget, Checked(case=CASE.json, seconds={}, compiled=2))
    assert budget.next().like is not None


def test_until_something_compiles_rounds_are_free_and_end_where_it_does() -> None:
    budget = CompileBudget()
    assert budget.next() == RoundPlan(until_compiled=1)
    learn(budget, checked(CASE, seconds=0.03, compiled=0))
    assert budget.next() == RoundPlan(until_compiled=1)


def test_workers_that_begin_together_do_not_all_compile_the_simplest_case() -> None:
    budget = CompileBudget()
    give(budget, 1)
    assert budget.next() == RoundPlan(until_compiled=1, skip=1)
    learn(budget, checked(CASE, seconds=0.03, compiled=0))
    assert budget.next() == RoundPlan(until_compiled=1), "what is drawn is as ever once something is known"


def widths(budget: CompileBudget, count: int) -> list[int]:
    return [Case.from_json(str(budget.next().like)).sizes["D"] for _ in range(count)]


def test_what_compiled_nothing_when_it_was_reused_is_reused_in_turn_and_the_rest_where_there_is_no_such_program() -> None:
    budget = compiling(seconds=3.0)
    assert widths(budget, 3) == [3, 3, 3]
    learn(budget, checked(default_case(B=1, S=2, n=1, D=3), seconds=3.0, compiled=1), like=CASE.json, alike=True)
    assert widths(budget, 2) == [5, 5]
    budget._settled.update({other: budget._unsettled.pop(other) for other in list(budget._unsettled)})
    assert widths(budget, 6) == [5, 7, 3, 5, 7, 3]
    plan = budget.next()
    assert (plan.count, plan.fresh) == (5 * ROUND, False)


def test_a_new_program_has_half_of_the_time_if_few_are_looked_for_and_a_quarter_if_more_are() -> None:
    assert (COMPILING, SHARED, FIRST, FEW) == (0.25, 0.5, 100, 40)
    for looked_for, count, seconds, wanted in (
        (FIRST - 4, 10, 3.01, True),  # of 4 programs each; with one more 3 s of compiling
        (FIRST - 4, 10, 2.99, False),
        (FIRST, 4 * FEW, 3.01, True),
        (FIRST, 4 * FEW - 4, 3.01, False),
        (FIRST, 4 * FEW - 4, 9.01, True),
    ):
        budget = compiling(programs=4, seconds=1.0)
        budget._whole.programs = looked_for
        quick(budget, count, seconds=seconds / count)
        assert budget.next().fresh is wanted, (looked_for, count, seconds)


def test_only_rounds_that_look_for_programs_count_as_such() -> None:
    budget = CompileBudget()
    learn(budget, checked(CASE, seconds=1.0, compiled=2), fresh=True)
    learn(budget, checked(CASE, seconds=1.0, compiled=3), until_compiled=1)
    learn(budget, checked(CASE, seconds=1.0, compiled=5), like=CASE.json, alike=True)
    assert (budget._whole.programs, budget._whole.cases, budget._all.programs) == (5, 3, 10)


def test_programs_under_way_count_until_their_rounds_end() -> None:
    budget = compiling(programs=1, seconds=1.0)
    quick(budget, 200, seconds=3.9 / 200)
    first = give(budget, 1)
    assert first.fresh
    assert not budget.next().fresh, "with two more, 4 s of 7.9"
    budget.ended(first)
    assert budget.next().fresh


def test_every_fourth_new_program_is_one_for_other_numbers_of_tokens() -> None:
    budget = compiling(programs=1)
    learn(budget, checked(CASE, seconds=0.1, compiled=1), like=CASE.json)
    quick(budget, 1000, seconds=0.02)
    budget._free.compiling = budget._free.cases = 1000  # no more free rounds
    plans = [budget.next() for _ in range(8)]
    assert [plan.fresh for plan in plans] == [True, True, True, False] * 2
    assert all(plan.like and plan.until_compiled and not plan.alike for plan in plans if not plan.fresh)


def test_numbers_of_tokens_are_kept_where_others_need_programs_and_only_there() -> None:
    for compiled, wanted in ((1, (True, False)), (0, (False, True))):
        budget = compiling(seconds=3.0)
        learn(budget, checked(CASE, seconds=0.03, compiled=compiled), like=CASE.json)
        plan = budget.next()
        assert (plan.alike, plan.until_compiled) == wanted
    for _ in range(99):
        learn(budget, checked(CASE, seconds=0.0, compiled=0), like=CASE.json)
    learn(budget, checked(CASE, seconds=0.0, compiled=1), like=CASE.json)
    assert not budget.next().alike, "once in a hundred cases is rare"


def test_where_most_free_cases_need_no_program_new_ones_are_looked_for_among_them() -> None:
    budget = compiling(programs=1, seconds=9.0)
    for _ in range(10):
        learn(budget, checked(CASE, seconds=0.03, compiled=0))
    quick(budget, 1000, seconds=0.05)
    assert budget.next() == RoundPlan(until_compiled=1)
    quick(budget, 10_000)
    assert budget.next() == RoundPlan(), "compiling is cheap now"


def test_the_first_round_is_of_one_program_and_ends_where_a_second_is_compiled() -> None:
    budget = CompileBudget([OPENING, replace(OPENING, dtype="float16")])
    assert budget.next() == RoundPlan(like=OPENING.json, opening=True, until_compiled=2)
    learn(budget, checked(with_sizes(OPENING, B=2, S=3), seconds=9.0, compiled=4), like=OPENING.json)
    assert budget.next() == RoundPlan(until_compiled=1), "another program at once, whatever the first took"
    learn(budget, checked(default_case(), seconds=9.0, compiled=4))
    assert budget.next().like == with_sizes(OPENING, B=2, S=3).json


def test_slow_cases_that_compile_nothing_open_in_every_dtype_and_quick_ones_in_one() -> None:
    openings = opening(replace(load("manual"), dtypes=("bfloat16", "float32")))
    for seconds, more in ((0.7, True), (0.03, False)):
        budget = CompileBudget(openings)
        assert budget.next().like == openings[0].json
        assert not budget.next().opening, "nothing is known"
        learn(budget, checked(OPENING, seconds=seconds, compiled=0))
        assert [budget.opens, budget.next().like] == [more, openings[1].json if more else None]
        assert not budget.opens


def test_openings_have_the_dtypes_that_are_taken_the_simplest_first() -> None:
    manual = load("manual")
    for dtypes in (manual.dtypes, ("float64", "bfloat16")):
        drawn = [case.dtype for case in opening(replace(manual, dtypes=dtypes))]
        assert sorted(drawn) == sorted(dtypes)
        assert drawn[0] == ("float32" if "float32" in dtypes else "bfloat16")


def test_without_compiling_and_without_a_program_that_worked_nothing_is_reused() -> None:
    budget = CompileBudget()
    learn(budget, checked(default_case(), seconds=9.0, compiled=0))
    assert budget.next().like is None
    bad = checked(default_case(), seconds=9.0, compiled=1)
    for what in ({"refused": "odd D"}, {"findings": (WRONG,)}):
        learn(budget, Checked(case=bad.case, seconds=bad.seconds, compiled=1, **what))
        assert budget.next().like is None


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


def test_programs_differ_by_schedule_dtype_width_and_class_of_tokens_and_64_are_kept() -> None:
    short = default_case(B=2, S=2, n=1, D=2, dtype="float16")
    different = [CASE, replace(CASE, schedules={"mine": {"BLOCK": 8}}), short, with_sizes(short, S=9)]
    budget = CompileBudget()
    for case in (*different, with_sizes(short, S=10), CASE):
        learn(budget, checked(case, seconds=1.0, compiled=1))
    assert [*budget._unsettled.values()] == [
        *(case.json for case in (different[1], short, with_sizes(short, S=10), CASE))
    ], "17 to 32 tokens are of one class; what compiled last comes last"
    many = CompileBudget()
    for width in range(1, 67):
        learn(many, checked(default_case(D=width), seconds=1.0, compiled=1))
    kept = {Case.from_json(text).sizes["D"] for text in many._unsettled.values()}
    assert kept == set(range(3, 67)), "the least recently used go"


def test_where_cases_are_slow_and_nothing_is_compiled_more_rounds_open() -> None:
    other = replace(OPENING, dtype="float16")
    for checking, wanted in ((0.25, False), (0.26, True)):
        budget = CompileBudget([OPENING, other])
        assert budget.next().opening
        learn(budget, checked(CASE, seconds=checking, compiled=0))
        assert budget.next().opening is wanted
    assert (OPENING.sizes["n"], OPENING.sizes["D"], OPENING.dtype) == (4, 40, "float32")
