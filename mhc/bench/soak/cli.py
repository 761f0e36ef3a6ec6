"""The verb `soak` of `python -m mhc.bench`: a campaign over implementations that misbehave, killed and gone on with."""

import shlex
import sys
import tempfile
import time
from pathlib import Path

import click

from mhc.bench.soak.report import line, render, statements
from mhc.bench.soak.run import Leg, Plan, soak
from mhc.implementation import DEVICES
from oracles.mutants.misbehaving.catalogue import MISBEHAVING

RESULTS = {"cpu": Path("docs/results/soak.md"), "cuda": Path("docs/results/soak-cuda.md")}


@click.command("soak")
@click.option("--hours", type=click.FloatRange(min=0, min_open=True), help="Of the campaign.  [default: 2]")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), help="Instead of --hours.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Of the campaign.")
@click.option("--kills", type=click.IntRange(min=0), default=20, show_default=True, help="How often it is ended.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the moments, the signals and the cases."
)
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Where kernels run.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="A misbehaving implementation. Repeatable.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Keep the run and its output in this new folder."
)
@click.option("--write", is_flag=True, help=f"Write {RESULTS['cpu']}; with --device cuda {RESULTS['cuda']}.")
@click.pass_context
def soak_(
    context: click.Context,
    hours: float | None,
    minutes: float | None,
    workers: int,
    kills: int,
    seed: int,
    device: str,
    names: tuple[str, ...],
    out: Path | None,
    write: bool,
) -> None:
    """Run a campaign over misbehaving implementations and right ones, end it at random moments, and go on with it.

    \b
        python -m mhc.bench soak --hours 2 --kills 20 --write
        python -m mhc.bench soak --minutes 20 --device cuda
        python -m mhc.bench soak --minutes 1 --kills 2 --only aborts --only raises_system_exit

    At the end it says whether anything was lost, false or missed, and what is left. Some implementations take memory, start
    processes and write where they may: run it where that does no harm. Exit status: 0 all that must hold holds, 1 not so,
    2 usage, 3 a fault of this command itself.
    """
    if hours is not None and minutes is not None:
        raise click.UsageError("give --hours or --minutes, not both")
    if write and not RESULTS[device].parent.is_dir():
        raise click.UsageError(f"{RESULTS[device]}: there is no folder {RESULTS[device].parent}")
    if out is not None and out.exists():
        raise click.UsageError(f"--out {out}: is there already")
    there = [one.name for one in MISBEHAVING.values() if one.device == device]
    unknown = [name for name in names if name not in there]
    if unknown:
        raise click.UsageError(f"--only {unknown[0]}: no such one on {device}; known are {', '.join(there)}")
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as passing:
        plan = Plan(
            names=names or there,
            seconds=minutes * 60 if minutes is not None else (hours or 2.0) * 3600,
            workers=workers,
            kills=kills,
            seed=seed,
            device=device,
            folder=(out or Path(passing)).resolve(),
        )
        legs: list[Leg] = []

        def show(leg: Leg) -> None:
            legs.append(leg)
            click.echo(line(len(legs), leg))

        soak(plan, show)
    words = f"python -m mhc.bench {shlex.join(context.meta.get('mhc.bench.arguments', ()))}"
    text = render(plan, legs, command=words, day=time.strftime("%Y-%m-%d", time.gmtime()))
    if write:
        RESULTS[device].write_text(text, encoding="utf-8")
    click.echo(f"\n{text}")
    sys.exit(0 if all(one.holds for one in statements(plan, legs)) else 1)
