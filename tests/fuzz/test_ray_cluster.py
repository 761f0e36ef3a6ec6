"""A campaign whose machines come and go: with executors that only pretend, and on a small Ray cluster of this machine."""

import os
import random
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc import default_case, load
from mhc.bench.throughput.simulated import serve, write_scripts
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli.main import main
from mhc.fuzz.executors.local import LocalExecutor, Specs
from mhc.fuzz.executors.ray_cluster import RayExecutor, join
from mhc.fuzz.findings.finding import Finding
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import WorkerLost
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Message, Minimise, Request, Round

MANUAL = load("manual")
SPECS: Specs = {"manual": ("manual", MANUAL)}
CASE = default_case().json


@dataclass
class Pretend:
    """A process that answers in this one, a message at a time; lost after a number of messages, if one is given."""

    machine: "Machines"
    slot: int
    lost_after: int | None
    doing: str = "pretending"
    since: float = 0.0
    told: int = 0
    messages: list[Message] = field(default_factory=list)

    def send(self, request: Request) -> None:
        assert isinstance(request, Round)
        self.machine.requests.append(request)
        numbers = range(request.skip, request.count)
        self.messages = [one for number in numbers for one in (Begun(case=CASE, number=number), Checked(case=CASE))]
        self.messages.append(Done())

    def receive(self) -> Iterator[Message]:
        if self.exit_verdict() is None and self.messages:
            self.told += 1
            yield self.messages.pop(0)

    def exit_verdict(self) -> WorkerLost | None:
        lost = self.lost_after is not None and self.told >= self.lost_after
        if lost:
            self.machine.down_for[self.slot] = self.machine.recovery
        return WorkerLost("gone") if lost else None

    def pause(self, *, stopped: bool) -> None:
        return

    def kill(self) -> None:
        self.messages.clear()


class Machines:
    """An executor of `Pretend`s: each life ends after so many messages, and the next begins `recovery` looks later."""

    def __init__(self, slots: int, lives: Sequence[int | None], recovery: int) -> None:
        self.slots, self.recovery = slots, recovery
        self._lives = list(lives)
        self.down_for = dict.fromkeys(range(slots), 0)
        self.requests: list[Round] = []

    def up(self, slot: int) -> bool:
        return self.down_for[slot] == 0

    def group(self, slot: int) -> int:
        return slot

    def start(self, slot: int, name: str) -> Pretend:
        assert self.up(slot)
        return Pretend(self, slot, self._lives.pop(0) if self._lives else None)

    def minimise(self, slot: int, name: str, request: Minimise) -> Pretend:
        raise AssertionError("nothing is found, and so nothing is minimised")

    def wait(self, processes: Sequence[Pretend], seconds: float) -> Collection[Pretend]:
        self.down_for = {slot: max(0, looks - 1) for slot, looks in self.down_for.items()}
        return processes

    def stop(self) -> None:
        return


def subjects(specs: Specs) -> list[Subject]:
    return [Subject(spec=spec, implementation=implementation) for spec, implementation in specs.values()]


def counted(store: Store) -> dict[str, int]:
    """Cases by implementation; those of the timeline are as many."""
    checked = {name: int(words.get("checked", 0) + words.get("refused", 0)) for name, words in store.counts().items()}
    timeline: dict[str, int] = {}
    for name, _, n in store.table("timeline"):
        timeline[name] = timeline.get(name, 0) + n
    assert timeline == {name: n for name, n in checked.items() if n}
    return checked


def test_a_lost_machine_costs_the_case_in_hand_and_no_other(tmp_path: Path) -> None:
    # the first life ends when case 3 has begun (three cases told, two messages each), the second when case 6 has
    machines = Machines(1, lives=[7, 5, None], recovery=0)
    store = Store.create(tmp_path / FILE)
    Campaign(subjects(SPECS), store, Pool(SPECS, machines), Budget(cases=10), seed=5).run()
    assert [(one.seed, one.skip, one.count) for one in machines.requests] == [(5, 0, 10), (5, 4, 10), (5, 7, 10), (6, 0, 2)]
    assert counted(store) == {"manual": 10}
    assert store.table("restarts") == [("manual", "node lost", 2)]
    assert store.findings() == {}
    assert store.in_hand() == []


def test_a_machine_lost_between_cases_blames_none(tmp_path: Path) -> None:
    """Four times in a row, where a process that ends three times so on its own is a fault of the harness."""
    machines = Machines(1, lives=[0, 0, 0, 0, None], recovery=0)
    store = Store.create(tmp_path / FILE)
    Campaign(subjects(SPECS), store, Pool(SPECS, machines), Budget(cases=4), seed=5).run()
    assert counted(store) == {"manual": 4}
    assert store.table("restarts") == [("manual", "node lost", 4)]


def test_a_campaign_waits_for_machines_while_there_is_work(tmp_path: Path) -> None:
    machines = Machines(2, lives=[3, 3], recovery=20)
    store = Store.create(tmp_path / FILE)
    ended = Campaign(subjects(SPECS), store, Pool(SPECS, machines), Budget(cases=30), seed=5).run()
    assert ended == "budget spent"
    assert counted(store) == {"manual": 30}
    machines = Machines(1, lives=[21], recovery=10**9)  # one round is done, and there is no work to wait for
    store = Store.create(tmp_path / "other.sqlite")
    Campaign(subjects(SPECS), store, Pool(SPECS, machines), Budget(cases=10), seed=5).run()
    assert counted(store) == {"manual": 10}


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for on in ("ray", "ray://head:6379"):
        done = CliRunner().invoke(main, ["--cases", "1", "--on", on, "--out", str(tmp_path)])
        assert done.exit_code == 2
        assert f"--on {on}: needs Ray; pip install 'mhc-fuzz[ray]'" in done.output
    assert list(tmp_path.iterdir()) == []


