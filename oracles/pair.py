"""The pair gate: checks that two implementations of one case differ by at most the sum of their tolerances.

Each may differ from float64 by its own tolerance, so the two may differ by the sum. Where the reference permits both only
one class (finite, +inf, -inf or NaN), their classes must be equal. Where two implementations agree here and fail `bound`,
either the reference is wrong or they share a mistake. Where the reference is right, `bound` is the sharper gate.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from mhc.element import element_name, element_value
from mhc.observation import Observation
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.error_map import difference_map, error_map
from mhc.oracles.nonfinite import as_float64, class_fits, same_class, surely_finite
from mhc.oracles.tolerances import Tolerances
from mhc.oracles.trial import results
from mhc.oracles.verdict import Verdict, failed, first, largest, not_applicable, passed

NAME = "pair"

_PROBES = (float("nan"), 0.0, float("inf"), float("-inf"))


@dataclass(frozen=True, kw_only=True)
class Side:
    """The observation and the tolerances of one of the two implementations."""

    observation: Observation
    allowed: Tolerances


def judge(one: Side, other: Side, *, names: tuple[str, str] | None = None) -> list[Verdict]:
    """Return a verdict for each output and gradient. Both must have run the same case, else `ValueError`.

    Args:
        names: of the two in messages; by default those of the implementations.
    """
    sides = (one, other)
    if one.observation.case != other.observation.case:
        raise ValueError(f"two cases: {one.observation.case.id} and {other.observation.case.id}")
    names = names or labels(one.observation, other.observation)
    for name, side in zip(names, sides, strict=True):
        if side.observation.refused is not None:
            return [not_applicable(NAME, "case", f"{name} refused: {side.observation.refused}")]
        if side.observation.failure is not None:
            return [not_applicable(NAME, "case", f"{name} raised {side.observation.failure.type}")]
    left, right = (results(side.observation) for side in sides)
    wanted, also = (side.allowed.results for side in sides)
    verdicts = []
    for subject in dict.fromkeys([*left, *right]):
        a, b = left.get(subject), right.get(subject)
        if a is None or b is None:
            missing = [name for name, value in zip(names, (a, b), strict=True) if value is None]
            verdicts.append(_missing(subject, missing, present=subject in wanted or subject in also))
        elif subject not in wanted:
            verdicts.append(failed(NAME, subject, "unwanted", f"{subject} was returned, where it must be None"))
        else:
            verdicts.append(compare(subject, (a, b), (wanted[subject], also[subject]), names))
    return verdicts


def labels(one: Observation, other: Observation) -> tuple[str, str]:
    """Return the names of the two in messages, with their devices where these differ."""
    if one.device.type == other.device.type:
        return one.implementation, other.implementation
    return f"{one.implementation} on {one.device.type}", f"{other.implementation} on {other.device.type}"


def _missing(subject: str, missing: list[str], *, present: bool) -> Verdict:
    """Return the verdict on a tensor that at least one of the two did not return."""
    if not present and len(missing) == 1:
        return failed(NAME, subject, "unwanted", f"{subject} is None of {missing[0]} alone; it must be None")
    reason = f"not returned by {' and '.join(missing)}" if present else "absent in this case"
    return not_applicable(NAME, subject, reason)


def compare(
    subject: str, values: tuple[Tensor, Tensor], wanted: tuple[ErrorNumber, ErrorNumber], names: tuple[str, str]
) -> Verdict:
    """Compare one tensor of the two: classes where both are certain, distances where both are finite."""
    if values[0].numel() == 0:
        return not_applicable(NAME, subject, "no elements")
    if not values[0].is_floating_point() and not wanted[0].error.isinf().all():
        return _equal(subject, values, wanted, names)
    a, b = (as_float64(value, wanted[0]) for value in values)
    bound = wanted[0].error + wanted[1].error
    if surely_finite(a, wanted[0]) and surely_finite(b, wanted[1]):
        comparable, wrong = torch.ones_like(a, dtype=torch.bool), torch.zeros_like(a, dtype=torch.bool)
    else:
        judged = ~bound.isinf()
        if not judged.any():
            return not_applicable(NAME, subject, "no element has a finite tolerance in both")
        promised = judged & _one_class(wanted[0]) & _one_class(wanted[1])
        wrong = promised & ~same_class(a, b)
        comparable = judged & a.isfinite() & b.isfinite()
        if not comparable.any() and not wrong.any():
            none = not_applicable(NAME, subject, "no element is finite in both, and no class is promised")
            return passed(NAME, subject) if promised.any() else none
    apart = torch.where(comparable, (a - b).abs(), 0.0)
    ratio = torch.where(apart == 0, 0.0, apart / bound)
    worst, differs = float(ratio.max()), bool(wrong.any())
    if not differs and worst <= 1:
        return passed(NAME, subject, ratio=worst)
    locate = partial(error_map, torch.where(comparable, ratio, -1.0), wrong)
    if differs:
        return failed(NAME, subject, "class", _describe(subject, first(wrong), (a, b), wanted, names), locate=locate)
    message = _describe(subject, largest(ratio), (a, b), wanted, names)
    return failed(NAME, subject, "value", message, ratio=worst, locate=locate)


def _equal(
    subject: str, values: tuple[Tensor, Tensor], wanted: tuple[ErrorNumber, ErrorNumber], names: tuple[str, str]
) -> Verdict:
    """Compare a tensor of integers or booleans of the two, but for elements that rounding decides."""
    wrong = (values[0] != values[1]) & ~(wanted[0].error + wanted[1].error).isinf().to(values[0].device)
    if not wrong.any():
        return passed(NAME, subject)
    at = first(wrong)
    got = ", ".join(f"{int(value[at])} {name}" for value, name in zip(values, names, strict=True))
    message = f"{element_name(subject, at)} = {got}"
    return failed(NAME, subject, "value", message, locate=partial(difference_map, wrong))


def _one_class(wanted: ErrorNumber) -> Tensor:
    """Return where the reference with its tolerance permits exactly one class."""
    fits = [class_fits(torch.full_like(wanted.value, probe), wanted) for probe in _PROBES]
    return torch.stack(fits).sum(0) == 1


def _describe(
    subject: str,
    at: tuple[int, ...],
    values: tuple[Tensor, Tensor],
    wanted: tuple[ErrorNumber, ErrorNumber],
    names: tuple[str, str],
) -> str:
    """Return one line with the element's name, both values with their implementations, and both bounds."""
    got = ", ".join(f"{element_value(value, at)} {name}" for value, name in zip(values, names, strict=True))
    bounds = " + ".join(f"{float(number.error[at]):.3g}" for number in wanted)
    return f"{element_name(subject, at)} = {got}, bound {bounds}"
