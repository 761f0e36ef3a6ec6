"""Rests of implementations whose workers fail, by a clock of the test."""

from types import SimpleNamespace

import pytest

from mhc.fuzz.campaign.backoff import MOST, Backoff
from mhc.fuzz.worker.process import HarnessError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("mhc.fuzz.campaign.backoff.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_each_rest_is_twice_the_one_before_and_a_judged_case_resets_it(clock: list[float]) -> None:
    rests = Backoff()
    assert not rests.resting("a")
    for rest in (0.4, 0.8, 1.6, 3.2):
        assert not rests.met("a")
        clock[0] += rest - 0.01
        assert rests.resting("a")
        assert not rests.resting("b")
        clock[0] += 0.02
        assert not rests.resting("a")
    assert not rests.given_up("a")
    rests.judged("a")
    assert not rests.met("a")
    clock[0] += 0.41
    assert not rests.resting("a"), "as after the first"


def test_the_fifth_failure_in_a_row_disables(clock: list[float]) -> None:
    rests = Backoff()
    assert [rests.met("a") for _ in range(MOST + 1)] == [False, False, False, False, True, False], "told once"
    assert rests.given_up("a")
    assert not rests.given_up("b")
    assert MOST == 5


def test_all_wait_a_second_where_no_worker_starts_and_it_ends_after_a_minute(clock: list[float]) -> None:
    rests, full = Backoff(), OSError("no memory")
    rests.not_started(full)
    assert rests.resting("a")
    clock[0] += 0.99
    assert rests.resting("b")
    clock[0] += 0.02
    assert not rests.resting("a")
    clock[0] += 58.99
    rests.not_started(full)
    clock[0] += 0.01
    with pytest.raises(HarnessError, match="no worker could be started for 60 s: no memory"):
        rests.not_started(full)
    rests.started()
    rests.not_started(full)
    clock[0] += 60
    rests.not_started(full)
