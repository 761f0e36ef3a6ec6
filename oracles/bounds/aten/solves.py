"""The inverse of a matrix.

An algorithm of elimination has the inverse of a matrix beside A, off by up to g |L| |U| in each element, where g is a unit
roundoff for each of the n terms of its sums and P L U = A. So its result X is off by |X| (e + g |L| |U|) |X|, for A with an
error e, to first order (Higham, Accuracy and Stability of Numerical Algorithms, 14.3). Where |X| (e + g |L| |U|) has a norm
of 1 or more, A may be singular, and nothing is promised.
"""

import math
from typing import Any

import torch

from mhc.oracles.bounds.aten.registry import aten, rule
from mhc.oracles.bounds.elementary import NoRule
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.rounding import LAMBDA, nan_to_inf, unit_roundoff

_SWEEPS = 3
"""Elimination, and the two substitutions of the identity."""


@rule(aten.linalg_inv_ex)
def _inverse(func: Any, a: ErrorNumber, *, check_errors: bool = False) -> Any:
    if not (a.elementary or a.constant):
        raise NoRule(f"the inverse of a {type(a).__name__}")
    finite = torch.where(a.value.isfinite(), a.value, torch.nan)
    value, info = func(finite)
    order, lower, upper = torch.linalg.lu(finite)
    length = a.shape[-1]
    units = _SWEEPS * min(float(length), LAMBDA * math.sqrt(length)) * unit_roundoff(a.dtype)
    moved = value.abs() @ (a.error + units * (order @ (lower.abs() @ upper.abs())))
    norm = moved.sum(-1, keepdim=True).amax(-2, keepdim=True)
    error = torch.where(norm < 1, moved @ value.abs() / (1 - norm), torch.inf)
    certain = nan_to_inf(error.masked_fill(info[..., None, None] != 0, torch.inf))
    return a._rounded(value, certain, a.dtype, units=1.0, finite=False), info
