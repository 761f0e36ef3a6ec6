"""A process that serves one implementation, watched from outside: its end, time, memory and output.

What a kernel does to its process is seen here and nowhere else, and becomes a verdict of the liveness gate.
"""

import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from mhc.fuzz.fresh import FRESH
from mhc.fuzz.messages import (
    Begun,
    Checked,
    Comparing,
    Done,
    Fault,
    Judged,
    Message,
    Observed,
    Partner,
    Ready,
    Request,
    Running,
)
from mhc.fuzz.serve import serve
from oracles import liveness
from oracles.verdict import Verdict

_NESTED: Any = multiprocessing.get_context("spawn")  # what such a process starts is a child of its own, and dies with it
_WATCH = 0.25  # seconds between looks at a process that says nothing
_LOOK = 0.1  # least seconds between looks at a process that talks: /proc costs as much as a message does


Target = Callable[[Connection, str, str, str | None, Mapping[str, str], Any], None]
"""What a process does: see `mhc.fuzz.serve.serve`."""
Answer = TypeVar("Answer", Judged, Observed, Ready)


class HarnessError(Exception):
    """A fault of the harness itself, not of an implementation."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a process may use.

    Attributes:
        start: seconds to load the implementation. idle: between two cases, to draw the next.
        compile, run: seconds. One call may take both: only the DSL knows when its compiler has finished.
        parting: seconds to end after its pipe was closed, which is how an end shows first.
        memory: resident bytes. output: bytes on standard output and error, together.
    """

    start: float = 180.0
    idle: float = 120.0
    compile: float = 120.0
    run: float = 60.0
    parting: float = 10.0
    memory: float = 8 << 30
    output: int = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Company:
    """What a process is told of those that its implementation is compared with. limits, log, gpu: as for `Process`."""

    partners: tuple[Partner, ...]
    limits: Limits
    log: Path | None
    gpu: int | None


