"""The page about how small findings become."""

from collections.abc import Sequence

from mhc.bench.minimal.measure import GOAL, Minimal, median
from mhc.case import Case
from oracles.mutants.catalogue import ALL, ON_CPU
from oracles.mutants.record import BASES


def line(result: Minimal) -> str:
    """One result, for a terminal."""
    if result.fault:
        return f"{result.name}: fault of the harness: {result.fault}"
    if not result.case:
        return f"{result.name}: none of {result.cases} cases fails"
    return (
        f"{result.name}: {result.before} -> {result.after} elements, {_shape(result)}, {result.checks} checks, "
        f"{result.seconds:.0f} s, {result.reproduced} of {result.runs}"
    )


def render(results: Sequence[Minimal], *, command: str, cases: int, seed: int) -> str:
    """The page: the median, a table for each base, and what was not found."""
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
            lines += [f"## {base}: {len(of_base)}, median {median(of_base):g} elements", "", *_table(of_base), ""]
    missing = [one for one in results if not one.case]
    if missing:
        lines += ["## Not found", ""]
        lines += [f"- {one.name} ({one.base}): {_why_not(one)}" for one in missing]
        lines.append("")
    waiting = [mutant for mutant in ON_CPU if mutant.name not in {one.name for one in results}]
    if waiting:
        counted = ", ".join(f"{sum(one.base == base for one in waiting)} of {base}" for base in BASES)
        lines += [f"Not yet run: {counted}.", ""]
    return "\n".join(lines)


def _table(results: Sequence[Minimal]) -> list[str]:
    rows = [
        "| mutant | symptom | smallest case | live | x before | x after | checks | s | again |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        rows.append(
            f"| {one.name} | {one.fingerprint} | {_shape(one)} | {_live(one)} | {one.before} | {one.after} | {one.checks} "
            f"| {one.seconds:.0f} | {one.reproduced}/{one.runs} |"
        )
    return rows


def _shape(result: Minimal) -> str:
    case = Case.from_json(result.case)
    return f"B={case.B} S={case.S} n={case.n} D={case.D} {case.dtype}"


def _live(result: Minimal) -> str:
    case = Case.from_json(result.case)
    words = []
    for name, recipe in case.tensors.items():
        if recipe.kind == "zero" and recipe.literals:
            words.append(f"{name} ({len(recipe.literals)})")
        elif recipe.kind != "zero":
            words.append(name if recipe.kind == "constant" else f"{name} {recipe.kind}")
    return ", ".join(words) or "nothing"


def _why_not(result: Minimal) -> str:
    mutant = ALL[result.name]
    if result.fault:
        return f"fault of the harness: {result.fault}"
    reason = mutant.equivalent or mutant.gap
    return f"none of {result.cases} cases fails{'; ' + reason if reason else ''}"