def test_other_places_are_refused(tmp_path: Path) -> None:
    for on in ("dask", "ray:head", "ray://", "raylet"):
        done = CliRunner().invoke(main, ["--cases", "1", "--on", on, "--out", str(tmp_path)])
        assert done.exit_code == 2
        assert f"--on {on}: must be ray or ray://ADDRESS" in done.output


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'mhc-fuzz[ray]'")
    assert join("ray", "cpu", 2).room >= 2
    yield
    ray.shutdown()


CRASHES = """
import ctypes
from dataclasses import replace
from mhc import load

healthy = load("manual")

def forward(x, *args, **kwargs):
    if x.shape[2] >= 3:
        ctypes.string_at(0)
    return healthy.forward(x, *args, **kwargs)

IMPL = replace(healthy, name="crashes", forward=forward)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_on_ray_the_same_cases_give_the_same_counts(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(CRASHES, encoding="utf-8")
    spec = f"{path}:IMPL"
    specs = {"crashes": (spec, load(spec)), "manual": ("manual", MANUAL)}
    tables = []
    for name, executor in (
        ("here", LocalExecutor(specs, "cpu", 1, Limits())),
        ("fleet", RayExecutor(specs, "cpu", 1, Limits(), logs=tmp_path / "logs")),
    ):
        store = Store.create(tmp_path / f"{name}.sqlite")
        Campaign(subjects(specs), store, Pool(specs, executor), Budget(cases=10), seed=1).run()
        found = {id_: row["document"]["fingerprint"]["symptom"] for id_, row in store.findings().items()}
        assert list(found.values()) == ["SIGSEGV"], found
        tables.append((counted(store), store.table("ratios"), store.table("regions"), store.table("restarts"), found))
    assert tables[0] == tables[1]
    assert list((tmp_path / "logs").glob("crashes-*.log"))


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_on_ray_a_finding_is_minimised_where_it_was_found_and_a_lost_node_leaves_it_as_drawn(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(CRASHES, encoding="utf-8")
    spec = f"{path}:IMPL"
    specs = {"crashes": (spec, load(spec))}
    store = Store.create(tmp_path / FILE)
    minimal: list[Finding] = []

    def leg(cases: float, on_tick: Callable[[Campaign, RayExecutor], None] = lambda campaign, fleet: None) -> Campaign:
        fleet = RayExecutor(specs, "cpu", 1, Limits(), logs=tmp_path / "logs")
        campaign = Campaign(
            subjects(specs),
            store,
            Pool(specs, fleet),
            Budget(cases=cases),
            seed=1,
            minimise=True,
            on_minimal=minimal.append,
            on_tick=lambda one: on_tick(one, fleet),
        )
        assert campaign.run() == "budget spent"
        return campaign

    def kill(campaign: Campaign, fleet: RayExecutor) -> None:
        """Kill the agent once, while it minimises."""
        (agent,) = fleet.agents
        if agent is not None and not killed and any(isinstance(one.request, Minimise) for one in campaign.pool.busy()):
            killed.append(agent.pid)
            os.kill(agent.pid, signal.SIGKILL)

    killed: list[int] = []
    ran = leg(10, kill)
    assert (len(killed), ran.found, minimal) == (1, 1, [])
    assert [row["state"] for row in store.findings().values()] == ["raw"]
    assert ("crashes", "node lost", 1) in store.table("restarts")
    assert counted(store) == {"crashes": 10}
    leg(10)
    (found,) = minimal
    assert (found.fingerprint.symptom, found.operator_case.sizes["n"], found.operator_case.sizes["D"]) == ("SIGSEGV", 3, 1)
    assert found.reduction is not None
    assert found.reduction.stable
    assert [row["state"] for row in store.findings().values()] == ["minimal"]
    assert list((tmp_path / "logs").glob(f"minimise-{found.fingerprint.id}.log"))


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_an_actor_killed_at_random_loses_nothing_that_was_recorded(tmp_path: Path) -> None:
    specs = write_scripts(tmp_path, sleep=0.01)
    fleet = RayExecutor(specs, "cpu", 2, Limits(), target=serve)
    store = Store.create(tmp_path / FILE)
    told: list[Finding] = []
    luck, killed, until = random.Random(), 0, random.randrange(100, 200)

    def tick(campaign: Campaign) -> None:
        nonlocal killed
        assert campaign.cases == sum(counted(store).values())
        up = [agent.pid for agent in fleet.agents if agent is not None]
        if not killed and campaign.cases >= until:
            killed = luck.choice(up)
            os.kill(killed, signal.SIGKILL)
        elif killed and len(up) == 2 and killed not in up and campaign.budget.seconds > 1000:
            campaign.budget = Budget(seconds=campaign.now + 1)

    campaign = Campaign(
        subjects(specs), store, Pool(specs, fleet), Budget(seconds=10**4), on_finding=told.append, on_tick=tick
    )
    assert campaign.run() == "budget spent"
    assert campaign.now < 1.1 * campaign.budget.seconds + 1  # what is being minimised has a tenth more
    assert {reason for _, reason, _ in store.table("restarts")} == {"node lost"}
    assert 1 <= sum(n for _, _, n in store.table("restarts")) <= 2  # its process, and one that waited for work there
    assert len(told) == len({found.fingerprint.id for found in told}) == len(store.findings()) > 0
    assert store.in_hand() == []
