"""Which implementation is next: the one with the least time for its weight."""

import pytest

from mhc.fuzz.campaign.scheduler import Scheduler


def test_the_one_with_least_time_for_its_weight_is_next() -> None:
    share = Scheduler(["a", "b"])
    assert [share.next(["a", "b"]) for _ in range(4)] == ["a", "b", "a", "b"]
    share = Scheduler(["a", "b"])
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
    fresh = Scheduler(["c"])
    fresh.done("c", 0.0, fresh=False)
    assert fresh._crashes["c"] == 0
