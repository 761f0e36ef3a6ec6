"""Poisoned memory: uninitialised allocations hold a byte pattern and lie between canaries."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

NAN_FILL = 0xFF
"""The byte whose repetition is a NaN in every floating dtype, and -1 in every signed integer."""

FINITE_FILL = 0x40
"""The byte whose repetition is 3.004 in float32, 3.0 in bfloat16, 2.125 in float16 and 32.5 in float64."""

BAND = 8192
"""Bytes of canary on each side of an allocation: at least a row of most shapes, and a multiple of every alignment."""

_GUARDS: Any = torch._C._dynamo.guards

_PATCHED: Sequence[tuple[Any, str, bool]] = (
    (_GUARDS, "_empty_strided_cuda", False),  # of code that Inductor generated, and of our own kernels
    (torch, "empty", False),
    (torch, "empty_like", False),
    (torch, "empty_strided", False),
    (torch, "empty_permuted", False),
    (torch.Tensor, "new_empty", False),
    (torch.Tensor, "new_empty_strided", False),
    (torch, "zeros", True),
    (torch, "zeros_like", True),
    (torch.Tensor, "new_zeros", True),
)


@dataclass(frozen=True)
class Allocations:
    """The allocations made while memory was poisoned: each with its canaries, and the number of bytes between them."""

    fill: int
    made: list[tuple[Tensor, int]] = field(default_factory=list)

    def canaries(self) -> list[Tensor]:
        """Return the canaries of all allocations, concatenated to one tensor per device."""
        return [torch.cat([band for one in made for band in _bands(*one)]) for made in self._by_device()]

    def overrun(self, canaries: Sequence[Tensor]) -> list[tuple[int, str]]:
        """Return (address of the tensor, sides) of each allocation whose `canaries`, perhaps copied elsewhere, changed."""
        changed = []
        for made, bands in zip(self._by_device(), canaries, strict=True):
            wrong = bands != self.fill
            if not wrong.any():
                continue
            lengths = [len(band) for one in made for band in _bands(*one)]
            sides = [bool(part.any()) for part in torch.split_with_sizes(wrong, lengths)]
            for (raw, _), before, after in zip(made, sides[::2], sides[1::2], strict=True):
                if before or after:
                    names = [name for name, overrun in (("before", before), ("after", after)) if overrun]
                    changed.append((raw.data_ptr() + BAND, " and ".join(names)))
        return changed

    def _by_device(self) -> list[list[tuple[Tensor, int]]]:
        devices = dict.fromkeys(raw.device for raw, _ in self.made)
        return [[one for one in self.made if one[0].device == device] for device in devices]


def _bands(raw: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the canaries before and after the `size` bytes of a tensor."""
    return raw[:BAND], raw[BAND + size :]


@contextmanager
def poisoned(fill: int) -> Iterator[Allocations]:
    """Fill memory that PyTorch's factories leave uninitialised with the byte `fill`, between canaries of the same byte.

    Zeroed allocations stay zero and get canaries too. Allocations inside operators, in compiled code, with `out`, and of
    pinned or sparse memory are not changed. The factories are restored after the block.
    """
    allocations = Allocations(fill)
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in _PATCHED]
    own = {name for owner, name, _ in _PATCHED if owner is torch.Tensor and name in vars(torch.Tensor)}
    try:
        for (owner, name, zeroed), (_, _, original) in zip(_PATCHED, before, strict=True):
            setattr(owner, name, _banded(original, allocations, zeroed))
        yield allocations
    finally:
        for owner, name, original in before:
            if owner is torch.Tensor and name not in own:
                delattr(owner, name)  # inherited: not an attribute of Tensor itself
            else:
                setattr(owner, name, original)


def _banded(original: Callable[..., Any], allocations: Allocations, zeroed: bool) -> Callable[..., Any]:
    """Return a factory that returns what `original` would, inside a larger allocation."""

    def factory(*arguments: Any, **keywords: Any) -> Any:
        plain = original(*arguments, **keywords)
        special = keywords.get("out") is not None or keywords.get("pin_memory") or plain.layout is not torch.strided
        if torch.compiler.is_compiling() or special or plain.is_meta or plain.numel() == 0 or type(plain) is not Tensor:
            return plain
        reach = 1 + sum((size - 1) * by for size, by in zip(plain.shape, plain.stride(), strict=True))
        size = reach * plain.element_size()
        raw = _EMPTY(BAND + math.ceil(size / 8) * 8 + BAND, dtype=torch.uint8, device=plain.device).fill_(allocations.fill)
        allocations.made.append((raw, size))
        banded = _EMPTY(0, dtype=plain.dtype, device=plain.device)
        banded.set_(raw.untyped_storage(), BAND // plain.element_size(), plain.shape, plain.stride())
        if zeroed:
            banded.zero_()
        return banded.requires_grad_(plain.requires_grad)

    for name, value in _wrapping(original):
        setattr(factory, name, value)
    return factory


@functools.lru_cache(maxsize=64)
def _wrapping(original: Callable[..., Any]) -> Sequence[tuple[str, Any]]:
    """Return the attributes that `functools.wraps` gives a function; every run wraps the same ten."""
    assigned = [(name, getattr(original, name)) for name in functools.WRAPPER_ASSIGNMENTS if hasattr(original, name)]
    return *assigned, *getattr(original, "__dict__", {}).items(), ("__wrapped__", original)


_EMPTY = torch.empty  # the original, also while it is patched
