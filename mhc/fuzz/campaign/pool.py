"""The pool: slots that work at the same time, and idle processes that keep their implementation loaded."""

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from mhc.fuzz.executors.local import Executor, RunningWork, Specs
from mhc.fuzz.worker.protocol import Minimise, Round

_ENDINGS = 32  # processes that are ended at the same time


@dataclass
class Slot:
    """A place for one working process.

    Attributes:
        name, request, since: the implementation, the work, and the monotonic time when it was handed out.
        begun: cases of the round that were begun, those skipped included. novel: it yielded something new.
        case: the case in hand, and `at` its number. last: the one that was judged last in this round.
        open: numbers of cases below `begun` that are to be judged: the one in hand, and programs that are lowered with it.
    """

    number: int
    process: RunningWork
    name: str
    request: Round | Minimise
    since: float
    begun: int = 0
    novel: bool = False
    case: str | None = None
    at: int = 0
    open: set[int] = field(default_factory=set)
    last: str | None = None


class Pool:
    """Worker processes by implementation; as many work at a time as the executor has slots.

    Args:
        idle: processes that may stay loaded beside one in each slot of a group; None: one for each implementation.
    """

    def __init__(self, specs: Specs, executor: Executor, idle: int | None = None) -> None:
        self.executor = executor
        self._implementations = len(specs)
        self._idle: list[tuple[str, int, RunningWork]] = []  # the longest idle first
        self._threads = ThreadPoolExecutor(_ENDINGS)
        self._ending: list[tuple[int, Future[None]]] = []  # by groups: processes that were killed and have not ended
        self._slots: list[Slot | None] = [None] * executor.slots
        self._groups = [executor.group(number) for number in range(executor.slots)]
        self._together = Counter(self._groups)
        self._most_idle = idle

    @property
    def size(self) -> int:
        """Return the number of slots."""
        return len(self._slots)

    @property
    def down(self) -> bool:
        """Return whether there is a slot without work that cannot get any yet."""
        return any(slot is None and not self.executor.up(number) for number, slot in enumerate(self._slots))

    def busy(self) -> list[Slot]:
        """Return the slots with work."""
        return [slot for slot in self._slots if slot is not None]

    def free(self) -> list[int]:
        """Return the numbers of slots that can get work."""
        return [number for number, slot in enumerate(self._slots) if slot is None and self.executor.up(number)]

    def loaded(self, number: int) -> set[str]:
        """Return the implementations of which a process waits for work that a slot gets."""
        return {name for name, group, _ in self._idle if group == self._groups[number]}

    def make_room(self, number: int) -> bool:
        """Return whether a slot's device has room for one more process; otherwise it gets some soon.

        A process that ends has its memory until then. If none ends, the one that is idle for longest is ended.
        """
        if self._most_idle is None:
            return True
        group = self._groups[number]
        idle = sum(near == group for _, near, _ in self._idle)
        ending = sum(near == group and not future.done() for near, future in self._ending)
        if idle + ending < self._most_idle + self._free(group):
            return True
        if not ending:
            self._trim(group, idle - 1)
        return False

    def wait(self, seconds: float) -> list[Slot]:
        """Wait until a busy slot may have a message, at most `seconds`; return such slots."""
        busy = {id(slot.process): slot for slot in self._slots if slot is not None}
        return [busy[id(one)] for one in self.executor.wait([slot.process for slot in busy.values()], seconds)]

    def minimise(self, number: int, name: str, request: Minimise) -> None:
        """Have a slot minimise a finding of that implementation."""
        since = time.monotonic()
        process = self.executor.minimise(number, name, request)
        self._slots[number] = Slot(number=number, process=process, name=name, request=request, since=since)

    def give(self, number: int, name: str, request: Round) -> None:
        """Hand a round to an idle process of that implementation, or to a new one."""
        since = time.monotonic()
        group = self._groups[number]
        found = next((one for one in reversed(self._idle) if one[:2] == (name, group)), None)
        if found is not None:
            self._idle.remove(found)
            process = found[2]
        else:
            process = self.executor.start(number, name)
        process.send(request)
        slot = Slot(number=number, process=process, name=name, request=request, since=since, begun=request.skip)
        slot.open |= request.again
        self._slots[number] = slot

    def release(self, slot: Slot) -> None:
        """Keep the slot's process loaded and idle, unless too many are."""
        self._slots[slot.number] = None
        group = self._groups[slot.number]
        self._idle.append((slot.name, group, slot.process))
        most = self._implementations + self._together[group] - 1
        self._trim(group, most if self._most_idle is None else min(most, self._most_idle + self._free(group)))

    def _free(self, group: int) -> int:
        """Return how many slots of a group have no work."""
        return self._together[group] - sum(self._groups[slot.number] == group for slot in self.busy())

    def _trim(self, group: int, most: int) -> None:
        """End the processes of a group that are idle for longest, but for so many."""
        near = [one for one in self._idle if one[1] == group]
        for one in near[: max(0, len(near) - most)]:
            self._idle.remove(one)
            self._end(group, one[2])

    def _end(self, group: int, process: RunningWork) -> None:
        """End a process in a thread, since one with a CUDA device takes seconds to end."""
        try:
            self._ending.append((group, self._threads.submit(process.kill)))
        except RuntimeError:  # no thread can be started
            process.kill()

    def failed_ends(self) -> list[BaseException]:
        """Return the exceptions of processes that could not be ended since the last call."""
        ended = [one for one in self._ending if one[1].done()]
        self._ending = [one for one in self._ending if one not in ended]
        return [error for _, future in ended if (error := future.exception()) is not None]

    def replace(self, slot: Slot) -> None:
        """End the slot's process."""
        self._slots[slot.number] = None
        self._end(self._groups[slot.number], slot.process)

    def pause(self, *, stopped: bool) -> None:
        """Stop every working process, or continue all."""
        for slot in self.busy():
            slot.process.pause(stopped=stopped)

    def stop(self) -> None:
        """End all processes."""
        for slot in self.busy():
            self.replace(slot)
        for _, group, process in self._idle:
            self._end(group, process)
        self._idle.clear()
        self._threads.shutdown()
        self.executor.stop()
