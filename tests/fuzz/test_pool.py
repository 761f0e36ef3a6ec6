"""The pool of a campaign: which processes stay loaded, and what goes on while others end."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.harness_faults import FaultRecord
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.worker.protocol import Done, Ready, Round
from tests.support.fake_executor import MINE, FakeExecutor, FakeProcess, campaign, healthy


@pytest.mark.parametrize(("idle", "loaded"), [(None, 5), (2, 3), (0, 1)])
def test_as_many_processes_stay_loaded_as_the_device_has_room_for(idle: int | None, loaded: int) -> None:
    names = "abcde"
    executor = FakeExecutor(lambda request: [])
    pool = Pool(dict.fromkeys(names, ("mine.py:IMPL", MINE)), executor, idle)
    for name in names:
        for _ in range(2):
            while name not in pool.loaded(0) and not pool.make_room(0):
                pass
            pool.give(0, name, Round(seed=1, count=1, max_elements=1))
            assert sum(not process.killed for process in executor.made) <= loaded
            pool.release(*pool.busy())
    assert len(executor.made) == 5, "the process in hand stays loaded"
    assert [process.killed for process in executor.made] == [True] * (5 - loaded) + [False] * loaded


def test_the_campaign_goes_on_with_loaded_processes_while_others_end(tmp_path: Path) -> None:
    ends, kills = threading.Event(), list[int]()
    names, asked = ["a", "b"], list[str]()

    def slowly(number: int) -> None:
        kills.append(number)
        ends.wait(60.0)

    class Room(FakeExecutor):
        def start(self, slot: int, name: str) -> FakeProcess:
            def answer(request: Round) -> list[Any]:
                asked.append(name)
                if len(asked) == 12:
                    ends.set()
                return healthy(request)

            number = len(self.made)
            self.made.append(FakeProcess(answer))
            self.made[-1].kill = lambda: slowly(number)  # type: ignore[method-assign]
            return self.made[-1]

    executor = Room(lambda request: [], slots=2)
    pool = Pool(dict.fromkeys(names, ("mine.py:IMPL", MINE)), executor, 0)
    subjects = [Subject(spec="mine.py:IMPL", implementation=replace(MINE, name=name)) for name in names]
    ran = Campaign(subjects, Store.create(tmp_path / "run.db"), pool, Budget(cases=300))
    ran._planner._scheduler.started("b", 10.0)
    for _ in range(2):  # both slots have a process of `a`
        pool.give(len(executor.made), "a", Round(seed=9, count=0, max_elements=1))
    for slot in pool.busy():
        pool.release(slot)
    ran._planner._scheduler.done("a", 500.0, novel=True)
    assert ran.run() == "budget spent"
    assert set(asked[:12]) == {"a"}, "while a process ends, there is no room for another"
    assert kills[0] == 0, "the one that was idle for longest"
    assert "b" in asked
    assert ran.cases == 600


def test_a_device_without_room_keeps_no_other_from_work(tmp_path: Path) -> None:
    ends = threading.Event()

    class TwoDevices(FakeExecutor):
        def group(self, slot: int) -> int:
            return slot

    executor = TwoDevices(healthy, slots=2)
    pool = Pool(dict.fromkeys("ab", ("mine.py:IMPL", MINE)), executor, 0)
    ran = Campaign(
        [Subject(spec="mine.py:IMPL", implementation=replace(MINE, name="a"))],
        Store.create(tmp_path / "run.db"),
        pool,
        Budget(cases=10),
        on_tick=lambda campaign: ends.set() if campaign.cases else None,
    )
    pool.give(0, "b", Round(seed=1, count=0, max_elements=1))
    executor.made[0].kill = lambda: ends.wait(10.0)  # type: ignore[method-assign,assignment]
    pool.replace(*pool.busy())  # its memory is not free yet
    began = time.monotonic()
    assert ran.run() == "budget spent"
    assert time.monotonic() - began < 5.0
    assert ran.cases == 10


def test_a_process_that_cannot_be_ended_is_a_fault_and_the_campaign_goes_on(tmp_path: Path) -> None:
    def fails() -> None:
        raise OSError(30, "Read-only file system")

    def answer(request: Round) -> list[Any]:
        if len(place.asked) == 1:
            place.made[0].kill = fails  # type: ignore[method-assign]
            return [Ready(), Done(lost=True)]
        time.sleep(0.05)
        return healthy(request)

    place, heard = FakeExecutor(answer), list[FaultRecord]()
    ran = campaign(place, tmp_path, Budget(cases=20), on_fault=heard.append)
    assert ran.run() == "budget spent"
    assert ran.cases == 20
    assert [one.message for one in heard] == ["OSError: [Errno 30] Read-only file system"]
    assert len(place.made) == 2


def test_a_process_that_cannot_be_ended_with_the_campaign_is_a_fault_too(tmp_path: Path) -> None:
    def fails() -> None:
        raise OSError(30, "Read-only file system")

    def answer(request: Round) -> list[Any]:
        place.made[0].kill = fails  # type: ignore[method-assign]
        return healthy(request)

    place, heard = FakeExecutor(answer), list[FaultRecord]()
    assert campaign(place, tmp_path, Budget(cases=10), on_fault=heard.append).run() == "budget spent"
    assert [one.message for one in heard] == ["OSError: [Errno 30] Read-only file system"]
