"""A replay as a table: the errors of each output beside its bound, and the verdicts of every other gate."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from mhc.case import Case
from mhc.drawn_case import DrawnCase
from mhc.fuzz.report.words import details
from mhc.oracles import bound
from mhc.oracles.verdict import Status, Verdict

WIDTH = 120
_HEAD = f"  {'output':10} {'max error':>11} {'mean error':>11} {'bound':>11} {'error/bound':>11}"


def replay_table(case: Case, implementation: str, verdicts: Sequence[Verdict]) -> str:
    """Return what the case has, a row for each output of the bound gate, the other failures, and counts of each other gate.

    Largest and mean error are against float64, over the elements that are finite in both; the bound is the one where
    error / bound is largest. A bound that is a sampled tolerance is labelled so.
    """
    rows = [verdict for verdict in verdicts if verdict.oracle == bound.NAME]
    others = [verdict for verdict in verdicts if verdict.oracle != bound.NAME]
    lines = [f"{implementation} on {case.id}", *(_wrapped("  ", words) if (words := details(case)) else [])]
    if rows:
        lines.append(_HEAD)
    for verdict in rows:
        wrong = [_gate(one) for one in others if one.status is Status.FAIL and one.subject == verdict.subject]
        lines += _row(verdict, list(dict.fromkeys(wrong)))
    for verdict in others:
        if verdict.status is Status.FAIL:
            lines += _wrapped(f"  {_gate(verdict):11} {verdict.subject}: FAIL: ", verdict.message)
        elif verdict.against and verdict.subject == "case":
            lines += _wrapped(f"  {_gate(verdict):11} NOT APPLICABLE: ", verdict.message)
    counts = Counter((_gate(verdict), verdict.status) for verdict in others)
    for gate in dict.fromkeys(_gate(verdict) for verdict in others):
        parts = [f"{counts[gate, status]} {status.value}" for status in Status if counts[gate, status]]
        lines.append(f"  {gate:11} {', '.join(parts)}")
    return "\n".join(lines)


def replay_lines(case: DrawnCase, implementation: str, verdicts: Sequence[Verdict]) -> str:
    """Return a line of JSON for each verdict: gate (`oracle`), output (`subject`), `status`, and what was measured.

    A number that is not finite, which JSON has not, is null.
    """
    names = ("oracle", "subject", "status", "symptom", "message", "ratio", "against", "sampled", "errors")
    records = (
        {"implementation": implementation, "case": case.id, **{name: getattr(one, name) for name in names}}
        for one in verdicts
    )
    return "\n".join(msgspec.json.encode(one).decode() for one in records)


def _gate(verdict: Verdict) -> str:
    return f"{verdict.oracle} with {verdict.against}" if verdict.against else verdict.oracle


def _row(verdict: Verdict, wrong: Sequence[str]) -> Iterator[str]:
    """Yield the row of an output, which fails where other gates say that it is wrong."""
    errors = verdict.errors
    numbers = (None,) * 3 if errors is None else (errors.largest, errors.mean, errors.bound)
    cells = " ".join(f"{'-' if number is None else f'{number:.3g}':>11}" for number in (*numbers, verdict.ratio))
    status = verdict.status.name.replace("_", " ")
    if verdict.status is Status.PASS and wrong:
        status = f"FAIL ({', '.join(wrong)})"
    row = f"  {verdict.subject:10} {cells}  {status}"
    if errors is not None and 0 < errors.judged < errors.elements:
        row += f", a bound for {errors.judged} of {errors.elements} elements"
    if verdict.sampled:
        row += ", sampled"
    if verdict.status is Status.FAIL:
        yield row
        yield from _wrapped("      ", verdict.message)
    else:
        yield from _wrapped(f"{row}: " if verdict.message else row, verdict.message)


def _wrapped(start: str, message: str) -> list[str]:
    """Return `start` and `message` in lines that fit a terminal; a message from a kernel may have any length."""
    return textwrap.wrap(start + message, WIDTH, subsequent_indent=" " * 6, drop_whitespace=True) or [start]
