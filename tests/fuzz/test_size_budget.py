"""The budget of elements follows the seconds that a case takes, and far reaches have their share of them."""

import subprocess
import sys

import pytest

from mhc.fuzz.campaign import size_budget
from mhc.fuzz.campaign.size_budget import CASES, OWN, PER_ELEMENT, SizeBudget, room
from mhc.strategies.reach import Reach


def usual(sizes: SizeBudget) -> int:
    """The elements of the next usual round; rounds that reach far are ended without a case."""
    while True:
        reach, elements = sizes.next()
        if reach is Reach.USUAL:
            return elements


def test_it_begins_small_and_slow_cases_make_it_smaller_and_every_eighth_round_has_all_of_it() -> None:
    sizes = SizeBudget(1 << 15)
    assert usual(sizes) == 1 << 11, "nothing is known yet"
    sizes.learn(4.0)
    drawn = [usual(sizes) for _ in range(15)]
    assert drawn[:6] == [1 << power for power in (10, 9, 9, 9, 9, 9)]
    assert drawn[6] == drawn[14] == 1 << 15
    assert set(drawn[7:14]) == {1 << 9}


def test_quick_cases_make_it_larger_and_what_is_between_leaves_it() -> None:
    sizes = SizeBudget(1 << 12)
    assert [usual(sizes) for _ in range(2)] == [1 << 11, 1 << 11]
    sizes.learn(2.0)
    assert usual(sizes) == 1 << 10
    for _ in range(20):
        sizes.learn(0.5)
    assert usual(sizes) == 1 << 10
    for _ in range(40):
        sizes.learn(0.01)
    assert [usual(sizes) for _ in range(3)] == [1 << 11, 1 << 12, 1 << 12]


def test_where_little_is_all_there_is_every_round_has_it() -> None:
    sizes = SizeBudget(1 << 8)
    sizes.learn(0.01)
    assert {usual(sizes) for _ in range(10)} == {1 << 8}


def test_a_case_that_compiled_costs_time_and_says_nothing_about_elements() -> None:
    sizes = SizeBudget(1 << 15)
    sizes.learn(9.0, compiled=True)
    assert sizes.next()[0] is not Reach.USUAL, "far reaches have a share of that time"
    assert usual(sizes) == 1 << 11


def test_far_cases_that_compile_grow_by_what_judging_them_takes() -> None:
    sizes = SizeBudget(1 << 15)
    drawn: list[int] = []
    while len(drawn) < 4:
        reach, elements = sizes.next()
        sizes.learn(9.0, reach, running=8.9, compiled=True)
        sizes.ended(reach)
        drawn += [elements] if reach is Reach.STRETCHED else []
    assert drawn == [1 << 13, 1 << 15, 1 << 17, 1 << 19]


def test_each_far_reach_gets_its_share_of_the_time() -> None:
    sizes = SizeBudget(1 << 15)
    assert sizes.next()[0] is Reach.USUAL, "the first round is quick"
    seconds = {Reach.USUAL: 0.03, Reach.STRETCHED: 0.2, Reach.MODEL: 0.6}
    spent: dict[Reach, float] = dict.fromkeys(Reach, 0.0)
    for _ in range(2000):
        reach, _ = sizes.next()
        for _ in range(10 if reach is Reach.USUAL else sizes.count(reach)):
            sizes.learn(seconds[reach], reach)
            spent[reach] += seconds[reach]
        sizes.ended(reach)
    for reach in (Reach.STRETCHED, Reach.MODEL):
        assert 0.19 < spent[reach] / sum(spent.values()) < 0.21, reach


def test_rounds_on_their_way_count_as_if_they_had_ended() -> None:
    sizes = SizeBudget(1 << 15)
    sizes.learn(10.0)
    given = [sizes.next()[0] for _ in range(6)]
    assert given.count(Reach.USUAL) >= 3, "2 s is the share of either: a round or two of quarters of a second"
    assert {Reach.STRETCHED, Reach.MODEL} <= set(given)


def test_far_reaches_begin_small_and_grow_to_what_suits_the_device() -> None:
    sizes = SizeBudget(1 << 15)
    drawn = []
    for _ in range(60):
        reach, elements = sizes.next()
        sizes.learn(0.1, reach)
        sizes.ended(reach)
        if reach is Reach.MODEL:
            drawn.append(elements)
    assert drawn[:5] == [1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 24]
    assert set(drawn[5:]) == {1 << 24}
    for _ in range(40):
        sizes.learn(20.0, Reach.MODEL)
    sizes.learn(1e5)
    sizes.learn(1e5, Reach.STRETCHED)
    assert sizes.next() == (Reach.MODEL, 1 << 23), "slow cases make it smaller"


