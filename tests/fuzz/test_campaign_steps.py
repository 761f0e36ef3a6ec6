"""A campaign's main process over processes that are made up: what it hands out, counts, and makes of their ends."""

import functools
from pathlib import Path
from typing import Any

import pytest

from mhc.fuzz.campaign import backoff
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.compile_budget import OPENING
from mhc.fuzz.campaign.harness_faults import FaultRecord, read_faults
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store_validation import check as check_store
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.worker.process import HarnessError, WorkerLost
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Fault, Message, Minimise, Ready, Round
from mhc.oracles import liveness
from mhc.oracles.gates import RARE, SMALL
from mhc.strategies.reach import Reach
from tests.support.fake_executor import CASE, MINE, WRONG, FakeExecutor, FakeProcess, campaign, healthy


def test_the_first_usual_rounds_ask_every_rare_gate_once(tmp_path: Path) -> None:
    place = FakeExecutor(lambda request: healthy(request, regions=frozenset({"a"}), seconds={"checking": 0.01}))
    assert campaign(place, tmp_path, Budget(cases=200), seed=7, max_elements=1 << 13).run() == "budget spent"
    asked = [one.rare_gate + at for one in place.asked if one.rare_gate >= 0 for at in range(max(0, one.count - SMALL))]
    assert asked[: len(RARE)] == [*range(len(RARE))]
    assert sum(one.rare_gate >= 0 for one in place.asked) == 3


def test_cases_are_handed_out_in_rounds_until_the_budget_is_spent(tmp_path: Path) -> None:
    place = FakeExecutor(lambda request: healthy(request, regions=frozenset({"a"}), seconds={"checking": 0.5}))
    ran = campaign(place, tmp_path, Budget(cases=25), seed=7, max_elements=1 << 13)
    assert ran.run() == "budget spent"
    # behind the opening, each far reach is behind its share of the time: a round of five cases
    assert [(one.seed, one.count, one.skip, one.rare, one.reach) for one in place.asked] == [
        (7, 10, 0, None, Reach.USUAL),
        (8, 5, 0, None, Reach.STRETCHED),
        (9, 5, 0, None, Reach.MODEL),
        (10, 5, 0, None, Reach.USUAL),
    ]
    assert [one.like for one in place.asked] == [OPENING.json, None, None, None]
    assert [one.max_elements for one in place.asked] == [1 << 13, 1 << 13, 1 << 16, 1 << 11]
    assert [one.rare_gate for one in place.asked] == [0, -1, -1, 7]
    assert (ran.cases, ran.found) == (25, 0)
    assert ran.store.counts()["mine"]["checked"] == 25
    assert ran.store.counts()["mine"]["drawing"] == 2.0
    assert ran.store.counts()["mine"]["starting"] >= 0
    assert dict(ran.store.meta()["seeds"]) == {"mine": 11}
    assert [tuple(row) for row in ran.store.table("regions")] == [("mine", "a", 25)]
    assert ran.store.in_hand() == []
    assert len(place.made) == 1, "a healthy process goes on"
    assert place.made[0].killed, "and is ended with the campaign"
    more = FakeExecutor(healthy)
    again = Campaign(
        [Subject(spec="mine.py:IMPL", implementation=MINE)],
        ran.store,
        Pool({"mine": ("mine.py:IMPL", MINE)}, more),
        Budget(cases=33),
        seed=7,
    )
    assert again.cases == 25
    assert again.run() == "budget spent"
    assert [(one.seed, one.count, one.like) for one in more.asked] == [(11, 8, None)], "no opening, other seeds"


