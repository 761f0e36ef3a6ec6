"""A campaign's own affairs: what it draws where nothing is asked for, its clock, and what is in hand at its end."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.harness_faults import read_faults
from mhc.fuzz.campaign.size_budget import OWN, PER_ELEMENT
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.worker.protocol import Begun, Fault, Ready
from mhc.strategies.reach import Reach
from tests.support.fake_executor import CASE, WRONG, FakeExecutor, campaign, healthy


def stops(place: FakeExecutor, rounds: int) -> Callable[[Campaign], None]:
    return lambda one: one.stop("enough") if len(place.asked) >= rounds else None


def test_what_is_drawn_where_nothing_is_asked_for(tmp_path: Path) -> None:
    place = FakeExecutor(functools.partial(healthy, seconds={"checking": 0.01}))
    campaign(place, tmp_path, Budget(), on_tick=stops(place, 40)).run()
    largest = {reach: max(one.max_elements for one in place.asked if one.reach is reach) for reach in Reach}
    assert largest == {Reach.USUAL: 1 << 15, Reach.STRETCHED: 1 << 20, Reach.MODEL: 1 << 24}
    assert place.asked[0].seed == 0
    assert place.requests == [], "nothing is minimised"


def test_what_is_asked_for_is_drawn(tmp_path: Path) -> None:
    options: list[tuple[dict[str, Any], int]] = [
        ({"largest": 1 << 17}, 1 << 17),
        ({"memory": float(OWN + PER_ELEMENT * (1 << 18))}, 1 << 18),
        ({"device": "cuda"}, 1 << 25),
    ]
    for at, (given, wanted) in enumerate(options):
        (tmp_path / str(at)).mkdir()
        place = FakeExecutor(functools.partial(healthy, seconds={"checking": 0.01}))
        campaign(place, tmp_path / str(at), Budget(), on_tick=stops(place, 30), **given).run()
        assert max(one.max_elements for one in place.asked if one.reach is Reach.MODEL) == wanted, given


def test_time_in_which_it_was_stopped_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    ran = campaign(FakeExecutor(healthy), tmp_path, Budget())
    clock["now"] = 103.0
    ran._turn()
    assert ran.now == 3.0
    clock["now"] = 600.0
    ran.woken = True
    ran._turn()
    assert (ran.now, ran.woken) == (3.0, False)
    clock["now"] = 601.5
    ran._turn()
    assert ran.now == 4.5


def test_the_clock_starts_with_the_first_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    place = FakeExecutor(healthy)

    def wait(processes: Any, seconds: float) -> Any:
        clock["now"] += 10.0
        return list(processes)

    place.up = lambda slot: clock["now"] >= 150.0  # type: ignore[method-assign]
    place.wait = wait  # type: ignore[method-assign]
    ran = campaign(place, tmp_path, Budget(seconds=15.0))
    assert ran.run() == "budget spent"
    assert len(place.asked) == 2, "at 0 and at 10 seconds"
    assert ran.store.seconds() == 20.0
    stopped = campaign(FakeExecutor(healthy), tmp_path, Budget())
    stopped.pool.executor.up = lambda slot: False  # type: ignore[method-assign]
    stopped.stop("enough")
    assert stopped.run() == "enough", "it is not waited for what nobody needs"


def test_a_leg_goes_on_where_the_one_before_it_ended(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "run.db")
    store.tell_leg(store.begin_leg(0.0), 20.0, "budget spent")
    store.begin(3, "mine", CASE.json, 0.0)
    store.close()
    place = FakeExecutor(healthy)
    ran = campaign(place, tmp_path, Budget(seconds=20.0))
    assert 20 <= ran.now < 21
    assert ran.store.in_hand() == [], "what an earlier leg left in hand is nobody's"
    assert ran.run() == "budget spent"
    assert place.asked == []
    assert 20 <= ran.store.seconds() < 21


def test_only_a_case_that_has_run_for_a_second_is_named_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at, (long, wanted) in enumerate(((0.5, 0), (1.0, 1), (7.0, 1))):
        (tmp_path / str(at)).mkdir()
        place = FakeExecutor(lambda request: [Ready(), Begun(case=CASE.json, number=0)])
        ran = campaign(place, tmp_path / str(at), Budget())
        ran._hand_out()
        (slot,) = ran.pool.busy()
        ran._results.take_in(slot)
        monkeypatch.setattr(time, "monotonic", lambda spent=long: spent)
        ran._leave(slot)
        monkeypatch.undo()
        told = [(one["implementation"], one["doing"], one["seconds"], one["case"]) for one in ran._unfinished]
        assert told == [("mine", "running", long, CASE.json)] * wanted


def test_of_what_holds_no_case_only_what_starts_is_named(tmp_path: Path) -> None:
    for doing, wanted in (("starting", ["starting"]), ("running", [])):
        (tmp_path / doing).mkdir()
        ran = campaign(FakeExecutor(lambda request: []), tmp_path / doing, Budget())
        ran._hand_out()
        (slot,) = ran.pool.busy()
        slot.process.doing = doing  # type: ignore[misc]
        ran._leave(slot)
        assert [one["doing"] for one in ran._unfinished] == wanted


def test_a_fault_in_a_display_names_the_finding_it_was_shown(tmp_path: Path) -> None:
    ran = campaign(FakeExecutor(healthy), tmp_path, Budget())

    def fails(what: Any) -> None:
        raise OSError(28, "No space left on device")

    for what in (WRONG, ran):
        ran._shielded(fails)(what)
    ran.note_fault("mine", Fault(message="out of paper"), CASE.json)
    ran.note_fault("", Fault(message="out of ink"))
    told = [(one.implementation, one.message.partition(":")[0], one.case) for one in read_faults(ran.store.meta())]
    assert ("mine", "out of paper", CASE.json) in told
    assert ("", "out of ink", None) in told
    assert {(name, case) for name, message, case in told if message == "OSError"} <= {("mine", CASE.json), ("", None)}
    heard = list[Any]()
    ran._shielded(heard.append)(WRONG)
    assert heard == [WRONG]
