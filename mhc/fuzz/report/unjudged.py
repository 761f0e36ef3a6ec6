"""What a campaign did not judge: outputs that were not returned, or in which there was never anything to judge."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from mhc.fuzz.campaign.store import REFUSED
from mhc.fuzz.report.words import plural
from mhc.operator import OPERATORS
from mhc.oracles.judge import JUDGED, NOT_RETURNED, NOTHING, SAMPLED

_REASONS = 3  # of refusals, that are listed


@dataclass(frozen=True, kw_only=True)
class Unjudged:
    """An output or gradient of one implementation that was not always returned, or never judged.

    Attributes:
        missing: cases in which it was not returned, of `cases` that should have it and ran to their end.
    """

    subject: str
    missing: int
    cases: int

    @property
    def why(self) -> str:
        """Return why the output was not judged, in words."""
        if self.missing:
            return f"not returned in {self.missing:,} of {self.cases:,} cases"
        return f"returned in {self.cases:,} cases, and there was nothing to judge in any"


def unjudged(counts: Mapping[str, float]) -> list[Unjudged]:
    """Return an implementation's outputs that were not always judged, in the operator's order, from the store's counts."""
    by_outcome = {
        outcome: {words.partition(": ")[2]: round(n) for words, n in counts.items() if words.startswith(f"{outcome}: ")}
        for outcome in (JUDGED, SAMPLED, NOT_RETURNED, NOTHING)
    }
    order = [spec.name for table in OPERATORS.values() for spec in (*table.outputs, *table.gradients)]
    seen = {subject for counted in by_outcome.values() for subject in counted}
    found = []
    for subject in sorted(seen, key=lambda one: (order.index(one) if one in order else len(order), one)):
        judged, sampled, missing, nothing = (counted.get(subject, 0) for counted in by_outcome.values())
        judged += sampled
        if missing or not judged:
            found.append(Unjudged(subject=subject, missing=missing, cases=judged + missing + nothing))
    return found


def without_numbers(counts: Mapping[str, float], measured: Collection[str]) -> str:
    """Return in words which outputs were judged without an error / bound, such as integers, which must be equal; or "".

    Args:
        measured: outputs with a largest error / bound.
    """
    judged = {
        words.partition(": ")[2] for words, n in counts.items() if n and words.startswith((f"{JUDGED}: ", f"{SAMPLED}: "))
    }
    others = sorted(judged - set(measured))
    return f"{', '.join(others)}: judged by equality" if others else ""


def summary(found: Sequence[Unjudged]) -> str:
    """Return all outputs on one line, those with the same numbers together; "" where there are none."""
    by_why: dict[str, list[str]] = {}
    for one in found:
        by_why.setdefault(one.why, []).append(one.subject)
    return "; ".join(f"{', '.join(subjects)}: {why}" for why, subjects in by_why.items())


def by_sampling(counts: Mapping[str, float]) -> str:
    """Return in words which outputs were judged with a sampled tolerance, which is statistical; empty where none was."""
    start = f"{SAMPLED}: "
    some = {words.removeprefix(start): round(n) for words, n in counts.items() if words.startswith(start) and n}
    return ", ".join(
        f"{subject} in {n:,} of {n + round(counts.get(f'{JUDGED}: {subject}', 0)):,} cases" for subject, n in some.items()
    )


def refusals(counts: Mapping[str, float]) -> str:
    """Return why cases were refused and how often, the most frequent reasons first; "" where none was."""
    found = {word.removeprefix(REFUSED): round(n) for word, n in counts.items() if word.startswith(REFUSED) and n}
    often = sorted(found, key=lambda reason: (-found[reason], reason))
    listed = [f"{reason} ({plural(found[reason], 'case')})" for reason in often[:_REASONS]]
    others = len(often) - len(listed)
    return "; ".join([*listed, plural(others, "other reason")] if others else listed)


def nothing_judged(counts: Mapping[str, float]) -> bool:
    """Return whether no output was judged and nothing failed: nothing is known of the implementation.

    A run of an older version did not count what was judged; there every checked case is taken for judged.
    """
    if counts.get("failing"):
        return False
    counted = any(words.startswith((f"{NOT_RETURNED}: ", f"{NOTHING}: ")) for words in counts)
    judged = any(n and words.startswith((f"{JUDGED}: ", f"{SAMPLED}: ")) for words, n in counts.items())
    return not judged and (counted or not counts.get("checked"))


def why_nothing(counts: Mapping[str, float]) -> str:
    """Return why nothing was judged, in words."""
    checked, refused = round(counts.get("checked", 0)), round(counts.get("refused", 0))
    if checked:
        return summary(unjudged(counts)) or "no case ran to its end"
    because = f": {words}" if (words := refusals(counts)) else ""
    return f"{refused:,} of {refused:,} cases refused{because}" if refused else "no case ran"
