"""The page about exported programs."""

from collections.abc import Sequence

from mhc.bench.repros.measure import GOAL, TO, Repro, median
from oracles.mutants.catalogue import ALL


def line(result: Repro) -> str:
    """One result, for a terminal."""
    if result.refused:
        first = result.refused.splitlines()[0]
        return f"{result.name}: {result.fingerprint}: refused: {first} ({result.seconds:.0f} s)"
    how = f"{result.lines} of {result.whole} lines, {result.form}, {result.runs} runs"
    return f"{result.name}: {result.fingerprint}: {how} ({result.seconds:.0f} s)"


def render(results: Sequence[Repro], *, command: str) -> str:
    """The page: medians, a table for each base, and what is refused with its reason."""
    lines = ["# How short exported programs are", "", f"    {command}", ""]
    for base in TO:
        of_base = [one for one in results if one.base == base]
        made = [one for one in of_base if one.lines]
        if not of_base:
            continue
        counts = sorted(one.lines for one in made) or [0]
        lines += [
            f"## {base}",
            "",
            f"{len(made)} of {len(of_base)} findings have a program that reproduces three times by itself: "
            f"{median(made, base):g} lines in the median (the goal: at most {GOAL}), {counts[0]} to {counts[-1]}; "
            f"{sum(count <= GOAL for count in counts)} have at most {GOAL}. No line is longer than "
            f"{max((one.widest for one in made), default=0)} columns.",
            "",
            "| mutant | bug | finding | form | lines | of |",
            "|---|---|---|---|---|---|",
            *(
                f"| {one.name} | {ALL[one.name].bug} | {one.fingerprint} | {one.form} | {one.lines} | {one.whole} |"
                for one in made
            ),
            "",
        ]
        refused = [one for one in of_base if one.refused]
        if refused:
            lines += ["Refused:", ""]
            lines += [f"- {one.name}, {one.fingerprint}: {'; '.join(_reasons(one))}" for one in refused]
            lines.append("")
    return "\n".join(lines)


def _reasons(result: Repro) -> list[str]:
    """Its first line of each form that was tried."""
    return list(dict.fromkeys(text.strip() for text in result.refused.splitlines() if not text.startswith("    ")))
