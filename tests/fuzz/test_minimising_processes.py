"""Minimising, by its processes: how long each may take, how it is started, and that none is left running."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from mhc import Case, default_case, load, operator
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Reduction
from mhc.fuzz.minimise import minimise as minimise_
from mhc.fuzz.minimise.minimise import confirm, minimise, run_minimise
from mhc.fuzz.minimise.sandbox import Process
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Fault, Minimise, Minimised
from mhc.operator import register
from mhc.oracles import liveness
from mhc.oracles.verdict import Verdict, failed, passed
from tests.fuzz.test_minimise import AFTER, DEAD, FINE, GATE, HUNG, WRONG, Answer, Stub, found
from tests.fuzz.test_search import BIG

SMALL = default_case(B=1, S=2, n=1, D=2, dtype="float16")


class Watched:
    """Starts stubs, and remembers them, their limits and the cases that each was given."""

    def __init__(self, answer: Callable[[Case, Level, int], Verdict]) -> None:
        self.answer, self.made = answer, list[Stub]()
        self.limits = list[float]()
        self.cases = list[list[Case]]()

    def __call__(self, limit: float) -> Process:
        nth = len(self.made)
        self.cases.append([])

        def answer(case: Case, depth: Level) -> Verdict:
            self.cases[nth].append(case)
            return self.answer(case, depth, nth)

        self.made.append(Stub(answer, self.limits, limit))
        return self.made[-1]

    @property
    def left(self) -> int:
        """The processes that were not ended."""
        return sum(not one.retired for one in self.made)


def either(case: Case, depth: Level, nth: int) -> Verdict:
    return WRONG if case.sizes["D"] >= 5 else FINE


ANSWERS: dict[str, tuple[Verdict, Answer]] = {
    "wrong": (WRONG, lambda case, depth: WRONG if case.sizes["D"] >= 5 else FINE),
    "dead": (DEAD, lambda case, depth: DEAD if case.sizes["D"] >= 5 else FINE),
    "hung": (HUNG, lambda case, depth: HUNG if case.sizes["D"] >= 5 else FINE),
    "further runs": (GATE, lambda case, depth: GATE if depth is Level.FULL else FINE),
    "after others": (WRONG, lambda case, depth: AFTER if depth is Level.FULL else FINE),
    "never": (WRONG, lambda case, depth: FINE),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_process_is_ended(name: str) -> None:
    verdict, answer = ANSWERS[name]
    start = Watched(lambda case, depth, nth: answer(case, depth))
    minimise(found(verdict), "cpu", start=start, checks=20)
    assert start.made
    assert start.left == 0


def test_every_process_is_ended_where_the_harness_fails() -> None:
    def faulty(case: Case, depth: Level, nth: int) -> Verdict:
        raise HarnessError("out of paper")

    works: list[Callable[[Watched], object]] = [
        lambda start: minimise(found(WRONG), "cpu", start=start),
        lambda start: confirm(found(WRONG), start),
    ]
    for work in works:
        start = Watched(faulty)
        with pytest.raises(HarnessError):
            work(start)
        assert start.made
        assert start.left == 0


def test_a_hang_is_waited_for_three_times_the_least_in_each_process() -> None:
    """Also where it is not seen again: in the smaller case, in the one that was found, and after others."""
    start = Watched(lambda case, depth, nth: HUNG if nth < 6 and case.sizes["D"] >= 5 else FINE)
    result = minimise(found(HUNG), "cpu", start=start, least=9.0, checks=4)
    assert result.reduction is not None
    assert (result.reduction.reproduced, result.case) == (0, BIG)
    assert start.limits[0] == 27.0
    assert set(start.limits[1:-7]) == {9.0}, "as long as a healthy case takes, but the least"
    smaller, as_found, after_others = start.limits[-7:-4], start.limits[-4:-1], start.limits[-1:]
    assert smaller == as_found == [27.0, 9.0, 9.0]
    assert after_others == [27.0]


def test_a_new_process_has_time_to_compile_whatever_the_one_before_it_took() -> None:
    for least in (2.0, 20.0):
        start = Watched(lambda case, depth, nth: FINE)
        confirm(found(WRONG), start, least=least)
        assert start.limits == [60.0, least, least]


def test_the_healthy_case_of_a_hang_is_in_its_dtype_and_in_a_process_of_its_own() -> None:
    """A dtype that the implementation refuses would be no measure of how long a case takes."""
    start = Watched(lambda case, depth, nth: HUNG if case == SMALL else FINE)
    minimise(found(HUNG, SMALL), "cpu", start=start, checks=1)
    assert start.cases[0] == [default_case(dtype="float16")]


@operator(x="[D, L] float32", L="D-5", D=(1, 64))
def shorter(x: Tensor) -> Tensor:
    return x * 2


def test_a_hang_is_minimised_where_no_case_of_the_smallest_sizes_exists() -> None:
    register(shorter)
    case = default_case(operator="shorter", D=9, dtype="float32")
    start = Watched(lambda case, depth, nth: HUNG)
    small = minimise(found(HUNG, case), "cpu", start=start, checks=20).case
    assert isinstance(small, Case)
    assert small.sizes["D"] == 5


def test_a_minimal_case_comes_with_its_own_message() -> None:
    """Of the search: in no fresh process is it seen again."""

    def answer(case: Case, depth: Level, nth: int) -> Verdict:
        return failed("bound", "h_in", "value", f"D = {case.sizes['D']}") if nth == 0 and case.sizes["D"] >= 5 else FINE

    confirmed = list[str]()

    def fresh(found: Any, *_: Any, **__: Any) -> Any:
        confirmed.append(found.message)
        return confirm(found, lambda limit: Stub(lambda case, depth: FINE, [], limit))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minimise_, "confirm", fresh)
        minimise(found(WRONG), "cpu", start=Watched(answer))
    assert confirmed == ["D = 5", "as found"]


def test_a_flaky_finding_that_is_seen_no_more_is_confirmed_ten_times_as_it_was_found() -> None:
    asked = list[int]()

    def answer(case: Case, depth: Level, nth: int) -> Verdict:
        asked.append(nth)
        return WRONG if nth == 0 and len(asked) % 3 and case.sizes["D"] >= 5 else FINE

    start = Watched(answer)
    result = minimise(found(WRONG), "cpu", start=start)
    assert result.reduction is not None
    assert (result.reduction.reproduced, result.reduction.runs, result.case) == (0, 10, BIG)
    assert len(start.made) == 1 + 10 + 10 + 1, "ten for the smaller case, ten for the one found, one after others"


def test_the_gates_that_found_it_judge_the_confirmed_case_too() -> None:
    depths = list[tuple[int, Level]]()

    def answer(case: Case, depth: Level, nth: int) -> Verdict:
        depths.append((nth, depth))
        return GATE if depth is Level.FULL and nth == 0 and case.sizes["D"] >= 5 else FINE

    minimise(found(GATE), "cpu", start=Watched(answer))
    assert {depth for nth, depth in depths if nth} == {Level.FULL}
    depths.clear()
    plain = Watched(lambda case, depth, nth: depths.append((nth, depth)) or either(case, depth, nth))  # type: ignore[func-returns-value]
    minimise(found(WRONG), "cpu", start=plain)
    assert {depth for _, depth in depths[:-1]} == {Level.PLAIN}


def test_only_the_sequence_gate_says_what_is_wrong_after_others() -> None:
    for verdict, wanted in ((AFTER, True), (GATE, False), (passed("sequence", "case"), False)):
        start = Watched(lambda case, depth, nth, said=verdict: said if depth is Level.FULL else FINE)  # type: ignore[misc]
        result = minimise(found(WRONG), "cpu", start=start)
        assert (result.fingerprint == found(AFTER).fingerprint) is wanted


def test_the_case_found_is_confirmed_by_the_gates_that_found_it() -> None:
    """The smaller case is not seen in a fresh process, and the one found is, without further runs."""
    depths = list[Level]()

    def answer(case: Case, depth: Level, nth: int) -> Verdict:
        if nth and case == BIG:
            depths.append(depth)
        return WRONG if case == BIG or (nth == 0 and case.sizes["D"] >= 5) else FINE

    result = minimise(found(WRONG), "cpu", start=Watched(answer))
    assert result.reduction is not None
    assert (result.reduction.stable, result.case) == (True, BIG)
    assert depths == [Level.PLAIN] * 3 + [Level.MEMORY]


def test_a_smaller_case_that_is_seen_once_in_fresh_processes_is_kept() -> None:
    start = Watched(lambda case, depth, nth: WRONG if nth in (0, 1) and case.sizes["D"] >= 5 else FINE)
    result = minimise(found(WRONG), "cpu", start=start)
    assert result.reduction is not None
    assert (result.reduction.reproduced, result.reduction.runs) == (1, 10)
    assert result.case != BIG


# ---- of a campaign


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How the processes are asked for, which then are stubs."""
    told: dict[str, Any] = {}

    def processes(*arguments: Any, **keywords: Any) -> Watched:
        told.update(keywords, arguments=arguments)
        told["start"] = Watched(told.get("answer", either))
        started: Watched = told["start"]
        return started

    monkeypatch.setattr(minimise_, "processes", processes)
    return told


