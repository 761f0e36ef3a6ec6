"""Cases a second of a campaign, and where its time goes; beside the plain loop, in turns."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mhc.bench.apart import Ended, run_apart
from mhc.bench.campaigns import campaign
from mhc.bench.detection.hunt import ELEMENTS, draw
from mhc.bench.throughput.plain import apart
from mhc.environment import gpu_name
from mhc.fuzz.campaign.campaign import Budget, Campaign
from mhc.fuzz.campaign.pool import Pool
from mhc.fuzz.executors.local import Executor, Specs
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Checked, Message, Round
from mhc.fuzz.worker.session import run_session
from mhc.implementation import Implementation
from mhc.inputs import materialise
from mhc.strategies.rounds import ROUND

PHASES = ("drawing", "materialising", "running", "reference", "judging", "storing")
_MATERIALISED = 50  # cases, for the time that materialising takes
_HOUR = 3600.0
_LOOK = 0.05  # seconds between looks at how far a lap is
_LOADED = 0.4  # of the cases without a campaign: not measured, since a process has things to load until then
_WARM = 8  # rounds of each worker on each implementation before the first lap


@dataclass(frozen=True, kw_only=True)
class Lap:
    """One measurement of one contender.

    Attributes:
        seconds: from the first to the last moment at which every worker had a case in hand, as in a campaign of hours; the
            rest of a lap, in which some have nothing more to do, is the longer the more there are.
        cases: in them.
        cpu: seconds of the main process's CPU time. working: seconds that all workers spent in cases, together.
        workers: how many there were.
        counts: as `Store.counts`, of the whole lap.
    """

    cases: int
    seconds: float
    cpu: float = 0.0
    working: float = 0.0
    workers: int = 1
    counts: Mapping[str, Mapping[str, float]]

    @property
    def rate(self) -> float:
        return self.cases / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """Return the share of the workers' time that went into cases; the rest is waiting."""
        return self.working / (self.workers * self.seconds) if self.seconds else 0.0


def in_turns(contenders: Mapping[str, Callable[[int], Lap]], laps: int, seed: int) -> Iterator[tuple[str, Lap]]:
    """Measure all contenders, one after the other, `laps` times: other work on the machine affects all alike.

    Args:
        contenders: ways of checking cases, by name; each is called with a seed.
    """
    for number in range(laps):
        for name, lap in contenders.items():
            yield name, lap(seed + 1000 * number)


def median_ratio(laps: Sequence[Lap], over: Sequence[Lap]) -> float:
    """Return the median of the rates, each over that of the same turn: a machine that slows down changes no ratio."""
    return statistics.median(lap.rate / base.rate if base.rate else 0.0 for lap, base in zip(laps, over, strict=True))


class Standing(Pool):
    """Processes that outlive a campaign, so that a later lap finds them as warm as in a long campaign.

    Attributes:
        width: how many slots the next campaign may use.
    """

    def __init__(self, specs: Specs, executor: Executor) -> None:
        super().__init__(specs, executor)
        self.width = executor.slots

    @property
    def size(self) -> int:
        return self.width

    def free(self) -> list[int]:
        return [number for number in super().free() if number < self.width]

    def stop(self) -> None:
        """End a lap: idle processes stay."""
        for slot in self.busy():
            self.replace(slot)

    def end(self) -> None:
        """End all processes."""
        super().stop()


class Team:
    """Campaigns on one executor, one after the other, each with as many of its workers as it asks for."""

    def __init__(self, specs: Specs, executor: Callable[[], Executor]) -> None:
        self._specs, self._executor = specs, executor
        self._pool: Standing | None = None

    def lap(self, seed: int, *, workers: int, cases: int) -> Lap:
        """Run a campaign of `cases` on each implementation, the same on every executor.

        Before the first, every worker loads what it needs: processes, and on a GPU every kernel at its first use.
        """
        if self._pool is None:
            self._pool = Standing(self._specs, self._executor())
            while not all(self._pool.executor.up(slot) for slot in range(self._pool.executor.slots)):
                self._pool.executor.wait((), 0.25)
            self._run(seed, self._pool, self._pool.executor.slots, _WARM * ROUND * self._pool.executor.slots)
        return self._run(seed, self._pool, workers, cases)

    def _run(self, seed: int, pool: Standing, workers: int, cases: int) -> Lap:
        pool.width = workers
        marks = _Marks()
        with campaign(self._specs, pool, Budget(cases=cases), seed=seed, on_tick=marks.look) as running:
            running.run()
            return marks.lap(workers, running.store.counts())

    def close(self) -> None:
        """End its processes."""
        if self._pool is not None:
            self._pool.end()


