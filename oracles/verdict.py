"""Verdict: the result of one oracle for one output of one observation."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

import torch
from torch import Tensor

from mhc.case import Case
from mhc.element import element_name
from mhc.oracles.error_map import ErrorMap


class Status(Enum):
    PASS = "pass"
    FAIL = "fail"
    NOT_APPLICABLE = "not applicable"  # with a reason; never counts as a pass


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The distance of one tensor from float64.

    Attributes:
        largest, mean: |error| over the elements that are finite in both; None where there are none.
        bound: the bound of the element with the largest |error| / bound; None where nothing is judged.
        judged: number of elements with a finite bound. elements: number of elements.
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
        symptom: the kind of failure in one to three words, the same in every case; empty on a pass.
        message: where, got, wanted, bound; or the reason why it does not apply.
        ratio: the largest |error| / bound seen, where the oracle measures one.
        errors: measured on demand, for tables; campaigns leave it None.
        against: the implementation compared with; empty for every gate but `pair`.
        run: the label of the further run that fails by itself, as the first run might; empty for every other verdict.
        other: the case that was run and fails, where that is not the judged one.
        sampled: the tolerance is a sampled one, which is statistical, and no derived bound.
        where: in which elements it fails, once that is asked for (`located`), where the oracle compares elements.
        locate: computes `where`; kept until then only, since it holds the tensors.
    """

    oracle: str
    subject: str
    status: Status
    symptom: str = ""
    message: str = ""
    ratio: float | None = None
    errors: Errors | None = None
    against: str = ""
    run: str = ""
    other: Case | None = None
    sampled: bool = False
    where: ErrorMap | None = field(default=None, repr=False)
    locate: Callable[[], ErrorMap] | None = field(default=None, repr=False, compare=False)


def passed(oracle: str, subject: str, *, ratio: float | None = None) -> Verdict:
    if ratio is None:
        return _passed(oracle, subject)
    return Verdict(oracle=oracle, subject=subject, status=Status.PASS, ratio=ratio)


@lru_cache(maxsize=1024)  # half of a check's verdicts; a verdict never changes
def _passed(oracle: str, subject: str) -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.PASS)


def failed(
    oracle: str,
    subject: str,
    symptom: str,
    message: str,
    *,
    ratio: float | None = None,
    locate: Callable[[], ErrorMap] | None = None,
) -> Verdict:
    return Verdict(
        oracle=oracle, subject=subject, status=Status.FAIL, symptom=symptom, message=message, ratio=ratio, locate=locate
    )


def not_applicable(oracle: str, subject: str, reason: str, symptom: str = "") -> Verdict:
    return Verdict(oracle=oracle, subject=subject, status=Status.NOT_APPLICABLE, symptom=symptom, message=reason)


def located(verdict: Verdict, wanted: Callable[[Verdict], bool]) -> Verdict:
    """Return a verdict that holds no tensors, with the map of where it fails if `wanted` and if there is one."""
    if verdict.locate is None:
        return verdict
    return replace(verdict, where=verdict.locate() if wanted(verdict) else None, locate=None)


def first(mask: Tensor) -> tuple[int, ...]:
    """Return the index of the first element that is True."""
    return tuple(int(i) for i in mask.nonzero()[0])


def largest(values: Tensor) -> tuple[int, ...]:
    """Return the index of the largest element."""
    return tuple(int(i) for i in torch.unravel_index(values.argmax(), values.shape))


def describe(name: str, at: tuple[int, ...], got: Tensor, wanted: Tensor, error: Tensor) -> str:
    """Return one line with an element's name, its value, the reference and the bound."""
    numbers = (float(tensor[at]) for tensor in (got, wanted, error))
    return "{} = {:.9g}, float64 {:.9g}, bound {:.3g}".format(element_name(name, at), *numbers)
