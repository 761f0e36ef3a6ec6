"""Tensors as kernels want them: contiguous and aligned."""

import torch
from torch import Tensor

_ALIGNMENT = {"cpu": 64, "cuda": 16}
"""Bytes. On the CPU a vector of AVX-512, on CUDA the widest load."""


def dense(*tensors: Tensor) -> list[Tensor]:
    """Each tensor, copied where it is strided or begins off a vector's boundary; differentiable.

    So a view gives bit for bit what its copy gives: compilers and BLAS cut a tensor by strides and alignment, and with the
    cut changes the order of a sum.
    """
    return [
        tensor
        if tensor.is_contiguous() and tensor.data_ptr() % _ALIGNMENT.get(tensor.device.type, 64) == 0
        else tensor.clone(memory_format=torch.contiguous_format)
        for tensor in tensors
    ]
