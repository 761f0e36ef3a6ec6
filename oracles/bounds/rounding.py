"""What the dtypes round, and the choices of the error model; docs/tolerances.md derives each."""

import math
from functools import cache

import torch
from torch import Tensor

LAMBDA = 6.0
"""Probabilistic rounding-error analysis: sqrt(L) instead of L, with this many standard deviations (docs/tolerances.md)."""
# Roundings inside an elementary function, at most: a sigmoid is an exponential of 2 ulp = 4u, an addition and a division of
# 2 ulp; a reciprocal square root of 2 ulp needs less.
ELEMENTARY = 9.0
# Nothing is promised within this factor of overflow, inputs included, so that the order of a formula's constant factors is
# free: autograd, for one, doubles dh_post before the slope of the sigmoid brings it down; the formula takes h_post first.
# Below the normal range the same order costs up to this factor in what a product loses.
HEADROOM = 4.0
# A product in a matrix product may be formed from three bfloat16 terms of each factor: six partial products for float32
# digits, each of which can fall below the normal range by itself.
PARTIAL = 6


@cache
def unit_roundoff(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps / 2


@cache
def overflow_threshold(dtype: torch.dtype) -> float:
    """The smallest magnitude that rounds to infinity; infinity itself for float64, whose threshold is no float64."""
    info = torch.finfo(dtype)
    return info.max + info.max / (2 - info.eps) * info.eps / 2


@cache
def ceiling(dtype: torch.dtype) -> float:
    """The largest magnitude of which anything is promised."""
    return torch.finfo(dtype).max / HEADROOM


@cache
def half_subnormal(dtype: torch.dtype) -> float:
    """What rounding may cost below the normal range; of float64 a whole subnormal, since no float64 is half of one."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps / 2 or info.smallest_normal * info.eps


@cache
def underflow(dtype: torch.dtype) -> float:
    """What a product below the normal range may lose: half a subnormal, of an intermediate up to `HEADROOM` times smaller.

    Autograd, for one, multiplies by half a derivative first and doubles the next factor: what is lost is doubled too.
    """
    return HEADROOM * half_subnormal(dtype)


def all_finite(value: Tensor) -> bool:
    """Whether no element is infinite or NaN; a sixth of the time of a mask, since the extremes of a NaN are NaN."""
    return value.numel() == 0 or all(math.isfinite(float(end)) for end in value.aminmax())


def magnitude(value: Tensor) -> Tensor:
    """|value|, and 0 where it is not finite: classes are propagated by the value itself, not by its error."""
    return value.abs().nan_to_num(nan=0.0, posinf=0.0)


def nan_to_inf(error: Tensor) -> Tensor:
    """0 * infinity is NaN; an error times an infinite error is infinite."""
    return error.nan_to_num(nan=torch.inf, posinf=torch.inf)
