"""Implementations with one wrong access each, which compute-sanitizer must find; their results are right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from mhc import Implementation
from mhc.operators.mhc_pre.torch.implementations import MANUAL


@triton.jit  # type: ignore[untyped-decorator]
def _copy(source, target, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton's language
    at = tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


def _read(source: Tensor, count: int) -> None:
    block = triton.next_power_of_2(count)
    _copy[(1,)](source, torch.zeros(block, dtype=source.dtype, device=source.device), count, BLOCK=block)


def _fault(name: str, fault: Callable[[Tensor], None]) -> Implementation:
    def forward(x: Tensor, *arguments: Any, **keywords: Any) -> Any:
        assert MANUAL.forward is not None
        fault(x)
        return MANUAL.forward(x, *arguments, **keywords)

    return replace(MANUAL, name=name, forward=forward, backward=None, devices=("cuda",))


NO_FAULT = _fault("no_fault", lambda x: _read(x, x.numel()))
PAST_THE_END = _fault("past_the_end", lambda x: _read(x, x.numel() + 1))
NEVER_WRITTEN = _fault("never_written", lambda x: _read(torch.empty_like(x), x.numel()))
