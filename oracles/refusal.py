"""The refusal gate: what is refused is refused with a reason, the same one each time, and before anything runs.

A refused case is not applicable, never a pass. Bad input through the public entries is not drawn; test_contracts.py has it.
"""

from collections.abc import Iterable

from mhc.observation import Failure
from oracles.verdict import Status, Verdict, failed, not_applicable

NAME = "refusal"
CASE, SCHEDULE = "case", "schedule"


def judge(reason: str, again: str | None) -> Verdict:
    """The verdict on a case that the implementation does not take, asked twice; `again` is None where it then took it."""
    if not reason.strip():
        return failed(NAME, CASE, "no reason", "refused without a reason")
    if again != reason:
        second = "took it" if again is None else f"because {again}"
        return failed(NAME, CASE, "unsteady", f"refused because {reason}; asked again: {second}")
    return not_applicable(NAME, CASE, reason)


def unpinned(reason: str) -> Verdict:
    """The verdict on a pinned schedule that the implementation does not take for this case; the case itself may be taken."""
    return not_applicable(NAME, SCHEDULE, reason)


def refused(verdicts: Iterable[Verdict]) -> bool:
    """Whether a case was not taken, with or without its pinned schedule."""
    return any(one.oracle == NAME and one.subject == CASE and one.status is Status.NOT_APPLICABLE for one in verdicts)


def late(failure: Failure) -> Verdict:
    """The verdict on a refusal that came out of a stage, after the implementation had said that it takes the case."""
    return failed(NAME, failure.stage, "late", f"{failure.stage} raised Refused: {failure.message}")
