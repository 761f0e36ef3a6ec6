"""The verb `detection` of `python -m mhc.bench`: hunts known-bad implementations and writes what came of it."""

import os
import shlex
import sys
import time
from pathlib import Path

import click

from mhc.bench import detection_picture, detection_report
from mhc.bench.detection import State, detect
from mhc.bench.detection_score import score
from mhc.bench.hunt import Hunt, Subject, base_subject, subject
from oracles.mutants.catalogue import ALL, NEEDS_A_GPU
from oracles.mutants.record import BASES

RESULTS = Path("docs/results/detection.md")
PICTURE = Path("docs/results/detection.svg")


@click.command()
@click.option(
    "--cases", "count", type=click.IntRange(min=1), default=300, show_default=True, help="Drawn cases a mutant gets."
)
@click.option(
    "--clean",
    type=click.IntRange(min=1),
    help="Drawn cases that what is clean gets, instead of --cases; in the interpreter one in 25 of them.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the drawn cases.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="A mutant, or manual, triton, tilelang. Repeatable.")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, show_default=True, help="Cases after a kill, for the matrix."
)
@click.option("--limit", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds a run may take.")
@click.option("--seconds", type=click.FloatRange(min=1), help="That a mutant gets at most, all its cases together.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True, help="Worker processes.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="Keep results there, and skip what it has.")
@click.option("--write", is_flag=True, help=f"Write {RESULTS} and {PICTURE}.")
@click.pass_context
def detection(
    context: click.Context,
    count: int,
    clean: int | None,
    seed: int,
    names: tuple[str, ...],
    after: int,
    limit: float,
    seconds: float | None,
    jobs: int,
    state: Path | None,
    write: bool,
) -> None:
    """Hunt known-bad implementations with drawn cases, and show what kills which how soon.

    \b
        python -m mhc.bench detection --write --state /tmp/detection.json
        python -m mhc.bench detection --only dinv_with_inv_rms_squared

    Exit status: 0 all mutants killed but equivalent ones, and nothing clean flagged, 1 not so, 2 usage,
    3 a fault of the harness itself.
    """
    if write and not RESULTS.parent.is_dir():
        raise click.UsageError(f"{RESULTS}: there is no folder {RESULTS.parent}")
    unknown = [name for name in names if name not in ALL and name not in BASES]
    if unknown:
        raise click.UsageError(f"--only {unknown[0]}: no such mutant; known are {', '.join([*BASES, *ALL])}")
    for name in names:
        if name in ALL and ALL[name].device != "cpu":
            raise click.UsageError(f"--only {name}: needs {ALL[name].device}; this hunts on the CPU")
    every = [one for one in ALL.values() if one.device == "cpu"]
    chosen = [one for one in every if not names or one.name in names or one.base in names]
    bases = [base_subject(base) for base in dict.fromkeys(one.base for one in chosen)]
    started = time.monotonic()

    def show(prey: Subject, result: Hunt) -> None:
        click.echo(f"{time.monotonic() - started:6.0f} s  {detection_report.line(prey, result)}")

    kept = State(state, {"cases": count, "clean": clean or count, "seed": seed, "after": after})
    subjects = [*(subject(one) for one in chosen), *bases]
    hunts = detect(
        subjects,
        kept,
        count=count,
        clean=clean,
        seed=seed,
        after=after,
        limit=limit,
        jobs=jobs,
        seconds=float("inf") if seconds is None else seconds,
        on_hunt=show,
    )
    result = score(chosen, {hunt.name: hunt for hunt in hunts})
    command = f"python -m mhc.bench {shlex.join(context.meta.get('mhc.bench.arguments', ()))}"
    text = detection_report.render(
        result, command=command, count=count, seed=seed, after=after, elsewhere=NEEDS_A_GPU, picture=PICTURE.name
    )
    if write:
        RESULTS.write_text(text, encoding="utf-8")
        PICTURE.write_text(detection_picture.draw(result, count), encoding="utf-8")
    click.echo(f"\n{text}")
    sys.exit(3 if result.faults else 1 if result.survivors or result.alarms else 0)