def test_every_fourth_round_looks_for_rare_regions(tmp_path: Path) -> None:
    counts = {"often": 4, "seldom": 3}
    told = {"rounds": 0}

    def answer(request: Round) -> list[Message]:
        told["rounds"] += 1
        if told["rounds"] > 1:
            return [Begun(case=CASE.json, number=0), Checked(case=CASE.json), Done()]
        messages: list[Message] = []
        for label, many in counts.items():
            for number in range(many):
                messages += [Begun(case=CASE.json, number=number), Checked(case=CASE.json, regions=frozenset({label}))]
        return [*messages, Done()]

    place = FakeExecutor(answer)
    ran = campaign(place, tmp_path, Budget(), on_tick=lambda one: one.stop("enough") if len(place.asked) >= 9 else None)
    assert ran.run() == "enough"
    assert [at for at, one in enumerate(place.asked, 1) if one.rare is not None] == [4, 8]
    assert place.asked[3].rare == frozenset({"seldom"})
    assert [(place.asked[at].count, place.asked[at].skip) for at in (2, 3)] == [(12, 2), (50, 0)]
    few = FakeExecutor(healthy)
    (tmp_path / "few").mkdir()
    campaign(few, tmp_path / "few", Budget(cases=60)).run()
    assert {one.rare for one in few.asked} == {None}, "counted cases are not spent on guided rounds"


