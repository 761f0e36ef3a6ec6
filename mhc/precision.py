"""The one place where PyTorch's global precision switches are touched, and put back."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def float32_matmuls(device_type: str) -> Iterator[None]:
    """Float32 matrix products in float32: no TF32, no bf16 passes, no autocast, whatever the caller has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device_type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
