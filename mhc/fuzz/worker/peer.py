"""Peers: implementations that a worker compares its own with, each in a process that the worker starts and watches.

The two implementations may need different environment variables before anything is imported, and a crash of the peer must
not count as a crash of the implementation under test.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from mhc.case import Case
from mhc.files import file_name
from mhc.fuzz.check.differential import Peer, PeerResult
from mhc.fuzz.worker.limits import Peers
from mhc.fuzz.worker.process import Process, Target
from mhc.fuzz.worker.protocol import Begun, Comparing, Message, Observe, Running
from mhc.fuzz.worker.session import device_lost
from mhc.implementation import Implementation
from mhc.inputs import materialise
from mhc.observation import observe
from mhc.oracles import liveness
from mhc.oracles.verdict import Verdict, failed
from mhc.reference import reference

_MOST_CRASHES = 10  # in a row; each costs seconds, a hang costs minutes

Send = Callable[[Message], None]


def run(implementation: Implementation, text: str, device: str, send: Send) -> bool:
    """Run a case for another process, and send the result. Return False where the device is lost."""
    send(Begun(case=text, number=0))
    inputs = materialise(Case.from_json(text), device)
    saved = reference(inputs).saved
    send(Running(nth=1))
    done = observe(implementation, inputs, saved)
    tensors = pickle.dumps((done.outputs, done.gradients))
    send(PeerResult(refused=done.refused, failure=done.failure, tensors=tensors))
    return not device_lost(liveness.judge(done))


def start_peers(
    peers: Peers | None, device: str, bare: Mapping[str, str], send: Send, target: Target
) -> tuple["PeerProcess", ...]:
    """Return the peers of a worker; each process starts when it is first asked.

    Args:
        bare: the environment without what the worker's own implementation needs. send: to who watches the worker.
        target: what the processes run: `mhc.fuzz.worker.main.serve`.
    """
    if peers is None:
        return ()
    return tuple(PeerProcess(peer, device, peers, bare, send, target) for peer in peers.peers)


class PeerProcess:
    """A peer's process, started when it is first asked. It is disabled after `_MOST_CRASHES` crashes or hangs in a row."""

    def __init__(self, peer: Peer, device: str, peers: Peers, bare: Mapping[str, str], send: Send, target: Target) -> None:
        self.peer = peer
        self._device = device
        self._peers = peers
        self._bare = bare
        self._send, self._target = send, target
        self._process: Process | None = None
        self._ends = 0

    def run(self, case: Case) -> PeerResult | Verdict:
        """Return the result on `case`, or the verdict on the end of the process.

        Raises:
            HarnessError: the peer cannot be loaded, or its process met a fault of the harness.
        """
        if self._ends >= _MOST_CRASHES:
            return failed(
                liveness.NAME, "process", "not asked", f"ended {_MOST_CRASHES} times in a row, and is not asked any more"
            )
        process = self._started()
        process.send(Observe(case=case.json))
        answer, ended = process.answer(PeerResult, lambda: self._send(Comparing()))
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
            list(self._process.receive())  # notices a closed pipe: a process that has lost its device ends after its answer
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
                    target=self._target,
                )
            self._process.await_ready(lambda: self._send(Comparing()))
        return self._process


@contextmanager
def _exactly(variables: Mapping[str, str]) -> Iterator[None]:
    """Set exactly these environment variables, which a new process inherits, and restore the old ones."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
