"""Findings that a campaign minimises beside its rounds: which slots do it, when it ends, and what its faults cost."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mhc import load
from mhc.fuzz.campaign import backoff
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.harness_faults import read_faults
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.cli.display import Watcher
from mhc.fuzz.executors.local import LocalExecutor, Minimising
from mhc.fuzz.findings.finding import Finding, finding, from_document
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import WorkerLost, attend
from mhc.fuzz.worker.protocol import Fault, Minimise, Minimised, Round
from mhc.oracles.verdict import failed
from tests.support.fake_executor import CASE, MINE, OTHER, WRONG, FakeExecutor, campaign, healthy

THIRD = replace(WRONG, fingerprint=replace(WRONG.fingerprint, subject="h_in"))


def store_with(path: Path, *states: tuple[Finding, str]) -> None:
    """Make the store of an earlier leg with these findings."""
    store = Store.create(path / "run.db")
    for at, (found, state) in enumerate(states):
        store.keep(found.fingerprint.id, found.document, state, float(at))
    store.close()


def states(ran: Campaign) -> list[str]:
    return [row["state"] for row in ran.store.findings().values()]


def test_a_finding_is_minimised_once_and_shown_as_drawn_and_as_minimal(tmp_path: Path) -> None:
    small = replace(WRONG, message="smaller")
    executor = FakeExecutor(
        lambda request: healthy(request, findings=(WRONG,)), smaller=lambda request: [Minimised(finding=small)]
    )
    new, minimal = list[Finding](), list[Finding]()
    ran = campaign(executor, tmp_path, Budget(cases=40), minimise=True, on_finding=new.append, on_minimal=minimal.append)
    assert ran.run() == "budget spent"
    assert (new, minimal) == ([WRONG], [small])
    assert [(one.finding, one.checks, one.seconds) for one in executor.requests] == [(WRONG, 400, 120.0)]
    (row,) = ran.store.findings().values()
    assert (row["state"], row["seen"], from_document(row["document"]).message) == ("minimal", 40, "smaller")
    assert [one.killed for one in executor.minimised] == [True]
    assert len(executor.made) == 1, "the process of the rounds goes on"
    assert len(ran.faults) == 0


def test_a_finding_that_turns_out_to_be_another_is_dropped_and_the_other_minimised(tmp_path: Path) -> None:
    after = replace(WRONG, fingerprint=replace(WRONG.fingerprint, symptom="wrong after others"))
    executor = FakeExecutor(
        lambda request: healthy(request, findings=(after,)), smaller=lambda request: [Minimised(finding=WRONG)]
    )
    new, minimal, gone = list[Finding](), list[Finding](), list[tuple[Finding, Finding]]()
    ran = campaign(
        executor,
        tmp_path,
        Budget(cases=40),
        minimise=True,
        on_finding=new.append,
        on_minimal=minimal.append,
        on_other=lambda *both: gone.append(both),
    )
    assert ran.run() == "budget spent"
    assert (new, minimal, gone) == ([after, WRONG], [WRONG], [(after, WRONG)])
    assert [one.finding for one in executor.requests] == [after, WRONG]
    (row,) = ran.store.findings().values()
    assert (row["state"], from_document(row["document"]).fingerprint) == ("minimal", WRONG.fingerprint)
    assert (ran.found, len(ran.faults)) == (1, 0)


@pytest.mark.parametrize(("slots", "wanted"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3)])
def test_at_most_half_of_the_slots_minimise_and_at_least_one(tmp_path: Path, slots: int, wanted: int) -> None:
    store_with(tmp_path, (WRONG, "raw"), (OTHER, "shrunk"), (THIRD, "raw"))
    executor = FakeExecutor(lambda request: [], slots=slots, smaller=lambda request: [])
    ran = campaign(executor, tmp_path, Budget(), minimise=True)
    ran._hand_out()
    assert [one.finding for one in executor.requests] == [WRONG, OTHER, THIRD][:wanted]
    assert len(executor.made) == slots - wanted, "the others draw"
    seen = Watcher().look(ran)
    assert (len(seen.work), len(seen.minimising)) == (slots - wanted, wanted)
    assert seen.minimising[0] == "mine: dx: value (bound)"
    ran._hand_out()
    assert len(executor.requests) == wanted
    ran.pool.stop()
    assert all(one.killed for one in (*executor.made, *executor.minimised))
    assert "minimal" not in states(ran)


def test_a_single_slot_draws_for_as_long_as_it_minimised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_with(tmp_path, (WRONG, "raw"), (OTHER, "raw"))
    executor = FakeExecutor(lambda request: [], slots=1, smaller=lambda request: [])
    ran = campaign(executor, tmp_path, Budget(), minimise=True)
    clock = [100.0]
    monkeypatch.setattr(Campaign, "now", property(lambda self: clock[0]))
    assert ran._give_finding(0)
    clock[0] = 130.0
    ran.pool.replace(ran.pool.busy()[0])
    assert not ran._give_finding(0)
    clock[0] = 159.0
    assert not ran._give_finding(0)
    monkeypatch.setattr(ran, "_open", list)
    assert ran._give_finding(0), "there is nothing to draw"
    ran.pool.stop()


def test_a_resumed_run_minimises_what_is_not_minimal_and_is_on_its_own_implementations(tmp_path: Path) -> None:
    strange = replace(WRONG, fingerprint=replace(WRONG.fingerprint, implementation="strange"))
    store_with(tmp_path, (OTHER, "minimal"), (WRONG, "raw"), (THIRD, "shrunk"), (strange, "raw"))
    executor = FakeExecutor(healthy)
    ran = campaign(executor, tmp_path, Budget(cases=0), minimise=True)
    assert ran.run() == "budget spent"
    assert [one.finding for one in executor.requests] == [WRONG, THIRD]
    assert executor.asked == []
    assert states(ran) == ["minimal", "minimal", "minimal", "raw"]


@pytest.mark.parametrize(
    ("answer", "faults"),
    [(Fault(message="out of paper", trace="line 7"), [("mine", "out of paper", CASE.json)]), (WorkerLost("gone"), [])],
    ids=["fault", "lost node"],
)
def test_what_cannot_be_minimised_stays_as_it_was_drawn(
    tmp_path: Path, answer: Any, faults: list[tuple[str, str, str]]
) -> None:
    executor = FakeExecutor(lambda request: healthy(request, findings=(WRONG,)), smaller=lambda request: [answer])
    minimal = list[Finding]()
    ran = campaign(executor, tmp_path, Budget(cases=20), minimise=True, on_minimal=minimal.append)
    assert ran.run() == "budget spent"
    assert len(executor.requests) == 1, "it is not tried again in this leg"
    assert [(one.implementation, one.message, one.case) for one in read_faults(ran.store.meta())] == faults
    assert (states(ran), minimal) == (["raw"], [])
    assert ran.store.counts()["mine"]["checked"] == 20
    assert not any(reason == "fault of the harness" for _, reason, _ in ran.store.table("restarts"))
    executor = FakeExecutor(healthy)
    again = campaign(executor, tmp_path, Budget(cases=20), minimise=True)
    again.run()
    assert [one.finding for one in executor.requests] == [WRONG], "the next leg tries it again"
    assert states(again) == ["minimal"]


def test_what_fails_on_a_minimal_finding_is_a_fault_and_the_finding_is_kept(tmp_path: Path) -> None:
    def fails(found: Finding) -> None:
        raise OSError(28, "No space left on device")

    store_with(tmp_path, (WRONG, "raw"))
    ran = campaign(FakeExecutor(healthy), tmp_path, Budget(cases=10), minimise=True, on_minimal=fails)
    assert ran.run() == "budget spent"
    assert [one.message for one in read_faults(ran.store.meta())] == ["OSError: [Errno 28] No space left on device"]
    assert states(ran) == ["minimal"]


def test_a_minimiser_that_cannot_be_started_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_NO_WORKER_REST", 0.1)
    store_with(tmp_path, (WRONG, "raw"))
    executor, tries = FakeExecutor(healthy), list[Minimise]()
    start = executor.minimise

    def scarce(slot: int, name: str, request: Minimise) -> Any:
        tries.append(request)
        if len(tries) < 3:
            raise OSError(24, "Too many open files")
        return start(slot, name, request)

    monkeypatch.setattr(executor, "minimise", scarce)
    ran = campaign(executor, tmp_path, Budget(cases=10), minimise=True)
    assert ran.run() == "budget spent"
    assert (len(tries), states(ran), ran.cases) == (3, ["minimal"], 10)
    assert [(one.message, one.seen) for one in read_faults(ran.store.meta())] == [
        ("OSError: [Errno 24] Too many open files", 2)
    ]


def test_when_time_is_up_only_minimising_has_a_little_longer(tmp_path: Path) -> None:
    store_with(tmp_path, (WRONG, "raw"))
    executor = FakeExecutor(lambda request: [], slots=2, smaller=lambda request: [])
    ran = campaign(executor, tmp_path, Budget(seconds=40.0), minimise=True)
    ran._hand_out()
    minimising, drawing = ran.pool.busy()
    assert isinstance(minimising.request, Minimise)
    assert isinstance(drawing.request, Round)
    assert 39 < minimising.request.seconds <= 40, "no longer than the budget"
    for spent, wanted in ((42.0, True), (43.9, True), (44.5, False)):
        ran._earlier = spent
        assert ran._only_minimising() is wanted
    assert ran.pool.busy() == [minimising]
    assert [one.killed for one in (*executor.made, *executor.minimised)] == [True, False]
    ran.budget = Budget(seconds=10000.0)
    for spent, wanted in ((10004.0, True), (10006.0, False)):
        ran._earlier = spent
        assert ran._only_minimising() is wanted
    ran.pool.replace(minimising)
    ran._earlier = 10001.0
    assert not ran._only_minimising()


def test_a_campaign_by_cases_ends_when_its_findings_are_minimal(tmp_path: Path) -> None:
    looks = {"left": 5}

    def slowly(request: Minimise) -> list[Any]:
        return []

    executor = FakeExecutor(lambda request: healthy(request, findings=(WRONG,)), smaller=slowly)

    def tick(one: Campaign) -> None:
        looks["left"] -= bool(executor.minimised)
        if looks["left"] == 0:
            executor.minimised[0].said.append(Minimised(finding=WRONG))

    ran = campaign(executor, tmp_path, Budget(cases=10), minimise=True, on_tick=tick)
    assert ran.run() == "budget spent"
    assert (ran.cases, states(ran)) == (10, ["minimal"])
    assert looks["left"] <= 0, "it waited for the answer"


# ---- the thread on this machine

Work = Callable[[Callable[[], None]], Minimised | Fault]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def new_threads(before: list[threading.Thread]) -> list[threading.Thread]:
    """Return the threads that were not there before. One of an earlier test may end meanwhile, so counts say nothing."""
    return [one for one in threading.enumerate() if one not in before]


@pytest.mark.parametrize("answer", [Minimised(finding=WRONG), Fault(message="no")])
def test_an_answer_wakes_the_campaign_and_leaves_nothing_behind(answer: Minimised | Fault) -> None:
    threads, before = threading.enumerate(), descriptors()
    one = Minimising(lambda waiting: answer)
    assert attend([one], 30.0) == [one]
    assert list(one.receive()) == [answer]
    one.kill()
    assert (new_threads(threads), descriptors()) == ([], before)


def test_a_killed_one_ends_its_work_and_leaves_nothing_behind() -> None:
    threads, before = threading.enumerate(), descriptors()
    ended: list[bool] = []

    def endless(waiting: Callable[[], None]) -> Minimised:
        try:
            while True:
                waiting()
                time.sleep(0.01)
        except BaseException:
            ended.append(True)
        return Minimised(finding=WRONG)

    one = Minimising(endless)
    assert attend([one], 0.0) == []
    assert list(one.receive()) == []
    one.pause(stopped=True)
    one.kill()
    assert ended == [True]
    assert (new_threads(threads), descriptors()) == ([], before)


def test_without_a_thread_nothing_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = descriptors()
    monkeypatch.setattr(threading.Thread, "start", none)
    with pytest.raises(RuntimeError):
        Minimising(lambda waiting: Minimised(finding=WRONG))
    assert descriptors() == before


SLOW = """
import time
from dataclasses import replace
from mhc import load

