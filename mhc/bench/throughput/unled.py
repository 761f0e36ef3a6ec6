"""Baseline: rounds in processes without a campaign, the most that as many workers can do on this machine at this time."""

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from mhc.bench.throughput.measure import Lap
from mhc.fuzz.executors.local import Specs
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.fuzz.worker.process import HarnessError
from mhc.fuzz.worker.protocol import Checked, Message, Round
from strategies.rounds import ROUND

_WARM = 0.4
"""Of a lap's cases: not measured, since a process has things to load until then."""


def unled(specs: Specs, device: str, seed: int, *, processes: int, gpus: int, cases: int) -> Lap:
    """Measure `cases` on each implementation, a share of them in each of so many processes at a time.

    Raises:
        HarnessError: a process ended before it was done.
    """
    rounds = max(1, round(cases / ROUND / processes))

    def slot(number: int) -> tuple[int, float]:
        done, seconds = 0, 0.0
        for spec, implementation in specs.values():
            own = {**implementation.env, **({"CUDA_VISIBLE_DEVICES": str(number % gpus)} if gpus else {})}
            here, there = FORKSERVER.Pipe()
            first = seed + number * rounds
            process = FORKSERVER.Process(
                target=_work, args=(there, spec, device, own, range(first, first + rounds)), daemon=True
            )
            process.start()
            there.close()
            try:
                more, took = here.recv()
            except (EOFError, ConnectionResetError):
                process.join()
                raise HarnessError(f"a process of {spec} ended with {process.exitcode} before it was done") from None
            done, seconds = done + more, seconds + took
        return done, seconds

    with ThreadPoolExecutor(processes) as pool:
        slots = list(pool.map(slot, range(processes)))
    done, working = sum(done for done, _ in slots), sum(seconds for _, seconds in slots)
    return Lap(cases=done, seconds=working / processes, working=working, workers=processes, counts={})


def _work(connection: Connection, spec: str, device: str, variables: Mapping[str, str], seeds: range) -> None:
    os.environ.update(variables)
    import torch  # noqa: PLC0415  after the environment variables are in place

    from mhc.fuzz.worker.session import run_session  # noqa: PLC0415
    from mhc.registry import load  # noqa: PLC0415

    torch.set_num_threads(1)
    implementation, done, started = load(spec), 0, time.monotonic()

    def count(message: Message) -> None:
        nonlocal done
        done += isinstance(message, Checked)

    for number, seed in enumerate(seeds):
        if number == int(_WARM * len(seeds)):
            done, started = 0, time.monotonic()
        run_session(spec, implementation, device, Round(seed=seed, count=ROUND), count)
    connection.send((done, time.monotonic() - started))
