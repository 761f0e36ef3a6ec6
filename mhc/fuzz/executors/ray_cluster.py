"""The executor of a Ray cluster: one actor for each slot, with a GPU of its own for kernels that need one.

The actor (`ray_actor`) starts the same processes as a campaign on one machine and watches them there, so a crash, a hang
or a flood is judged beside it. The main process keeps one call outstanding for each busy slot, which comes back soon after a
case is begun. Actors are restarted wherever there is room, and no call is repeated: a case that crashed a machine must not
crash the next.
"""

import itertools
import math
import os
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mhc.fuzz.check.differential import Peer
from mhc.fuzz.executors.local import Specs
from mhc.fuzz.executors.ray_actor import ActorAnswer, ActorInfo, RayActor, Start, about
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.process import End, HarnessError, Target, WorkerLost
from mhc.fuzz.worker.protocol import Done, Fault, Message, Minimise, Minimised, Request

_SCHEME = "ray"
_LISTEN = 1.0  # seconds that a call waits for a process that sends nothing
_GREET = 0.5  # seconds between attempts to reach an actor that is down
_PATIENCE = 180.0  # seconds without any actor after which the campaign ends with a fault
_STORE_BYTES = 100 << 20  # Ray's object store, which our small messages do not need


@dataclass(frozen=True)
class Cluster:
    """A joined cluster. room: number of slots. nodes: number of machines."""

    room: int
    nodes: int


