"""Quanta: the power of two of which every element of a tensor is a multiple, and what is exact by it.

Sums and products of such numbers whose terms together stay below 2**p quanta, p the digits of the dtype, are exact in any
order.
"""

import math

import torch
from torch import Tensor

from oracles.bounds.rounding import all_finite, half_subnormal, unit_roundoff


def quantum_of(value: Tensor) -> float:
    """The largest power of two of which every element is a multiple; infinity for zeros, 0 where one is not finite."""
    if not all_finite(value):
        return 0.0
    mantissa, exponent = torch.frexp(value.double())
    integers = (mantissa * 2.0**53).long()
    lowest = torch.ldexp((integers & -integers).double(), exponent - 53)[integers != 0]
    return float(lowest.min()) if lowest.numel() else math.inf


def product_quantum(a: float, b: float) -> float:
    """The quantum of a product; 0 where one of the factors has none."""
    return a * b if a and b else 0.0


def representable(spread: Tensor, quantum: float, dtype: torch.dtype) -> Tensor:
    """Where every multiple of `quantum` up to `spread` is a number of `dtype`."""
    if quantum < 2 * half_subnormal(dtype):
        return spread == 0
    return spread <= quantum / unit_roundoff(dtype)
