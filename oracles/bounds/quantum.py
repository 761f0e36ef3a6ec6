"""Quanta: powers of two of which every element of a tensor is a multiple, and which results are exact because of them.

Sums and products of such numbers whose terms together stay below 2**p quanta, p the digits of the dtype, are exact in any
order.
"""

import math

import torch
from torch import Tensor

from mhc.oracles.bounds.rounding import all_finite, half_subnormal, unit_roundoff


def quantum_of(value: Tensor) -> float:
    """Return the largest power of two that divides every element; infinity for zeros, 0 if an element is not finite."""
    if not all_finite(value):
        return 0.0
    mantissa, exponent = torch.frexp(value.double())
    integers = (mantissa * 2.0**53).long()
    lowest = torch.ldexp((integers & -integers).double(), exponent - 53)[integers != 0]
    return float(lowest.min()) if lowest.numel() else math.inf


def product_quantum(a: float, b: float) -> float:
    """Return the quantum of a product; 0 where a factor has none."""
    return a * b if a and b else 0.0


def representable(largest: Tensor, quantum: float, dtype: torch.dtype) -> Tensor:
    """Return where every multiple of `quantum` up to `largest` in magnitude is a number of `dtype`."""
    if quantum < 2 * half_subnormal(dtype):
        return largest == 0
    return largest <= quantum / unit_roundoff(dtype)
