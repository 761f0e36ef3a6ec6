"""Hunts for mutants with drawn cases, and with the suites that one would otherwise write; several at a time."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from queue import Queue

from mhc.bench.detection import suites
from mhc.bench.detection.hunt import Hunt, Subject, drawn_for, hunt
from mhc.bench.state import Results
from mhc.fuzz.worker.process import environment_variables
from mhc.registry import load
from oracles.mutants.record import BASES

_SPAWN = multiprocessing.get_context("spawn")
_START_LIMIT, _SUITES_LIMIT = 120.0, 300.0  # seconds; suites with real token counts take half a minute of a core
_SLOW = 25
"""How much longer a case takes in an interpreter."""


class State(Results[Hunt]):
    """Finished hunts."""

    key, kind = "hunts", Hunt


def detect(
    subjects: Sequence[Subject],
    state: State,
    *,
    count: int,
    seed: int,
    after: int,
    limit: float,
    jobs: int,
    clean: int | None = None,
    seconds: float = float("inf"),
    on_hunt: Callable[[Subject, Hunt], None] = lambda prey, result: None,
) -> list[Hunt]:
    """Hunt every subject that `state` does not have yet, `jobs` at a time; in the order of `subjects`.

    Args:
        count, seed: of the drawn cases, the same for all subjects of a base but for drawn thresholds.
        after, limit, seconds: as for `hunt`.
        clean: cases for what is clean, where that is not `count`; of a base that is not quick, a twenty-fifth of them.
    """

    def cases(prey: Subject) -> int:
        if clean is None or not prey.clean:
            return count
        return clean if BASES[prey.base].quick else max(1, clean // _SLOW)

    most: dict[tuple[str, str, int], int] = {}
    for prey in state.waiting(subjects):
        most[_sample(prey)] = max(cases(prey), most.get(_sample(prey), 0))
    drawn = {(base, device, own): drawn_for(base, many, seed + own, device) for (base, device, own), many in most.items()}
    chase = partial(hunt, after=after, limit=limit, seconds=seconds)
    with _suite_workers(jobs) as free:

        def one(prey: Subject) -> Hunt:
            result = chase(prey, drawn[_sample(prey)][: cases(prey)])
            worker = free.get()
            try:
                return replace(result, suites=worker.judge(prey))
            finally:
                free.put(worker)

        return state.complete(subjects, one, jobs, on_hunt)


def _sample(prey: Subject) -> tuple[str, str, int]:
    """Return a key: subjects with the same one are hunted with the same cases."""
    return prey.base, prey.device, prey.own


class _SuiteWorker:
    """A process that runs the fixed suites on one mutant after the other; a new one where a mutant ends it."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def judge(self, prey: Subject, limit: float = _SUITES_LIMIT) -> dict[str, list[str]]:
        """Return what each suite finds; a death or a hang fails them all."""
        if self._process is None:
            here, there = _SPAWN.Pipe()
            self._process = _SPAWN.Process(target=_judge, args=(there,))
            self._process.start()
            there.close()
            self._connection = here
            limit += _START_LIMIT
        assert self._connection is not None
        tests = (*suites.FIXED, *suites.FULL_SIZE) if BASES[prey.base].quick else suites.QUICK
        self._connection.send((prey.spec, tests, prey.device))
        try:
            if self._connection.poll(limit):
                answer: dict[str, list[str]] = self._connection.recv()
                return answer
            how = "hangs"
        except (EOFError, ConnectionResetError):
            how = "ends the process"
        self.stop()
        return {name: [how] for name in suites.COMPARATORS}

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


@contextmanager
def _suite_workers(jobs: int) -> Iterator["Queue[_SuiteWorker]"]:
    free: Queue[_SuiteWorker] = Queue()
    workers = [_SuiteWorker() for _ in range(jobs)]
    for worker in workers:
        free.put(worker)
    try:
        with environment_variables({"TRITON_INTERPRET": "1"}):
            yield free
    finally:
        for worker in workers:
            worker.stop()


def _judge(connection: Connection) -> None:
    """Run a suite worker."""
    import torch  # noqa: PLC0415  after the environment variables are in place

    torch.set_num_threads(1)
    while True:
        try:
            spec, tests, device = connection.recv()
        except EOFError:
            return
        connection.send(suites.judge(load(spec), tests, device))
