"""The Ray actor of a slot: starts worker processes on its machine, watches them, and returns their messages."""

import hashlib
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from mhc.files import file_name
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.minimise.minimise import run_minimise
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.process import End, Process, Target, attend
from mhc.fuzz.worker.protocol import Begun, Done, Fault, Message, Minimise, Request, Round
from mhc.registry import load

_WATCH = 0.25  # seconds between looks at a process that sends nothing
_AT_ONCE = (Done, Fault)  # messages that are sent at once
_SOON = (Begun,)  # sent `_APART` after the last answer; all other messages go along
_APART = 0.2  # seconds: an answer costs a millisecond of CPU time in the main process, and two or three here
_LOGS = 64


@dataclass(frozen=True, kw_only=True)
class Start:
    """How to start a process of an implementation."""

    name: str
    spec: str
    variables: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ActorAnswer:
    """The messages of a process since the last answer, and the verdict on its end.

    Attributes:
        doing: its activity in a word. seconds: since when.
    """

    messages: tuple[Message, ...]
    ended: End | None
    doing: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ActorInfo:
    """The machine of an actor. tree: digest of its sources; actors with different sources must not work together."""

    host: str
    pid: int
    python: str
    tree: str


class RayActor:
    """The processes of one slot, each under a key. Ray runs its calls one at a time, in their order.

    Args:
        logs: folder for the processes' output; a temporary one if it is not on this machine.
        target: as for `mhc.fuzz.worker.process.Process`.
    """

    def __init__(
        self, device: str, limits: Limits, peers: Sequence[Peer], logs: Path | None, slot: int, target: Target = serve
    ) -> None:
        self._device, self._limits, self._peers, self._slot = device, limits, tuple(peers), slot
        self._target = target
        self._processes: dict[int, Process] = {}
        self._logs = logs if logs is not None and logs.is_dir() else Path(tempfile.mkdtemp(prefix="mhc-fuzz-"))
        self._started = 0
        self._answered = 0.0
        self._apart = _APART
        # A new process imports the main module of this process, here Ray's, and inherits its module path, which Ray extends
        # by the folder of this file.
        vars(sys.modules["__main__"]).pop("__file__", None)
        sys.path[:] = [place for place in sys.path if Path(place) != Path(__file__).parent]

    def hello(self) -> ActorInfo:
        return about()

    def work(self, key: int, start: Start | None, request: Request | None, seconds: float) -> ActorAnswer | None:
        """Hand over a request, if given; then return the messages of the process, after at most `seconds`.

        Answers are some time apart, except in a round whose worker was lost before: there each case is sent as it begins, so
        that one which takes a machine down is known by name on the second machine, if it was not on the first.

        Args:
            start: how to start the process if there is none under the key.

        Returns:
            None if there is no such process: the actor that had it is gone.
        """
        process = self._processes.get(key)
        if process is None:
            if start is None:
                return None
            process = self._processes[key] = self._start(start)
        if request is not None:
            self._apart = 0.0 if isinstance(request, Round) and request.skip else _APART
            process.send(request)
        messages: list[Message] = []
        ended: End | None = None
        until = time.monotonic() + seconds
        while ended is None and time.monotonic() < until and not any(isinstance(one, _AT_ONCE) for one in messages):
            if any(isinstance(one, _SOON) for one in messages):
                until = min(until, self._answered + self._apart)
            attend([process], max(0.0, min(_WATCH, until - time.monotonic())))
            messages.extend(process.receive())
            ended = process.exit_verdict()
        if ended is not None:
            messages.extend(process.receive())  # said between the last look and its end
        self._answered = time.monotonic()
        return ActorAnswer(
            messages=tuple(messages), ended=ended, doing=process.doing, seconds=time.monotonic() - process.since
        )

    def minimise(self, start: Start, request: Minimise) -> ActorAnswer:
        """Minimise a finding, in processes that this one starts."""
        began = time.monotonic()
        log = self._logs / f"minimise-{request.finding.fingerprint.id}.log"
        answer = run_minimise(request, lambda: load(start.spec), self._device, self._limits, log=log)
        return ActorAnswer(messages=(answer,), ended=None, doing="minimising", seconds=time.monotonic() - began)

    def kill(self, key: int) -> None:
        process = self._processes.pop(key, None)
        if process is not None:
            process.kill()

    def _start(self, start: Start) -> Process:
        log = self._logs / f"{file_name(start.name)}-{self._slot}-{self._started % _LOGS}.log"
        self._started += 1
        return Process(
            start.spec, start.variables, self._device, self._limits, log=log, peers=self._peers, target=self._target
        )  # the actor sees one CUDA device, and so does what it starts


def about() -> ActorInfo:
    """Return the machine that this process runs on."""
    return ActorInfo(host=socket.gethostname(), pid=os.getpid(), python=sys.version.split()[0], tree=_tree())


def _tree() -> str:
    """Return a digest of the package's sources."""
    digest = hashlib.sha256()
    for name in ("mhc", "mhc.oracles", "mhc.strategies"):
        package = Path(import_module(name).__path__[0])
        for path in sorted(package.rglob("*.py")):
            digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
