"""Verdict: what one oracle says of one output of one observation."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"  # with a reason; never counts as a pass


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One judgement.

    Attributes:
        oracle: the module that judged.
        subject: the output or gradient judged, or a stage, or "inputs".
        symptom: what is wrong, in a word or two that stay the same from case to case; empty on a pass.
        message: where, got, wanted, bound; or the reason why it does not apply.
        ratio: the largest |error| / bound seen, where the oracle measures one.
    """

    oracle: str
    subject: str
    status: Status
    symptom: str = ""
    message: str = ""
    ratio: float | None = None


def passed(oracle: str, subject: str, *, ratio: float | None = None) -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.PASS, ratio=ratio)


def failed(oracle: str, subject: str, symptom: str, message: str, *, ratio: float | None = None) -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.FAIL, symptom=symptom, message=message, ratio=ratio)


def not_applicable(oracle: str, subject: str, reason: str) -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.NOT_APPLICABLE, message=reason)