class Process:
    """One process. `receive` has what it said; `fate` says how it ended or that it must.

    Args:
        spec: how the implementation is named; the process loads it itself, with `variables` set beforehand.
        log: file for its standard output and error. gpu: the one CUDA device that it sees.
        partners: what every case is compared with; each runs in a process that this one starts and watches.
        partner_limits: what such a process may use; the same as this one where not given.
        target: what the process does.

    Attributes:
        doing: in a word, for displays. since: monotonic time when that began.
    """

    def __init__(
        self,
        spec: str,
        variables: Mapping[str, str],
        device: str,
        limits: Limits,
        *,
        log: Path | None = None,
        gpu: int | None = None,
        partners: Sequence[Partner] = (),
        partner_limits: Limits | None = None,
        target: Target = serve,
    ) -> None:
        self.spec = spec
        self.limits = limits
        self.log = log
        self.ready = False
        self._asked = False
        self._silent: float | None = None  # since when the pipe is closed: it has ended, or is about to, or has lost it
        self._looked = 0.0
        context = FRESH if multiprocessing.parent_process() is None else _NESTED
        here, there = context.Pipe()
        own = {**variables, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)})}
        written = None if log is None else str(log)
        company = Company(partners=tuple(partners), limits=partner_limits or limits, log=log, gpu=gpu) if partners else None
        self._process = context.Process(target=target, args=(there, spec, device, written, own, company))
        self._process.start()
        there.close()
        self.connection: Connection = here
        self._arrived = select.poll()  # an eighth of what `Connection.poll` costs, and the main process asks at each message
        self._arrived.register(here, select.POLLIN)
        self._expect("starting", limits.start)

    def send(self, request: Request) -> None:
        """Hand over work, which waits where the process is not ready yet. A process that is gone is found by `fate`."""
        self._asked = True
        if self.ready:
            self._expect("drawing", self.limits.idle)
        with suppress(OSError):
            self.connection.send(request)

    @property
    def silent(self) -> bool:
        """Whether everything has been received that it can ever say."""
        return self._silent is not None

    @property
    def awaited(self) -> Connection | int:
        """What to wait for: its next message, or its end."""
        return self.connection if self._silent is None else self._process.sentinel

    def receive(self) -> Iterator[Message]:
        """What has arrived, without waiting.

        Raises:
            HarnessError: the process met a fault of the harness.
        """
        while self._silent is None:
            try:
                if not self._arrived.poll(0):
                    return
                message: Message = self.connection.recv()
            except (EOFError, OSError):
                self._silent = time.monotonic()
                return
            self._note(message)
            yield message

    def answer(self, kind: type[Answer], waiting: Callable[[], None] = lambda: None) -> tuple[Answer | None, Verdict | None]:
        """The next message of a kind, or the verdict on the end of the process.

        Args:
            waiting: is called now and then.

        Raises:
            HarnessError: the process met a fault of the harness.
        """
        answer: Answer | None = None
        fate: Verdict | None = None
        while answer is None and fate is None:
            attend([self], _WATCH)
            waiting()
            answer = self._next(kind)
            fate = None if answer is not None else self.fate()
        if answer is None:
            answer = self._next(kind)  # said between the last look and its end
        return answer, fate

    def _next(self, kind: type[Answer]) -> Answer | None:
        return next((message for message in self.receive() if isinstance(message, kind)), None)

    def await_ready(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Wait until the implementation is loaded; `waiting` is called now and then.

        Raises:
            HarnessError: it cannot be; that is not a failing case.
        """
        if self.ready:
            return
        ready, fate = self.answer(Ready, waiting)
        if ready is None:
            assert fate is not None
            self.kill()
            raise HarnessError(f"worker of {self.spec} did not load it: {fate.message}")

    def _note(self, message: Message) -> None:
        limits = self.limits
        match message:
            case Ready():
                self.ready = True
                if self._asked:
                    self._expect("drawing", limits.idle)
                else:
                    self._expect("waiting", float("inf"))
            case Begun():
                self._expect("judging" if message.number >= 0 else "shrinking", limits.idle)
            case Running():
                self._expect("running", limits.compile + limits.run)
            case Comparing():
                self._expect("comparing", limits.idle)
            case Checked():
                self._expect("drawing", limits.idle)
            case Judged() | Observed() | Done():
                self._asked = False
                self._expect("waiting", float("inf"))
            case Fault():
                raise HarnessError(f"worker of {self.spec}: {message.message}")

    def _expect(self, doing: str, seconds: float) -> None:
        self.doing = doing
        self.since = time.monotonic()
        self._limit = seconds

    def fate(self) -> Verdict | None:
        """Why the process is at its end, or has to be: what it has in hand is to blame. None while all is well.

        Everything that it sent must have been received before. Looks at most ten times a second.
        """
        now = time.monotonic()
        if not self.silent and now - self._looked < _LOOK:
            return None
        self._looked = now
        if not self._process.is_alive():
            return liveness.died(self._exit())
        if self._silent is not None and now - self._silent > self.limits.parting:
            return liveness.deaf(self.limits.parting)
        used = _resident(self._process.pid)
        if used > self.limits.memory:
            return liveness.overgrown(used, self.limits.memory)
        if self.log is not None and _size(self.log) > self.limits.output:
            return liveness.flooded(self.limits.output)
        return liveness.hung(self._limit) if now - self.since > self._limit else None

    def _exit(self) -> str:
        """How it ended, in a word."""
        code = self._process.exitcode
        if code is not None and code < 0:
            return signal.Signals(-code).name
        return f"exit {code}"

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()
        if self.log is not None and _size(self.log) > self.limits.output:
            os.truncate(self.log, int(self.limits.output))  # what it wrote before the next look must not fill a disk


def attend(processes: Sequence[Process], seconds: float) -> list[Process]:
    """Sleep until some of them have said something or ended, and at most so long; which ones."""
    sleeping, found = select.poll(), {}
    for process in processes:
        awaited = process.awaited
        found[awaited if isinstance(awaited, int) else awaited.fileno()] = process
        sleeping.register(awaited, select.POLLIN)
    return [found[number] for number, _ in sleeping.poll(1000 * seconds)]


@contextmanager
def environment_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and put the old ones back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _resident(pid: int | None) -> int:
    """Bytes of memory that a process has in use; 0 where /proc does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
