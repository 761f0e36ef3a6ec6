"""The verb `minimal` of `python -m mhc.bench`: how small the findings on known-bad implementations become.

Every mutant is found with drawn cases, as a campaign would find it, and its finding is minimised.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from mhc.bench import verbs
from mhc.bench.detection.hunt import drawn_for, judged
from mhc.bench.detection.sets import choose
from mhc.bench.markdown import table
from mhc.bench.state import Results
from mhc.case import Case
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.minimise.minimise import minimise
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import ImplementationError
from mhc.oracles.mutants.catalogue import ALL, ON_CPU
from mhc.oracles.mutants.load import SPEC
from mhc.oracles.mutants.record import BASES, Mutant
from mhc.oracles.verdict import Status
from mhc.registry import load

GOAL = 64
"""Elements of x, at most, in the median smallest case."""
STATE_KEY = "done"
RESULTS = verbs.RESULTS / "minimal.md"
_LIMIT = 30.0  # seconds that a case may take in the hunt
_SECONDS = 120.0  # that a finding is made smaller


@dataclass(frozen=True, kw_only=True)
class Minimal:
    """The smallest finding on one mutant.

    Attributes:
        cases: drawn until one failed, or in vain. fingerprint: of the finding, empty where there is none.
        case: the smallest, as JSON. before, after: elements of x. seconds: of minimising. rate: how often it failed again.
        fault: of the harness, if one ended it.
    """

    name: str
    base: str
    cases: int = 0
    fingerprint: str = ""
    case: str = ""
    message: str = ""
    before: int = 0
    after: int = 0
    checks: int = 0
    seconds: float = 0.0
    reproduced: int = 0
    runs: int = 0
    fault: str = ""


@click.command()
@verbs.whole("--cases", default=300, help="Drawn cases a mutant gets to be found.")
@verbs.SEED
@verbs.ONLY
@verbs.number("--hunting", default=120.0, help="Seconds a mutant gets to be found.")
@verbs.jobs("Mutants at a time.")
@verbs.STATE
@verbs.write(RESULTS)
def minimal(
    cases: int,
    seed: int,
    names: tuple[str, ...],
    hunting: float,
    jobs: int,
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
    page = verbs.Page(RESULTS, write=write)
    mutants = choose(names, ON_CPU)
    kept = Results(Minimal, STATE_KEY, state, cases=cases, seed=seed)
    # the same cases for all of a base
    drawn = {base: drawn_for(base, cases, seed) for base in {mutant.base for mutant in kept.waiting(mutants)}}
    results = kept.complete(
        mutants,
        lambda mutant: _one(mutant, drawn[mutant.base], hunting),
        jobs,
        lambda mutant, result: page.show(line(result)),
    )
    text = render(results, command=verbs.command(), cases=cases, seed=seed)
    page.finish(text, 3 if any(one.fault for one in results) else 1 if median(results) > GOAL else 0)


def median(results: Sequence[Minimal]) -> float:
    """Return the median of the elements of x in the smallest cases."""
    return statistics.median([one.after for one in results if one.case] or [0])


def _one(mutant: Mutant, drawn: Sequence[Case], hunting: float) -> Minimal:
    try:
        number, first = _first(SPEC.format(mutant.name), drawn, hunting)
        if first is None:
            return Minimal(name=mutant.name, base=mutant.base, cases=number)
        small = minimise(first, "cpu", seconds=_SECONDS)
    except (HarnessError, ImplementationError) as fault:
        return Minimal(name=mutant.name, base=mutant.base, fault=str(fault))
    reduction, fingerprint = small.reduction, small.fingerprint
    assert reduction is not None
    return Minimal(
        name=mutant.name,
        base=mutant.base,
        cases=number,
        fingerprint=f"{fingerprint.subject}: {fingerprint.symptom} ({fingerprint.oracle})",
        case=small.case.json,
        message=small.message,
        before=reduction.elements_before,
        after=reduction.elements,
        checks=reduction.checks,
        seconds=reduction.seconds,
        reproduced=reduction.reproduced,
        runs=reduction.runs,
    )


def _first(spec: str, drawn: Sequence[Case], seconds: float) -> tuple[int, Finding | None]:
    """Return how many drawn cases were checked, up to the first that fails, and its finding."""
    implementation = load(spec)
    worker = WorkerClient(spec, implementation, "cpu", limit=_LIMIT)
    number = 0
    try:
        for number, case, verdicts, _ in judged(worker, drawn, seconds):
            for verdict in verdicts:
                if verdict.status is Status.FAIL:
                    return number, finding(spec, implementation, case, verdict)
        return number, None
    finally:
        worker.stop()


def line(result: Minimal) -> str:
    """Return one result as a line for a terminal."""
    if not result.case:
        return f"{result.name}: {_why_not(result)}"
    return (
        f"{result.name}: {result.before} -> {result.after} elements, {_shape(result)}, {result.checks} checks, "
        f"{result.seconds:.0f} s, {result.reproduced} of {result.runs}"
    )


def render(results: Sequence[Minimal], *, command: str, cases: int, seed: int) -> str:
    """Return the page: the median, a table for each base, and what was not found."""
    found = [one for one in results if one.case]
    parts = [
        "# How small findings become",
        f"{len(found)} of {len(ON_CPU)} known-bad implementations, each found with drawn cases as a campaign finds it "
        f"and then minimised. The median smallest case has {median(found):g} elements of x (the goal: at most {GOAL}), "
        f"the largest {max([one.after for one in found], default=0)}; "
        f"{sum(one.after <= GOAL for one in found)} of {len(found)} have at most {GOAL}. "
        f"{sum(one.reproduced == one.runs for one in found)} failed again in each fresh process.",
        "A case is minimal if no single step of the minimiser leads to a simpler case with the same fingerprint "
        "(output, symptom, oracle): no size can shrink, no tensor can be zero, no literal can be dropped. `live` lists "
        "the tensors that are not all zero; a number in brackets counts nonzero elements, where they are few.",
        f"Made with `{command}`: up to {cases} cases each, seed {seed}. Checks and seconds are of minimising and "
        "confirming, on a machine with other work.",
    ]
    for base in BASES:
        of_base = [one for one in found if one.base == base]
        if of_base:
            parts += [f"## {base}: {len(of_base)}, median {median(of_base):g} elements", table(_HEAD, map(_row, of_base))]
    missing = [f"- {one.name} ({one.base}): {_why_not(one, reasons=True)}" for one in results if not one.case]
    if missing:
        parts += ["## Not found", "\n".join(missing)]
    ran = {one.name for one in results}
    waiting = Counter(mutant.base for mutant in ON_CPU if mutant.name not in ran)
    if waiting:
        parts.append(f"Not yet run: {', '.join(f'{waiting[base]} of {base}' for base in BASES)}.")
    return "\n\n".join(parts) + "\n"


_HEAD = ("mutant", "symptom", "smallest case", "live", "x before", "x after", "checks", "s", "again")


def _row(one: Minimal) -> tuple[str, ...]:
    numbers = (str(one.before), str(one.after), str(one.checks), f"{one.seconds:.0f}", f"{one.reproduced}/{one.runs}")
    return (one.name, one.fingerprint, _shape(one), _live(one), *numbers)


def _shape(result: Minimal) -> str:
    case = Case.from_json(result.case)
    return f"B={case.sizes['B']} S={case.sizes['S']} n={case.sizes['n']} D={case.sizes['D']} {case.dtype}"


def _live(result: Minimal) -> str:
    """Return the tensors that are not all zero."""
    words = []
    for name, recipe in Case.from_json(result.case).tensors.items():
        if recipe.kind == "zero" and recipe.literals:
            words.append(f"{name} ({len(recipe.literals)})")
        elif recipe.kind != "zero":
            words.append(name if recipe.kind == "constant" else f"{name} {recipe.kind}")
    return ", ".join(words) or "nothing"


def _why_not(result: Minimal, *, reasons: bool = False) -> str:
    if result.fault:
        return f"fault of the harness: {result.fault}"
    reason = (ALL[result.name].equivalent or ALL[result.name].gap) if reasons else ""
    return f"none of {result.cases} cases fails{f'; {reason}' if reason else ''}"
