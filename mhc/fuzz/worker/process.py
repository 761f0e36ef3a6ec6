"""The watching side of a worker process: its crash, hang, memory and output become a verdict of the liveness gate."""

import multiprocessing
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mhc.environment import gpu_name
from mhc.fuzz.check.differential import Peer, PeerResult
from mhc.fuzz.worker.compiler_watch import Compilers
from mhc.fuzz.worker.forkserver import FORKSERVER, UNKNOWN, children, end_orphans, has_ended
from mhc.fuzz.worker.frames import Garbled, Reader
from mhc.fuzz.worker.limits import Limits, Peers, allocator_share, end_of, resident, size_of
from mhc.fuzz.worker.protocol import (
    STACKS,
    Begun,
    Checked,
    Comparing,
    Done,
    Fault,
    Judged,
    Message,
    Ran,
    Ready,
    Request,
    Running,
)
from mhc.implementation import place_of_crash
from mhc.oracles import liveness
from mhc.oracles.verdict import Verdict

_NESTED: Any = multiprocessing.get_context("spawn")  # what such a process starts is its own child, and dies with it
_WATCH = 0.25  # seconds between looks at a process that sends nothing
_LOOK = 0.1  # least seconds between looks at a process that sends: reading /proc costs as much as a message
_AWAY = 1.0  # seconds without a look that mean that this process was stopped; they do not count against the worker
_KILLED = 5.0  # seconds that a killed process may take to end; with a CUDA device it takes long
_SAMPLES = 4  # looks for a compiler within one run limit
_CHILDREN = 64
_COUNT = 1.0  # least seconds between counts of them: a file for each thread


Target = Callable[[Connection, str, str, str | None, Mapping[str, str], Any], None]
"""The function that a process runs: see `mhc.fuzz.worker.main.serve`."""
Answer = TypeVar("Answer", Judged, PeerResult, Ready)


@dataclass(frozen=True)
class WorkerLost:
    """A process ended because its machine or server did: no case is to blame, and none is judged by it.

    Attributes:
        server: its server has ended; the case in hand may have killed it, or one in another process, or the system.
    """

    message: str
    server: bool = False


End = Verdict | WorkerLost | Fault
"""How a process ended: by a failure of the case, without its machine, or by a fault of the reference or the harness."""


class HarnessError(Exception):
    """A fault of the harness itself, not of an implementation."""


