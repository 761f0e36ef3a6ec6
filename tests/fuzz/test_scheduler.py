"""Which implementation is next: the one with the least time for its weight."""

import pytest

from mhc.fuzz.campaign import scheduler as module
from mhc.fuzz.campaign.scheduler import Scheduler


class Clock:
    """A monotonic clock that stands still."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def claim(scheduler: Scheduler, name: str, now: float = Clock.now) -> float:
    return scheduler._claim(name, now, loaded=True)


def begin(scheduler: Scheduler, *names: str) -> str:
    name = scheduler.turn(names)
    scheduler.begun(name)
    return name


@pytest.mark.usefixtures("clock")
def test_the_one_with_least_time_for_its_weight_is_next() -> None:
    scheduler = Scheduler(["a", "b"])
    assert [begin(scheduler, "a", "b") for _ in range(4)] == ["a", "b", "a", "b"]
    scheduler = Scheduler(["a", "b"])
    begin(scheduler, "a")
    scheduler.done("a", 4.0, novel=True)  # weight 1.25, claim 3.2
    begin(scheduler, "b")
    scheduler.done("b", 4.0, novel=False)  # weight 1.05, claim 3.81
    assert claim(scheduler, "a") == pytest.approx(4 / 1.25)
    assert claim(scheduler, "b") == pytest.approx(4 / 1.05)
    begin(scheduler, "a")
    assert claim(scheduler, "a") == pytest.approx(8 / 1.25), "one on its way, as long as the last"
    scheduler.done("a", 1.0, novel=False, crashed=True)  # yields 0.8, half the weight
    assert claim(scheduler, "a") == pytest.approx(5 / (1.05 / 2))
    begin(scheduler, "a")
    scheduler.done("a", 1.0, novel=False)
    assert claim(scheduler, "a") == pytest.approx(6 / (0.25 + 0.64)), "a healthy round undoes a crash"
    for _ in range(20):
        begin(scheduler, "b")
        scheduler.done("b", 0.0, novel=False, crashed=True)
    assert scheduler._crashes["b"] == 8
    scheduler.done("b", 0.0, novel=True)
    assert scheduler._crashes["b"] == 7
    other = Scheduler(["c"])
    other.done("c", 0.0, novel=False)
    assert other._crashes["c"] == 0


def test_rounds_that_wait_for_a_compiler_do_not_take_every_worker(clock: Clock) -> None:
    scheduler = Scheduler(["compiled", "plain"])
    assert [begin(scheduler, "compiled", "plain") for _ in range(4)] == ["compiled", "plain"] * 2
    for _ in range(30):  # a plain round ends after a second; one that compiles does not end
        clock.now += 1.0
        scheduler.done("plain", 1.0, novel=True)
        begin(scheduler, "compiled", "plain")
    assert scheduler._begun["compiled"] == [100.0, 100.0, 101.0], "no more than have spent as much time as the plain ones"
    scheduler.done("compiled", 29.0, novel=True)
    assert scheduler._begun["compiled"] == [100.0, 100.0], "the round that began so long ago"
    assert claim(scheduler, "compiled", clock.now) == pytest.approx((29 + 30 + 30) / 1.25)


@pytest.mark.usefixtures("clock")
def test_a_process_that_waits_is_preferred_until_the_other_is_far_behind() -> None:
    scheduler = Scheduler(["a", "b"])
    for name in ("a", "b"):
        assert begin(scheduler, name) == name
        scheduler.started(name, 0.5)
        scheduler.done(name, 1.0, novel=True)
    for _ in range(5):
        assert scheduler.turn(["a", "b"], {"a"}) == "a"
        scheduler.begun("a")
        scheduler.done("a", 1.0, novel=True)
    assert scheduler.turn(["a", "b"], {"a"}) == "b", "by more than eight times what a start takes"
    assert scheduler.turn(["a", "b"], {"a", "b"}) == "b"
