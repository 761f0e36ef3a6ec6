"""A replay as a table: the errors of each output beside its bound, and the verdicts of every other gate."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from mhc.case import Case
from mhc.drawn_case import DrawnCase
from mhc.fuzz.report.words import details
from mhc.oracles import bound
from mhc.oracles.gates import may_follow
from mhc.oracles.verdict import Status, Verdict

WIDTH = 120
_HEAD = f"  {'output':10} {'max error':>11} {'mean error':>11} {'bound':>11} {'error/bound':>11}"


@dataclass(frozen=True)
class _Failure:
    """A verdict that fails. cause: the failure that it may follow from. runs: further runs that fail so by themselves."""

    verdict: Verdict
    cause: Verdict | None
    runs: Sequence[str]


def replay_table(case: Case, implementation: str, verdicts: Sequence[Verdict]) -> str:
    """Return what the case has, what fails, a row for each output of the bound gate, the other failures, and counts.

    What fails is named first: each cause, and what may follow from it. Largest and mean error are against float64, over the
    elements that are finite in both; the bound is the one where error / bound is largest. A bound that is a sampled
    tolerance is labelled so. The counts are of every other gate.
    """
    rows = [verdict for verdict in verdicts if verdict.oracle == bound.NAME]
    others = [verdict for verdict in verdicts if verdict.oracle != bound.NAME]
    failures = _failures(verdicts)
    lines = [f"{implementation} on {case.id}", *(_wrapped("  ", words) if (words := details(case)) else [])]
    lines += _summary(failures)
    if rows:
        lines.append(_HEAD)
    for verdict in rows:
        wrong = [_gate(one) for one in others if one.status is Status.FAIL and one.subject == verdict.subject]
        lines += _row(verdict, list(dict.fromkeys(wrong)))
    for one in failures:
        if one.verdict.oracle != bound.NAME:
            lines += _failure(one)
    for verdict in others:
        if verdict.status is not Status.FAIL and verdict.against and verdict.subject == "case":
            lines += _wrapped(f"  {_gate(verdict):11} NOT APPLICABLE: ", verdict.message)
    counts = Counter((_gate(verdict), verdict.status) for verdict in others)
    for gate in dict.fromkeys(_gate(verdict) for verdict in others):
        parts = [f"{counts[gate, status]} {status.value}" for status in Status if counts[gate, status]]
        lines.append(f"  {gate:11} {', '.join(parts)}")
    return "\n".join(lines)


def replay_lines(case: DrawnCase, implementation: str, verdicts: Sequence[Verdict]) -> str:
    """Return a line of JSON for each verdict: gate (`oracle`), output (`subject`), `status`, and what was measured.

    `follows` names the failure that a failure may follow from. A number that is not finite, which JSON has not, is null.
    """
    names = ("oracle", "subject", "status", "symptom", "message", "ratio", "against", "run", "sampled", "errors")
    causes = {id(one.verdict): f"{one.cause.subject}: {_symptom(one.cause)}" for one in _failures(verdicts) if one.cause}
    records = (
        {
            "implementation": implementation,
            "case": case.id,
            **{name: getattr(one, name) for name in names},
            "follows": causes.get(id(one), ""),
        }
        for one in verdicts
    )
    return "\n".join(msgspec.json.encode(one).decode() for one in records)


def _failures(verdicts: Sequence[Verdict]) -> list[_Failure]:
    """Return the failures, causes first. Further runs that fail by themselves in one way are listed with the first."""
    runs: dict[tuple[str, ...], list[str]] = {}
    found: list[Verdict] = []
    for one in verdicts:
        key = one.oracle, one.subject, one.symptom, one.against
        if one.status is Status.FAIL and one.run and key in runs:
            runs[key].append(one.run)
        elif one.status is Status.FAIL:
            found.append(one)
            runs.setdefault(key, [])
    causes = [one for one in found if not any(may_follow(one, other) for other in found)]
    failures = []
    for one in found:
        key = one.oracle, one.subject, one.symptom, one.against
        cause = next((other for other in causes if may_follow(one, other)), None)
        failures.append(_Failure(one, cause, runs.pop(key, ())))
    return sorted(failures, key=lambda one: one.cause is not None)


def _summary(failures: Sequence[_Failure]) -> list[str]:
    """Return a line for each subject, with its causes, and the gates whose failures may follow from each."""
    lines = []
    for subject in dict.fromkeys(one.verdict.subject for one in failures):
        causes: dict[str, list[str]] = {}
        for one in failures:  # causes come first
            if one.verdict.subject == subject and one.cause is None:
                causes.setdefault(_symptom(one.verdict), [])
            elif one.verdict.subject == subject and one.cause is not None:
                causes[_symptom(one.cause)].append(_gate(one.verdict))
        after = [
            f"may follow from {'it' if len(causes) == 1 else cause}: {', '.join(dict.fromkeys(gates))}"
            for cause, gates in causes.items()
            if gates
        ]
        lines += _wrapped("  FAILS: ", "; ".join([f"{subject}: {', '.join(causes)}", *after]))
    return lines


def _failure(failure: _Failure) -> list[str]:
    verdict, cause = failure.verdict, failure.cause
    status = "FAIL" if cause is None else f"FAIL, may follow from {_symptom(cause)}"
    lines = _wrapped(f"  {_gate(verdict):11} {verdict.subject}: {status}: ", verdict.message)
    if failure.runs:
        more = "a further run" if len(failure.runs) == 1 else f"{len(failure.runs)} further runs"
        lines += _wrapped(f"      again in {more}: ", "; ".join(failure.runs))
    return lines


def _symptom(verdict: Verdict) -> str:
    return f"{verdict.symptom} ({_gate(verdict)})"


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
