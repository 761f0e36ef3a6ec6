"""A campaign's main process over processes that are made up: what it hands out, counts, and makes of their ends."""

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mhc.fuzz.campaign.background_minimiser import Minimise, Reducer

from mhc import Case, default_case, load
from mhc.fuzz.campaign import backoff
from mhc.fuzz.campaign.campaign import Budget, Campaign, Subject
from mhc.fuzz.campaign.compile_budget import COMPILING, OPENING, Plan, Programs
from mhc.fuzz.campaign.harness_faults import FaultRecord, read_faults
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.scheduler import Share
from mhc.fuzz.campaign.size_budget import Sizes
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.campaign.store_validation import check as check_store
from mhc.fuzz.campaign.triage import Bugs
from mhc.fuzz.findings.finding import Finding, finding, from_document
from mhc.fuzz.findings.finding import fingerprint as fingerprint_of
from mhc.fuzz.worker.process import HarnessError, Lost
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Failure, Fault, Found, Message, Ready, Round
from oracles import liveness
from oracles.verdict import Verdict
from strategies.reach import Reach

MINE = replace(load("manual"), name="mine", dtypes=("float32",))
CASE = default_case(B=1, S=2, n=1, D=2, dtype="float32")
WRONG = Failure(oracle="bound", subject="dx", symptom="value", message="dx[0] = 1")

Answer = Callable[[Round], Sequence[Any]]
"""What a process says to a round: messages, and at last perhaps a verdict on its end or `Lost`."""


@dataclass
class Fake:
    """A process that says what it is told to."""

    answer: Answer
    killed: bool = False
    said: list[Any] = field(default_factory=list)
    asked: list[Round] = field(default_factory=list)
    since: float = 0.0
    doing: str = "running"

    def send(self, request: Any) -> None:
        self.asked.append(request)
        self.said += self.answer(request)

    def receive(self) -> Iterator[Message]:
        while self.said and not isinstance(self.said[0], (Verdict, Lost)):
            yield self.said.pop(0)

    def fate(self) -> Any:
        return self.said.pop(0) if self.said else None

    def pause(self, *, stopped: bool) -> None:
        return

    def kill(self) -> None:
        self.killed = True
        self.said.clear()


@dataclass
class Place:
    """A site of `slots` processes that all answer alike."""

    answer: Answer
    slots: int = 1
    here: bool = True
    made: list[Fake] = field(default_factory=list)

    def up(self, slot: int) -> bool:
        return True

    def kin(self, slot: int) -> int:
        return 0

    def start(self, slot: int, name: str) -> Fake:
        self.made.append(Fake(self.answer))
        return self.made[-1]

    def wait(self, processes: Sequence[Any], seconds: float) -> Collection[Any]:
        return list(processes)

    def stop(self) -> None:
        pass

    @property
    def asked(self) -> list[Round]:
        return [request for process in self.made for request in process.asked]


def healthy(request: Round, **fields: Any) -> list[Message]:
    """Every case of a round passes."""
    told: list[Message] = [Ready()]
    for number in range(request.skip, request.count):
        told += [Begun(case=CASE.json, number=number), Checked(case=CASE.json, **fields)]
    return [*told, Done(drawing=0.5)]


def campaign(place: Place, path: Path, budget: Budget, **options: Any) -> Campaign:
    file = path / "run.db"
    store = Store(file) if file.exists() else Store.create(file)
    pool = Pool({"mine": ("mine.py:IMPL", MINE)}, place)
    return Campaign([Subject(spec="mine.py:IMPL", implementation=MINE)], store, pool, budget, **options)


