"""The non-finite gate: checks that each element has the class (finite, +inf, -inf, NaN) of the rounded reference.

Where the overflow threshold lies within the tolerance, finite and infinite are both permitted. NaN must match NaN. An
element with an infinite tolerance is not judged.
"""

import math

import torch
from torch import Tensor

from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.rounding import all_finite, overflow_threshold
from mhc.oracles.verdict import Verdict, describe, failed, first, not_applicable, passed

NAME = "nonfinite"


def judge_tensor(name: str, got: Tensor, wanted: ErrorNumber) -> Verdict:
    """Compare the classes of one tensor's elements with its reference's."""
    if got.numel() == 0:
        return not_applicable(NAME, name, "no elements")
    if not got.is_floating_point():
        return not_applicable(NAME, name, "integers and booleans are finite")
    value = as_float64(got, wanted)
    return passed(NAME, name) if surely_finite(value, wanted) else judge_classes(name, value, wanted)


def judge_classes(name: str, value: Tensor, wanted: ErrorNumber) -> Verdict:
    """Compare the classes of a float64 value and its reference element by element."""
    judged = ~wanted.error.isinf()
    if not judged.any():
        return not_applicable(NAME, name, "no element has a finite tolerance")
    wrong = judged & ~class_fits(value, wanted)
    if wrong.any():
        at = first(wrong)
        text = describe(name, at, value, wanted.value, wanted.error) + _beyond(float(wanted.value[at]), wanted.dtype)
        return failed(NAME, name, "class", text)
    return passed(NAME, name)


def _beyond(value: float, dtype: torch.dtype) -> str:
    """Return what a message adds where a finite number of float64 is none of a dtype."""
    beyond = math.isfinite(value) and abs(value) >= overflow_threshold(dtype)
    return f"; {str(dtype).removeprefix('torch.')} has infinity there" if beyond else ""


def as_float64(got: Tensor, wanted: ErrorNumber) -> Tensor:
    """Return a result in float64 on the device of its reference."""
    return got.detach().to(wanted.value.device).double()


def surely_finite(value: Tensor, wanted: ErrorNumber) -> bool:
    """Return whether all elements and all references with their tolerances are finite; quick, since it needs no mask."""
    return wanted.finite and all_finite(value) and surely_in_range(wanted)


def surely_in_range(wanted: ErrorNumber) -> bool:
    """Return whether no element within the tolerances of a finite reference reaches the overflow threshold."""
    return float((wanted.size + wanted.error).max()) < overflow_threshold(wanted.dtype)


def same_class(one: Tensor, other: Tensor) -> Tensor:
    """Return where two tensors are the same infinity, both finite, or both NaN."""
    return (one == other) | (one.isfinite() & other.isfinite()) | (one.isnan() & other.isnan())


def class_fits(value: Tensor, wanted: ErrorNumber) -> Tensor:
    """Return where the class of `value` is one that the reference permits."""
    limit = overflow_threshold(wanted.dtype)
    high, low = wanted.value + wanted.error, wanted.value - wanted.error
    may_be_finite = wanted.value.isfinite() & (high > -limit) & (low < limit)
    return torch.where(
        value.isnan(),
        wanted.value.isnan(),
        torch.where(value.isfinite(), may_be_finite, torch.where(value > 0, high >= limit, low <= -limit)),
    )
