"""The verb `framework` of `python -m mhc.bench`: single-line faults in this project itself, and which its tests see."""

import platform
import tempfile
from pathlib import Path

import click

from mhc.bench import verbs
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

RESULTS = verbs.RESULTS / "framework.md"


@click.command()
@verbs.whole("--faults", "count", default=300, help="How many to draw.")
@verbs.whole("--seed", least=0, default=0, help="Of the draw.")
@verbs.several("--only", "modules", metavar="MODULE", help="Plant in oracles/bound.py, say.")
@verbs.several("--tests", "given", metavar="FILE", help="Run tests/oracles/test_bound.py, say, and no other.")
@verbs.jobs("Faults at a time.")
@verbs.state()
@verbs.number("--limit", help="Seconds after which no further fault is begun.")
@verbs.write(RESULTS)
def framework(
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
    root = Path.cwd()
    known, tests = targets(root), usable_tests(root)
    if not known or not tests:
        raise click.UsageError(f"{root}: is not the project's folder, which has oracles/ and tests/")
    for option, chosen, there in (("--only", modules, known), ("--tests", given, tests)):
        for one in chosen:
            if one not in there:
                raise click.UsageError(f"{option} {one}: must be one of {', '.join(there)}")
    page = verbs.Page(RESULTS, write=write)
    drawn, tree, used = draw(root, modules or known, count, seed), digest(root), list(given) or tests
    with tempfile.TemporaryDirectory(prefix="mhc-framework-") as place:
        copies = Copies(root, Path(place), jobs)
        measures = Measures(None if state is None else state.with_suffix(".tests.json"), {"tree": tree})

        def look(unmeasured: Measured) -> Measured:
            with copies.lent() as copy:
                return measure(copy, unmeasured.name, known)

        modules_to_measure = [Measured(name=one) for one in used]
        seen = measures.complete(modules_to_measure, look, jobs, lambda _, one: page.show(report.measured_line(one)))
        seconds = {test: took for one in seen for test, took in one.tests.items()}
        attempts = Attempts(state, {"tree": tree, "seed": seed, "tests": " ".join(sorted(used))})

        def plant(fault: Fault) -> Attempt | None:
            if limit is not None and page.seconds > limit:
                return None
            chosen_tests = covering(fault, seen, root)
            return attempt(copies, fault, chosen_tests, sum(seconds[test] for test in chosen_tests))

        attempts.complete(drawn, plant, jobs, lambda fault, one: page.show(report.line(fault, one)))
    result = report.score(drawn, attempts.done)
    text = report.render(result, seen, command=verbs.command(), day=verbs.today(), python=platform.python_version())
    page.finish(text, 1 if result.unexplained or result.missing else 0)
