"""The verb `framework` of `python -m mhc.bench`: single-line faults in this project itself, and which its tests see."""

import os
import platform
import shlex
import sys
import tempfile
import time
from pathlib import Path

import click

from mhc.bench.framework import report
from mhc.bench.framework.faults import Fault, draw, targets
from mhc.bench.framework.plant import (
    Attempt,
    Attempts,
    Copies,
    Measured,
    Measures,
    attempt,
    covering,
    digest,
    measure,
    usable_tests,
)

RESULTS = Path("docs/results/framework.md")


@click.command()
@click.option("--faults", "count", type=click.IntRange(min=1), default=300, show_default=True, help="How many to draw.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draw.")
@click.option("--only", "modules", multiple=True, metavar="MODULE", help="Plant in oracles/bound.py, say. Repeatable.")
@click.option(
    "--tests", "given", multiple=True, metavar="FILE", help="Run tests/oracles/test_bound.py, say, and no other. Repeatable."
)
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True, help="Faults at a time.")
@click.option("--state", type=click.Path(dir_okay=False, path_type=Path), help="Keep results there, and skip what it has.")
@click.option("--limit", type=click.FloatRange(min=1), help="Seconds after which no further fault is begun.")
@click.option("--write", is_flag=True, help=f"Write {RESULTS}.")
@click.pass_context
def framework(
    context: click.Context,
    count: int,
    seed: int,
    modules: tuple[str, ...],
    given: tuple[str, ...],
    jobs: int,
    state: Path | None,
    limit: float | None,
    write: bool,
) -> None:
    """Plant single-line faults in oracles, strategies and campaign, and see whether the tests notice.

    \b
        python -m mhc.bench framework --state /tmp/framework.json --write
        python -m mhc.bench framework --only oracles/bound.py --tests tests/oracles/test_bound.py --faults 20

    Run it in the project's folder. Exit status: 0 every survivor is explained, 1 not so, or not all were run, 2 usage,
    3 a fault of the harness itself.
    """
    root, started = Path.cwd(), time.monotonic()
    known, tests = targets(root), usable_tests(root)
    if not known or not tests:
        raise click.UsageError(f"{root}: is not the project's folder, which has oracles/ and tests/")
    for option, chosen, there in (("--only", modules, known), ("--tests", given, tests)):
        for one in chosen:
            if one not in there:
                raise click.UsageError(f"{option} {one}: must be one of {', '.join(there)}")
    if write and not RESULTS.parent.is_dir():
        raise click.UsageError(f"{RESULTS}: there is no folder {RESULTS.parent}")
    drawn = draw(root, modules or known, count, seed)
    tree = digest(root)

    def show(what: str) -> None:
        click.echo(f"{time.monotonic() - started:6.0f} s  {what}")

    with tempfile.TemporaryDirectory(prefix="mhc-framework-") as place:
        copies = Copies(root, Path(place), jobs)
        measures = Measures(None if state is None else state.with_suffix(".tests.json"), {"tree": tree})

        def look(module: str) -> Measured:
            with copies.lent() as copy:
                return measure(copy, module, known)

        used = list(given) or tests
        unseen = [one for one in used if one not in measures.done]
        measures.complete(unseen, look, jobs, lambda _, one: show(report.measured_line(one)))
        seen = [measures.done[one] for one in used]
        seconds = {test: took for one in seen for test, took in one.tests.items()}
        attempts = Attempts(state, {"tree": tree, "seed": seed, "tests": " ".join(sorted(used))})

        def plant(fault: Fault) -> Attempt | None:
            if limit is not None and time.monotonic() - started > limit:
                return None
            chosen_tests = covering(fault, seen, root)
            return attempt(copies, fault, chosen_tests, sum(seconds[test] for test in chosen_tests))

        todo = [fault for fault in drawn if fault.name not in attempts.done]
        attempts.complete(todo, plant, jobs, lambda fault, one: show(report.line(fault, one)))
    result = report.score(drawn, attempts.done)
    text = report.render(
        result,
        seen,
        command=f"python -m mhc.bench {shlex.join(context.meta.get('mhc.bench.arguments', ()))}",
        day=time.strftime("%Y-%m-%d", time.gmtime()),
        python=platform.python_version(),
    )
    if write:
        RESULTS.write_text(text, encoding="utf-8")
    click.echo(f"\n{text}")
    sys.exit(1 if result.unexplained or result.missing else 0)
