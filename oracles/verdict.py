"""Verdict: what one oracle says of one output of one observation."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor


class Status(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"  # with a reason; never counts as a pass


@dataclass(frozen=True, kw_only=True)
class Errors:
    """How far one tensor is from float64.

    Attributes:
        largest, mean: |error| over the elements that are finite both there and in float64; None where there are none.
        bound: what is allowed where |error| / bound is largest; None where nothing is judged.
        judged: of how many elements something is promised. elements: how many there are.
    """

    largest: float | None
    mean: float | None
    bound: float | None
    judged: int
    elements: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One judgement.

    Attributes:
        oracle: the module that judged.
        subject: the output or gradient judged, or a stage, or "inputs".
        symptom: what is wrong, in a word or two that stay the same from case to case; empty on a pass.
        message: where, got, wanted, bound; or the reason why it does not apply.
        ratio: the largest |error| / bound seen, where the oracle measures one.
        errors: measured on demand, for tables; campaigns have no use for them.
        against: the implementation that the one judged was compared with, where it was.
    """

    oracle: str
    subject: str
    status: Status
    symptom: str = ""
    message: str = ""
    ratio: float | None = None
    errors: Errors | None = None
    against: str = ""


def passed(oracle: str, subject: str, *, ratio: float | None = None) -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.PASS, ratio=ratio)


def failed(oracle: str, subject: str, symptom: str, message: str, *, ratio: float | None = None) -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.FAIL, symptom=symptom, message=message, ratio=ratio)


def not_applicable(oracle: str, subject: str, reason: str) -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.NOT_APPLICABLE, message=reason)


def first(mask: Tensor) -> tuple[int, ...]:
    """The index of the first element that is True."""
    return tuple(int(i) for i in mask.nonzero()[0])


def largest(values: Tensor) -> tuple[int, ...]:
    """Return the index of the largest element."""
    return tuple(int(i) for i in torch.unravel_index(values.argmax(), values.shape))


def element_name(name: str, at: Iterable[int]) -> str:
    """An element as a message names it: `dx[0, 17, 2, 640]`."""
    return f"{name}[{', '.join(map(str, at))}]"


def describe(name: str, at: tuple[int, ...], got: Tensor, wanted: Tensor, error: Tensor) -> str:
    """Where, got, wanted and bound of one element, on one line."""
    numbers = (float(tensor[at]) for tensor in (got, wanted, error))
    return "{} = {:.9g}, float64 {:.9g}, bound {:.3g}".format(element_name(name, at), *numbers)
