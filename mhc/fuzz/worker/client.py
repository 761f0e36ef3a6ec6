"""The client of a worker: checks single cases on one implementation, in a process that they may crash or hang."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from mhc import drawn_case
from mhc.drawn_case import DrawnCase
from mhc.fuzz.check.differential import Peer
from mhc.fuzz.check.level import Level
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.main import serve
from mhc.fuzz.worker.process import Process
from mhc.fuzz.worker.protocol import Check, Judged
from mhc.fuzz.worker.session import device_lost
from mhc.oracles.verdict import Verdict
from mhc.registry import Tested


class WorkerClient:
    """A worker process for one implementation; started when first needed, retired when it dies.

    Args:
        spec: how the implementation is named; the process loads it itself, with `implementation.env` set beforehand.
        limit: seconds that one call of the implementation may take, with what is judged of it; a case has up to twenty.
        limits: what its process may use beside.
        log: file for what the process writes; the parent's own output where not given. gpu: the one CUDA device it sees.
        peers: what every case is compared with, within limits of their own: the case's limit is not theirs.
        waiting: called several times a second while a case runs; what it raises ends the wait.

    Attributes:
        compiled: programs compiled for the cases so far, where the implementation counts them.
        judged: the last case that was judged, without a schedule that was refused.
    """

    def __init__(
        self,
        spec: str,
        implementation: Tested,
        device: str,
        *,
        limit: float = 60.0,
        limits: Limits | None = None,
        log: Path | None = None,
        gpu: int | None = None,
        peers: Sequence[Peer] = (),
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.spec = spec
        self.implementation = implementation
        self.device = device
        self.limit = limit
        self.limits = replace(limits or Limits(), compile=0.0, run=limit)
        self.retired = False
        self.compiled = 0
        self.judged: DrawnCase | None = None
        self._log, self._gpu = log, gpu
        self._peers = peers
        self._waiting = waiting
        self._process: Process | None = None

    def start(self, case: DrawnCase, depth: Level = Level.DRAWN, *, measure: bool = False, rare_gate: int = -1) -> None:
        """Hand over a case; `finish` has its verdicts, and with `measure` the errors that they were judged by.

        Args:
            rare_gate: the number of a rare gate that judges it too.
        """
        process = self._process or self._begin()
        process.send(Check(case=case.json, depth=depth, measure=measure, rare_gate=rare_gate))

    def finish(self) -> list[Verdict]:
        """Return the verdicts on the case that was handed over. A death or a hang is one too, and retires the worker.

        So does a case that loses the device: its process ends behind its answer.
        """
        assert self._process is not None
        answer, ended = self._process.answer(Judged, self._waiting)
        if ended is not None or (answer is not None and device_lost(answer.verdicts)):
            self._retire()
        if answer is None:
            assert ended is not None
            return [ended]
        self.compiled += answer.compiled
        self.judged = drawn_case.read(answer.case)
        return list(answer.verdicts)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _retire(self) -> None:
        self.stop()
        self.retired = True

    def _begin(self) -> Process:
        self._process = Process(
            self.spec,
            self.implementation.env,
            self.device,
            self.limits,
            log=self._log,
            gpu=self._gpu,
            peers=self._peers,
            peer_limits=Limits(),
            target=serve,
        )
        try:
            self._process.await_ready(self._waiting)
        except BaseException:
            self.stop()
            raise
        return self._process
