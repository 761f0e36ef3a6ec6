"""A pool of processes: a number of slots that work at once, and idle processes that keep their implementation loaded."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mhc.fuzz.messages import Partner, Round
from mhc.fuzz.process import Limits, Process
from mhc.implementation import Implementation


@dataclass
class Slot:
    """A place for one working process.

    Attributes:
        name, request, since: the implementation, the round, and the monotonic time when it was handed out.
        begun: cases of the round that were begun, those skipped included. fresh: it yielded something new.
        case, probe: what is in hand, and whether it is a probe of shrinking.
    """

    number: int
    process: Process
    name: str
    request: Round
    since: float
    begun: int = 0
    fresh: bool = False
    case: str | None = None
    probe: bool = False


class Pool:
    """Processes by implementation; `workers` of them work at a time.

    Args:
        specs: how each implementation is named, and the implementation, by its name.
        logs: folder for the processes' output. gpus: how many CUDA devices to spread the slots over.
        partners: what every implementation is compared with.
    """

    def __init__(
        self,
        specs: Mapping[str, tuple[str, Implementation]],
        device: str,
        workers: int,
        limits: Limits,
        *,
        logs: Path | None = None,
        gpus: int = 0,
        partners: Sequence[Partner] = (),
    ) -> None:
        self._specs = dict(specs)
        self._device, self._limits, self._logs, self._gpus = device, limits, logs, gpus
        self._partners = partners
        self._idle: list[tuple[str, int, Process]] = []  # the longest idle first
        self._slots: list[Slot | None] = [None] * workers
        self._started = 0

    @property
    def size(self) -> int:
        """How many slots there are."""
        return len(self._slots)

    def busy(self) -> list[Slot]:
        """Slots with work."""
        return [slot for slot in self._slots if slot is not None]

    def free(self) -> list[int]:
        """Numbers of slots without work."""
        return [number for number, slot in enumerate(self._slots) if slot is None]

    def give(self, number: int, name: str, request: Round) -> None:
        """Hand a round to an idle process of that implementation, or to a new one."""
        gpu = number % self._gpus if self._gpus else 0
        found = next((one for one in self._idle if one[:2] == (name, gpu)), None)
        if found is not None:
            self._idle.remove(found)
            process = found[2]
        else:
            process = self._start(name, gpu)
        process.send(request)
        slot = Slot(number=number, process=process, name=name, request=request, since=time.monotonic(), begun=request.skip)
        self._slots[number] = slot

    def release(self, slot: Slot) -> None:
        """The slot's process has nothing to do and stays loaded, unless there are too many such."""
        self._slots[slot.number] = None
        gpu = slot.number % self._gpus if self._gpus else 0
        self._idle.append((slot.name, gpu, slot.process))
        if len(self._idle) > len(self._specs) + len(self._slots):
            self._idle.pop(0)[2].kill()

    def replace(self, slot: Slot) -> None:
        """The slot's process is of no more use."""
        slot.process.kill()
        self._slots[slot.number] = None

    def stop(self) -> None:
        """End every process."""
        for slot in self.busy():
            self.replace(slot)
        for _, _, process in self._idle:
            process.kill()
        self._idle.clear()

    def _start(self, name: str, gpu: int) -> Process:
        spec, implementation = self._specs[name]
        log = None
        if self._logs is not None:
            self._logs.mkdir(parents=True, exist_ok=True)
            log = self._logs / f"{name}-{self._started % 64}.log"  # the oldest are written over: logs stay bounded
        self._started += 1
        return Process(
            spec,
            implementation.env,
            self._device,
            self._limits,
            log=log,
            gpu=gpu if self._gpus else None,
            partners=self._partners,
        )
