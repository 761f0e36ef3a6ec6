"""The refusal gate: what is refused is refused with a reason, the same one each time, and before anything runs.

A refused case is not applicable, never a pass. Bad input through the public entries is not drawn: tests/test_contracts.py.
"""

from mhc.observation import Failure
from oracles.verdict import Verdict, failed, not_applicable

NAME = "refusal"


def judge(reason: str, again: str | None) -> Verdict:
    """The verdict on a case that the implementation does not take, asked twice; `again` is None where it then took it."""
    if not reason.strip():
        return failed(NAME, "case", "no reason", "refused without a reason")
    if again != reason:
        second = "took it" if again is None else f"because {again}"
        return failed(NAME, "case", "unsteady", f"refused because {reason}; asked again: {second}")
    return not_applicable(NAME, "case", reason)


def late(failure: Failure) -> Verdict:
    """The verdict on a refusal that came out of a stage, after the implementation had said that it takes the case."""
    return failed(NAME, failure.stage, "late", f"{failure.stage} raised Refused: {failure.message}")
