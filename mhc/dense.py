"""Tensors as kernels want them: contiguous and aligned."""

import torch
from torch import Tensor

_ON_GPU, _ON_CPU = 16, 64
"""Bytes: on CUDA the widest load, on the CPU a vector of AVX-512."""


def dense(*tensors: Tensor) -> list[Tensor]:
    """Each tensor, copied where it is strided or begins off a vector's boundary; differentiable. All are on one device.

    So a view gives bit for bit what its copy gives: compilers and BLAS cut a tensor by strides and alignment, and with the
    cut changes the order of a sum.
    """
    alignment = _ON_GPU if tensors[0].is_cuda else _ON_CPU
    return [
        tensor
        if tensor.is_contiguous() and tensor.data_ptr() % alignment == 0
        else tensor.clone(memory_format=torch.contiguous_format)
        for tensor in tensors
    ]
