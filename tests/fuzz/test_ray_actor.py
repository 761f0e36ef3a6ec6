"""When an agent answers: what it tells goes over a network, and a case that takes its machine down has to be told before."""

import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from mhc import default_case
from mhc.fuzz.executors import ray_actor
from mhc.fuzz.executors.ray_actor import ActorAnswer, RayActor, Start
from mhc.fuzz.worker import frames
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Ready, Round

CASE = default_case().json
COUNT = 6
LONG = 30.0
START = Start(name="manual", spec="manual", variables={})


def tell(
    connection: Connection, spec: str, device: str, log: str | None, variables: Mapping[str, str], peers: object
) -> None:
    """Tell of a round. Where it goes on behind a case that was lost, each waits until the one before is known to be."""
    frames.send(connection, Ready())
    request = connection.recv()
    for number in range(request.skip, request.count):
        frames.send(connection, Begun(case=CASE, number=number))
        time.sleep(0.05)
        while request.skip and log is not None and not _known(Path(log).parent, number).exists():
            time.sleep(0.01)
        frames.send(connection, Checked(case=CASE))
    frames.send(connection, Done())
    connection.recv()


def _known(folder: Path, number: int) -> Path:
    return folder / f"known-{number}"


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RayActor]:
    monkeypatch.setattr(ray_actor, "_APART", 1e9)  # but for what it must tell, it tells nothing
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(vars(sys.modules["__main__"]), "__file__", "")
    one = RayActor("cpu", Limits(), (), tmp_path, 0, tell)
    yield one
    one.kill(0)


def numbers(said: ActorAnswer) -> list[int]:
    return [one.number for one in said.messages if isinstance(one, Begun)]


def test_a_round_is_told_in_few_answers_and_its_end_at_once(watching: RayActor) -> None:
    started = time.monotonic()
    said = watching.work(0, START, Round(seed=1, count=COUNT), LONG)
    assert said is not None
    assert numbers(said) == list(range(COUNT))
    assert isinstance(said.messages[-1], Done)
    assert time.monotonic() - started < LONG


def test_behind_a_lost_case_every_case_is_told_before_the_next_begins(watching: RayActor, tmp_path: Path) -> None:
    started = time.monotonic()
    told: list[int] = []
    said = watching.work(0, START, Round(seed=1, count=COUNT, skip=2), LONG)
    while said is not None and not any(isinstance(one, Done) for one in said.messages):
        told += numbers(said)
        for number in numbers(said):
            _known(tmp_path, number).touch()
        said = watching.work(0, None, None, LONG)
    assert told == list(range(2, COUNT))
    assert time.monotonic() - started < LONG
