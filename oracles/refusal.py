"""The refusal gate: checks that a refusal has a reason, is repeatable, and comes before any stage runs.

A refused case is not applicable, never a pass. Invalid arguments of public functions are tested in test_contracts.py.
"""

from collections.abc import Iterable

from mhc.observation import Failure
from mhc.oracles.verdict import Status, Verdict, failed, not_applicable

NAME = "refusal"
CASE, SCHEDULE = "case", "schedule"


def judge(reason: str, again: str | None) -> Verdict:
    """Return the verdict on a refused case; `again` is the reason on a second request, None where it was accepted then."""
    if not reason.strip():
        return failed(NAME, CASE, "no reason", "refused without a reason")
    if again != reason:
        second = "took it" if again is None else f"because {again}"
        return failed(NAME, CASE, "unsteady", f"refused because {reason}; asked again: {second}")
    return not_applicable(NAME, CASE, reason)


def unpinned(reason: str) -> Verdict:
    """Return the verdict on a pinned schedule that is refused for this case; the case without it may be accepted."""
    return not_applicable(NAME, SCHEDULE, reason)


def refused(verdicts: Iterable[Verdict]) -> bool:
    """Return whether a case was refused, with or without its pinned schedule."""
    return bool(reason(verdicts))


def reason(verdicts: Iterable[Verdict]) -> str:
    """Return why a case was refused; "" where it was not."""
    found = (one for one in verdicts if (one.oracle, one.subject, one.status) == (NAME, CASE, Status.NOT_APPLICABLE))
    return next((one.message for one in found), "")


def late(failure: Failure) -> Verdict:
    """Return the verdict on a refusal that a stage raised after the implementation accepted the case."""
    return failed(NAME, failure.stage, "late", f"{failure.stage} raised Refused: {failure.message}")
