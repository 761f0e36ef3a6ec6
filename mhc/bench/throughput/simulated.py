"""A fleet of workers that sleep and report: what the main process of a campaign costs, and how many workers it can follow.

The messages of the workers are prepared in advance. The workers are behind pipes, as real ones are, or under Ray. Campaign
and store are the real ones.
"""

import multiprocessing
import pickle
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from mhc.bench.campaigns import campaign
from mhc.bench.detection.hunt import draw
from mhc.case import Case
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.executors.local import Executor, Specs
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.worker import frames
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Message, Minimise, Ready, Request, Round, Running
from mhc.implementation import Implementation
from mhc.operators.mhc_pre.table import PRE
from mhc.oracles.verdict import Verdict, failed
from mhc.registry import load
from mhc.strategies.regions import regions

IMPLEMENTATIONS = 5
_CASES = 120  # that the workers have to tell of
_RUNS = 2  # calls of the implementation in a case
_FAILING = 0.05  # of the cases, which is more than a campaign has
_HOSTED = 256  # workers in one process
_BUGS = 8  # of each implementation


@dataclass(frozen=True, kw_only=True)
class Script:
    """What the workers of one implementation send: the messages about each case.

    Attributes:
        sleep: seconds that a case takes.
    """

    sleep: float
    cases: tuple[tuple[Message, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The measurement of a simulated fleet.

    Attributes:
        seconds: that were measured, after the start of the workers; cases: in them. cpu: of the main process, in seconds.
        reports: of bugs by workers. bugs: that were to be found; met: of these. reported: by the campaign; kept: there.
    """

    workers: int
    seconds: float
    cases: int
    cpu: float
    reports: int
    bugs: int
    met: int
    reported: int
    kept: int

    @property
    def rate(self) -> float:
        return self.cases / self.seconds

    @property
    def cost(self) -> float:
        """Return the milliseconds of the main process's CPU time for a case."""
        return 1000 * self.cpu / self.cases

    @property
    def right(self) -> bool:
        """Return whether every bug that was met is reported and kept once."""
        return self.reported == self.kept == self.met


def write_scripts(folder: Path, sleep: float, seed: int = 0) -> dict[str, tuple[str, Implementation]]:
    """Write the messages that workers send, about real cases; return the spec and the implementation by name."""
    drawn, real = draw(_CASES, seed, {}), load("manual")
    subjects = [spec.name for spec in (*PRE.outputs, *PRE.gradients)]
    message = "{}[0, 0, 0] = 1.5, float64 1.0, bound 0.01"
    kinds = [(subject, symptom) for symptom in ("wrong", "nan") for subject in subjects][:_BUGS]
    bugs = [failed("bound", subject, symptom, message.format(subject)) for subject, symptom in kinds]
    specs = {}
    for name in (f"simulated-{number}" for number in range(IMPLEMENTATIONS)):
        implementation, path, luck = replace(real, name=name), folder / f"{name}.pickle", random.Random(f"{seed} {name}")
        cases = tuple(_messages(str(path), implementation, case, bugs, luck, sleep) for case in drawn)
        path.write_bytes(pickle.dumps(Script(sleep=sleep, cases=cases)))
        specs[name] = (str(path), implementation)
    return specs


def _script(spec: str) -> Script:
    script: Script = pickle.loads(Path(spec).read_bytes())
    return script


def _messages(
    spec: str, implementation: Implementation, case: Case, bugs: list[Verdict], luck: random.Random, sleep: float
) -> tuple[Message, ...]:
    """Return the messages about one case, in which an implementation fails now and then."""
    checked = Checked(
        case=case.json,
        findings=(finding(spec, implementation, case, luck.choice(bugs)),) if luck.random() < _FAILING else (),
        ratios={spec.name: luck.lognormvariate(-4, 2) for spec in (*PRE.outputs, *PRE.gradients)},
        regions=regions(case),
        seconds={"running": sleep / 4, "reference": sleep / 4, "checking": sleep, "comparing": 0.0, "compiling": 0.0},
    )
    calls = tuple(Running(nth=nth + 1) for nth in range(_RUNS))
    return (Begun(case=case.json, number=0), *calls, checked)


def serve(connection: Connection, spec: str, device: str, log: str | None, variables: Mapping[str, str], peers: Any) -> None:
    """Run a simulated worker in a process of its own, as `mhc.fuzz.worker.main.serve` runs a real one."""
    frames.send(connection, Ready())
    _answer(connection, {spec: _script(spec)}, spec)


def _host(connections: Sequence[Connection], specs: Sequence[str]) -> None:
    """Run many simulated workers in one process, a thread each."""
    scripts = {spec: _script(spec) for spec in specs}
    threads = [threading.Thread(target=_answer, args=(connection, scripts)) for connection in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(connection: Connection, scripts: Mapping[str, Script], spec: str | None = None) -> None:
    with suppress(EOFError, OSError):
        while True:
            asked = connection.recv()
            which, request = asked if spec is None else (spec, asked)
            for message in _round(scripts[which], request):
                frames.send(connection, message)


def _round(script: Script, request: Round) -> Iterator[Message]:
    luck = random.Random(request.seed)
    for number in range(request.skip, request.count):
        begun, *others = luck.choice(script.cases)
        assert isinstance(begun, Begun)
        yield replace(begun, number=number)
        if script.sleep:
            time.sleep(luck.uniform(0.5, 1.5) * script.sleep)
        yield from others
    yield Done()


class Worker:
    """The main process's end of a simulated worker, as `mhc.fuzz.worker.process.Process` is of a real one."""

    def __init__(self, connection: Connection, spec: str) -> None:
        self.connection, self._spec, self._reader = connection, spec, frames.Reader(connection)
        self.doing, self.since = "pretending", time.monotonic()

    def send(self, request: Request) -> None:
        self.connection.send((self._spec, request))

    def receive(self) -> Iterator[Message]:
        while (message := self._reader.next()) is not None:
            yield message

    def exit_verdict(self) -> None:
        return

    def pause(self, *, stopped: bool) -> None:
        return

    def kill(self) -> None:
        self._reader.close()


class Simulated:
    """An executor of simulated workers, `_HOSTED` to a process: most of them sleep most of the time."""

    def __init__(self, specs: Specs, workers: int) -> None:
        self._specs = specs
        self.slots = workers
        pipes = [multiprocessing.Pipe() for _ in range(workers)]
        self._ends = [here for here, _ in pipes]
        theirs = [there for _, there in pipes]
        context = multiprocessing.get_context("spawn")
        names = [spec for spec, _ in specs.values()]
        self._hosts = [
            context.Process(target=_host, args=(theirs[first : first + _HOSTED], names), daemon=True)
            for first in range(0, workers, _HOSTED)
        ]
        for host in self._hosts:
            host.start()
        for there in theirs:
            there.close()

    def up(self, slot: int) -> bool:
        return True

    def group(self, slot: int) -> int:
        return slot

    def start(self, slot: int, name: str) -> Worker:
        return Worker(self._ends[slot], self._specs[name][0])

    def minimise(self, slot: int, name: str, request: Minimise) -> Worker:
        raise NotImplementedError("a simulated campaign minimises nothing")

    def wait(self, processes: Sequence[Worker], seconds: float) -> Collection[Worker]:
        talking = set(wait([one.connection for one in processes], seconds))
        return [one for one in processes if one.connection in talking]

    def stop(self) -> None:
        for host in self._hosts:
            host.kill()
            host.join()
        for end in self._ends:
            end.close()


def measure(folder: Path, executor: Callable[[Specs], Executor], *, seconds: float, sleep: float, seed: int = 0) -> Ceiling:
    """Run a campaign on a simulated fleet for `seconds`, once its workers have started.

    Args:
        executor: given the implementations, where the workers run.
    """
    specs = write_scripts(folder, sleep, seed)
    reported: list[Finding] = []
    pool = Pool(specs, executor(specs))
    began: list[tuple[float, float, int]] = []

    def tick(running: Campaign) -> None:
        if not began and running.cases >= 10 * pool.size:
            began.append((time.monotonic(), time.process_time(), running.cases))
        if began and time.monotonic() - began[0][0] >= seconds:
            running.stop("measured")

    messages = (one for spec, _ in specs.values() for case in _script(spec).cases for one in case)
    bugs = {found.fingerprint.id for one in messages if isinstance(one, Checked) for found in one.findings}
    with campaign(specs, pool, Budget(), seed=seed, on_finding=reported.append, on_tick=tick) as running:
        running.run()
        since, cpu, cases = began[0]
        rows = running.store.findings()
        return Ceiling(
            workers=pool.size,
            seconds=time.monotonic() - since,
            cases=running.cases - cases,
            cpu=time.process_time() - cpu,
            reports=int(sum(row["seen"] for row in rows.values())),
            bugs=len(bugs),
            met=len(bugs & {found.fingerprint.id for found in reported}),
            reported=len(reported),
            kept=len(rows),
        )