class _Marks:
    """The first and the last moment of a lap at which every worker had a case in hand: (cases, time, CPU time, working)."""

    def __init__(self) -> None:
        self._full: list[tuple[int, float, float, float]] = []

    def look(self, running: Campaign) -> None:
        now = time.monotonic()
        if self._full and now - self._full[-1][1] < _LOOK:
            return
        if sum(slot.case is not None for slot in running.pool.busy()) == running.pool.size:
            counts = running.store.counts().values()
            working = sum(words.get("drawing", 0.0) + words.get("checking", 0.0) for words in counts)
            self._full[1:] = [(running.cases, now, time.process_time(), working)]

    def lap(self, workers: int, counts: Mapping[str, Mapping[str, float]]) -> Lap:
        first, last = (self._full[0], self._full[-1]) if self._full else ((0, 0.0, 0.0, 0.0),) * 2
        cases, seconds, cpu, working = (after - before for before, after in zip(first, last, strict=True))
        return Lap(cases=int(cases), seconds=seconds, cpu=cpu, working=working, workers=workers, counts=counts)


def without_campaign(specs: Specs, device: str, seed: int, *, processes: int, gpus: int, cases: int) -> Lap:
    """Measure rounds in processes without a campaign: the most that as many workers can do on this machine at this time.

    Args:
        cases: on each implementation, a share of them in each of so many processes at a time.

    Raises:
        HarnessError: a process ended before it was done.
    """
    rounds = max(1, round(cases / ROUND / processes))

    def slot(number: int) -> list[tuple[int, float]]:
        variables = {"CUDA_VISIBLE_DEVICES": gpu_name(number % gpus)} if gpus else {}
        seeds = range(seed + number * rounds, seed + (number + 1) * rounds)
        return [run_apart(_rounds, spec, spec, device, seeds, variables=variables) for spec, _ in specs.values()]

    try:
        with ThreadPoolExecutor(processes) as pool:
            found = [one for slots in pool.map(slot, range(processes)) for one in slots]
    except Ended as ended:
        raise HarnessError(str(ended)) from ended
    working = sum(seconds for _, seconds in found)
    cases = sum(done for done, _ in found)
    return Lap(cases=cases, seconds=working / processes, working=working, workers=processes, counts={})


def _rounds(implementation: Implementation, spec: str, device: str, seeds: range) -> tuple[int, float]:
    """Return how many cases were checked, and in how many seconds."""
    done, started = 0, time.monotonic()

    def count(message: Message) -> None:
        nonlocal done
        done += isinstance(message, Checked)

    for number, seed in enumerate(seeds):
        if number == int(_LOADED * len(seeds)):
            done, started = 0, time.monotonic()
        run_session(spec, implementation, device, Round(seed=seed, count=ROUND), count)
    return done, time.monotonic() - started


def plain(specs: Specs, seed: int, *, cases: int, jobs: int) -> Lap:
    """Run as many examples of the plain loop on each implementation, `jobs` loops at a time.

    The seconds are those of all loops over `jobs`: as if none had to wait for the last.
    """
    with ThreadPoolExecutor(jobs) as pool:
        loops = list(pool.map(lambda one: apart(one[0], seconds=_HOUR, cases=cases, seed=seed), specs.values()))
    done = {name: {"checked": float(loop.cases)} for name, loop in zip(specs, loops, strict=True)}
    return Lap(cases=sum(loop.cases for loop in loops), seconds=sum(loop.seconds for loop in loops) / jobs, counts=done)


def split(lap: Lap, materialising: float) -> dict[str, dict[str, float]]:
    """Return milliseconds of a case by implementation and phase; `compiling` is the part of cases that compiled something.

    Args:
        materialising: seconds that it takes for a case, measured apart.
    """
    found = {}
    storing = lap.cpu / lap.cases if lap.cases else 0.0
    for name, words in lap.counts.items():
        cases = words.get("checked", 0.0) + words.get("refused", 0.0)
        if not cases:
            continue
        each = {what: words.get(what, 0.0) / cases for what in ("drawing", "running", "reference", "checking", "compiling")}
        comparing = words.get("comparing", 0.0) / cases
        judging = each["checking"] - each["running"] - each["reference"] - comparing - materialising
        seconds = {**each, "materialising": materialising, "judging": judging, "storing": storing}
        found[name] = {what: 1000 * seconds[what] for what in (*PHASES, "compiling")}
    return found


def materialising(device: str, seed: int) -> float:
    """Return the mean of the seconds that making the inputs of a drawn case takes."""
    drawn = draw(_MATERIALISED, seed, {}, ELEMENTS)
    materialise(drawn[0], device)
    started = time.perf_counter()
    for case in drawn:
        materialise(case, device)
    return (time.perf_counter() - started) / len(drawn)