def test_what_the_user_asks_for_is_drawn_in_every_third_round_at_model_sizes_however_slow() -> None:
    def model_rounds(sizes: SizeBudget) -> list[int]:
        sizes.learn(1e6, compiled=True)
        found: list[int] = []
        while len(found) < 7:
            reach, elements = sizes.next()
            sizes.learn(60.0, reach)
            sizes.ended(reach)
            found += [elements] if reach is Reach.MODEL else []
        return found

    asked, default = model_rounds(SizeBudget(1 << 15, 1 << 30, "cuda")), model_rounds(SizeBudget(1 << 15, None, "cuda"))
    assert [at for at, elements in enumerate(asked, 1) if elements == 1 << 30] == [3, 6]
    assert max(default) == 1 << 18


def test_no_case_is_larger_than_the_memory_of_a_worker_has_room_for() -> None:
    def largest(sizes: SizeBudget) -> int:
        sizes.learn(1e6)
        return max(elements for reach, elements in (quick(sizes) for _ in range(200)) if reach is not Reach.USUAL)

    def quick(sizes: SizeBudget) -> tuple[Reach, int]:
        reach, elements = sizes.next()
        sizes.learn(0.01, reach)
        sizes.ended(reach)
        return reach, elements

    small = float(OWN + (PER_ELEMENT << 19))
    assert largest(SizeBudget(1 << 15)) == 1 << 24
    assert largest(SizeBudget(1 << 15, memory=small)) == room(small) == 1 << 19
    assert largest(SizeBudget(1 << 15, device="cuda")) == 1 << 25
    assert largest(SizeBudget(1 << 15, device="cuda", memory=small)) == room(small)
    assert room(0) == 1 << 14


JUDGE = """
import resource
import hypothesis
import torch
from mhc import load
from mhc.fuzz.check.check import check
from mhc.strategies.cases import cases
from mhc.strategies.reach import Reach
from mhc.strategies.rounds import quiet

torch.set_num_threads(1)  # as workers do
manual = load("manual")

@hypothesis.seed(1)
@quiet(25)
@hypothesis.given(cases(max_elements=1 << 20, reach=Reach.MODEL))
def judge(case):
    check(manual, case, "cpu")

judge()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
"""


