"""The verb `minimal` of `python -m mhc.bench`: how small the findings on known-bad implementations become."""

import os
import shlex
import sys
import time
from pathlib import Path

import click

from mhc.bench.minimal import report
from mhc.bench.minimal.measure import GOAL, Minimal, State, measure, median
from oracles.mutants.catalogue import ALL, ON_CPU
from oracles.mutants.record import BASES

RESULTS = Path("docs/results/minimal.md")


@click.command()
@click.option(
    "--cases", type=click.IntRange(min=1), default=300, show_default=True, help="Drawn cases a mutant gets to be found."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the drawn cases.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="A mutant, or manual, triton, tilelang. Repeatable.")
@click.option("--limit", type=click.FloatRange(min=1), default=30.0, show_default=True, help="Seconds a case may take.")
@click.option(
    "--hunting", type=click.FloatRange(min=1), default=120.0, show_default=True, help="Seconds a mutant gets to be found."
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=120.0, show_default=True, help="Seconds its finding is made smaller."
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True, help="Mutants at a time."
)
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Begin no further mutant after so many.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="Keep results there, and skip what it has.")
@click.option("--write", is_flag=True, help=f"Write {RESULTS}.")
@click.pass_context
def minimal(
    context: click.Context,
    cases: int,
    seed: int,
    names: tuple[str, ...],
    limit: float,
    hunting: float,
    seconds: float,
    jobs: int,
    minutes: float | None,
    state: Path | None,
    write: bool,
) -> None:
    """Find known-bad implementations with drawn cases, minimise each finding, and show how small it became.

    \b
        python -m mhc.bench minimal --only manual --state /tmp/minimal.json
        python -m mhc.bench minimal --state /tmp/minimal.json --write

    Exit status: 0 the median smallest case has at most 64 elements of x, 1 it has more, 2 usage, 3 a fault of the harness
    itself.
    """
    if write and not RESULTS.parent.is_dir():
        raise click.UsageError(f"{RESULTS}: there is no folder {RESULTS.parent}")
    unknown = [name for name in names if name not in ALL and name not in BASES]
    if unknown:
        raise click.UsageError(f"--only {unknown[0]}: no such mutant; known are {', '.join([*BASES, *ALL])}")
    chosen = [one for one in ON_CPU if not names or one.name in names or one.base in names]
    started = time.monotonic()

    def show(result: Minimal) -> None:
        click.echo(f"{time.monotonic() - started:6.0f} s  {report.line(result)}")

    kept = State(state, {"cases": cases, "seed": seed})
    results = measure(
        chosen,
        kept,
        cases=cases,
        seed=seed,
        limit=limit,
        hunting=hunting,
        seconds=seconds,
        jobs=jobs,
        total=float("inf") if minutes is None else minutes * 60,
        on_result=show,
    )
    command = f"python -m mhc.bench {shlex.join(context.meta.get('mhc.bench.arguments', ()))}"
    text = report.render(results, command=command, cases=cases, seed=seed)
    if write:
        RESULTS.write_text(text, encoding="utf-8")
    click.echo(f"\n{text}")
    sys.exit(3 if any(one.fault for one in results) else 1 if median(results) > GOAL else 0)
