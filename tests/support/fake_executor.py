"""An executor of processes that are made up, for tests of a campaign's main process."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mhc import default_case, load
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.planner import Subject
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.campaign.store import Store
from mhc.fuzz.findings.finding import finding
from mhc.fuzz.worker.process import WorkerLost
from mhc.fuzz.worker.protocol import Begun, Checked, Done, Message, Minimise, Minimised, Ready, Round
from mhc.oracles.verdict import Verdict, failed

MINE = replace(load("manual"), name="mine", dtypes=("float32",))
CASE = default_case(B=1, S=2, n=1, D=2, dtype="float32")
WRONG = finding("mine.py:IMPL", MINE, CASE, failed("bound", "dx", "value", "dx[0] = 1"))
OTHER = finding("mine.py:IMPL", MINE, CASE, failed("bound", "dphi", "value", "dphi[0] = 1"))

_LOOK = 0.005
"""Seconds that a campaign waits where no process says anything: without them it spends all of a core on looking again."""

Answer = Callable[[Round], Sequence[Any]]
"""What a process says to a round: messages, and at last perhaps a verdict on its end or `WorkerLost`."""
Smaller = Callable[[Minimise], Sequence[Any]]
"""What is answered to a finding that is to be minimised: nothing yet, or `Minimised`, a `Fault` or `WorkerLost`."""


@dataclass
class FakeProcess:
    """A process that answers as it is made to."""

    answer: Answer
    killed: bool = False
    said: list[Any] = field(default_factory=list)
    asked: list[Round] = field(default_factory=list)
    since: float = 0.0
    doing: str = "running"

    def send(self, request: Any) -> None:
        self.asked.append(request)
        self.said += self.answer(request)

    def receive(self) -> Iterator[Message]:
        while self.said and not isinstance(self.said[0], (Verdict, WorkerLost)):
            yield self.said.pop(0)

    def exit_verdict(self) -> Any:
        return self.said.pop(0) if self.said else None

    def pause(self, *, stopped: bool) -> None:
        return

    def kill(self) -> None:
        self.killed = True
        self.said.clear()


@dataclass
class FakeExecutor:
    """An executor of `slots` processes that all answer alike."""

    answer: Answer
    slots: int = 1
    here: bool = True
    smaller: Smaller = lambda request: [Minimised(finding=request.finding)]
    made: list[FakeProcess] = field(default_factory=list)
    minimised: list[FakeProcess] = field(default_factory=list)
    requests: list[Minimise] = field(default_factory=list)

    def up(self, slot: int) -> bool:
        return True

    def group(self, slot: int) -> int:
        return 0

    def start(self, slot: int, name: str) -> FakeProcess:
        self.made.append(FakeProcess(self.answer))
        return self.made[-1]

    def minimise(self, slot: int, name: str, request: Minimise) -> FakeProcess:
        self.requests.append(request)
        self.minimised.append(FakeProcess(self.answer, said=list(self.smaller(request)), doing="minimising"))
        return self.minimised[-1]

    def wait(self, processes: Sequence[Any], seconds: float) -> Collection[Any]:
        if not any(one.said for one in processes):
            time.sleep(_LOOK)
        return list(processes)

    def stop(self) -> None:
        pass

    @property
    def asked(self) -> list[Round]:
        return [request for process in self.made for request in process.asked]


def healthy(request: Round, **fields: Any) -> list[Message]:
    """Every case of a round passes."""
    told: list[Message] = [Ready()]
    for number in range(request.skip, request.count):
        told += [Begun(case=CASE.json, number=number), Checked(case=CASE.json, **fields)]
    return [*told, Done(drawing=0.5)]


def campaign(executor: FakeExecutor, path: Path, budget: Budget, **options: Any) -> Campaign:
    file = path / "run.db"
    store = Store(file) if file.exists() else Store.create(file)
    pool = Pool({"mine": ("mine.py:IMPL", MINE)}, executor)
    return Campaign([Subject(spec="mine.py:IMPL", implementation=MINE)], store, pool, budget, **options)