healthy = load("manual")

def forward(*args, **kwargs):
    time.sleep(600)
    return healthy.forward(*args, **kwargs)

IMPL = replace(healthy, name="slow", forward=forward, backward=None)
"""


def test_at_the_end_of_a_campaign_its_minimiser_ends_in_the_middle_of_a_case(tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    path.write_text(SLOW, encoding="utf-8")
    spec = f"{path}:IMPL"
    slow = load(spec)
    store = Store.create(tmp_path / "run.db")
    found = finding(spec, slow, CASE, failed("bound", "h_in", "value", ""))
    store.keep(found.fingerprint.id, found.document, "raw", 0.0)
    before = threading.enumerate()
    executor = LocalExecutor({"slow": (spec, slow)}, "cpu", 1, Limits(), logs=tmp_path)
    ran = Campaign(
        [Subject(spec=spec, implementation=slow)],
        store,
        Pool({"slow": (spec, slow)}, executor),
        Budget(seconds=4.0),
        minimise=True,
    )
    began = time.monotonic()
    assert ran.run() == "budget spent"
    assert time.monotonic() - began < 30
    assert states(ran) == ["raw"]
    assert new_threads(before) == []
    assert (tmp_path / f"minimise-{found.fingerprint.id}.log").exists()
    assert MINE.name not in executor._specs
