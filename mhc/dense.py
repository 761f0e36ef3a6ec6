"""Contiguous, aligned tensors for kernels."""

import torch
from torch import Tensor

_ON_GPU, _ON_CPU = 16, 64
"""Bytes: on CUDA the widest load, on the CPU a vector of AVX-512."""


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