def test_cases_are_handed_out_in_rounds_until_the_budget_is_spent(tmp_path: Path) -> None:
    place = Place(lambda request: healthy(request, regions=frozenset({"a"}), seconds={"checking": 0.5}))
    ran = campaign(place, tmp_path, Budget(cases=25), seed=7, max_elements=1 << 13)
    assert ran.run() == "budget spent"
    # behind the opening, each far reach is behind its share of the time: 8 s of cases that are taken to last 1 s
    assert [(one.seed, one.count, one.skip, one.rare, one.reach) for one in place.asked] == [
        (7, 10, 0, None, Reach.USUAL),
        (8, 8, 0, None, Reach.STRETCHED),
        (9, 5, 0, None, Reach.MODEL),
        (10, 2, 0, None, Reach.USUAL),
    ]
    assert [one.like for one in place.asked] == [OPENING.json, None, None, None]
    assert [one.max_elements for one in place.asked] == [1 << 13, 1 << 13, 1 << 16, 1 << 11]
    assert (ran.cases, ran.found) == (25, 0)
    assert ran.store.counts()["mine"]["checked"] == 25
    assert ran.store.counts()["mine"]["drawing"] == 2.0
    assert ran.store.counts()["mine"]["starting"] >= 0
    assert dict(ran.store.meta()["seeds"]) == {"mine": 11}
    assert [tuple(row) for row in ran.store.table("regions")] == [("mine", "a", 25)]
    assert ran.store.in_hand() == []
    assert len(place.made) == 1, "a healthy process goes on"
    assert place.made[0].killed, "and is ended with the campaign"
    more = Place(healthy)
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
        messages += [Begun(case=CASE.json), Checked(case=CASE.json, probe=True, regions=frozenset({"seldom", "probe"}))]
        return [*messages, Done()]

    place = Place(answer)
    ran = campaign(place, tmp_path, Budget(), on_tick=lambda one: one.stop("enough") if len(place.asked) >= 9 else None)
    assert ran.run() == "enough"
    assert [at for at, one in enumerate(place.asked, 1) if one.rare is not None] == [4, 8]
    assert place.asked[3].rare == frozenset({"seldom"})
    assert [place.asked[at].count for at in (2, 3)] == [10, 50]
    few = Place(healthy)
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

    place, told = Place(answer), list[Finding]()
    ran = campaign(place, tmp_path, Budget(cases=10), on_finding=told.append)
    ran.run()
    assert [(one.seed, one.count, one.skip) for one in place.asked] == [(0, 10, 0), (0, 10, 2)]
    (found,) = told
    assert (found.fingerprint.symptom, found.case) == ("SIGSEGV", CASE)
    assert found.fingerprint.id in place.asked[1].known
    assert found.fingerprint.id not in place.asked[0].known
    assert (ran.cases, ran.found) == (10, 1)
    assert [one.killed for one in place.made] == [True, True]
    assert ran.store.counts()["mine"]["checked"] == 10
    assert ("mine", "SIGSEGV", 1) in [tuple(row) for row in ran.store.table("restarts")]


