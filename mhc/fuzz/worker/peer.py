"""The process of an implementation that another is compared with, on both sides: the one that asks, and the one that runs.

It has a process of its own: the two may need different environments before anything is imported, and a crash of the one must
not be taken for the other's. The worker that compares starts it, watches it, and replaces it.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from mhc.case import Case
from mhc.files import file_name
from mhc.fuzz.check.differential import Peer, PeerResult
from mhc.fuzz.worker.limits import Peers
from mhc.fuzz.worker.process import Process
from mhc.fuzz.worker.protocol import Begun, Comparing, Message, Observe, Running
from mhc.fuzz.worker.session import device_lost
from mhc.implementation import Implementation
from mhc.inputs import materialise
from mhc.observation import observe
from mhc.reference import reference
from oracles import liveness
from oracles.verdict import Verdict, failed

_PATIENCE = 10  # ends in a row, each of which costs seconds, a hang minutes

Say = Callable[[Message], None]


def run(implementation: Implementation, text: str, device: str, say: Say) -> bool:
    """Run a case for another process, and tell what came of it. False: the device is lost."""
    say(Begun(case=text, number=0))
    inputs = materialise(Case.from_json(text), device)
    saved = reference(inputs).saved
    say(Running(nth=1))
    done = observe(implementation, inputs, saved)
    tensors = pickle.dumps((done.outputs, done.gradients))
    say(PeerResult(refused=done.refused, failure=done.failure, tensors=tensors))
    return not device_lost(liveness.judge(done))


def start_peers(peers: Peers | None, device: str, bare: Mapping[str, str], say: Say) -> tuple["PeerProcess", ...]:
    """Those that a worker compares with; none has started yet.

    Args:
        bare: the environment without what the worker's own implementation needs. say: tells who watches the worker.
    """
    if peers is None:
        return ()
    return tuple(PeerProcess(peer, device, peers, bare, say) for peer in peers.peers)


class PeerProcess:
    """One implementation in its own process, started when first asked. Where it ends again and again, it is left alone."""

    def __init__(self, peer: Peer, device: str, peers: Peers, bare: Mapping[str, str], say: Say) -> None:
        self.peer = peer
        self._device = device
        self._peers = peers
        self._bare = bare
        self._say = say
        self._process: Process | None = None
        self._ends = 0

    def run(self, case: Case) -> PeerResult | Verdict:
        """What it made of `case`; the verdict on its end where that is the answer.

        Raises:
            HarnessError: it cannot be loaded, or its process met a fault of the harness.
        """
        if self._ends >= _PATIENCE:
            return failed(
                liveness.NAME, "process", "not asked", f"ended {_PATIENCE} times in a row, and is not asked any more"
            )
        process = self._started()
        process.send(Observe(case=case.json))
        answer, ended = process.answer(PeerResult, lambda: self._say(Comparing()))
        if ended is not None:
            self.stop()
        if answer is not None:
            self._ends = 0
            return answer
        assert ended is not None
        self._ends += 1
        return ended

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _started(self) -> Process:
        if self._process is not None:
            list(self._process.receive())  # sees that its end is closed: it lost its device, and ends behind its answer
            if self._process.silent or self._process.exit_verdict() is not None:
                self.stop()
        if self._process is None:
            log, name = self._peers.log, file_name(self.peer.name)
            with _exactly(self._bare):
                self._process = Process(
                    self.peer.spec,
                    self.peer.variables,
                    self._device,
                    self._peers.limits,
                    log=None if log is None else log.with_name(f"{log.stem}@{name}.log"),
                    gpu=self._peers.gpu,
                )
            self._process.await_ready(lambda: self._say(Comparing()))
        return self._process


@contextmanager
def _exactly(variables: Mapping[str, str]) -> Iterator[None]:
    """These environment variables and no others, which a process that is started inherits."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
