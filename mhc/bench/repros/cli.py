"""The verb `repros` of `python -m mhc.bench`: how short the programs of known-bad kernels are, and that they reproduce."""

import json
import os
import shlex
import sys
import time
from pathlib import Path

import click

from mhc.bench.minimal.measure import Minimal
from mhc.bench.repros import report
from mhc.bench.repros.measure import GOAL, TO, Repro, State, measure, median
from mhc.upstream.reduce.reduction import SECONDS
from oracles.mutants.catalogue import ALL, ON_CPU

RESULTS = Path("docs/results/repros.md")


@click.command()
@click.argument("minimal_file", metavar="MINIMAL.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--only", "names", multiple=True, metavar="NAME", help="A mutant, or manual, triton, tilelang. Repeatable.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True, help="Mutants at a time."
)
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=SECONDS, show_default=True, help="Seconds a program is made smaller."
)
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="Keep results there, and skip what it has.")
@click.option("--texts", type=click.Path(file_okay=False, path_type=Path), help="A folder for the programs.")
@click.option("--write", is_flag=True, help=f"Write {RESULTS}.")
@click.pass_context
def repros(
    context: click.Context,
    minimal_file: Path,
    names: tuple[str, ...],
    jobs: int,
    seconds: float,
    state: Path | None,
    texts: Path | None,
    write: bool,
) -> None:
    """Export the smallest finding on each known-bad kernel, run its program three times by itself, and count its lines.

    \b
        python -m mhc.bench minimal --only triton --only tilelang --state minimal.json
        python -m mhc.bench repros minimal.json --only triton --only tilelang

    MINIMAL.json is what `minimal --state` wrote. Exit status: 0 the median program of each DSL has at most 120 lines, 1 one
    has more, 2 usage.
    """
    if write and not RESULTS.parent.is_dir():
        raise click.UsageError(f"{RESULTS}: there is no folder {RESULTS.parent}")
    unknown = [name for name in names if name not in ALL and name not in TO]
    if unknown:
        raise click.UsageError(f"--only {unknown[0]}: no such mutant; known are {', '.join([*TO, *ALL])}")
    try:
        found = [Minimal(**one) for one in json.loads(minimal_file.read_text(encoding="utf-8"))["done"]]
    except (ValueError, KeyError, TypeError) as error:
        raise click.UsageError(f"{minimal_file}: not a state of `python -m mhc.bench minimal` ({error})") from error
    chosen = [one for one in ON_CPU if not names or one.name in names or one.base in names]
    if texts is not None:
        texts.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()

    def show(result: Repro) -> None:
        click.echo(f"{time.monotonic() - started:6.0f} s  {report.line(result)}")

    results = measure(chosen, found, State(state, {}), jobs=jobs, seconds=seconds, texts=texts, on_result=show)
    command = f"python -m mhc.bench {shlex.join(context.meta.get('mhc.bench.arguments', ()))}"
    text = report.render(results, command=command)
    if write:
        RESULTS.write_text(text, encoding="utf-8")
    click.echo(f"\n{text}")
    sys.exit(1 if any(median(results, base) > GOAL for base in ("triton", "tilelang")) else 0)
