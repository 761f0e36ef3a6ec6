"""Executors: where the worker processes of a campaign run. `LocalExecutor` is this machine; `ray_cluster` has others."""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from mhc.files import file_name
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.minimise.minimise import run_minimise
from mhc.fuzz.worker.forkserver import end_orphans
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.process import End, Process, Target, attend
from mhc.fuzz.worker.protocol import Fault, Message, Minimise, Minimised, Request
from mhc.registry import Tested

Specs = Mapping[str, tuple[str, Tested]]
"""(name on the command line, implementation) by the implementation's name."""

_LOOK = 0.25  # seconds between looks at processes that send nothing
_KILLED = 10.0  # seconds that a killed `Minimising` may take to end its process; one with a CUDA device takes its time


class RunningWork(Protocol):
    """What a campaign asks of work in a slot: a `mhc.fuzz.worker.process.Process`, or a minimiser."""

    @property
    def doing(self) -> str: ...

    @property
    def since(self) -> float: ...

    def send(self, request: Request) -> None: ...

    def receive(self) -> Iterator[Message]: ...

    def exit_verdict(self) -> End | None: ...

    def pause(self, *, stopped: bool) -> None: ...

    def kill(self) -> None: ...


class Executor(Protocol):
    """Slots for work, numbered from 0."""

    @property
    def slots(self) -> int:
        """Return the number of slots."""

    def up(self, slot: int) -> bool:
        """Return whether a process can be started in a slot now. A slot that is down may come up during `wait`."""

    def group(self, slot: int) -> int:
        """Return the group of a slot; slots of one group share idle processes."""

    def start(self, slot: int, name: str) -> RunningWork:
        """Start a process of an implementation."""

    def minimise(self, slot: int, name: str, request: Minimise) -> RunningWork:
        """Begin to minimise a finding of an implementation; the answer is `Minimised`."""

    def wait(self, processes: Sequence[Any], seconds: float) -> Collection[Any]:
        """Wait until one of `processes` may have a message, at most `seconds`; return such processes."""

    def stop(self) -> None:
        """Release all resources, after the processes were ended."""


class LocalExecutor:
    """The slots of this machine.

    Args:
        logs: folder for the processes' output. gpus: number of CUDA devices to spread the slots over.
        peers: implementations that every other one is compared with. target: as for `Process`.
    """

    def __init__(
        self,
        specs: Specs,
        device: str,
        workers: int,
        limits: Limits,
        *,
        logs: Path | None = None,
        gpus: int = 0,
        peers: Sequence[Peer] = (),
        target: Target = serve,
    ) -> None:
        self._specs = dict(specs)
        self._device, self._limits, self._logs, self._gpus = device, limits, logs, gpus
        self._peers, self._target = peers, target
        self.slots = workers
        self._started = 0
        self._looked = 0.0

    def up(self, slot: int) -> bool:
        return True

    def group(self, slot: int) -> int:
        return slot % self._gpus if self._gpus else 0

    def start(self, slot: int, name: str) -> Process:
        spec, implementation = self._specs[name]
        log = self._log(f"{file_name(name)}-{self._started % 64}.log")  # the oldest is written over
        self._started += 1
        return Process(
            spec,
            implementation.env,
            self._device,
            self._limits,
            log=log,
            gpu=self.group(slot) if self._gpus else None,
            peers=self._peers,
            target=self._target,
        )

    def minimise(self, slot: int, name: str, request: Minimise) -> "Minimising":
        _, implementation = self._specs[name]
        log = self._log(f"minimise-{request.finding.fingerprint.id}.log")
        gpu = self.group(slot) if self._gpus else None

        def work(waiting: Callable[[], None]) -> Minimised | Fault:
            return run_minimise(
                request, lambda: implementation, self._device, self._limits, log=log, gpu=gpu, waiting=waiting
            )

        return Minimising(work)

    def _log(self, name: str) -> Path | None:
        """Return the path of a log; a folder that was removed is made again, and without one there is no log."""
        if self._logs is None:
            return None
        with suppress(OSError):
            self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs / name

    def wait(self, processes: "Sequence[Process | Minimising]", seconds: float) -> "Collection[Process | Minimising]":
        talking = attend(processes, min(seconds, _LOOK))
        now = time.monotonic()
        if now - self._looked >= _LOOK:  # what hangs or grows says nothing
            self._looked = now
            end_orphans()
            return processes
        return talking

    def stop(self) -> None:
        return


class Minimising:
    """A thread that minimises a finding: it waits for worker processes, which do the work.

    Args:
        minimise: what it runs, with what that calls several times a second; it raises `_Ended` when the work is not wanted.

    Attributes:
        awaited: a descriptor that is at its end when there is an answer.
    """

    doing = "minimising"

    def __init__(self, minimise: Callable[[Callable[[], None]], Minimised | Fault]) -> None:
        self.since = time.monotonic()
        self._answer: Minimised | Fault | None = None
        self._killed = threading.Event()
        self.awaited, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, args=(minimise,), daemon=True)  # no exit waits for it
        try:
            self._thread.start()
        except RuntimeError:  # the system has no more threads
            os.close(self.awaited)
            os.close(self._end)
            raise

    def send(self, request: Request) -> None:
        raise NotImplementedError("it takes one request, when it is made")

    def receive(self) -> Iterator[Message]:
        if self._answer is not None:
            yield self._answer

    def exit_verdict(self) -> None:
        return None

    def pause(self, *, stopped: bool) -> None:
        """Do nothing: its processes have limits of their own."""

    def kill(self) -> None:
        """End the work and its processes."""
        self._killed.set()
        self._thread.join(_KILLED)
        os.close(self.awaited)

    def _run(self, minimise: Callable[[Callable[[], None]], Minimised | Fault]) -> None:
        self._answer = minimise(self._go_on)
        os.close(self._end)

    def _go_on(self) -> None:
        if self._killed.is_set():
            raise _Ended


class _Ended(Exception):
    """The campaign has ended, or has no use for what is being minimised."""