@pytest.mark.slow
def test_judging_takes_no_more_memory_than_the_room_that_is_reckoned_with() -> None:
    done = subprocess.run([sys.executable, "-c", JUDGE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert 400 << 20 < int(done.stdout) < OWN + PER_ELEMENT * (1 << 20)


def test_a_far_round_has_fewer_cases_where_they_are_slow_and_never_the_simplest_alone() -> None:
    sizes = SizeBudget(1 << 15)
    for _ in range(60):
        sizes.learn(0.1, Reach.STRETCHED)
        sizes.learn(2.0, Reach.MODEL)
    assert (sizes.count(Reach.STRETCHED), sizes.count(Reach.MODEL)) == (CASES[Reach.STRETCHED], 4)
    for _ in range(60):
        sizes.learn(50.0, Reach.MODEL)
    assert sizes.count(Reach.MODEL) == 3


def test_the_mean_of_seconds_forgets_a_tenth_each_time() -> None:
    sizes = SizeBudget(1 << 15)._usual
    sizes.learn(1.0)
    assert sizes.mean == 1.0
    sizes.learn(2.0)
    assert sizes.mean == pytest.approx(1.1)
    for mean, wanted in ((1.0, 1 << 11), (1.01, 1 << 10), (0.25, 1 << 10), (0.24, 1 << 11)):
        sizes._mean = mean
        assert sizes.next() == wanted
    assert SizeBudget(1 << 9)._usual.next() == 1 << 9


def test_the_shares_and_limits_of_each_device() -> None:
    """They decide how a campaign spends its time: a change is made here too."""
    assert {
        "cpu": {Reach.STRETCHED: 0.2, Reach.MODEL: 0.2},
        "cuda": {Reach.STRETCHED: 0.2, Reach.MODEL: 0.25},
    } == size_budget._SHARES
    assert size_budget._STRETCHED == {"cpu": 1 << 20, "cuda": 1 << 22}
    assert size_budget.LARGEST == {"cpu": 1 << 24, "cuda": 1 << 25}
    assert {Reach.STRETCHED: 5, Reach.MODEL: 5} == CASES
    assert (size_budget.QUICK, size_budget.FULL_EVERY, size_budget.ASKED_EVERY, size_budget.FIRST) == (0.25, 8, 3, 1 << 11)
    assert (size_budget._ROUND_SECONDS, size_budget._FEWEST, size_budget._WEIGHT) == (8.0, 3, 0.9)
    assert size_budget.PATIENCE == 0.1
    assert (OWN, PER_ELEMENT) == (900 << 20, 800)


@pytest.mark.parametrize(
    ("device", "reach", "elements"),
    [
        ("cpu", Reach.STRETCHED, [1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 20, 1 << 20]),
        ("cuda", Reach.STRETCHED, [1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21, 1 << 22, 1 << 22]),
        ("cpu", Reach.MODEL, [1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 24]),
        ("cuda", Reach.MODEL, [1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 25, 1 << 25]),
    ],
)
def test_far_cases_grow_fourfold_while_they_are_quick_and_halve_while_they_are_slow(
    device: str, reach: Reach, elements: list[int]
) -> None:
    far = SizeBudget(1 << 15, device=device)._far[reach]
    found = []
    for _ in elements:
        found.append(far.next())
        far.learn(0.99)
    assert found == elements
    far._mean = 4.0
    assert far.next() == elements[-1], "neither"
    far._mean = 4.01
    least = 1 << 11 if reach is Reach.STRETCHED else 1 << 14
    assert [far.next() for _ in range(30)][-1] == least
    assert far.next() == least


def test_far_cases_do_not_grow_where_the_slowest_one_foretells_a_case_that_takes_too_long() -> None:
    far = SizeBudget(1 << 15)._far[Reach.MODEL]
    for seconds in (1.5, *(0.1,) * 20):
        far.learn(seconds)
    assert far.mean < 1.0
    assert [far.next() for _ in range(3)] == [1 << 18] * 3, "four times 1.5 s is more than 4 s"
    assert far.next(5.9) == 1 << 18
    assert far.next(6.0) == 1 << 20, "a long campaign has the time"
    assert far.next() == 1 << 22, "of so many elements no case was slow"


@pytest.mark.parametrize(
    ("seconds", "stretched", "model"), [(0.01, 13, 18), (0.12, 13, 18), (0.4, 13, 16), (3.0, 13, 14), (30.0, 11, 14)]
)
def test_far_cases_begin_smaller_where_usual_ones_foretell_a_slow_one(seconds: float, stretched: int, model: int) -> None:
    sizes = SizeBudget(1 << 15)
    for _ in range(3):
        sizes.learn(seconds)
    first = dict[Reach, int]()
    while len(first) < 2:
        reach, elements = sizes.next()
        first.setdefault(reach, elements)
    assert first == {Reach.STRETCHED: 1 << stretched, Reach.MODEL: 1 << model}


def test_a_case_may_take_a_tenth_of_the_time_so_far() -> None:
    def next_of_model(spent: float) -> int:
        sizes = SizeBudget(1 << 15)
        for seconds in (1.5, *(0.1,) * 20):
            sizes.learn(seconds, Reach.MODEL)
        sizes.learn(spent)
        sizes.learn(spent / 2, Reach.STRETCHED)
        reach, elements = sizes.next()
        assert reach is Reach.MODEL
        return elements

    assert (next_of_model(30.0), next_of_model(50.0)) == (1 << 18, 1 << 20)


def test_a_reach_is_limited_by_what_is_asked_for() -> None:
    sizes = SizeBudget(1 << 15, 1 << 12)
    assert {reach: far.next() for reach, far in sizes._far.items()} == {Reach.STRETCHED: 1 << 12, Reach.MODEL: 1 << 12}
    for far in sizes._far.values():
        far.learn(100.0)
    assert [far.next() for far in sizes._far.values()] == [1 << 11, 1 << 12], "and by the least"


def test_what_a_case_takes_counts_for_its_reach() -> None:
    sizes = SizeBudget(1 << 15)
    sizes.learn(3.0)
    sizes.learn(5.0, Reach.MODEL)
    sizes.learn(7.0, Reach.STRETCHED, running=6.5, compiled=True)
    assert sizes._spent == {Reach.USUAL: 3.0, Reach.STRETCHED: 7.0, Reach.MODEL: 5.0}
    assert (sizes._usual.mean, sizes._far[Reach.MODEL].mean, sizes._far[Reach.STRETCHED].mean) == (3.0, 5.0, 0.5)
    sizes.learn(2.0, Reach.MODEL, running=1.0)
    assert sizes._far[Reach.MODEL].mean == pytest.approx(0.9 * 5.0 + 0.1 * 2.0), "all of it, where nothing was compiled"
    sizes.learn(2.0, Reach.MODEL, compiled=True)
    assert sizes._far[Reach.MODEL].mean == pytest.approx(0.9 * 4.7 + 0.1 * 2.0)


def test_rounds_that_go_on_are_on_their_way_again() -> None:
    sizes = SizeBudget(1 << 15)
    for _ in range(2):
        sizes.goes_on(Reach.MODEL)
    assert sizes._claimed(Reach.MODEL) == 2 * 5 * 1.0
    sizes.learn(0.1, Reach.MODEL)
    assert sizes._claimed(Reach.MODEL) == pytest.approx(0.1 + 2 * 5 * 0.1)
    for _ in range(3):
        sizes.ended(Reach.MODEL)
    assert sizes._claimed(Reach.MODEL) == 0.1
    assert sizes._running[Reach.MODEL] == 0


def test_a_worker_without_any_memory_to_spare_has_room_for_small_cases() -> None:
    assert [room(memory) for memory in (0.0, OWN - 1, OWN, OWN + PER_ELEMENT * (1 << 14))] == [1 << 14] * 4
    assert room(OWN + PER_ELEMENT * ((1 << 14) + 1)) == (1 << 14) + 1
    assert room(float("inf")) == (1 << 60) // PER_ELEMENT
