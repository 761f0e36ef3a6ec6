"""The verb `framework` of `python -m mhc.bench`: single-line faults in this project itself, and which its tests see."""

import random
import tempfile
from pathlib import Path

import click

from mhc.bench import verbs
from mhc.bench.framework import report
from mhc.bench.framework.faults import Fault, draw, targets
from mhc.bench.framework.plant import Attempt, Measured, attempt, covering, digest, lent, make_copies, measure, usable_tests
from mhc.bench.framework.report import Row
from mhc.bench.state import Results

RESULTS = verbs.RESULTS / "framework.md"


@click.command()
@verbs.whole("--faults", "count", default=300, help="How many to draw.")
@verbs.SEED
@verbs.several("--only", "modules", metavar="MODULE", help="Plant in oracles/bound.py, say.")
@verbs.several("--tests", "given", metavar="FILE", help="Run tests/oracles/test_bound.py, say, and no other.")
@verbs.jobs("Faults at a time.")
@verbs.STATE
@verbs.number("--budget", default=40.0, help="Seconds of tests that a fault gets at most.")
@verbs.number("--limit", default=float("inf"), help="Seconds after which no further fault is begun.")
@verbs.write(RESULTS)
def framework(
    count: int,
    seed: int,
    modules: tuple[str, ...],
    given: tuple[str, ...],
    jobs: int,
    state: Path | None,
    budget: float,
    limit: float,
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
    verbs.refuse_unknown(modules, known, "module")
    verbs.refuse_unknown(given, tests, "test module", "--tests")
    page = verbs.Page(RESULTS, write=write)
    drawn, tree, used = draw(root, modules or known, count, seed), digest(root), list(given) or tests
    with tempfile.TemporaryDirectory(prefix="mhc-framework-") as place:
        copies = make_copies(root, Path(place), jobs)

        def look(unmeasured: Measured) -> Measured:
            with lent(copies) as copy:
                return measure(copy, unmeasured.name, known)

        measures = Results(Measured, "modules", None if state is None else state.with_suffix(".tests.json"), tree=tree)
        unmeasured = [Measured(name=one) for one in used]
        seen = measures.complete(unmeasured, look, jobs, lambda _, one: page.show(report.measured_line(one)))
        seconds = {test: took for one in seen for test, took in one.tests.items()}

        def plant(fault: Fault) -> Attempt | None:
            if page.seconds > limit:
                return None
            chosen = covering(fault, seen, root, budget)
            return attempt(copies, fault, chosen, sum(seconds[test] for test in chosen))

        attempts = Results(Attempt, "faults", state, tree=tree, seed=seed, tests=" ".join(sorted(used)))
        mixed = random.Random(seed).sample(drawn, len(drawn))  # a run that is cut short has faults of all modules
        attempts.complete(mixed, plant, jobs, lambda fault, one: page.show(report.line(fault, one)))
    rows = [Row(fault=one, attempt=attempts.done[one.name]) for one in drawn if one.name in attempts.done]
    missing = len(drawn) - len(rows)
    text = report.render(rows, missing, seen, command=verbs.command(), budget=budget)
    page.finish(text, 1 if missing or any(row.unexplained for row in rows) else 0)
