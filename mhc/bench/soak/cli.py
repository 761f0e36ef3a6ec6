"""The verb `soak` of `python -m mhc.bench`: a campaign over implementations that misbehave, killed and resumed."""

import tempfile
from pathlib import Path

import click

from mhc.bench import verbs
from mhc.bench.soak.report import line, render, statements
from mhc.bench.soak.run import Leg, Plan, soak
from mhc.oracles.mutants.misbehaving.catalogue import MISBEHAVING

RESULTS = {"cpu": verbs.RESULTS / "soak.md", "cuda": verbs.RESULTS / "soak-cuda.md"}


@click.command("soak")
@verbs.positive("--hours", help="Of the campaign.  [default: 2]")
@verbs.positive("--minutes", help="Instead of --hours.")
@verbs.whole("--workers", default=2, help="Of the campaign.")
@verbs.whole("--kills", least=0, default=20, help="How often it is ended.")
@verbs.SEED
@verbs.device("Where kernels run.")
@verbs.several("--only", "names", metavar="NAME", help="A misbehaving implementation.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Keep the run and its output in this new folder."
)
@verbs.write(f"{RESULTS['cpu']}; with --device cuda {RESULTS['cuda']}")
def soak_(
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
    """Run a campaign over misbehaving and correct implementations, end it at random moments, and resume it.

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
    page = verbs.Page(RESULTS[device], write=write)
    if out is not None and out.exists():
        raise click.UsageError(f"--out {out}: is there already")
    there = [one.name for one in MISBEHAVING.values() if one.device == device]
    verbs.refuse_unknown(names, there, f"one on {device}")
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
        for leg in soak(plan):
            legs.append(leg)
            click.echo(line(len(legs), leg))
    text = render(plan, legs, command=verbs.command())
    page.finish(text, 0 if all(one.holds for one in statements(plan, legs)) else 1)
