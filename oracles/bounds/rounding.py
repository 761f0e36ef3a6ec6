"""Rounding of the dtypes and constants of the error model; docs/tolerances.md derives each."""

import math
from functools import cache, lru_cache

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
def of_quotient(dtype: torch.dtype) -> float:
    """Return the roundings of a quotient: of an inverse and a product; in float32 of a division of 2 ulp, as on GPUs."""
    return 4.0 if dtype == torch.float32 else 2.0


@cache
def overflow_threshold(dtype: torch.dtype) -> float:
    """Return the smallest magnitude that rounds to infinity; infinity for float64, whose threshold is no float64."""
    info = torch.finfo(dtype)
    return info.max + 2.0 ** (math.frexp(info.max)[1] - 1) * info.eps / 2


@cache
def ceiling(dtype: torch.dtype) -> float:
    """Return the largest magnitude with a finite error. In 8 bits nothing is computed: there only an overflow has none."""
    if dtype.itemsize == 1:
        return math.nextafter(overflow_threshold(dtype), 0.0)
    return torch.finfo(dtype).max / HEADROOM


@cache
def half_subnormal(dtype: torch.dtype) -> float:
    """Return the rounding error below the normal range; for float64 a whole subnormal, since no float64 is half of it."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps / 2 or info.smallest_normal * info.eps


@cache
def underflow(dtype: torch.dtype) -> float:
    """Return what a product below the normal range may lose: `HEADROOM` times half a subnormal.

    An intermediate may be up to `HEADROOM` times smaller. Autograd, for one, multiplies by half a derivative first and
    doubles the next factor, which doubles the loss.
    """
    return HEADROOM * half_subnormal(dtype)


@lru_cache(4096)
def scalar(number: float) -> Tensor:
    """Return a number in float64; an operation on a small tensor takes two thirds of its time with a Python number."""
    return torch.tensor(number, dtype=torch.float64)


def indicator(value: Tensor) -> Tensor:
    """Return 1.0 where a value is neither 0 nor NaN, and 0.0 elsewhere, in its dtype; a mask takes twice the time."""
    return value.sign().abs_()


def all_finite(value: Tensor) -> bool:
    """Return whether no element is infinite or NaN; takes a sixth of the time of a mask, since min and max propagate NaN."""
    if value.numel() == 0:
        return True
    least, most = value.aminmax()
    return math.isfinite(least) and math.isfinite(most)


def magnitude(value: Tensor) -> Tensor:
    """Return |value|, and 0 where it is not finite: the value itself, not its error, propagates classes."""
    return value.abs().nan_to_num(nan=0.0, posinf=0.0)


def largest_magnitude(value: Tensor) -> float:
    """Return the largest magnitude of the finite elements; 0 where there are none."""
    return float(magnitude(value).max()) if value.numel() else 0.0


def nan_to_inf(error: Tensor) -> Tensor:
    """Return `error` with infinity for NaN, since 0 times an infinite error must stay infinite."""
    return error.nan_to_num(nan=torch.inf, posinf=torch.inf)