class Process:
    """A worker process. `receive` yields its messages; `exit_verdict` says how it ended, or why it must end.

    Args:
        spec: how the implementation is named; the process loads it itself, with `variables` set beforehand.
        log: file for its standard output and error. gpu: the one CUDA device that it sees.
        peers: what every case is compared with; each runs in a process that this one starts and watches.
        peer_limits: what such a process may use; the same as this one where not given.
        target: what the process does.

    Attributes:
        doing: its activity in a word, for displays. since: monotonic time when that began.
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
        peers: Sequence[Peer] = (),
        peer_limits: Limits | None = None,
        target: Target,
    ) -> None:
        self.spec = spec
        self.limits = limits
        self.log = log
        self.ready = False
        self._asked = False
        self._garbled = False
        self._compilers: Compilers | None = None
        self._called = self._called_now = False  # the implementation: ever, and in the current case
        self._begun = False  # a call whose time without a core is not counted yet
        self._compiled = self._sampled = 0.0  # when a compiler was last seen at work, and when one was last looked for
        self._silent: float | None = (
            None  # since when the pipe is closed: the process has ended, is about to end, or has closed it
        )
        self._looked = self._counted = 0.0
        context = FORKSERVER if multiprocessing.parent_process() is None else _NESTED
        here, there = context.Pipe()
        own = dict(variables)
        if gpu is not None:
            own["CUDA_VISIBLE_DEVICES"] = gpu_name(gpu)
        if device == "cuda" and limits.gpu_share < 1.0:
            own |= allocator_share({**os.environ, **own}, limits.gpu_share)
        written = None if log is None else str(log)
        compared = Peers(peers=tuple(peers), limits=peer_limits or limits, log=log, gpu=gpu) if peers else None
        self._process = context.Process(target=target, args=(there, spec, device, written, own, compared))
        self._process.start()
        there.close()
        self.connection: Connection = here
        self._reader = Reader(here)
        self._expect("starting", limits.start)

    def send(self, request: Request) -> None:
        """Hand over work, which waits where the process is not ready yet. `exit_verdict` finds a process that is gone."""
        self._asked = True
        if self.ready:
            self._expect("drawing", self.limits.idle)
        with suppress(OSError):
            self.connection.send(request)

    @property
    def silent(self) -> bool:
        """Return whether all messages that it can ever send were received."""
        return self._silent is not None

    @property
    def awaited(self) -> Connection | int:
        """Return what to wait for: the connection, or the process's end if that is closed."""
        return self.connection if self._silent is None else self._process.sentinel

    def receive(self) -> Iterator[Message]:
        """Yield the messages that have arrived, without waiting."""
        while self._silent is None:
            try:
                message: Message | None = self._reader.next()
            except Garbled:
                self._garbled, message = True, None
            if self._garbled or self._reader.closed:
                self._silent = time.monotonic()
            if message is None:
                return
            self._note(message)
            yield message

    def answer(self, kind: type[Answer], waiting: Callable[[], None] = lambda: None) -> tuple[Answer | None, Verdict | None]:
        """Wait for the next message of a kind, or the verdict on the end of the process.

        Args:
            waiting: called several times a second.

        Raises:
            HarnessError: a fault of the harness, or an end that is no case's fault.
        """
        answer: Answer | None = None
        ended: End | None = None
        while answer is None and ended is None:
            answer = self._next(kind)  # it may have arrived with an earlier message
            if answer is not None:
                break
            attend([self], _WATCH)
            waiting()
            answer = self._next(kind)
            ended = None if answer is not None else self.exit_verdict()
        if answer is None:
            answer = self._next(kind)  # sent between the last look and its end
        if isinstance(ended, (WorkerLost, Fault)):
            raise HarnessError(f"worker of {self.spec}: {ended.message}")
        return answer, ended

    def _next(self, kind: type[Answer]) -> Answer | None:
        for message in self.receive():
            if isinstance(message, Fault):
                raise HarnessError(f"worker of {self.spec}: {message.message}")
            if isinstance(message, kind):
                return message
        return None

    def await_ready(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Wait until the implementation is loaded; `waiting` is called several times a second.

        Raises:
            HarnessError: it cannot be loaded, which is no failing case.
        """
        if self.ready:
            return
        ready, ended = self.answer(Ready, waiting)
        if ready is None:
            assert ended is not None
            self.kill()
            raise HarnessError(f"worker of {self.spec} did not load it: {ended.message}")

    def _note(self, message: Message) -> None:
        limits = self.limits
        match message:
            case Ready():
                self.ready = True
                if message.stacks is not None and self._process.pid is not None:
                    self._compilers = Compilers(self._process.pid, message.stacks, STACKS, message.programs)
                if self._asked:
                    self._expect("drawing", limits.idle)
                else:
                    self._expect("waiting", float("inf"))
            case Begun():
                self._expect("judging", limits.judge)
                self._called_now = False
            case Ran():
                self._expect("judging", limits.judge)
            case Running():
                self._expect("running", limits.compile + limits.run)
                self._called = self._called_now = self._begun = True
            case Comparing():
                self._expect("comparing", limits.idle)
            case Checked():
                self._expect("drawing", limits.idle)
            case Judged() | PeerResult() | Done():
                self._asked = False
                self._expect("waiting", float("inf"))
            case Fault():
                self._expect("ending", limits.parting)

    def _expect(self, doing: str, seconds: float) -> None:
        self.doing = doing
        self.since = self._watched = self._compiled = self._sampled = time.monotonic()
        self._limit = seconds

    def exit_verdict(self) -> End | None:
        """Return the verdict on a process that has ended or must be ended, whose current case is to blame; None otherwise.

        Call it after all messages were received. It looks at most ten times a second.
        """
        now = time.monotonic()
        if not self.silent and now - self._looked < _LOOK:
            return None
        if now - self._watched > _AWAY:
            self._excuse(now - self._watched)
        self._looked = self._watched = now
        if self._garbled:
            return liveness.wrote_to_pipe()
        if not self._process.is_alive():
            if self._process.exitcode == UNKNOWN:
                return WorkerLost("the server that its process was forked from has ended", server=True)
            how = self._exit()
            if self.doing == "judging" and not self._called:
                return Fault(message=f"{liveness.IN_REFERENCE}: {how}")
            place = place_of_crash(end_of(self.log))
            return liveness.died(how, called=self._called_now or self.doing != "judging", place=place)
        if self._silent is not None and now - self._silent > self.limits.parting:
            return liveness.closed_pipe(self.limits.parting)
        used = resident(self._process.pid)
        if used > self.limits.memory:
            return liveness.exceeded_memory(used, self.limits.memory)
        if self.log is not None and size_of(self.log) > self.limits.output:
            return liveness.flooded_output(self.limits.output)
        if now - self._counted > _COUNT and self._process.pid is not None:
            self._counted = now
            if len(started := children(self._process.pid)) > _CHILDREN:
                ended = sum(has_ended(one) for one in started)
                return liveness.left_processes(len(started) - ended, ended)
        return self._hung(now)

    def _hung(self, now: float) -> Verdict | None:
        """Return the verdict on a process that has taken too long; None otherwise.

        Within a call, time does not count in which a compiler ran or Triton's interpreter began another program, or in which
        no core was free for the process. Before the
        verdict it looks once more, for what was without a core since the last look.
        """
        if now - self.since > self._limit:
            return liveness.hung(self._limit)
        limits = self.limits
        if self.doing != "running" or self._compilers is None or limits.compile == 0:
            return None
        if self._begun:  # at the first look at a call: most have ended before it, and each costs a file a thread
            self._begun = False
            self._compilers.begin()
        if now - self._sampled > max(_WATCH, limits.run / _SAMPLES) or now - self._compiled > limits.run:
            if self._compilers.running(self.since):
                self._compiled = now
            self._compiled = min(now, self._compiled + self._compilers.starved)
            self._sampled = now
        return liveness.hung(limits.run) if now - self._compiled > limits.run else None

    def _excuse(self, seconds: float) -> None:
        """Do not count seconds in which this process was stopped, and the worker was not watched."""
        self.since += seconds
        self._compiled += seconds
        self._sampled += seconds
        if self._silent is not None:
            self._silent += seconds

    def _exit(self) -> str:
        """Return how it ended, in a word."""
        code = self._process.exitcode
        if code is None or code >= 0:
            return f"exit {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:  # one of the real-time signals
            return f"signal {-code}"

    def pause(self, *, stopped: bool) -> None:
        """Stop or continue the process."""
        if self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGSTOP if stopped else signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process and all that it has started."""
        if self._process.pid is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.join(_KILLED)
        end_orphans()
        self._reader.close()
        self.connection.close()
        if self.log is not None and size_of(self.log) > self.limits.output:
            os.truncate(self.log, int(self.limits.output))  # output between two looks must not fill a disk


class Awaited(Protocol):
    """What can be waited for: a connection, or a descriptor that becomes readable."""

    @property
    def awaited(self) -> Connection | int: ...


_Awaited = TypeVar("_Awaited", bound=Awaited)


def attend(processes: Sequence[_Awaited], seconds: float) -> list[_Awaited]:
    """Sleep until some of `processes` have sent something or ended, at most `seconds`; return those."""
    sleeping, found = select.poll(), dict[int, _Awaited]()
    for process in processes:
        awaited = process.awaited
        found[awaited if isinstance(awaited, int) else awaited.fileno()] = process
        sleeping.register(awaited, select.POLLIN)
    return [found[number] for number, _ in sleeping.poll(1000 * seconds)]
