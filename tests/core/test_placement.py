"""Only the implementation runs on its device: what it is given goes there once, what it did comes back once."""

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch

import mhc.observation
import mhc.oracles.memory
import mhc.placement
from mhc import Implementation, default_case, materialise
from mhc.case import with_tensor
from mhc.fuzz.check.check import check
from mhc.fuzz.check.level import Level
from mhc.operators.mhc_pre.torch.implementations import GOLDEN, MANUAL
from mhc.oracles.verdict import Verdict
from mhc.placement import fetch, place, rewrite
from mhc.reference import reference
from tests.support.far_device import DEVICE, Watch
from tests.support.helpers import scaled_case, symptoms, with_layout

HOST = torch.device("cpu")
CASES = {
    "without gamma": with_layout(scaled_case(B=2, S=3, n=2, D=5, absent=frozenset({"gamma"})), "x", expand=(2,)),
    "infinite": with_tensor(default_case(B=2, S=2, n=2, D=3, dtype="float32"), "phi", literals=(((0, 0), float("inf")),)),
}


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    watching = Watch()
    monkeypatch.setattr("mhc.implementation.DEVICES", ("cpu", DEVICE.type))
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)  # it knows no such device
    monkeypatch.setattr(mhc.observation, "place", watching.during("place", place))
    monkeypatch.setattr(mhc.observation, "rewrite", watching.during("rewrite", rewrite))
    for module in (mhc.observation, mhc.oracles.memory):
        monkeypatch.setattr(module, "fetch", watching.during("fetch", fetch))
    with watching:
        yield watching


def far(implementation: Implementation, watch: Watch) -> Implementation:
    """The implementation on the device that is not there; what it does counts as "run"."""
    assert implementation.forward is not None
    assert implementation.backward is not None
    return replace(
        implementation,
        devices=("cpu", DEVICE.type),
        forward=watch.during("run", implementation.forward),
        backward=watch.during("run", implementation.backward),
    )


def told(verdicts: list[Verdict]) -> list[tuple[str, ...]]:
    return [(one.oracle, one.subject, one.status.value, one.symptom, one.message) for one in verdicts]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("implementation", [GOLDEN, MANUAL], ids=lambda one: one.name)
def test_every_gate_judges_on_the_host(implementation: Implementation, name: str, watch: Watch) -> None:
    verdicts = check(far(implementation, watch), CASES[name], str(DEVICE), Level.FULL).verdicts
    assert {where for where, _ in watch.asked} == {"place", "rewrite", "run", "fetch"}
    assert {what for where, what in watch.asked if where == "place"} == {"_to_copy"}
    assert {what for where, what in watch.asked if where == "rewrite"} == {"copy_"}
    assert {what for where, what in watch.asked if where == "fetch"} == {"wait"}
    assert watch.entered["fetch"] == watch.entered["place"] + 1  # once a run, and once to see what later runs changed
    assert told(verdicts) == told(check(implementation, CASES[name], "cpu", Level.FULL).verdicts)


@pytest.mark.parametrize("name", CASES)
def test_a_large_case_is_judged_where_it_runs(name: str, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor of the judging is left on the host by mistake: those of two devices do not mix."""
    monkeypatch.setattr(import_module("mhc.reference"), "ON_HOST", 0)  # mhc.reference is the function
    verdicts = check(far(MANUAL, watch), CASES[name], str(DEVICE), Level.FULL).verdicts
    assert watch.asked["elsewhere", "mul"]
    assert told(verdicts) == told(check(MANUAL, CASES[name], "cpu", Level.FULL).verdicts)


def test_copies_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    one, other = torch.device("cuda", 0), torch.device("cuda", 1)
    mhc.placement._wait([one, HOST, other, one])
    assert sorted(waited, key=str) == [one, other]
    asked: list[list[torch.device]] = []
    monkeypatch.setattr(mhc.placement, "_wait", lambda devices: asked.append(list(devices)))
    place(materialise(CASES["infinite"]), {"a": torch.ones(2)})
    fetch(iter([torch.ones(2), torch.ones(3)]))
    assert asked == [[HOST], []]


def test_what_is_only_compared_is_not_copied_on_the_host() -> None:
    one, other = torch.ones(2), torch.ones(3)
    copy, same = fetch([one], compared=[other])
    assert copy.data_ptr() != one.data_ptr()
    assert same.data_ptr() == other.data_ptr()


def test_the_references_gradients_are_computed_once_where_they_are_asked_for() -> None:
    wanted = reference(materialise(CASES["infinite"]))
    assert "gradients" not in vars(wanted)
    assert wanted.gradients is wanted.gradients
    assert set(wanted.gradients) == {"dx", "dphi", "dalpha", "dbias", "dgamma"}


@pytest.mark.parametrize("last", [1, 3])
def test_a_lost_device_is_told_once_and_asked_nothing_more(last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the exception that the kernel ended with, not by those of the copies behind it; also in a further run."""
    runs = []

    def lost(*_: Any) -> Any:
        raise RuntimeError("CUDA error: launch failed long ago")

    def forward(*arguments: Any, **keywords: Any) -> Any:
        runs.append(1)
        if len(runs) == last:
            for module in (mhc.observation, mhc.oracles.memory):
                monkeypatch.setattr(module, "fetch", lost)
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        assert MANUAL.forward is not None
        return MANUAL.forward(*arguments, **keywords)

    verdicts = check(replace(MANUAL, forward=forward), CASES["infinite"], "cpu", Level.FULL).verdicts
    assert symptoms(verdicts) == {("liveness", "forward", "illegal address")}
    assert len(runs) == last
