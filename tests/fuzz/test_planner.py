"""The planner: what the next round of an implementation draws, and what it learns from cases and ends of rounds."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mhc.fuzz.campaign.compile_budget import opening
from mhc.fuzz.campaign.planner import Planner, Subject
from mhc.fuzz.campaign.pool import Slot
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.worker.protocol import Checked, Minimise, Round
from mhc.programs.targets import TARGETS
from mhc.strategies.reach import Reach
from tests.support.fake_executor import CASE, MINE, WRONG, FakeProcess

NAMES = ["mine", "yours"]


def planner(path: Path, *, limit: float = float("inf"), way: Mapping[str, int] | None = None, **options: Any) -> Planner:
    file = path / "run.db"
    store = Store(file) if file.exists() else Store.create(file)
    subjects = [Subject(spec="a.py:IMPL", implementation=replace(MINE, name=name)) for name in NAMES]
    given = {"seed": 0, "max_elements": 1 << 15, "largest": None, "device": "cpu", "memory": float("inf"), **options}
    return Planner(subjects, store, limit, lambda name: (way or {}).get(name, 0), **given)


def slot(request: Any, begun: int = 0, name: str = "mine") -> Slot:
    process: Any = FakeProcess(lambda request: [])
    return Slot(number=0, process=process, name=name, request=request, since=2.5, begun=begun)


def learn(one: Planner, request: Round, *labels: str, **fields: Any) -> bool:
    return one.learn("mine", request, Checked(case=CASE.json, regions=frozenset(labels), **fields))


def test_a_case_is_new_where_any_of_its_regions_is(tmp_path: Path) -> None:
    one = planner(tmp_path)
    _, request = one.next(["mine"])
    assert learn(one, request, "a")
    assert not learn(one, request, "a")
    assert learn(one, request, "a", "b")
    assert not learn(one, request, "a", "b")
    assert not learn(one, request)
    assert one.cases == 5
    assert one.learn("yours", request, Checked(case=CASE.json, regions=frozenset({"a"}))), "each has its own regions"


def test_a_round_that_could_not_be_handed_out_costs_no_time_yields_nothing_and_is_next(tmp_path: Path) -> None:
    one = planner(tmp_path)
    name, request = one.next(["mine"])
    before = one._scheduler._claim("yours", 0.0, loaded=True), one._scheduler._spent["mine"]
    one.not_given(name, request)
    assert not one._scheduler._begun["mine"]
    assert (one._scheduler._claim("mine", 0.0, loaded=True), one._scheduler._spent["mine"]) == before
    assert one._scheduler._yield["mine"] == pytest.approx(0.8)
    assert one.next(["mine"]) == ("mine", request)
    assert one.next(["mine"])[1].seed == request.seed + 1


def test_the_rest_of_a_round_is_kept_behind_its_case_in_hand(tmp_path: Path) -> None:
    one = planner(tmp_path, limit=10)
    _, request = one.next(["mine"])
    one.interrupted(slot(request, begun=4), novel=False)
    assert one.open(NAMES) == NAMES
    for _ in range(10):
        one.drawn("mine")
    assert one.open(NAMES) == NAMES, "what waits is handed out in any case"
    assert one.next(["mine"]) == ("mine", replace(request, skip=4))
    assert one.open(NAMES) == ["yours"]
    one.interrupted(slot(request, begun=request.count), novel=False)
    one.interrupted(slot(replace(request, rare=frozenset()), begun=1), novel=False)
    one.interrupted(slot(Minimise(finding=WRONG, checks=1, seconds=1.0), begun=1), novel=False)
    assert one.open(NAMES) == ["yours"]


def test_what_was_begun_with_the_case_in_hand_and_not_judged_is_kept_too(tmp_path: Path) -> None:
    one = planner(tmp_path)
    _, request = one.next(["mine"])
    ended = replace(slot(request, begun=request.count), case=CASE.json, at=5, open={2, 5, 7})
    one.interrupted(ended, novel=False)
    rest = replace(request, skip=request.count, again=frozenset({2, 7}))
    assert one.next(["mine"]) == ("mine", rest)
    one.interrupted(replace(ended, case=None, open={2}), novel=False)
    assert one.next(["mine"]) == ("mine", replace(rest, again=frozenset({2})))


def test_how_a_round_ended_is_told_to_the_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[tuple[str, float, bool, bool]]()
    one = planner(tmp_path)

    def done(name: str, seconds: float, *, novel: bool, crashed: bool = False) -> None:
        told.append((name, seconds, novel, crashed))

    monkeypatch.setattr(one._scheduler, "done", done)
    monkeypatch.setattr("mhc.fuzz.campaign.planner.time.monotonic", lambda: 7.5)
    _, request = one.next(["mine"])
    one.ended(slot(request), novel=True)
    one.ended(slot(request), novel=False)
    one.interrupted(slot(request), novel=False, crashed=True)
    one.interrupted(slot(request), novel=True)
    one.ended(slot(Minimise(finding=WRONG, checks=1, seconds=1.0)), novel=True)
    assert {(name, seconds) for name, seconds, _, _ in told} == {("mine", 5.0)}
    assert [ending[2:] for ending in told] == [(True, False), (False, False), (False, True), (True, False)]


def test_what_a_case_compiled_counts_against_the_rounds_that_compile(tmp_path: Path) -> None:
    one = planner(tmp_path)
    _, request = one.next(["mine"])
    learned: list[int] = []
    budgets = one._compile_budgets["mine"]
    budgets[Reach.USUAL].learn = lambda checked, request: learned.append(checked.compiled)  # type: ignore[method-assign]
    learn(one, request, compiled=3)
    learn(one, replace(request, reach=Reach.MODEL), compiled=2)
    assert learned == [3], "each reach has its own"
    assert budgets[Reach.MODEL]._all.programs == 2
    assert budgets[Reach.USUAL]._whole is budgets[Reach.MODEL]._whole


def test_a_round_is_under_way_for_its_compile_budget_until_it_ends(tmp_path: Path) -> None:
    one = planner(tmp_path)
    under_way = one._compile_budgets["mine"][Reach.USUAL]._under_way
    name, request = one.next(["mine"])
    assert [*under_way] == [request.seed]
    one.not_given(name, request)
    assert not under_way
    one.next(["mine"])
    one.interrupted(slot(request, begun=4), novel=False)
    assert not under_way
    rest = one.next(["mine"])[1]
    assert (rest.skip, [*under_way]) == (4, [request.seed])
    one.ended(slot(rest), novel=False)
    assert not under_way


def test_a_far_round_reuses_programs_of_its_reach_and_a_fresh_one_is_beside_what_is_covered(tmp_path: Path) -> None:
    one = planner(tmp_path)
    one._compile_budgets["mine"][Reach.USUAL]._opening.clear()
    one._size_budgets["mine"].next = lambda: (Reach.MODEL, 1 << 18)  # type: ignore[method-assign]
    far = Round(seed=0, count=5, reach=Reach.MODEL)
    for _ in range(3):
        learn(one, far, "often", "seldom", compiled=1, seconds={"checking": 60.0, "compiling": 60.0})
    learn(one, far, "often")
    reused = one.next(["mine"])[1]
    assert (reused.like, reused.reach, reused.covered) == (CASE.json, Reach.MODEL, frozenset())
    for _ in range(40):
        learn(one, replace(far, like=CASE.json, alike=True), seconds={"checking": 15.0})
    fresh = one.next(["mine"])[1]
    assert (fresh.fresh, fresh.like, fresh.covered) == (True, None, frozenset({"often"}))


def test_cases_that_are_left_count_those_under_way(tmp_path: Path) -> None:
    one = planner(tmp_path, limit=30, way={"mine": 12})
    one.drawn("mine")
    assert (one.left("mine"), one.left("yours")) == (17, 30)
    assert planner(tmp_path, way={"mine": 12}).left("mine") == float("inf")
    full = planner(tmp_path, limit=12, way={"mine": 12})
    assert full.open(NAMES) == ["yours"]
    few = planner(tmp_path, limit=14, way={"mine": 11})
    assert few.next(["mine"])[1].count == 3
    assert few.next(["yours"])[1].count == 10


def test_a_resumed_run_goes_on_with_its_seeds_its_cases_and_its_regions(tmp_path: Path) -> None:
    one = planner(tmp_path, seed=5)
    assert [one.next(["mine"])[1].seed for _ in range(2)] == [5, 6]
    assert one.next(["yours"])[1].seed == 5, "all draw the same cases"
    store = Store(tmp_path / "run.db")
    store.begin(0, "mine", CASE.json, 0.0)
    store.end(0, "mine", Checked(case=CASE.json, regions=frozenset({"a"})), 0.0)
    store.count("mine", "refused", 2)
    store.count("mine", "faulted", 3)
    store.close()
    again = planner(tmp_path, seed=9, limit=20)
    assert (again.cases, again.left("mine"), again.left("yours")) == (6, 14, 20)
    _, request = again.next(["mine"])
    assert (request.seed, request.like) == (7, None), "no opening again"
    assert not learn(again, request, "a")
    assert again.next(["yours"])[1].seed == 6


def test_only_usual_rounds_are_of_one_program_and_they_keep_within_its_elements(tmp_path: Path) -> None:
    one = planner(tmp_path, max_elements=1 << 14)
    rounds = [one.next(["mine"])[1]]
    begin = opening(MINE)
    assert begin
    assert (rounds[0].reach, rounds[0].max_elements, rounds[0].count) == (Reach.USUAL, 1 << 14, 10)
    assert rounds[0].like is not None
    for _ in range(40):
        for _ in range(4):
            learn(one, rounds[-1], seconds={"checking": 0.1})
        one.ended(slot(rounds[-1]), novel=False)
        rounds.append(one.next(["mine"])[1])
    far = [request for request in rounds if request.reach is not Reach.USUAL]
    usual = [request for request in rounds if request.reach is Reach.USUAL]
    assert {request.reach for request in far} == {Reach.STRETCHED, Reach.MODEL}
    assert {request.like for request in far} == {None}
    assert {request.rare for request in far} == {None}
    assert max(request.max_elements for request in usual) == 1 << 14
    assert all(request.count - request.skip <= 10 for request in far)
    guided = [at for at, request in enumerate(rounds, 1) if request.rare is not None]
    assert guided
    assert all(at % 4 == 0 and rounds[at - 1].count == 50 for at in guided)


def test_programs_have_no_guided_rounds(tmp_path: Path) -> None:
    """What a worker draws of programs does not depend on what is rare, and what is left of a guided round is not kept."""
    target = TARGETS["tilelang-to-c"]
    named = Subject(spec=target.name, implementation=target)
    options: dict[str, Any] = {"seed": 0, "max_elements": 64, "largest": None, "device": "cpu", "memory": 1e9}
    one = Planner([named], Store.create(tmp_path / "run.db"), float("inf"), lambda name: 0, **options)
    rounds = [one.next([target.name])[1] for _ in range(9)]
    assert {(request.rare, request.count - request.skip) for request in rounds} == {(None, 10)}


def test_what_is_rare_is_looked_for_as_the_store_counts_it(tmp_path: Path) -> None:
    one = planner(tmp_path)
    _, request = one.next(["mine"])
    for label, times in (("often", 4), ("seldom", 3), ("once", 1)):
        for _ in range(times):
            learn(one, request, label)
    guided = [found.rare for found in (one.next(["mine"])[1] for _ in range(12)) if found.rare is not None]
    assert guided
    assert {*guided} == {frozenset({"seldom", "once"})}


def test_a_far_round_claims_its_time_until_it_ends(tmp_path: Path) -> None:
    one = planner(tmp_path)
    learn(one, one.next(["mine"])[1], seconds={"checking": 100.0})
    _, request = one.next(["mine"])
    assert request.reach is not Reach.USUAL
    running = one._size_budgets["mine"]._running
    assert running[request.reach] == 1
    one.interrupted(slot(request, begun=1), novel=False)
    assert running[request.reach] == 0
    assert one.next(["mine"])[1].skip == 1
    assert running[request.reach] == 1, "its rest is handed out"
    one.ended(slot(request), novel=False)
    assert running[request.reach] == 0


def test_compiling_a_far_case_is_not_what_the_implementation_takes(tmp_path: Path) -> None:
    """Of 4 s, 3.9 s in the implementation, which compiled."""
    means = []
    for compiled in (0, 1):
        one = planner(tmp_path)
        request = Round(seed=0, count=1, reach=Reach.MODEL)
        learn(one, request, seconds={"checking": 4.0, "running": 3.9}, compiled=compiled)
        means.append(one._size_budgets["mine"].count(Reach.MODEL))
    assert means == [3, 5], "as many cases as take eight seconds, three at least and five at most"


def test_a_case_without_times_took_none(tmp_path: Path) -> None:
    one = planner(tmp_path)
    _, request = one.next(["mine"])
    learn(one, request)
    assert one._size_budgets["mine"]._usual.mean == 0.0


def test_rounds_of_programs_are_of_the_usual_size(tmp_path: Path) -> None:
    target = TARGETS["tilelang-to-c"]
    subjects = [Subject(spec=target.name, implementation=target), Subject(spec="a.py:IMPL", implementation=MINE)]
    given: dict[str, Any] = {"seed": 0, "max_elements": 1 << 15, "largest": None, "device": "cpu", "memory": float("inf")}
    one = Planner(subjects, Store.create(tmp_path / "run.db"), float("inf"), lambda name: 0, **given)
    reaches: dict[str, set[Reach]] = {target.name: set(), MINE.name: set()}
    for _ in range(200):
        for name, seen in reaches.items():
            _, request = one.next([name])
            seen.add(request.reach)
            seconds = {"checking": 0.1, "running": 0.05}
            one.learn(name, request, Checked(case=CASE.json, regions=frozenset(), seconds=seconds))
            one.ended(slot(request, name=name), novel=False)
    assert reaches[target.name] == {Reach.USUAL}
    assert reaches[MINE.name] > {Reach.USUAL}