def join(on: str, device: str, workers: int | None) -> Cluster:
    """Join the cluster at `ray://ADDRESS`, or start one on this machine for `ray`.

    Args:
        workers: slots wanted; on this machine there may be more than cores.

    Raises:
        click.UsageError: Ray is not installed, the cluster cannot be joined, or it has no room.
    """
    scheme, _, address = on.partition("://")
    if scheme != _SCHEME or (not address and on != _SCHEME):
        raise click.UsageError(f"--on {on}: must be ray or ray://ADDRESS")
    ray = _ray(on)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # an actor without a GPU is left as it is
    wanted: dict[str, Any] = {"address": address}
    if not address:
        cores = max(workers or 0, os.cpu_count() or 1)
        wanted = {"address": "local", "num_cpus": cores, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        ray.init(**wanted, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise click.UsageError(f"--on {on}: {error}") from error
    what = "GPU" if device == "cuda" else "CPU"
    room = int(ray.cluster_resources().get(what, 0))
    if (workers or 1) > room:
        raise click.UsageError(f"--workers {workers or 1}: the cluster has {room} {what}s, and each worker takes one")
    return Cluster(room=room, nodes=sum(bool(node["Alive"]) for node in ray.nodes()))


def _ray(on: str) -> Any:
    try:
        import ray  # noqa: PLC0415  optional
    except ImportError as error:
        raise click.UsageError(f"--on {on}: needs Ray; pip install 'mhc-fuzz[ray]'") from error
    return ray


class RayExecutor:
    """An executor of `workers` slots on the joined cluster.

    Args:
        logs, target: as for `mhc.fuzz.executors.ray_actor.RayActor`. peers: as for `LocalExecutor`.

    Attributes:
        agents: the machine of each slot's actor; None while the actor is down.
    """

    def __init__(
        self,
        specs: Specs,
        device: str,
        workers: int,
        limits: Limits,
        *,
        logs: Path | None = None,
        peers: Sequence[Peer] = (),
        target: Target = serve,
    ) -> None:
        self._ray = _ray(_SCHEME)
        self._specs = dict(specs)
        self._keys = itertools.count()
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
        options = {"num_cpus": 1, "num_gpus": 1 if device == "cuda" else 0, "max_restarts": -1, "max_task_retries": 0}
        actor = self._ray.remote(**options)(RayActor)
        place = None if logs is None else logs.resolve()
        self._actors = [actor.remote(device, limits, tuple(peers), place, slot, target) for slot in range(workers)]
        self.slots = workers
        self.agents: list[ActorInfo | None] = [None] * workers
        self._greeted = [-math.inf] * workers
        self._greetings: dict[Any, int] = {}
        self._reached = time.monotonic()
        self._self = about()

    def up(self, slot: int) -> bool:
        return self.agents[slot] is not None

    def group(self, slot: int) -> int:
        return slot

    def start(self, slot: int, name: str) -> "RemoteWork":
        spec, implementation = self._specs[name]
        start = Start(name=name, spec=spec, variables=dict(implementation.env))
        return RemoteWork(self._ray, self._actors[slot], next(self._keys), slot, start)

    def minimise(self, slot: int, name: str, request: Minimise) -> "RemoteWork":
        remote = self.start(slot, name)
        remote.minimise(request)
        return remote

    def wait(self, processes: Sequence["RemoteWork"], seconds: float) -> Collection["RemoteWork"]:
        self._greet()
        calls = {one.call: one for one in processes if one.call is not None}
        ended = [one for one in processes if one.call is None]
        pending = [*calls, *self._greetings]
        if not pending:
            time.sleep(0.0 if ended else seconds)
            return ended
        ready, others = self._ray.wait(pending, num_returns=1, timeout=0.0 if ended else seconds, fetch_local=True)
        if ready and others:
            ready += self._ray.wait(others, num_returns=len(others), timeout=0.0)[0]
        for call in ready:
            if call in calls:
                calls[call].answered()
                if calls[call].lost:
                    self.agents[calls[call].slot] = None
            else:
                self._answer(call)
        return [*ended, *(calls[call] for call in ready if call in calls)]

    def stop(self) -> None:
        """End the actors, and with them all that they started."""
        for actor in self._actors:
            self._ray.kill(actor)

    def _greet(self) -> None:
        """Call actors that are down, from time to time.

        Raises:
            HarnessError: no actor has answered for `_PATIENCE` seconds.
        """
        now = time.monotonic()
        if any(agent is not None for agent in self.agents):
            self._reached = now
        elif now - self._reached > _PATIENCE:
            raise HarnessError(f"no worker of the fleet answered for {_PATIENCE:.0f} s")
        waiting = set(self._greetings.values())
        for slot, agent in enumerate(self.agents):
            if agent is None and slot not in waiting and now - self._greeted[slot] >= _GREET:
                self._greeted[slot] = now
                self._greetings[self._actors[slot].hello.remote()] = slot

    def _answer(self, call: Any) -> None:
        slot = self._greetings.pop(call)
        try:
            agent: ActorInfo = self._ray.get(call)
        except self._ray.exceptions.RayActorError:
            return  # it is being restarted
        if (agent.tree, agent.python) != (self._self.tree, self._self.python):
            there = f"{agent.host} runs sources {agent.tree} on Python {agent.python}"
            raise HarnessError(f"{there}, this machine {self._self.tree} on {self._self.python}: they must be the same")
        self.agents[slot] = agent


class RemoteWork:
    """A process that a slot's actor watches; the counterpart of `mhc.fuzz.worker.process.Process`.

    Attributes:
        call: the outstanding call. lost: whether the actor is gone.
    """

    def __init__(self, ray: Any, actor: Any, key: int, slot: int, start: Start) -> None:
        self._ray, self._actor, self._key, self._start = ray, actor, key, start
        self.slot = slot
        self.call: Any = None
        self.lost = False
        self.doing = "starting"
        self.since = time.monotonic()
        self._said: deque[Message] = deque()
        self._ended: End | None = None

    def send(self, request: Request) -> None:
        """Hand over work; the actor starts the process if there is none."""
        self.call = self._actor.work.remote(self._key, self._start, request, _LISTEN)

    def minimise(self, request: Minimise) -> None:
        """Have the actor minimise a finding; it does nothing else until it answers."""
        self.doing = "minimising"
        self.call = self._actor.minimise.remote(self._start, request)

    def answered(self) -> None:
        """Read the answer to the call, and make the next call unless the process has no more messages."""
        call, self.call = self.call, None
        try:
            said: ActorAnswer | None = self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:
            said = None
            why = str(error).partition("\n")[0]
        except self._ray.exceptions.RayTaskError as error:
            self._said.append(Fault(message=f"agent of {self._start.spec}: {error}"))
            return
        else:
            why = "its agent was started anew"
        if said is None:
            self.lost = True
            self._ended = WorkerLost(why)
            return
        self._said.extend(said.messages)
        self.doing, self.since = said.doing, time.monotonic() - said.seconds
        self._ended = said.ended
        if said.ended is None and not any(isinstance(one, (Done, Minimised, Fault)) for one in said.messages):
            self.call = self._actor.work.remote(self._key, None, None, _LISTEN)

    def receive(self) -> Iterator[Message]:
        """Yield the messages that have arrived, without waiting."""
        while self._said:
            yield self._said.popleft()

    def exit_verdict(self) -> End | None:
        return self._ended

    def pause(self, *, stopped: bool) -> None:
        """Do nothing: on other machines a stopped campaign continues."""

    def kill(self) -> None:
        self.call = None
        if not self.lost:
            self._actor.kill.remote(self._key)