def test_a_probe_that_ends_its_process_is_not_counted_as_drawn(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip:
            return healthy(request)
        return [
            *(Begun(case=CASE.json, number=0), Checked(case=CASE.json, failures=(WRONG,))),
            *(Begun(case=CASE.json), liveness.died("SIGSEGV")),
        ]

    place = Place(answer)
    ran = campaign(place, tmp_path, Budget(cases=5))
    ran.run()
    assert [(one.count, one.skip) for one in place.asked] == [(5, 0), (5, 1)]
    assert ran.cases == 5
    assert ran.found == 2
    states = sorted(row["state"] for row in ran.store.findings().values())
    assert states == ["raw", "shrunk"]


def test_what_was_in_hand_is_dropped_at_once(tmp_path: Path) -> None:
    for end in ("_record_crash", "_record_lost"):
        (tmp_path / end).mkdir()
        ran = campaign(Place(lambda request: []), tmp_path / end, Budget(cases=5))
        ran._hand_out()
        (slot,) = ran.pool.busy()
        ran._take(slot, Begun(case=CASE.json, number=-1))
        assert [number for number, *_ in ran.store.in_hand()] == [0]
        if end == "_record_crash":
            ran._record_crash(slot, liveness.died("SIGSEGV"))
        else:
            ran._record_lost(slot)
        assert ran.store.in_hand() == []
        assert ran.pool.busy() == []


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
    ran = campaign(Place(answer), tmp_path, Budget(cases=5), on_fault=heard.append)
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
    ran = campaign(Place(better), tmp_path / "better", Budget(cases=30))
    assert ran.run() == "budget spent"
    assert (ran.cases, ran.found) == (30, 0)


@pytest.mark.usefixtures("impatient")
def test_a_fault_on_a_case_is_recorded_with_it_and_the_round_goes_on_behind_it(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip:
            return healthy(request)
        begun = [Begun(case=CASE.json, number=0), Checked(case=CASE.json), Begun(case=CASE.json, number=1)]
        return [Ready(), *begun, Fault(message="out of paper", trace="line 7")]

    place, heard = Place(answer), list[FaultRecord]()
    ran = campaign(place, tmp_path, Budget(cases=20), on_fault=heard.append)
    assert ran.run() == "budget spent"
    assert [(one.seed, one.skip) for one in place.asked] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert (ran.cases, ran.found) == (20, 0)
    (fault,) = heard
    assert (fault.implementation, fault.message, fault.trace) == ("mine", "out of paper", "line 7")
    assert fault.case == CASE.json
    assert [one.seen for one in read_faults(ran.store.meta())] == [2]
    assert ran.store.counts()["mine"]["faulted"] == 2
    assert ran.store.in_hand() == []
    assert [one.killed for one in place.made] == [True, True, True]


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    place = Place(healthy)
    start, tries = place.start, {"count": 0}

    def scarce(slot: int, name: str) -> Fake:
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
    place = Place(healthy)

    def none(slot: int, name: str) -> Fake:
        raise OSError(24, "Too many open files")

    place.start = none  # type: ignore[method-assign]
    with pytest.raises(HarnessError, match=r"no worker could be started for .* Too many open files"):
        campaign(place, tmp_path, Budget()).run()


def test_who_hears_of_findings_and_shows_them_may_fail(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip or "mine" in str(request.known):
            return healthy(request)
        begun = Begun(case=CASE.json, number=0), Checked(case=CASE.json, failures=(WRONG,))
        return [Ready(), *begun, Found(case=CASE.json, failure=WRONG), Done()]

    def fails(what: Any) -> None:
        raise OSError(28, f"No space left on device for {type(what).__name__}")

    ran = campaign(Place(answer), tmp_path, Budget(cases=10), on_finding=fails, on_tick=fails)
    assert ran.run() == "budget spent"
    assert ran.found == 1
    told = {one.message: one for one in read_faults(ran.store.meta())}
    assert set(told) == {f"OSError: [Errno 28] No space left on device for {what}" for what in ("Finding", "Campaign")}
    assert [one.case for one in told.values() if "Finding" in one.message] == [CASE.json]


def test_a_message_that_cannot_be_dealt_with_costs_its_worker_and_nothing_else(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        return (
            healthy(request) if request.skip else [Ready(), Begun(case=CASE.json, number=0), Found(case="{", failure=WRONG)]
        )

    place = Place(answer)
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
    ran = campaign(Place(answer), tmp_path, Budget(cases=5), on_finding=told.append)
    ran.run()
    (found,) = told
    assert (found.fingerprint.symptom, found.case) == ("exit 9, late", CASE)
    assert ran.store.counts()["mine"]["checked"] == 5
    assert len(ran.faults) == 0


def test_what_is_in_hand_at_the_end_is_named_with_its_time(tmp_path: Path) -> None:
    place = Place(lambda request: [Ready(), Begun(case=CASE.json, number=0)])
    ran = campaign(place, tmp_path, Budget(), on_tick=lambda one: one.stop("enough"))
    ran.run()
    (left,) = ran.store.meta()["unfinished"]
    assert (left["implementation"], left["case"], left["doing"]) == ("mine", CASE.json, "running")
    assert left["seconds"] > 1


def test_a_machine_that_is_gone_is_nobodys_fault(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.skip:
            return healthy(request)
        return [Begun(case=CASE.json, number=0), Checked(case=CASE.json), Begun(case=CASE.json, number=1), Lost("gone")]

    place = Place(answer)
    ran = campaign(place, tmp_path, Budget(cases=6))
    ran.run()
    assert [(one.count, one.skip) for one in place.asked[:2]] == [(6, 0), (6, 2)]
    assert ran.found == 0
    assert ran.cases == 6, "the case in hand was not judged: another is drawn"
    assert ("mine", "node lost", 2) in [tuple(row) for row in ran.store.table("restarts")]
    assert ran.store.in_hand() == []


def test_what_is_left_of_a_guided_round_or_of_none_is_not_handed_out(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        if request.seed != 3:
            return [Done()]
        return [Begun(case=CASE.json, number=0), liveness.died("SIGKILL")]

    place = Place(answer)
    campaign(place, tmp_path, Budget(), on_tick=lambda one: one.stop("enough") if len(place.asked) >= 6 else None).run()
    assert [one.seed for one in place.asked] == [0, 1, 2, 3, 4, 5]
    assert place.asked[3].rare is not None

    def last(request: Round) -> list[Any]:
        return [*healthy(request)[:-2], liveness.died("SIGKILL")]

    (tmp_path / "last").mkdir()
    place = Place(last)
    ran = campaign(place, tmp_path / "last", Budget(cases=10))
    ran.run()
    assert [(one.count, one.skip) for one in place.asked] == [(10, 0)]
    assert (ran.cases, ran.found) == (10, 1)


def test_a_lost_device_takes_its_process_along(tmp_path: Path) -> None:
    place = Place(lambda request: [*healthy(request)[:-1], Done(lost=True)])
    ran = campaign(place, tmp_path, Budget(cases=20))
    ran.run()
    assert len(place.made) == 2
    assert all(one.killed for one in place.made)
    assert ("mine", "device lost", 2) in [tuple(row) for row in ran.store.table("restarts")]


def test_findings_are_told_once_and_passed_on_to_be_made_smaller(tmp_path: Path) -> None:
    small = default_case(B=1, S=1, n=1, D=1, dtype="float32")

    def answer(request: Round) -> list[Message]:
        told = healthy(request)
        if request.seed == 1:
            told[2] = Checked(case=CASE.json, failures=(WRONG,))
        return [*told[:-1], *([Found(case=small.json, failure=WRONG)] if request.seed == 1 else []), told[-1]]

    found, minimal = list[Finding](), list[Finding]()
    place = Place(answer)
    reducer = Reducer(lambda one: replace(one, message="smaller"))
    ran = campaign(*(place, tmp_path, Budget(cases=40)), reducer=reducer, on_finding=found.append, on_minimal=minimal.append)
    ran.run()
    assert [(one.case, one.message) for one in found] == [(small, "dx[0] = 1")]
    assert [(one.case, one.message) for one in minimal] == [(small, "smaller")]
    (row,) = ran.store.findings().values()
    assert row["state"] == "minimal"
    assert from_document(row["document"]).message == "smaller"
    assert place.asked[-1].known == {found[0].fingerprint.id}


def test_minimising_takes_slots_of_this_machine_and_of_no_other(tmp_path: Path) -> None:
    for here, wanted in ((True, 3), (False, 4)):
        place = Place(lambda request: [], slots=4, here=here)
        (tmp_path / str(here)).mkdir()
        ran = campaign(place, tmp_path / str(here), Budget(), on_tick=lambda one: one.stop("now"))
        ran.reducer.start = lambda most: 1  # type: ignore[method-assign]
        ran.run()
        assert len(place.made) == wanted


def test_when_time_is_up_nothing_but_shrinking_has_a_little_longer(tmp_path: Path) -> None:
    place = Place(lambda request: [], slots=2)
    ran = campaign(place, tmp_path, Budget(seconds=40.0))
    ran._hand_out()
    drawing, shrinking = ran.pool.busy()
    shrinking.probe = True
    for spent, wanted in ((42.0, True), (43.9, True), (44.5, False)):
        ran._earlier = spent
        assert ran._only_shrinking() is wanted
    assert ran.pool.busy() == [shrinking]
    assert [one.killed for one in place.made] == [True, False]
    assert drawing.process.killed  # type: ignore[attr-defined]
    ran.budget = Budget(seconds=10000.0)
    for spent, wanted in ((10004.0, True), (10006.0, False)):
        ran._earlier = spent
        assert ran._only_shrinking() is wanted
    ran.pool.replace(shrinking)
    ran._earlier = 10001.0
    assert not ran._only_shrinking()


def test_cases_on_their_way_count(tmp_path: Path) -> None:
    place = Place(lambda request: [], slots=3)
    ran = campaign(place, tmp_path, Budget(cases=25))
    ran._hand_out()
    assert [one.count for one in place.asked] == [10, 10, 5]
    assert ran._left("mine") == 0
    assert ran._open() == []
    first = ran.pool.busy()[0]
    first.begun, first.case = 4, CASE.json
    assert ran._left("mine") == 25 - (10 - 4 + 1) - 15
    first.probe = True
    assert ran._left("mine") == 25 - (10 - 4) - 15
    assert ran._open() == ["mine"]


def test_what_compiled_teaches_nothing_about_sizes(tmp_path: Path) -> None:
    for compiled, wanted in ((0, 1 << 10), (1, 1 << 11)):
        place = Place(functools.partial(healthy, compiled=compiled, seconds={"checking": 4.0}))
        (tmp_path / str(compiled)).mkdir()
        campaign(place, tmp_path / str(compiled), Budget(cases=30)).run()
        (usual,) = {one.max_elements for one in place.asked[1:] if one.reach is Reach.USUAL}
        assert usual == wanted


# ---- shares, sizes, programs


def test_whoever_has_least_for_its_weight_is_next() -> None:
    share = Share(["a", "b"])
    assert [share.next(["a", "b"]) for _ in range(4)] == ["a", "b", "a", "b"]
    share = Share(["a", "b"])
    share.next(["a"])
    share.done("a", 4.0, fresh=True)  # weight 1.25, claim 3.2
    share.next(["b"])
    share.done("b", 4.0, fresh=False)  # weight 1.05, claim 3.81
    assert share._claim("a") == pytest.approx(4 / 1.25)
    assert share._claim("b") == pytest.approx(4 / 1.05)
    share.next(["a"])
    assert share._claim("a") == pytest.approx(8 / 1.25), "one on its way, as long as the last"
    share.done("a", 1.0, fresh=False, crashed=True)  # yields 0.8, half the weight
    assert share._claim("a") == pytest.approx(5 / (1.05 / 2))
    share.done("a", 1.0, fresh=False)
    assert share._claim("a") == pytest.approx((6 - 1) / (0.25 + 0.64)), "a healthy round undoes a crash"
    for _ in range(20):
        share.next(["b"])
        share.done("b", 0.0, fresh=False, crashed=True)
    assert share._crashes["b"] == 8
    share.done("b", 0.0, fresh=True)
    assert share._crashes["b"] == 7
    fresh = Share(["c"])
    fresh.done("c", 0.0, fresh=False)
    assert fresh._crashes["c"] == 0


def test_the_mean_of_seconds_forgets_a_tenth_each_time() -> None:
    sizes = Sizes(1 << 15)._usual
    sizes.learn(1.0)
    assert sizes.mean == 1.0
    sizes.learn(2.0)
    assert sizes.mean == pytest.approx(1.1)
    for mean, wanted in ((1.0, 1 << 11), (1.01, 1 << 10), (0.25, 1 << 10), (0.24, 1 << 11)):
        sizes._mean = mean
        assert sizes.next() == wanted
    assert Sizes(1 << 9)._usual.next() == 1 << 9


def told(case: Case, *, checking: float = 1.0, compiling: float = 0.0, compiled: int = 0, **fields: Any) -> Checked:
    return Checked(case=case.json, seconds={"checking": checking, "compiling": compiling}, compiled=compiled, **fields)


def test_programs_are_shared_where_compiling_takes_more_than_a_quarter() -> None:
    assert COMPILING == 0.25
    for compiling, wanted in ((1.0, Plan()), (1.1, Plan(count=50, like=CASE.json))):
        programs = Programs()
        programs.learn(told(CASE, checking=compiling, compiling=compiling, compiled=1))
        programs.learn(told(CASE, checking=4.0 - compiling))
        assert programs.next() == wanted
    failing = Programs()
    failing.learn(told(CASE, checking=1.0, compiling=1.0, compiled=1, failures=(WRONG,)))
    assert failing.next() == Plan(), "what failed is no program to go on with"
    other = replace(CASE, schedules={"mine": {"BLOCK": 8}})
    each = Programs()
    for case in (CASE, other, default_case(B=2, S=2, n=1, D=2, dtype="float16")):
        each.learn(told(case, compiling=1.0, compiled=1))
    assert [each.next().like for _ in range(4)] == [
        *(CASE.json, other.json, default_case(B=2, S=2, n=1, D=2, dtype="float16").json, CASE.json)
    ]
    many = Programs()
    for width in range(1, 67):
        many.learn(told(default_case(D=width), compiling=1.0, compiled=1))
    likes = {Case.from_json(str(many.next().like)).D for _ in range(70)}
    assert likes == set(range(3, 67)), "64 are kept, the least recently used go"


def test_where_cases_are_slow_and_nothing_is_compiled_more_rounds_open() -> None:
    other = replace(OPENING, dtype="float16")
    for checking, wanted in ((0.25, False), (0.26, True)):
        programs = Programs([OPENING, other])
        assert programs.next().opening
        programs.learn(told(CASE, checking=checking))
        assert programs.next().opening is wanted
    assert (OPENING.n, OPENING.D, OPENING.dtype) == (4, 40, "float32")


# ---- bugs


def bugs(store: Store, added: list[Finding], told_: list[Finding]) -> Bugs:
    reducer = Reducer(lambda one: one)
    reducer.add = added.append  # type: ignore[method-assign,assignment]
    subjects = {"mine": Subject(spec="mine.py:IMPL", implementation=MINE)}
    return Bugs(subjects, store, (), {"other": "other.py:IMPL"}, reducer, told_.append, told_.append)


def test_each_bug_is_kept_raw_then_shrunk_then_minimal(tmp_path: Path) -> None:
    store, added, heard = Store.create(tmp_path / "run.db"), list[Finding](), list[Finding]()
    met = bugs(store, added, heard)
    id_ = fingerprint_of(MINE, CASE, WRONG).id
    assert not met.meet("mine", CASE.json, (), frozenset(), 1.0)
    assert met.meet("mine", CASE.json, (WRONG,), frozenset(), 1.0)
    assert (len(met), met.known, heard, added) == (1, frozenset({id_}), [], [])
    assert store.findings()[id_]["state"] == "raw"
    assert not met.meet("mine", CASE.json, (WRONG,), frozenset(), 2.0), "another worker met it too"
    assert not met.meet("mine", CASE.json, (WRONG,), frozenset({id_}), 2.0)
    assert not met.shrunk("mine", CASE.json, WRONG, 3.0), "not new, but told now"
    assert [one.fingerprint.id for one in heard] == [one.fingerprint.id for one in added] == [id_]
    assert store.findings()[id_]["state"] == "shrunk"
    assert not met.shrunk("mine", CASE.json, WRONG, 4.0)
    assert len(heard) == 1
    met.minimal(replace(heard[0], message="smaller"), 5.0)
    assert store.findings()[id_]["state"] == "minimal"
    assert len(heard) == 2
    against = replace(WRONG, symptom="apart", against="other")
    assert met.shrunk("mine", CASE.json, against, 6.0)
    assert heard[-1].against == "other.py:IMPL"
    again, later = list[Finding](), list[Finding]()
    more = bugs(store, again, later)
    assert more.known == met.known
    assert [one.fingerprint.symptom for one in again] == ["apart"], "what an earlier leg did not make minimal"
    two = (WRONG, replace(WRONG, subject="dphi"))
    assert more.meet("mine", CASE.json, two, more.known, 7.0)
    assert len(more) == 3


def test_a_reducer_gives_back_what_it_could_not_work_on() -> None:
    one = finding("mine.py:IMPL", MINE, CASE, WRONG)

    def fault(_: Finding) -> Finding:
        raise HarnessError("no")

    def scarce(_: Finding) -> Finding:
        raise OSError(24, "Too many open files")

    small: Minimise = lambda found: replace(found, message="small")  # noqa: E731
    for minimise, wanted, said in (
        (fault, "dx[0] = 1", "HarnessError: no"),
        (scarce, "dx[0] = 1", "OSError: [Errno 24] Too many open files"),
        (small, "small", None),
    ):
        reducer = Reducer(minimise)
        reducer.add(one)
        reducer.add(one)
        assert reducer.busy
        assert reducer.working == ()
        assert reducer.start(1) == 1
        back = list[Finding]()
        while len(back) < 2:
            back += reducer.done()
            reducer.start(1)
            assert len(reducer.working) <= 1
        assert [each.message for each in back] == [wanted, wanted]
        assert [(each, wrong.message) for each, wrong in reducer.faults()] == ([] if said is None else [(one, said)] * 2)
        assert not reducer.busy
    idle = Reducer(None)
    idle.add(one)
    assert not idle.busy
    assert idle.start(4) == 0


def test_what_the_store_does_not_take_ends_nothing(tmp_path: Path) -> None:
    """A kernel's numbers and words come from outside, whatever they were checked for."""

    def answer(request: Round) -> list[Any]:
        spoilt = () if request.seed or request.skip else (Checked(case=CASE.json, compared=("\udce9",)),)
        begun = Begun(case=CASE.json, number=0)
        return [Ready(), begun, *spoilt, Done()] if spoilt else healthy(request)

    ran = campaign(Place(answer), tmp_path, Budget(cases=10))
    assert ran.run() == "budget spent"
    assert [one.message.partition(":")[0] for one in read_faults(ran.store.meta())] == ["UnicodeEncodeError"]
    assert ran.store.counts()["mine"]["checked"] > 5


def test_errors_of_any_size_are_kept_and_can_be_read_again(tmp_path: Path) -> None:
    def answer(request: Round) -> list[Any]:
        ratios = {"h_pre": 1.73e45, "h_in": float("inf"), "dx": float("nan")}
        checked = Checked(case=CASE.json, ratios=ratios, seconds={"running": -5.0}, compiled=-24)
        return [Ready(), Begun(case=CASE.json, number=0), checked, Done()]

    ran = campaign(Place(answer), tmp_path, Budget(cases=1))
    ran.run()
    check_store(ran.store)
    assert {subject: ratio for _, subject, ratio, _ in ran.store.table("worst")} == {"h_pre": 1.73e45, "h_in": float("inf")}
