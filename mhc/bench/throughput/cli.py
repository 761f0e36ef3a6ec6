"""The verb `throughput` of `python -m mhc.bench`: what a campaign does in a second, and what it costs."""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch

from mhc.bench import verbs
from mhc.bench.detection.sets import choose
from mhc.bench.markdown import table
from mhc.bench.state import Results
from mhc.bench.throughput.measure import (
    PHASES,
    Lap,
    Team,
    in_turns,
    materialising,
    median_ratio,
    plain,
    split,
    without_campaign,
)
from mhc.bench.throughput.race import Race, race, tables
from mhc.bench.throughput.simulated import Simulated, serve
from mhc.bench.throughput.simulated import measure as simulate
from mhc.fuzz.cli.options import load_all
from mhc.fuzz.executors.local import Executor, LocalExecutor, Specs
from mhc.fuzz.executors.ray_cluster import RayExecutor, join
from mhc.fuzz.worker.forkserver import FORKSERVER
from mhc.fuzz.worker.limits import Limits
from mhc.fuzz.worker.process import HarnessError
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.record import Mutant
from mhc.oracles.mutants.thresholds import drawn
from mhc.strategies.rounds import ROUND

COST, CEILING = 2.0, 2000.0
"""Milliseconds that a case may cost the main process; cases a second that it must be able to follow."""
NO_CAMPAIGN = "no campaign"
_CASES = 100
_SECONDS = 10.0  # that a simulated fleet works
_EVERY = 8  # of the catalogue's mutants, without --all


@click.command()
@verbs.several("--impl", "specs", metavar="IMPL", help="Instead of all built-in ones.")
@verbs.device("Where kernels run.")
@click.option("--workers", type=click.IntRange(min=1), multiple=True, help="Repeatable.  [default: 1 and one a core]")
@verbs.whole("--cases", least=10, help=f"On each implementation, a lap.  [default: {_CASES}, more with many workers]")
@verbs.whole("--laps", default=3, help="Of each contender, in turns.")
@verbs.SEED
@click.option("--on", metavar="ray[://ADDRESS]", help="Measure the same on Ray beside it; a simulated fleet only there.")
@click.option("--no-plain", is_flag=True, help="Leave the plain loop out.")
@verbs.whole("--simulated", metavar="N", help="Measure N workers that sleep and report instead.")
@verbs.number("--sleep", least=0, default=0.0, help="Seconds a simulated case takes.")
@click.option(
    "--race", "racing", is_flag=True, help="Race a campaign against the plain loop over known-bad implementations."
)
@click.option("--all", "every", is_flag=True, help=f"Race over all mutants, not every {_EVERY}th.")
@verbs.several("--only", "names", metavar="NAME", help="Race over a mutant, a base or a set.")
@verbs.whole("--thresholds", least=0, metavar="SEED", help="Race over mutants too whose thresholds this seed draws.")
@verbs.number("--limit", default=60.0, help="Seconds a mutant has under each.")
@verbs.jobs("Mutants at a time.")
@verbs.STATE
def throughput(
    seed: int,
    on: str | None,
    simulated: int | None,
    sleep: float,
    racing: bool,
    every: bool,
    names: tuple[str, ...],
    thresholds: int | None,
    limit: float,
    jobs: int,
    state: Path | None,
    **laps: Any,
) -> None:
    """Measure a campaign's cases a second by workers, where its time goes, and the plain loop beside it.

    \b
        python -m mhc.bench throughput --impl manual --impl golden --workers 1 --workers 2
        python -m mhc.bench throughput --impl manual --workers 2 --workers 4 --on ray --no-plain
        python -m mhc.bench throughput --simulated 64
        python -m mhc.bench throughput --race --all --state race.json

    Exit status: 0 measured; 1 a simulated fleet took more than 2 ms a case, or a bug reported twice, or, with cases
    that take no time, fewer than 2,000 cases/s; 2 usage; 3 a fault of the harness itself.
    """
    try:
        if simulated is not None:
            sys.exit(_simulated(simulated, sleep, seed, on))
        if racing:
            generated = () if thresholds is None else drawn(thresholds)
            sys.exit(_race(_chosen(names, generated, every=every), state, limit, jobs, seed))
        _measure(seed=seed, on=on, **laps)
    except HarnessError as fault:
        click.echo(f"fault of the harness: {fault}", err=True)
        sys.exit(3)


def _chosen(names: Sequence[str], generated: Sequence[Mutant], *, every: bool) -> list[Mutant]:
    """Return the mutants to race: those that `names` choose, every `_EVERY`th of the catalogue, or all; and all drawn ones.

    Raises:
        click.UsageError: a name is of nothing that is raced on the CPU.
    """
    known = [one for one in ALL.values() if not one.equivalent and one.device == "cpu"]
    return choose(names, [*known, *generated]) if names else [*known[:: 1 if every else _EVERY], *generated]


