"""The only module that changes PyTorch's global precision switches; it restores them."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def float32_matmuls(device_type: str) -> Iterator[None]:
    """Compute float32 matrix products of the block in float32: no TF32, no bfloat16 passes, no autocast."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device_type, enabled=False) if torch.is_autocast_enabled(device_type) else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before)