def test_a_campaign_minimises_within_its_limits(asked: dict[str, Any]) -> None:
    limits, heard = Limits(), list[None]()
    manual, log = load("manual"), Path("minimise.log")

    def waiting() -> None:
        heard.append(None)

    def minimised(checks: int, seconds: float) -> Minimised:
        answer = run_minimise(
            Minimise(finding=found(WRONG), checks=checks, seconds=seconds),
            lambda: manual,
            "cuda",
            limits,
            log=log,
            gpu=3,
            waiting=waiting,
        )
        assert isinstance(answer, Minimised)
        return answer

    few = minimised(2, 60.0).finding.reduction
    assert few is not None
    assert few.checks == 3 + 2 + 3
    assert asked["arguments"] == ("mine.py:IMPL", manual, "cuda", None)
    assert (asked["limits"], asked["log"], asked["gpu"], asked["waiting"]) == (limits, log, 3, waiting)
    none = minimised(400, 0.0).finding
    assert none.reduction is not None
    assert (none.reduction.checks, none.case) == (3 + 3, BIG), "no time for a search"
    assert minimised(400, 60.0).finding.case != BIG


def test_what_a_worker_has_minimised_is_only_confirmed_unless_it_does_not_fail_again(asked: dict[str, Any]) -> None:
    manual = load("manual")
    small = Reduction(elements_before=77, elements=9, checks=40, seconds=5.0, reproduced=0, runs=0)
    request = Minimise(finding=replace(found(WRONG), reduction=small), checks=400, seconds=60.0)
    answer = run_minimise(request, lambda: manual, "cpu", Limits(), log=None)
    assert isinstance(answer, Minimised)
    again = answer.finding.reduction
    assert again is not None
    assert (answer.finding.case, again.checks, again.elements_before) == (BIG, 40 + 3, 77)
    assert (again.reproduced, again.runs, len(asked["start"].made)) == (3, 3, 3)
    assert again.seconds >= 5.0
    asked["answer"] = lambda case, depth, nth: FINE if nth < 3 else either(case, depth, nth)
    answer = run_minimise(request, lambda: manual, "cpu", Limits(), log=None)
    assert isinstance(answer, Minimised)
    assert answer.finding.case != BIG


