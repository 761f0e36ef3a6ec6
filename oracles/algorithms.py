"""The further algorithms of an operator: plain functions, beside its reference, whose errors a result may have too."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from mhc.element import element_name, element_value
from mhc.operator import Operator
from mhc.oracles.bounds.carried import UnreadableReference
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.nonfinite import same_class
from mhc.oracles.verdict import first
from mhc.reference import ReferenceRaised, how_raised


@contextmanager
def named(table: Operator, algorithm: Callable[..., Any], scalars: Mapping[str, float]) -> Iterator[None]:
    """Name the algorithm in what is raised while it is evaluated.

    Raises:
        UnreadableReference: one of its operations has no rule.
        ReferenceRaised: it raises, or does not compute what the reference does.
    """
    what = f"the algorithm {getattr(algorithm, '__name__', algorithm)} of {table.name}"
    try:
        yield
    except UnreadableReference as error:
        raise UnreadableReference(f"{what}: {error}") from error
    except _Differs as error:
        raise ReferenceRaised(f"{what} {error}") from None
    except Exception as error:
        raise ReferenceRaised(how_raised(what, error, scalars)) from error


class _Differs(Exception):
    """An algorithm does not compute what the reference does; the text follows its name."""


def larger(name: str, one: ErrorNumber, other: ErrorNumber | None, *, compared: bool) -> ErrorNumber:
    """Return the reference's number with the larger error of its own and that of an algorithm.

    Nothing is promised where the two have other classes (finite, infinite, NaN).

    Args:
        other: None: the algorithm has no such gradient.
        compared: both errors are bounds, so that the values may differ by no more than their sum.
    """
    if other is None:
        return one
    if one.shape != other.shape:
        raise _Differs(f"returns {name} of shape {tuple(other.shape)}, not {tuple(one.shape)}")
    error = torch.maximum(one.error, other.error)
    if not (one.finite and other.finite):
        error = torch.where(same_class(one.value, other.value), error, torch.inf)
    apart = (one.value - other.value).abs() > one.error + other.error
    if compared and bool((wrong := apart & error.isfinite()).any()):
        at = first(wrong)
        mine, theirs = (element_value(each.value, at) for each in (one, other))
        raise _Differs(f"computes {element_name(name, at)} = {theirs}, where the reference has {mine}")
    return ErrorNumber(one.value, error, one.dtype, finite=one.finite and other.finite)
