"""Whether two tensors share memory: an element of one and an element of the other at the same address."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor


def shared(results: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[tuple[str, str]]:
    """(result, other) for each result that shares memory with something given, or with a result that comes later."""
    left, right = ([(name, one, _extent(one)) for name, one in some.items()] for some in (results, given))
    return [
        (name, other)
        for at, (name, one, (low, high)) in enumerate(left)
        for other, another, (start, end) in (*right, *left[at + 1 :])
        if low < end and start < high and overlap(one, another)
    ]


def overlap(one: Tensor, other: Tensor) -> bool:
    """Whether any byte belongs to an element of both. Views that interleave in one allocation do not overlap."""
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
    """The address of its first byte, and the one behind its last: the same where it has no memory, as some subclasses."""
    address = tensor.data_ptr()
    if not tensor.numel() or not address:
        return address, address
    reach = 1 + sum((size - 1) * by for size, by in zip(tensor.shape, tensor.stride(), strict=True))
    return address, address + reach * tensor.element_size()


def _gapless(tensor: Tensor) -> bool:
    """Whether its elements surely fill its extent."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).is_contiguous()


def _units(occupied: Tensor, tensor: Tensor, offset: int, unit: int) -> Tensor:
    """The entries of `occupied`, one for each unit of bytes, that the elements of `tensor` lie on."""
    many = tensor.element_size() // unit
    strides = [by * many for by in tensor.stride()]
    return occupied.as_strided((*tensor.shape, many), (*strides, 1), offset)