def test_what_turns_out_to_be_another_finding_is_told(asked: dict[str, Any]) -> None:
    asked["answer"] = lambda case, depth, nth: AFTER if depth is Level.FULL else FINE
    request = Minimise(finding=found(WRONG), checks=40, seconds=60.0)
    answer = run_minimise(request, lambda: load("manual"), "cpu", Limits(), log=None)
    assert isinstance(answer, Minimised)
    assert answer.finding.fingerprint == found(AFTER).fingerprint
    assert asked["start"].left == 0


def test_a_campaign_waits_for_what_compiles_as_long_as_it_may_take(asked: dict[str, Any]) -> None:
    asked["answer"] = lambda case, depth, nth: HUNG if case == SMALL else FINE
    manual = load("manual")
    for implementation, least in ((manual, 2.0), (replace(manual, compiles=lambda: 0), 20.0)):
        request = Minimise(finding=found(HUNG, SMALL), checks=1, seconds=9.0)
        answer = run_minimise(request, lambda made=implementation: made, "cpu", Limits(), log=None)  # type: ignore[misc]
        assert isinstance(answer, Minimised)
        assert asked["start"].limits[0] == max(10.0, 3 * least)
        assert asked["start"].limits[1] == least


def test_what_cannot_be_minimised_is_told_as_a_fault(asked: dict[str, Any]) -> None:
    def gone() -> Any:
        raise SystemExit(3)

    request = Minimise(finding=found(WRONG), checks=1, seconds=1.0)
    answer = run_minimise(request, gone, "cpu", Limits(), log=None)
    assert isinstance(answer, Fault)
    assert answer.message.startswith("SystemExit")
    assert not asked


def test_a_confirmation_says_how_long_it_took() -> None:
    def slow(case: Case, depth: Level, nth: int) -> Verdict:
        time.sleep(0.01)
        return liveness.died("SIGSEGV")

    told = confirm(found(DEAD), Watched(slow)).reduction
    assert told is not None
    assert 0.03 <= told.seconds < 5
