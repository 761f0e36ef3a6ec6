"""Contiguous, aligned tensors for kernels, and the bits of elements."""

import torch
from torch import Tensor

_ON_GPU, _ON_CPU = 16, 64
"""Bytes: on CUDA the widest load, on the CPU a vector of AVX-512."""


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: Tensor) -> Tensor:
    """Return a tensor's elements as integers with the same bits. A view that stands for minus its memory is copied first."""
    return tensor.resolve_neg().view(_INTEGERS[tensor.element_size()])


def equal_bits(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of one dtype have one shape and hold the same bits, NaN included."""
    return torch.equal(bits(a), bits(b))


def dense(*tensors: Tensor) -> list[Tensor]:
    """Return the tensors, copied where they are strided or misaligned; differentiable. All must be on one device.

    A view then gives the same bits as its copy: compilers and BLAS choose the order of a sum by strides and alignment.
    """
    alignment = _ON_GPU if tensors[0].is_cuda else _ON_CPU
    return [
        tensor
        if tensor.is_contiguous() and tensor.data_ptr() % alignment == 0
        else tensor.clone(memory_format=torch.contiguous_format)
        for tensor in tensors
    ]
