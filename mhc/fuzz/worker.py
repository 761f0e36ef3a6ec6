"""A worker: one process that checks cases on one implementation, so that its crash or hang is nobody else's."""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection

from mhc.case import Case
from mhc.fuzz.depth import Depth
from mhc.implementation import Implementation
from oracles import liveness
from oracles.verdict import Verdict

_START_LIMIT = 120.0
_SPAWN = multiprocessing.get_context("spawn")


class HarnessError(Exception):
    """A fault of the harness itself, not of an implementation."""


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


class Worker:
    """A worker process for one implementation; started when first needed, retired when it dies.

    Args:
        spec: how the implementation is named; the process loads it itself, with `implementation.env` set beforehand.
        limit: seconds that one run of the implementation may take, with what is judged of it; a case has up to twenty.

    Attributes:
        compiled: programs compiled for the cases so far, where the implementation counts them.
    """

    def __init__(self, spec: str, implementation: Implementation, device: str, *, limit: float = 60.0) -> None:
        self.spec = spec
        self.implementation = implementation
        self.device = device
        self.limit = limit
        self.retired = False
        self.compiled = 0
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def start(self, case: Case, depth: Depth = Depth.DRAWN) -> None:
        """Hand over a case; `finish` has its verdicts."""
        if self._process is None:
            self._spawn()
        assert self._connection is not None
        self._connection.send((case.json, depth))

    def finish(self) -> list[Verdict]:
        """The verdicts on the case that was handed over. A death or a hang is one too, and retires the worker."""
        assert self._connection is not None
        try:
            answer = None
            while answer is None:  # one None for each run
                if not self._connection.poll(self.limit):
                    self._retire()
                    return [liveness.hung(self.limit)]
                answer = self._connection.recv()
        except (EOFError, ConnectionResetError):
            return [self._died()]
        if isinstance(answer, str):
            raise HarnessError(f"worker of {self.spec}: {answer}")
        verdicts: list[Verdict]
        verdicts, compiled = answer
        self.compiled += compiled
        return verdicts

    def stop(self) -> None:
        self._end()

    def _retire(self) -> None:
        self._end()
        self.retired = True

    def _spawn(self) -> None:
        here, there = _SPAWN.Pipe()
        with environment_variables(self.implementation.env):
            self._process = _SPAWN.Process(target=_work, args=(there, self.spec, self.device))
            self._process.start()
        there.close()
        self._connection = here
        if not here.poll(_START_LIMIT):
            self._end()
            raise HarnessError(f"worker of {self.spec} did not start within {_START_LIMIT:g} s")
        try:
            greeting = here.recv()
        except EOFError:
            raise HarnessError(f"worker of {self.spec} ended while loading it ({self._exit()})") from None
        if greeting != "ready":
            raise HarnessError(f"worker of {self.spec}: {greeting}")

    def _died(self) -> Verdict:
        how = self._exit()
        self.retired = True
        return liveness.died(how)

    def _exit(self) -> str:
        """How the process ended, in a word."""
        assert self._process is not None
        self._process.join(5)
        code = self._process.exitcode
        self._end()
        if code is not None and code < 0:
            return signal.Signals(-code).name
        return f"exit {code}"

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


def _work(connection: Connection, spec: str, device: str) -> None:
    """What the process does: load, say so, then answer case after case until the pipe closes."""
    import torch  # noqa: PLC0415  after the environment variables are in place

    from mhc.fuzz.check import check  # noqa: PLC0415
    from mhc.registry import load  # noqa: PLC0415

    torch.set_num_threads(1)
    try:
        implementation = load(spec)
    except Exception as error:  # the parent reports it
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send("ready")
    while True:
        try:
            text, depth = connection.recv()
        except EOFError:
            return
        before = _compiles(implementation)
        try:
            verdicts = check(implementation, Case.from_json(text), device, depth, on_run=lambda: connection.send(None))
        except Exception as error:  # `observe` catches what an implementation raises: this is ours
            connection.send(f"{type(error).__name__}: {error} on {text}")
            return
        connection.send((verdicts, _compiles(implementation) - before))


def _compiles(implementation: Implementation) -> int:
    return 0 if implementation.compiles is None else implementation.compiles()