def _simulated(workers: int, sleep: float, seed: int, on: str | None) -> int:
    if on is not None:
        join(on, "cpu", workers)

    def executor(specs: Specs) -> Executor:
        return Simulated(specs, workers) if on is None else RayExecutor(specs, "cpu", workers, Limits(), target=serve)

    with tempfile.TemporaryDirectory() as folder:
        seen = simulate(Path(folder), executor, seconds=_SECONDS, sleep=sleep, seed=seed)
    transport = "pipes" if on is None else "Ray"
    click.echo(
        f"{seen.workers} workers over {transport}: {seen.cases} cases in {seen.seconds:.1f} s, {seen.rate:.0f} cases/s"
    )
    click.echo(f"main process: {seen.cost:.3f} ms of CPU time a case, so at most {1000 / seen.cost:.0f} cases/s")
    click.echo(
        f"bugs: {seen.bugs} to be found, {seen.met} met in {seen.reports} reports, "
        f"{seen.reported} reported, {seen.kept} kept"
    )
    fast = sleep > 0 or on is not None or seen.rate >= CEILING
    return 0 if seen.right and seen.cost <= COST and fast else 1


def _race(mutants: Sequence[Mutant], state: Path | None, limit: float, jobs: int, seed: int) -> int:
    started = time.monotonic()

    def show(mutant: Mutant, result: Race) -> None:
        at = "-" if result.campaign is None else f"{result.campaign:.1f} s"
        plain = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.plain.items()) or "-"
        click.echo(f"{time.monotonic() - started:6.0f} s  {mutant.name}: campaign {at}; plain loop: {plain} {result.fault}")

    first = FORKSERVER.Process()  # what the first process alone waits for is in no race
    first.start()
    first.join()
    kept = Results(Race, "races", state, limit=limit, seed=seed)
    races = kept.complete(mutants, lambda mutant: race(mutant, limit, seed), jobs, show)
    hunted = sum(not one.clean for one in races)
    click.echo(f"\n{hunted} mutants and {len(races) - hunted} clean variants, {limit:g} s each under each, {jobs} at a time")
    for text in tables(mutants, races, limit):
        click.echo(f"\n{text}")
    return 3 if any(one.fault for one in races) else 0


def _measure(
    *,
    specs: Sequence[str],
    device: str,
    workers: Sequence[int],
    cases: int | None,
    laps: int,
    seed: int,
    on: str | None,
    no_plain: bool,
) -> None:
    loaded = {implementation.name: (spec, implementation) for spec, implementation in load_all(specs, device)}
    counts = list(dict.fromkeys(workers or (1, os.cpu_count() or 1)))
    most = max(counts)
    least = -(-2 * ROUND * most // len(loaded))  # two rounds for each worker
    cases = cases or max(_CASES, least)
    if cases < least:
        raise click.UsageError(
            f"--cases {cases}: with {most} workers at work a lap takes {least} or more on each implementation"
        )
    if on is not None:
        join(on, device, most)
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    with (
        closing(Team(loaded, partial(LocalExecutor, loaded, device, most, Limits(), gpus=gpus))) as here,
        closing(Team(loaded, partial(RayExecutor, loaded, device, most, Limits()))) as fleet,
    ):
        contenders: dict[str, Callable[[int], Lap]] = {}
        for many in counts:
            named = f"{many} worker{'s' if many > 1 else ''}"
            contenders[f"campaign, {named}"] = partial(here.lap, workers=many, cases=cases)
            contenders[f"{NO_CAMPAIGN}, {named}"] = partial(
                without_campaign, loaded, device, processes=many, gpus=gpus, cases=cases
            )
            if on is not None:
                contenders[f"on Ray, {named}"] = partial(fleet.lap, workers=many, cases=cases)
            if not no_plain and device == "cpu":
                contenders[f"plain loop, {named}"] = partial(plain, loaded, cases=cases, jobs=many)
        found: dict[str, list[Lap]] = {name: [] for name in contenders}
        for name, lap in in_turns(contenders, laps, seed):
            found[name].append(lap)
            click.echo(f"{name}: {lap.cases} cases in {lap.seconds:.1f} s, {lap.rate:.1f} cases/s")
    click.echo(f"\n{', '.join(loaded)} on {device}, {cases} cases each a lap, {laps} laps in turns\n")
    first, baseline, *_ = found.values()
    rows = [_lap_row(name, those, baseline if name.startswith(NO_CAMPAIGN) else first) for name, those in found.items()]
    head = (
        *("", f"cases/s, median of {laps}", "over the first of its kind, median of the turns", "workers in cases"),
        *("ms of a worker a case", "main process, ms of CPU time a case"),
    )
    click.echo(table(head, rows))
    phases = split(first[-1], materialising(device, seed))
    rows = [(name, *(f"{parts[phase]:.1f}" for phase in (*PHASES, "compiling"))) for name, parts in phases.items()]
    title = f"ms of a case, {next(iter(found))}, last lap"
    click.echo(f"\n{title}\n\n{table(('', *PHASES, 'on cases that compile'), rows)}")


def _lap_row(name: str, laps: Sequence[Lap], base: Sequence[Lap]) -> tuple[str, ...]:
    rate = statistics.median(lap.rate for lap in laps)
    cost = statistics.median(1000 * lap.cpu / max(1, lap.cases) for lap in laps)
    busy = statistics.median(lap.busy for lap in laps)
    each = statistics.median(1000 * lap.working / max(1, lap.cases) for lap in laps)
    shares = (f"{busy:.0%}", f"{each:.1f}") if busy else ("-", "-")
    return (name, f"{rate:.1f}", f"{median_ratio(laps, base):.2f}", *shares, f"{cost:.2f}" if cost else "-")
