"""The bound gate: checks that every element lies within its own derived tolerance of the float64 reference.

The tolerances are those of `mhc.oracles.tolerances`. A tensor without a judged element is not applicable.
Classes (finite, infinite, NaN) are judged by `mhc.oracles.nonfinite`.
"""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from mhc.element import element_name
from mhc.oracles import nonfinite
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.error_map import ErrorMap, difference_map, error_map
from mhc.oracles.nonfinite import as_float64, class_fits, surely_finite, surely_in_range
from mhc.oracles.tolerances import ByResidual, Tolerances, read_formula, tolerances
from mhc.oracles.verdict import (
    Errors,
    Status,
    Verdict,
    describe,
    failed,
    first,
    largest,
    not_applicable,
    passed,
)

__all__ = [
    "NAME",
    "Tolerances",
    "judge_class_and_magnitude",
    "judge_integers",
    "judge_residual",
    "judge_tensor",
    "measure",
    "read_formula",
    "tolerances",
]

NAME = "bound"


def judge_tensor(name: str, got: Tensor, wanted: ErrorNumber) -> Verdict:
    """Compare one tensor's elements with its reference; a wrong class is left to the non-finite gate."""
    if got.numel() == 0:
        return not_applicable(NAME, name, "no elements")
    if isinstance(wanted, ByResidual):
        return judge_residual(name, wanted.residual(got))[1]
    if not got.is_floating_point():
        return judge_integers(name, got, wanted)
    value = as_float64(got, wanted)
    return _judge(name, value, wanted, surely_finite(value, wanted))


def judge_integers(name: str, got: Tensor, wanted: ErrorNumber) -> Verdict:
    """Compare a tensor of integers or booleans with its reference: equal, but for elements that rounding decides."""
    if wanted.error.isinf().all():
        return not_applicable(NAME, name, "no element has a finite tolerance")
    value = got.detach().to(wanted.value.device)
    wrong = (value != wanted.value) & ~wanted.error.isinf()
    if wrong.any():
        at = first(wrong)
        message = f"{element_name(name, at)} = {int(value[at])}, expected {int(wanted.value[at])}"
        return failed(NAME, name, "value", message, locate=partial(difference_map, wrong))
    return passed(NAME, name)


def judge_residual(name: str, residual: ErrorNumber) -> tuple[Verdict, Verdict]:
    """Return the verdicts of the non-finite gate and of this one on a residual, which must be 0."""
    zero = ErrorNumber(torch.zeros_like(residual.value), residual.error, residual.dtype)
    classes, bound = judge_class_and_magnitude(name, residual.value, zero)
    return replace(classes, message=f"residual: {classes.message}"), replace(bound, message=f"residual: {bound.message}")


def judge_class_and_magnitude(name: str, got: Tensor, wanted: ErrorNumber) -> tuple[Verdict, Verdict]:
    """Return the verdicts of the non-finite gate and of this one; shared work is done once."""
    if got.numel() and isinstance(wanted, ByResidual):
        return judge_residual(name, wanted.residual(got))
    if got.numel() == 0 or not got.is_floating_point():
        return nonfinite.judge_tensor(name, got, wanted), judge_tensor(name, got, wanted)
    value = as_float64(got, wanted)
    worst = _worst((value - wanted.value).abs(), wanted) if wanted.finite and surely_in_range(wanted) else math.nan
    if worst <= 1:  # so the value is finite too
        return passed(nonfinite.NAME, name), passed(NAME, name, ratio=worst)
    finite = surely_finite(value, wanted)
    classes = passed(nonfinite.NAME, name) if finite else nonfinite.judge_classes(name, value, wanted)
    bound = _judge(name, value, wanted, finite)
    if Status.FAIL not in {classes.status, bound.status}:
        return classes, bound
    locate = partial(_where, value, wanted)
    return replace(classes, locate=locate), replace(bound, locate=locate)


@torch.inference_mode()
def _where(value: Tensor, wanted: ErrorNumber) -> ErrorMap:
    """Return the map of a tensor that fails."""
    ratio = _ratio((value - wanted.value).abs(), wanted)
    wrong_class = ~wanted.error.isinf() & ~class_fits(value, wanted)
    return error_map(torch.where(_comparable(value, wanted), ratio, -1.0), wrong_class)


def _judge(name: str, value: Tensor, wanted: ErrorNumber, finite: bool) -> Verdict:
    if finite:
        return _compare(name, value, wanted, (value - wanted.value).abs())
    if not (~wanted.error.isinf()).any():
        return not_applicable(NAME, name, "no element has a finite tolerance")
    comparable = _comparable(value, wanted)
    if not comparable.any():
        return not_applicable(NAME, name, "no element is finite in both")
    return _compare(name, value, wanted, torch.where(comparable, (value - wanted.value).abs(), 0.0))


def measure(got: Tensor, wanted: ErrorNumber) -> Errors:
    """Return the errors of one tensor, for tables; no verdict depends on them."""
    value = as_float64(got, wanted)
    finite = value.isfinite() & wanted.value.isfinite()
    differences = (value - wanted.value).abs()
    judged = _comparable(value, wanted)
    ratio = torch.where(judged, _ratio(differences, wanted), -1.0)
    return Errors(
        largest=float(differences[finite].max()) if finite.any() else None,
        mean=float(differences[finite].mean()) if finite.any() else None,
        bound=float(wanted.error[largest(ratio)]) if judged.any() else None,
        judged=int(judged.sum()),
        elements=value.numel(),
    )


def _comparable(value: Tensor, wanted: ErrorNumber) -> Tensor:
    """Return where the tolerance is finite, and value and reference are both finite and of a permitted class."""
    return ~wanted.error.isinf() & value.isfinite() & wanted.value.isfinite() & class_fits(value, wanted)


def _compare(name: str, value: Tensor, wanted: ErrorNumber, difference: Tensor) -> Verdict:
    """Return the verdict from the distances to the reference, which are 0 where not judged."""
    worst = _worst(difference, wanted)
    if worst > 1:
        at = largest(_ratio(difference, wanted))
        symptom = "all zero" if not value.any() else "value"
        return failed(NAME, name, symptom, describe(name, at, value, wanted.value, wanted.error), ratio=worst)
    return passed(NAME, name, ratio=worst)


def _worst(difference: Tensor, wanted: ErrorNumber) -> float:
    """Return the largest ratio of the elements."""
    worst = float((difference / wanted.error).max())
    if math.isnan(worst):  # an element is 0 and may not differ, or it is NaN
        worst = float(_ratio(difference, wanted).max())
    return worst


def _ratio(difference: Tensor, wanted: ErrorNumber) -> Tensor:
    return torch.where(difference == 0, 0.0, difference / wanted.error)
