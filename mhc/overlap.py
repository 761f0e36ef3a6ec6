"""Shared memory of two tensors: an element of each at the same address."""

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor


def shared(results: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[tuple[str, str]]:
    """Return (result, other) for each result that shares memory with a given tensor or a later result."""
    left, right = ([(name, one, _extent(one)) for name, one in some.items()] for some in (results, given))
    extents = sorted(extent for _, _, extent in (*left, *right))
    if all(end <= start for (_, end), (start, _) in pairwise(extents)):  # the common case
        return []
    return [
        (name, other)
        for at, (name, one, (low, high)) in enumerate(left)
        for other, another, (start, end) in (*right, *left[at + 1 :])
        if low < end and start < high and overlap(one, another)
    ]


def overlap(one: Tensor, other: Tensor) -> bool:
    """Return whether any byte belongs to elements of both; interleaved views of one allocation do not overlap."""
    (low, high), (start, end) = _extent(one), _extent(other)
    first, last = max(low, start), min(high, end)
    if first >= last or one.device != other.device:
        return False
    if _gapless(one) and _gapless(other):
        return True
    unit = math.gcd(one.element_size(), other.element_size(), low - start)
    occupied = torch.zeros((max(high, end) - min(low, start)) // unit, dtype=torch.bool)
    _units(occupied, one, (low - min(low, start)) // unit, unit).fill_(True)
    return bool(_units(occupied, other, (start - min(low, start)) // unit, unit).any())


def _extent(tensor: Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte and after the last; equal for tensors without memory, as some subclasses."""
    address = tensor.data_ptr()
    if not tensor.numel() or not address:
        return address, address
    if tensor.is_contiguous():
        return address, address + tensor.nbytes
    reach = 1 + sum((size - 1) * by for size, by in zip(tensor.shape, tensor.stride(), strict=True))
    return address, address + reach * tensor.element_size()


def _gapless(tensor: Tensor) -> bool:
    """Return whether the elements are known to fill the extent."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


def _units(occupied: Tensor, tensor: Tensor, offset: int, unit: int) -> Tensor:
    """Return the entries of `occupied`, one per unit of bytes, that the elements of `tensor` cover."""
    many = tensor.element_size() // unit
    strides = [by * many for by in tensor.stride()]
    return occupied.as_strided((*tensor.shape, many), (*strides, 1), offset)
