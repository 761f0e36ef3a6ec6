"""The verb `detection` of `python -m mhc.bench`: hunt known-bad implementations, and write what kills them."""

from collections.abc import Sequence
from pathlib import Path

import click
import torch

from mhc.bench import verbs
from mhc.bench.detection import picture, report
from mhc.bench.detection.detect import bases_on, campaign, detect, others_on
from mhc.bench.detection.hunt import Hunt, Subject, base_subject, subject
from mhc.bench.detection.score import score
from mhc.bench.detection.sets import choose
from mhc.bench.state import Results
from mhc.oracles.mutants.catalogue import ALL
from mhc.oracles.mutants.record import Mutant
from mhc.oracles.mutants.thresholds import drawn

RESULTS = {"cpu": verbs.RESULTS / "detection.md", "cuda": verbs.RESULTS / "detection-cuda.md"}


@click.command()
@verbs.whole("--cases", "count", default=300, help="Drawn cases a mutant gets.")
@verbs.whole(
    "--clean", help="Drawn cases that what is clean gets, instead of --cases; in the interpreter one in 25 of them."
)
@verbs.SEED
@verbs.several("--only", "names", metavar="NAME", help="A mutant, a base, a set, or a built-in implementation.")
@verbs.device("Where mutants run.")
@verbs.whole("--thresholds", least=0, metavar="SEED", help="Hunt mutants too whose thresholds this seed draws.")
@verbs.number("--seconds", default=float("inf"), help="That a mutant gets at most, all its cases together.")
@verbs.jobs("Worker processes.")
@verbs.STATE
@verbs.write(f"{RESULTS['cpu']}, or {RESULTS['cuda'].name}, and its picture")
def detection(
    count: int,
    clean: int | None,
    seed: int,
    names: tuple[str, ...],
    device: str,
    thresholds: int | None,
    seconds: float,
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
    page = verbs.Page(RESULTS[device], write=write)
    chosen, others = _choose(names, device, () if thresholds is None else drawn(thresholds))
    bases = [base_subject(base, device) for base in dict.fromkeys(one.base for one in chosen)]

    def show(prey: Subject, result: Hunt) -> None:
        page.show(report.line(prey, result))

    kept = Results(Hunt, "hunts", state, cases=count, clean=clean or count, seed=seed, device=device)
    hunts = detect(
        [*(subject(one, device) for one in chosen), *bases],
        kept,
        count=count,
        clean=clean,
        seed=seed,
        jobs=jobs,
        seconds=seconds,
        on_hunt=show,
    )
    campaigns = kept.complete(
        [Subject(name=name, spec=name, base="", clean=True, device=device) for name in others],
        lambda prey: campaign(prey.name, device, cases=clean or count, seed=seed, jobs=jobs),
        1,
        show,
    )
    result = score(chosen, {hunt.name: hunt for hunt in hunts}, campaigns)
    text = report.render(
        result,
        command=verbs.command(),
        count=count,
        seed=seed,
        picture=RESULTS[device].with_suffix(".svg").name,
        device=device,
        thresholds=thresholds,
    )
    status = 3 if result.faults else 1 if result.survivors or result.alarms else 0
    page.write(picture.draw(result, count), ".svg")
    page.finish(text, status)


def _choose(names: Sequence[str], device: str, thresholds: Sequence[Mutant]) -> tuple[list[Mutant], list[str]]:
    """Return the mutants and clean variants asked for, and the built-in implementations that a campaign is to check.

    Raises:
        click.UsageError: a name is of nothing that runs on the device.
    """
    here, builtin = bases_on(device), others_on(device)
    fit = [one for one in (*ALL.values(), *thresholds) if one.base in here and (device == "cuda" or one.device == "cpu")]
    if names:
        return choose(names, fit, device, builtin), [name for name in builtin if name in names]
    return [one for one in fit if one.clean or device in {"cpu", one.device}], builtin
