"""Which implementation is next: the one with the least time for its weight."""

import pytest

from mhc.fuzz.campaign.scheduler import Scheduler


def test_the_one_with_least_time_for_its_weight_is_next() -> None:
    scheduler = Scheduler(["a", "b"])
    assert [scheduler.next(["a", "b"]) for _ in range(4)] == ["a", "b", "a", "b"]
    scheduler = Scheduler(["a", "b"])
    scheduler.next(["a"])
    scheduler.done("a", 4.0, novel=True)  # weight 1.25, claim 3.2
    scheduler.next(["b"])
    scheduler.done("b", 4.0, novel=False)  # weight 1.05, claim 3.81
    assert scheduler._claim("a") == pytest.approx(4 / 1.25)
    assert scheduler._claim("b") == pytest.approx(4 / 1.05)
    scheduler.next(["a"])
    assert scheduler._claim("a") == pytest.approx(8 / 1.25), "one on its way, as long as the last"
    scheduler.done("a", 1.0, novel=False, crashed=True)  # yields 0.8, half the weight
    assert scheduler._claim("a") == pytest.approx(5 / (1.05 / 2))
    scheduler.done("a", 1.0, novel=False)
    assert scheduler._claim("a") == pytest.approx((6 - 1) / (0.25 + 0.64)), "a healthy round undoes a crash"
    for _ in range(20):
        scheduler.next(["b"])
        scheduler.done("b", 0.0, novel=False, crashed=True)
    assert scheduler._crashes["b"] == 8
    scheduler.done("b", 0.0, novel=True)
    assert scheduler._crashes["b"] == 7
    other = Scheduler(["c"])
    other.done("c", 0.0, novel=False)
    assert other._crashes["c"] == 0