def test_the_case_in_hand_is_to_blame_for_an_end_and_the_round_goes_on_behind_it(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip:
            return healthy(request)
        return [
            *(Ready(), Begun(case=CASE.json, number=0), Checked(case=CASE.json), Begun(case=CASE.json, number=1)),
            liveness.died("SIGSEGV"),
        ]

    place, told = FakeExecutor(answer), list[Finding]()
    ran = campaign(place, tmp_path, Budget(cases=10), on_finding=told.append)
    ran.run()
    assert [(one.seed, one.count, one.skip) for one in place.asked] == [(0, 10, 0), (0, 10, 2)]
    (found,) = told
    assert (found.fingerprint.symptom, found.case) == ("SIGSEGV", CASE)
    assert (found.spec, found.fingerprint.implementation) == ("mine.py:IMPL", "mine")
    assert (ran.cases, ran.found) == (10, 1)
    assert [one.killed for one in place.made] == [True, True]
    assert ran.store.counts()["mine"]["checked"] == 10
    assert ran.store.counts()["mine"]["failing"] == 1
    assert ("mine", "SIGSEGV", 1) in [tuple(row) for row in ran.store.table("restarts")]


def test_what_was_begun_together_with_the_case_that_ends_the_process_is_begun_again(tmp_path: Path) -> None:
    """As programs are, which are all lowered before the first of them runs."""
    two, one = frozenset({0, 1}), frozenset({0})

    def answer(request: Round) -> list[Any]:
        numbers = sorted({*request.again, *range(request.skip, request.count)})
        begun = [Begun(case=CASE.json, number=number) for number in numbers]
        if request.skip == 0:
            return [Ready(), *begun[:3], liveness.died("SIGFPE")]  # in lowering the third
        if request.again == two:
            told = [Begun(case=CASE.json, number=0), liveness.died("SIGFPE")]
            return [Ready(), *begun, Begun(case=CASE.json, number=1), Checked(case=CASE.json), *told]  # the first runs
        return [Ready(), *begun, *(message for one in begun for message in (one, Checked(case=CASE.json))), Done()]

    place = FakeExecutor(answer)
    ran = campaign(place, tmp_path, Budget(cases=5))
    ran.run()
    rest = frozenset({3, 4})
    assert [(one.skip, one.again) for one in place.asked] == [(0, frozenset()), (3, two), (5, rest)]
    assert (ran.cases, ran.store.counts()["mine"]["checked"], len(ran.faults)) == (5, 5, 0)
    place = FakeExecutor(lambda request: [Ready(), liveness.died("SIGFPE")] if len(place.asked) < 3 else healthy(request))
    ran = campaign(place, tmp_path, Budget(cases=9))
    ran._planner._waiting["mine"].append(Round(seed=3, count=5, skip=5, again=one))
    ran._hand_out()
    assert ran._planner.left("mine") == 3, "the one that is begun again is under way"
    ran.pool.stop()


def test_a_failing_case_does_not_end_its_round(tmp_path: Path) -> None:
    place = FakeExecutor(functools.partial(healthy, findings=(WRONG,)))
    told: list[Finding] = []
    ran = campaign(place, tmp_path, Budget(cases=5), on_finding=told.append)
    ran.run()
    assert [(one.count, one.skip) for one in place.asked] == [(5, 0)]
    assert (ran.cases, ran.found, told) == (5, 1, [WRONG])
    assert len(place.made) == 1
    assert ran.store.counts()["mine"]["failing"] == 5
    (row,) = ran.store.findings().values()
    assert (row["state"], row["seen"]) == ("raw", 5)
    assert place.requests == [], "minimising was not asked for"


def test_what_was_in_hand_is_dropped_at_once(tmp_path: Path) -> None:
    for end in ("_record_crash", "_record_lost", "_record_fault"):
        (tmp_path / end).mkdir()
        ran = campaign(FakeExecutor(lambda request: []), tmp_path / end, Budget(cases=5))
        ran._hand_out()
        (slot,) = ran.pool.busy()
        ran._results._take(slot, Begun(case=CASE.json, number=0))
        assert [number for number, *_ in ran.store.in_hand()] == [0]
        if end == "_record_crash":
            for _ in range(backoff.MOST - 1):
                ran._results._backoff.met("mine")
            ran._results._record_crash(slot, liveness.died("SIGSEGV"))
            assert not ran._results._backoff.met("mine"), "a case that ends its process is judged"
        elif end == "_record_fault":
            ran._results._record_fault(slot, Fault(message="out of paper"))
        else:
            ran._results._record_lost(slot, WorkerLost("gone"))
        assert ran.store.in_hand() == []
        assert ran.pool.busy() == []


def test_a_fault_behind_a_result_that_was_taken_in_is_told_and_costs_no_worker(tmp_path: Path) -> None:
    heard: list[FaultRecord] = []
    ran = campaign(FakeExecutor(lambda request: []), tmp_path, Budget(cases=5), on_fault=heard.append)
    ran._hand_out()
    (slot,) = ran.pool.busy()
    ran._results._take(slot, Begun(case=CASE.json, number=0))
    ran.pool.release(slot)
    slot.case = CASE.json

    def fails() -> list[Message]:
        raise OSError(28, "No space left on device")

    process: Any = slot.process
    process.receive = fails
    ran._results.take_in(slot)
    (fault,) = heard
    assert (fault.implementation, fault.case) == ("mine", CASE.json)
    assert fault.message == "OSError: [Errno 28] No space left on device"
    assert not process.killed


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No implementation rests."""
    monkeypatch.setattr(backoff, "_REST", 0.0)
    monkeypatch.setattr(backoff, "_NO_WORKER_REST", 0.0)


@pytest.mark.parametrize(
    "trouble", [(liveness.died("exit 1"),), (Fault(message="out of paper"),), (Done(),)], ids=["ends", "faults", "empty"]
)
@pytest.mark.usefixtures("impatient")
def test_trouble_without_a_case_gives_an_implementation_up_in_the_end(tmp_path: Path, trouble: tuple[Any, ...]) -> None:
    rounds = {"count": 0}

    def answer(request: Round) -> list[Any]:
        rounds["count"] += 1
        return [Ready(), *trouble]

    heard: list[FaultRecord] = []
    ran = campaign(FakeExecutor(answer), tmp_path, Budget(cases=5), on_fault=heard.append)
    assert ran.run() == "budget spent"
    assert rounds["count"] == 5
    assert heard[-1].message.startswith("given up: 5 times in a row no case could be judged; the last time: ")
    assert (ran.cases, ran.found) == (0, 0)

    def better(request: Round) -> list[Any]:
        rounds["count"] += 1
        # four troubles, a case, four troubles, a case, ...
        return [Ready(), *trouble] if rounds["count"] % 5 else healthy(request)

    rounds["count"] = 0
    (tmp_path / "better").mkdir()
    ran = campaign(FakeExecutor(better), tmp_path / "better", Budget(cases=30))
    assert ran.run() == "budget spent"
    assert (ran.cases, ran.found) == (30, 0)


@pytest.mark.usefixtures("impatient")
def test_a_round_whose_programs_are_all_left_out_is_no_trouble(tmp_path: Path) -> None:
    rounds = {"count": 0}

    def answer(request: Round) -> list[Any]:
        rounds["count"] += 1
        return [Ready(), Done(left_out=1)] if rounds["count"] <= 6 else healthy(request)

    heard: list[FaultRecord] = []
    ran = campaign(FakeExecutor(answer), tmp_path, Budget(cases=1), on_fault=heard.append)
    assert ran.run() == "budget spent"
    assert (ran.cases, heard) == (1, [])


@pytest.mark.usefixtures("impatient")
def test_a_fault_on_a_case_is_recorded_with_it_and_the_round_goes_on_behind_it(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip:
            return healthy(request)
        begun = [Begun(case=CASE.json, number=0), Checked(case=CASE.json), Begun(case=CASE.json, number=1)]
        return [Ready(), *begun, Fault(message="out of paper", trace="line 7")]

    place, heard = FakeExecutor(answer), list[FaultRecord]()
    ran = campaign(place, tmp_path, Budget(cases=20), on_fault=heard.append)
    assert ran.run() == "budget spent"
    assert [(one.seed, one.skip) for one in place.asked] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert (ran.cases, ran.found) == (20, 0)
    (fault,) = heard
    assert (fault.implementation, fault.message, fault.trace) == ("mine", "out of paper", "line 7")
    assert fault.case == CASE.json
    assert [one.seen for one in read_faults(ran.store.meta())] == [2]
    assert ran.store.counts()["mine"]["faulted"] == 2
    assert [tuple(row) for row in ran.store.table("restarts")] == [("mine", "fault of the harness", 2)]
    assert ran.store.in_hand() == []
    assert [one.killed for one in place.made] == [True, True, True]


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    place = FakeExecutor(healthy)
    start, tries = place.start, {"count": 0}

    def scarce(slot: int, name: str) -> FakeProcess:
        tries["count"] += 1
        if tries["count"] < 3:
            raise OSError(24, "Too many open files")
        return start(slot, name)

    place.start = scarce  # type: ignore[method-assign]
    ran = campaign(place, tmp_path, Budget(cases=10))
    assert ran.run() == "budget spent"
    assert (ran.cases, tries["count"], len(ran.faults)) == (10, 3, 1)
    assert [one.seed for one in place.asked] == [0], "no round is lost"


@pytest.mark.usefixtures("impatient")
def test_without_any_worker_for_long_the_campaign_is_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_NO_WORKER", 0.1)
    place = FakeExecutor(healthy)

    def none(slot: int, name: str) -> FakeProcess:
        raise OSError(24, "Too many open files")

    place.start = none  # type: ignore[method-assign]
    with pytest.raises(HarnessError, match=r"no worker could be started for .* Too many open files"):
        campaign(place, tmp_path, Budget()).run()


def test_showing_and_saving_findings_may_fail(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        return healthy(request, findings=(WRONG,))

    def fails(what: Any) -> None:
        raise OSError(28, f"No space left on device for {type(what).__name__}")

    ran = campaign(FakeExecutor(answer), tmp_path, Budget(cases=10), on_finding=fails, on_tick=fails)
    assert ran.run() == "budget spent"
    assert ran.found == 1
    told = {one.message: one for one in read_faults(ran.store.meta())}
    assert set(told) == {f"OSError: [Errno 28] No space left on device for {what}" for what in ("Finding", "Campaign")}
    assert [one.case for one in told.values() if "Finding" in one.message] == [CASE.json]


def test_a_message_that_cannot_be_dealt_with_costs_its_worker_and_nothing_else(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        twice = Checked(case=CASE.json), Checked(case=CASE.json)
        return healthy(request) if request.skip else [Ready(), Begun(case=CASE.json, number=0), *twice]

    place = FakeExecutor(answer)
    ran = campaign(place, tmp_path, Budget(cases=5))
    assert ran.run() == "budget spent"
    assert (ran.cases, len(ran.faults)) == (5, 1)
    assert place.made[0].killed


def test_an_end_after_a_case_is_blamed_on_that_case_and_not_told_twice(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip:
            return healthy(request)
        return [Ready(), Begun(case=CASE.json, number=0), Checked(case=CASE.json), liveness.died("exit 9")]

    told: list[Finding] = []
    ran = campaign(FakeExecutor(answer), tmp_path, Budget(cases=5), on_finding=told.append)
    ran.run()
    (found,) = told
    assert (found.fingerprint.symptom, found.case) == ("exit 9, late", CASE)
    assert ran.store.counts()["mine"]["checked"] == 5
    assert len(ran.faults) == 0


def test_what_is_in_hand_at_the_end_is_named_with_its_time(tmp_path: Path) -> None:
    place = FakeExecutor(lambda request: [Ready(), Begun(case=CASE.json, number=0)])
    ran = campaign(place, tmp_path, Budget(), on_tick=lambda one: one.stop("enough"))
    ran.run()
    (left,) = ran.store.meta()["unfinished"]
    assert (left["implementation"], left["case"], left["doing"]) == ("mine", CASE.json, "running")
    assert left["seconds"] > 1


def test_a_machine_that_is_gone_blames_no_case(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip:
            return healthy(request)
        return [
            Begun(case=CASE.json, number=0),
            Checked(case=CASE.json),
            Begun(case=CASE.json, number=1),
            WorkerLost("gone"),
        ]

    place = FakeExecutor(answer)
    ran = campaign(place, tmp_path, Budget(cases=6))
    ran.run()
    assert [(one.count, one.skip) for one in place.asked[:2]] == [(6, 0), (6, 2)]
    assert ran.found == 0
    assert ran.cases == 6, "the case in hand was not judged: another is drawn"
    assert ("mine", "node lost", 2) in [tuple(row) for row in ran.store.table("restarts")]
    assert ran.store.in_hand() == []


@pytest.mark.usefixtures("impatient")
def test_who_kills_the_server_of_processes_is_given_up(tmp_path: Path) -> None:
    gone = WorkerLost("the server has ended", server=True)
    place = FakeExecutor(lambda request: [Ready(), Begun(case=CASE.json, number=0), gone])
    ran = campaign(place, tmp_path, Budget())
    assert ran.run() == "budget spent"
    fault, given_up = read_faults(ran.store.meta())
    assert (fault.implementation, fault.case, fault.seen) == ("mine", CASE.json, backoff.MOST)
    assert fault.message == "the server has ended; a case that ran may have killed it"
    assert given_up.message == f"given up: 5 times in a row no case could be judged; the last time: {fault.message}"
    assert ran.found == 0, "nobody knows which case did it"


@pytest.mark.usefixtures("impatient")
def test_a_lost_server_counts_against_nobody_without_a_case_nor_at_the_end(tmp_path: Path) -> None:
    answers: list[list[Any]] = [[Ready(), WorkerLost("gone", server=True)] for _ in range(backoff.MOST + 1)]
    place = FakeExecutor(lambda request: answers.pop() if answers else healthy(request))
    ran = campaign(place, tmp_path, Budget(cases=5))
    ran.run()
    assert ran.cases == 5
    assert [(one.case, one.seen) for one in read_faults(ran.store.meta())] == [(None, backoff.MOST + 1)]
    (tmp_path / "stopped").mkdir()
    place = FakeExecutor(lambda request: [Ready(), Begun(case=CASE.json, number=0), WorkerLost("gone", server=True)])
    ran = campaign(place, tmp_path / "stopped", Budget())
    ran._hand_out()
    ran.stop("SIGTERM")  # which has ended the server too
    ran._results.take_in(*ran.pool.busy())
    assert read_faults(ran.store.meta()) == []


def test_what_is_left_of_a_guided_round_or_of_none_is_not_handed_out(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.seed != 3:
            return [Done()]
        return [Begun(case=CASE.json, number=0), liveness.died("SIGKILL")]

    place = FakeExecutor(answer)
    campaign(place, tmp_path, Budget(), on_tick=lambda one: one.stop("enough") if len(place.asked) >= 6 else None).run()
    assert [one.seed for one in place.asked] == [0, 1, 2, 3, 4, 5]
    assert place.asked[3].rare is not None

    def last(request: Round) -> list[Any]:
        return [*healthy(request)[:-2], liveness.died("SIGKILL")]

    (tmp_path / "last").mkdir()
    place = FakeExecutor(last)
    ran = campaign(place, tmp_path / "last", Budget(cases=10))
    ran.run()
    assert [(one.count, one.skip) for one in place.asked] == [(10, 0)]
    assert (ran.cases, ran.found) == (10, 1)


def test_a_lost_device_takes_its_process_along(tmp_path: Path) -> None:
    place = FakeExecutor(lambda request: [*healthy(request)[:-1], Done(lost=True)])
    ran = campaign(place, tmp_path, Budget(cases=20))
    ran.run()
    assert len(place.made) == 2
    assert all(one.killed for one in place.made)
    assert ("mine", "device lost", 2) in [tuple(row) for row in ran.store.table("restarts")]


def test_cases_on_their_way_count(tmp_path: Path) -> None:
    place = FakeExecutor(lambda request: [], slots=3)
    ran = campaign(place, tmp_path, Budget(cases=25))
    ran._hand_out()
    assert [one.count - one.skip for one in place.asked] == [10, 10, 5]
    assert ran._planner.left("mine") == 0
    assert ran._open() == []
    first = ran.pool.busy()[0]
    first.begun, first.case, first.open = 4, CASE.json, {3}
    assert ran._planner.left("mine") == 25 - (10 - 4 + 1) - 15
    first.request = Minimise(finding=WRONG, checks=1, seconds=1.0)
    assert ran._planner.left("mine") == 25 - 15, "minimising has no cases on their way"
    assert ran._open() == ["mine"]


def test_what_compiled_teaches_nothing_about_sizes(tmp_path: Path) -> None:
    for compiled, wanted in ((0, 1 << 10), (1, 1 << 11)):
        place = FakeExecutor(functools.partial(healthy, compiled=compiled, seconds={"checking": 4.0}))
        (tmp_path / str(compiled)).mkdir()
        campaign(place, tmp_path / str(compiled), Budget(cases=30)).run()
        (usual,) = {one.max_elements for one in place.asked[1:] if one.reach is Reach.USUAL}
        assert usual == wanted


def test_what_the_store_does_not_take_ends_nothing(tmp_path: Path) -> None:
    """A kernel's numbers and words come from outside, whatever they were checked for."""

    def answer(request: Round) -> list[Any]:
        spoilt = () if request.seed or request.skip else (Checked(case=CASE.json, compared=("\udce9",)),)
        begun = Begun(case=CASE.json, number=0)
        return [Ready(), begun, *spoilt, Done()] if spoilt else healthy(request)

    ran = campaign(FakeExecutor(answer), tmp_path, Budget(cases=10))
    assert ran.run() == "budget spent"
    assert [one.message.partition(":")[0] for one in read_faults(ran.store.meta())] == ["UnicodeEncodeError"]
    assert ran.store.counts()["mine"]["checked"] > 5


def test_errors_of_any_size_are_kept_and_can_be_read_again(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        ratios = {"h_pre": 1.73e45, "h_in": float("inf"), "dx": float("nan")}
        checked = Checked(case=CASE.json, ratios=ratios, seconds={"running": -5.0}, compiled=-24)
        return [Ready(), Begun(case=CASE.json, number=0), checked, Done()]

    ran = campaign(FakeExecutor(answer), tmp_path, Budget(cases=1))
    ran.run()
    check_store(ran.store)
    assert {subject: ratio for _, subject, ratio, _ in ran.store.table("worst")} == {"h_pre": 1.73e45, "h_in": float("inf")}
