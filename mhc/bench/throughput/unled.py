"""Baseline: rounds in processes without a campaign, the most that as many workers can do on this machine at this time."""

import time
from concurrent.futures import ThreadPoolExecutor

from mhc.bench.apart import Ended, run_apart
from mhc.bench.throughput.measure import Lap
from mhc.fuzz.executors.local import Specs
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Checked, Message, Round
from mhc.fuzz.worker.session import run_session
from mhc.implementation import Implementation
from strategies.rounds import ROUND

_WARM = 0.4
"""Of a lap's cases: not measured, since a process has things to load until then."""


def unled(specs: Specs, device: str, seed: int, *, processes: int, gpus: int, cases: int) -> Lap:
    """Measure `cases` on each implementation, a share of them in each of so many processes at a time.

    Raises:
        HarnessError: a process ended before it was done.
    """
    rounds = max(1, round(cases / ROUND / processes))

    def slot(number: int) -> list[tuple[int, float]]:
        variables = {"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus else {}
        seeds = range(seed + number * rounds, seed + (number + 1) * rounds)
        return [run_apart(_work, spec, spec, device, seeds, variables=variables) for spec, _ in specs.values()]

    try:
        with ThreadPoolExecutor(processes) as pool:
            found = [one for slots in pool.map(slot, range(processes)) for one in slots]
    except Ended as ended:
        raise HarnessError(str(ended)) from ended
    working = sum(seconds for _, seconds in found)
    cases = sum(done for done, _ in found)
    return Lap(cases=cases, seconds=working / processes, working=working, workers=processes, counts={})


def _work(implementation: Implementation, spec: str, device: str, seeds: range) -> tuple[int, float]:
    """Return how many cases were checked, and in how many seconds."""
    done, started = 0, time.monotonic()

    def count(message: Message) -> None:
        nonlocal done
        done += isinstance(message, Checked)

    for number, seed in enumerate(seeds):
        if number == int(_WARM * len(seeds)):
            done, started = 0, time.monotonic()
        run_session(spec, implementation, device, Round(seed=seed, count=ROUND), count)
    return done, time.monotonic() - started
