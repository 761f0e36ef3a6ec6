"""The verb `detection` of `python -m mhc.bench`: hunts known-bad implementations and writes what came of it."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import torch

from mhc.bench.detection import alarms, picture, report
from mhc.bench.detection.detect import State, detect
from mhc.bench.detection.hunt import Hunt, Subject, base_subject, subject
from mhc.bench.detection.score import score
from mhc.bench.detection.sets import KNOWN, THRESHOLDS, set_of
from mhc.implementation import DEVICES
from oracles.mutants.catalogue import ALL, NEEDS_A_GPU
from oracles.mutants.record import BASES, Mutant
from oracles.mutants.thresholds import drawn

FOLDER = Path("docs/results")
RESULTS = {"cpu": FOLDER / "detection.md", "cuda": FOLDER / "detection-cuda.md"}


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
@click.option(
    "--only",
    "names",
    multiple=True,
    metavar="NAME",
    help="A mutant, a base (manual, triton, tilelang), a set, or a built-in implementation. Repeatable.",
)
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Where mutants run.")
@click.option(
    "--thresholds",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Hunt mutants too whose thresholds this seed draws.",
)
@click.option(
    "--clean-seconds",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help="That a campaign over a built-in implementation, which is no base of mutants, takes at most.",
)
@click.option(
    "--after", type=click.IntRange(min=0), default=0, show_default=True, help="Cases after a kill, for the matrix."
)
@click.option("--limit", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds a run may take.")
@click.option("--seconds", type=click.FloatRange(min=1), help="That a mutant gets at most, all its cases together.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True, help="Worker processes.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="Keep results there, and skip what it has.")
@click.option("--write", is_flag=True, help=f"Write {RESULTS['cpu']}, or {RESULTS['cuda'].name}, and its picture.")
@click.pass_context
def detection(
    context: click.Context,
    count: int,
    clean: int | None,
    seed: int,
    names: tuple[str, ...],
    device: str,
    thresholds: int | None,
    clean_seconds: float,
    after: int,
    limit: float,
    seconds: float | None,
    jobs: int,
    state: Path | None,
    write: bool,
) -> None:
    """Hunt known-bad implementations with drawn cases, and show what kills which how soon.

    \b
        python -m mhc.bench detection --write --state /tmp/detection.json --seconds 120 --thresholds 7
        python -m mhc.bench detection --only dinv_with_inv_rms_squared
        python -m mhc.bench detection --device cuda --state /tmp/cuda.json --only true_size

    On the CPU everything is hunted but what needs a GPU. On cuda without --only: what needs one, and the clean variants;
    with it every mutant of a base that runs there. What is clean is checked to the end, and built-in implementations that
    are no base by a campaign.

    Exit status: 0 all mutants killed but equivalent ones, and nothing clean flagged, 1 not so, 2 usage,
    3 a fault of the harness itself.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise click.UsageError("--device cuda: PyTorch sees no CUDA device here")
    results = RESULTS[device]
    if write and not results.parent.is_dir():
        raise click.UsageError(f"{results}: there is no folder {results.parent}")
    chosen, others = _choose(names, device, () if thresholds is None else drawn(thresholds))
    bases = [base_subject(base, device) for base in dict.fromkeys(one.base for one in chosen)]
    started = time.monotonic()

    def show(prey: Subject, result: Hunt) -> None:
        click.echo(f"{time.monotonic() - started:6.0f} s  {report.line(prey, result)}")

    kept = State(state, {"cases": count, "clean": clean or count, "seed": seed, "after": after, "device": device})
    subjects = [*(subject(one, device) for one in chosen), *bases]
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
    kept.complete(
        [Subject(name=name, spec=name, base="", clean=True, device=device) for name in others if name not in kept.done],
        lambda prey: alarms.campaign(prey.name, device, cases=clean or count, seconds=clean_seconds, seed=seed, jobs=jobs),
        1,
        show,
    )
    result = score(chosen, {hunt.name: hunt for hunt in hunts}, [kept.done[name] for name in others])
    command = f"python -m mhc.bench {shlex.join(context.meta.get('mhc.bench.arguments', ()))}"
    text = report.render(
        result,
        command=command,
        count=count,
        seed=seed,
        after=after,
        elsewhere=NEEDS_A_GPU,
        picture=results.with_suffix(".svg").name,
        device=device,
        thresholds=thresholds,
    )
    if write:
        results.write_text(text, encoding="utf-8")
        results.with_suffix(".svg").write_text(picture.draw(result, count), encoding="utf-8")
    click.echo(f"\n{text}")
    sys.exit(3 if result.faults else 1 if result.survivors or result.alarms else 0)


def _choose(names: Sequence[str], device: str, thresholds: Sequence[Mutant]) -> tuple[list[Mutant], list[str]]:
    """The mutants and clean variants asked for, and the built-in implementations that a campaign is to check.

    Raises:
        click.UsageError: a name is of nothing, or of something that does not run on the device.
    """
    here = alarms.bases_on(device)
    every = [*ALL.values(), *thresholds]
    fit = [one for one in every if one.base in here and (device == "cuda" or one.device == "cpu")]
    builtin = alarms.others_on(device)
    groups = {name: [one for one in fit if not one.clean and set_of(one) == name] for name in (*KNOWN, THRESHOLDS)}
    groups |= {base: [one for one in fit if one.base == base] for base in here}
    for name in names:
        if name in builtin or groups.get(name) or any(one.name == name for one in fit):
            continue
        if name in BASES or name in groups or any(one.name == name for one in every):
            raise click.UsageError(f"--only {name}: nothing of that name runs on {device}")
        known = ", ".join(dict.fromkeys([*BASES, *KNOWN, *builtin, *(one.name for one in every)]))
        raise click.UsageError(f"--only {name}: no such mutant; known are {known}")
    if not names:
        return [one for one in fit if one.clean or device in {"cpu", one.device}], builtin
    wanted = {one.name for name in names for one in groups.get(name, ())} | set(names)
    return [one for one in fit if one.name in wanted], [name for name in builtin if name in names]
