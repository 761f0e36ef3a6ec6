"""The only module that changes PyTorch's global precision switches; it restores them."""

from contextlib import AbstractContextManager
from typing import Any

import torch


class _Float32Matmuls:
    """As a class it costs a call of a kernel a third of what a generator costs."""

    __slots__ = ("_autocast", "_before", "_device_type")

    def __init__(self, device_type: str) -> None:
        self._device_type = device_type

    def __enter__(self) -> None:
        on = torch.is_autocast_enabled(self._device_type)
        self._autocast: Any = torch.autocast(self._device_type, enabled=False) if on else None
        self._before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        if self._autocast is not None:
            self._autocast.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        try:
            if self._autocast is not None:
                self._autocast.__exit__(*error)
        finally:
            torch.set_float32_matmul_precision(self._before)


def float32_matmuls(device_type: str) -> AbstractContextManager[None]:
    """Compute float32 matrix products of the block in float32: no TF32, no bfloat16 passes, no autocast."""
    return _Float32Matmuls(device_type)
