"""The verb `minimal` of `python -m mhc.bench`: how small the findings on known-bad implementations become.

Every mutant is found with drawn cases, as a campaign would find it, and its finding is minimised.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mhc.bench import verbs
from mhc.bench.detection.hunt import drawn_for, named
from mhc.bench.markdown import table
from mhc.bench.state import Results
from mhc.case import Case
from mhc.fuzz.check.level import Level
from mhc.fuzz.findings.finding import Finding, finding
from mhc.fuzz.minimise.minimise import minimise
from mhc.fuzz.worker.client import WorkerClient
from mhc.fuzz.worker.process import HarnessError
from mhc.implementation import ImplementationError
from mhc.registry import load
from oracles.mutants.catalogue import ALL, ON_CPU
from oracles.mutants.load import SPEC
from oracles.mutants.record import BASES, Mutant
from oracles.verdict import Status

GOAL = 64
"""Elements of x, at most, in the median smallest case."""
RESULTS = verbs.RESULTS / "minimal.md"


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


class State(Results[Minimal]):
    """Mutants that are done."""

    key, kind = "done", Minimal


@click.command()
@verbs.whole("--cases", default=300, help="Drawn cases a mutant gets to be found.")
@verbs.SEED
@verbs.several("--only", "names", metavar="NAME", help="A mutant, or manual, triton, tilelang.")
@verbs.number("--limit", default=30.0, help="Seconds a case may take.")
@verbs.number("--hunting", default=120.0, help="Seconds a mutant gets to be found.")
@verbs.number("--seconds", default=120.0, help="Seconds its finding is made smaller.")
@verbs.jobs("Mutants at a time.")
@verbs.positive("--minutes", help="Begin no further mutant after so many.")
@verbs.state()
@verbs.write(RESULTS)
def minimal(
    cases: int, seed: int, names: tuple[str, ...], minutes: float | None, state: Path | None, write: bool, **limits: Any
) -> None:
    """Find known-bad implementations with drawn cases, minimise each finding, and show how small it became.

    \b
        python -m mhc.bench minimal --only manual --state /tmp/minimal.json
        python -m mhc.bench minimal --state /tmp/minimal.json --write

    Exit status: 0 the median smallest case has at most 64 elements of x, 1 it has more, 2 usage, 3 a fault of the harness
    itself.
    """
    page = verbs.Page(RESULTS, write=write)
    results = measure(
        verbs.mutants(names, BASES),
        State(state, {"cases": cases, "seed": seed}),
        cases=cases,
        seed=seed,
        total=float("inf") if minutes is None else minutes * 60,
        on_result=lambda mutant, result: page.show(line(result)),
        **limits,
    )
    text = render(results, command=verbs.command(), cases=cases, seed=seed)
    page.finish(text, 3 if any(one.fault for one in results) else 1 if median(results) > GOAL else 0)


def measure(
    mutants: Sequence[Mutant],
    state: State,
    *,
    cases: int,
    seed: int,
    limit: float,
    hunting: float,
    seconds: float,
    jobs: int = 1,
    total: float = float("inf"),
    on_result: Callable[[Mutant, Minimal], None] = lambda mutant, result: None,
) -> list[Minimal]:
    """Find and minimise each mutant that `state` does not have yet, `jobs` at a time, until `total` seconds have passed.

    Args:
        cases, seed: drawn, the same for all of a base. limit: seconds that a case may take in the hunt.
        hunting, seconds: that finding one mutant, and making its finding smaller, may take.
    """
    deadline = time.monotonic() + total
    bases = dict.fromkeys(mutant.base for mutant in state.waiting(mutants))
    drawn = {base: drawn_for(base, cases, seed) for base in bases}

    def one(mutant: Mutant) -> Minimal | None:
        late = time.monotonic() > deadline
        return None if late else _one(mutant, drawn[mutant.base], limit, hunting, seconds)

    return state.complete(mutants, one, jobs, on_result)


def median(results: Sequence[Minimal]) -> float:
    """Return the median of the elements of x in the smallest cases."""
    return statistics.median([one.after for one in results if one.case] or [0])


def _one(mutant: Mutant, drawn: Sequence[Case], limit: float, hunting: float, seconds: float) -> Minimal:
    spec = SPEC.format(mutant.name)
    try:
        number, first = _first(spec, drawn, limit, hunting)
        if first is None:
            return Minimal(name=mutant.name, base=mutant.base, cases=number)
        small = minimise(first, "cpu", seconds=seconds)
    except (HarnessError, ImplementationError) as fault:
        return Minimal(name=mutant.name, base=mutant.base, fault=str(fault))
    reduction = small.reduction
    assert reduction is not None
    fingerprint = small.fingerprint
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


def _first(spec: str, drawn: Sequence[Case], limit: float, seconds: float) -> tuple[int, Finding | None]:
    """Return the number of the first drawn case that fails, and its finding."""
    implementation = load(spec)
    worker = WorkerClient(spec, implementation, "cpu", limit=limit)
    started = time.monotonic()
    number = 0
    try:
        for number, one in enumerate(drawn, 1):
            if time.monotonic() - started > seconds:
                break
            case = named(one, implementation.name)
            worker.start(case, Level.DRAWN)
            for verdict in worker.finish():
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
    lines = [
        "# How small findings become",
        "",
        f"{len(found)} of {len(ON_CPU)} known-bad implementations, each found with drawn cases as a campaign finds it "
        f"and then minimised. The median smallest case has {median(found):g} elements of x (the goal: at most {GOAL}), "
        f"the largest {max([one.after for one in found], default=0)}; "
        f"{sum(one.after <= GOAL for one in found)} of {len(found)} have at most {GOAL}. "
        f"{sum(one.reproduced == one.runs for one in found)} failed again in each fresh process.",
        "",
        "A case is the smallest when no single step of the reducer leads to a simpler one with the same fingerprint "
        "(output, symptom, oracle): no size can be made smaller, no tensor zero, no literal dropped. `live` names what "
        "is not all zero, with how many elements are not where they are a few.",
        "",
        f"Made with `{command}`: up to {cases} cases each, seed {seed}. Checks and seconds are of minimising and "
        "confirming, on a machine with other work.",
        "",
    ]
    for base in BASES:
        of_base = [one for one in found if one.base == base]
        if of_base:
            lines += [
                f"## {base}: {len(of_base)}, median {median(of_base):g} elements",
                "",
                table(_HEAD, map(_row, of_base)),
                "",
            ]
    missing = [one for one in results if not one.case]
    if missing:
        lines += ["## Not found", ""]
        lines += [f"- {one.name} ({one.base}): {_why_not(one, reasons=True)}" for one in missing]
        lines.append("")
    waiting = [mutant for mutant in ON_CPU if mutant.name not in {one.name for one in results}]
    if waiting:
        counted = ", ".join(f"{sum(one.base == base for one in waiting)} of {base}" for base in BASES)
        lines += [f"Not yet run: {counted}.", ""]
    return "\n".join(lines)


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
