"""Poisoned memory: uninitialised allocations hold a byte pattern and lie between canaries."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mhc.dense import bits
from mhc.element import element_name, element_value

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


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A tensor of `size` bytes between canaries. raw: all of its memory. dtype, shape: as they were asked for."""

    raw: Tensor
    size: int
    dtype: torch.dtype
    shape: torch.Size

    @property
    def address(self) -> int:
        """Return the address of the tensor."""
        return self.raw.data_ptr() + BAND

    @property
    def bands(self) -> tuple[Tensor, Tensor]:
        """Return the canaries before and after the tensor."""
        return self.raw[:BAND], self.raw[BAND + self.size :]


@dataclass(frozen=True)
class Overrun:
    """An allocation beside which was written. elements: those that changed, numbered from its first one, which is 0."""

    allocation: Allocation
    elements: Sequence[int]

    def words(self, name: str, shape: Sequence[int] | None = None) -> str:
        """Return where was written: on which side, how far away, and where that index of a contiguous tensor would be.

        Args:
            name: of the tensor. shape: where the tensor fills the allocation without gaps.
        """
        count = self.allocation.size // self.allocation.dtype.itemsize
        before = [-one for one in reversed(self.elements) if one < 0]
        after = [one - count + 1 for one in self.elements if one >= 0]
        parts = [f"{_distances(before)} before its first"] if before else []
        parts += [f"{_distances(after)} after its last"] if after else []
        if after and shape and all(shape[1:]):
            parts[-1] += f", where {element_name(name, _beyond(count + after[0] - 1, shape))} would be"
        return "; ".join(parts)


def _distances(found: Sequence[int]) -> str:
    return f"{_elements(len(found))}, {found[0]}{f' to {found[-1]}' if len(found) > 1 else ''}"


def _elements(count: int) -> str:
    return f"{count} element{'' if count == 1 else 's'}"


def _beyond(flat: int, shape: Sequence[int]) -> list[int]:
    """Return the index of an element of a contiguous tensor of `shape`, had it more rows; the first is negative in front."""
    index = []
    for size in reversed(shape[1:]):
        flat, at = divmod(flat, size)
        index.append(at)
    return [flat, *reversed(index)]


@dataclass(frozen=True)
class Allocations:
    """The allocations made while memory was poisoned."""

    fill: int
    made: list[Allocation] = field(default_factory=list)

    def canaries(self) -> list[Tensor]:
        """Return the canaries of all allocations, concatenated to one tensor per device."""
        return [torch.cat([band for one in made for band in one.bands]) for made in self._by_device()]

    def overrun(self, canaries: Sequence[Tensor]) -> list[Overrun]:
        """Return each allocation whose `canaries`, perhaps copied elsewhere, changed, and where."""
        found = []
        for made, bands in zip(self._by_device(), canaries, strict=True):
            wrong = bands != self.fill
            if not wrong.any():
                continue
            parts = torch.split_with_sizes(wrong, [len(band) for one in made for band in one.bands])
            for one, before, after in zip(made, parts[::2], parts[1::2], strict=True):
                bytes_ = [*(before.nonzero() - BAND).flatten().tolist(), *(after.nonzero() + one.size).flatten().tolist()]
                if bytes_:
                    found.append(Overrun(one, sorted({byte // one.dtype.itemsize for byte in bytes_})))
        return found

    def _by_device(self) -> list[list[Allocation]]:
        devices = dict.fromkeys(one.raw.device for one in self.made)
        return [[one for one in self.made if one.raw.device == device] for device in devices]


def place_written(name: str, tensor: Tensor, before: Tensor, after: Tensor) -> str:
    """Return where the memory of a tensor, of which `tensor` is a view on the host, changed; `before` and `after` are whole.

    Where no element changed, it is how far from one: how many places of its dtype after the nearest element before it, or
    before its first one.
    """
    changed = (bits(before) != bits(after)).nonzero().flatten()
    places = torch.arange(before.numel()).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    inside = torch.isin(places, changed)
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    if inside.any():
        index = tuple(inside.nonzero()[0].tolist())
        at = int(places[index])
        return f"{element_name(name, index)} = {element_value(after, (at,))}, was {element_value(before, (at,))}{more}"
    at = int(changed[0])
    if not places.numel():
        return f"beside {name}: it has no element{more}"
    ahead = [int(places.min()) - one for one in reversed(changed.tolist()) if one < places.min()]
    if ahead:
        where = f", where {element_name(name, _beyond(-ahead[-1], tensor.shape))} would be" if tensor.is_contiguous() else ""
        after_ = f"; and {len(changed) - len(ahead)} more" if len(changed) > len(ahead) else ""
        return f"in front of {name}: {_distances(ahead)} before its first{where}{after_}"
    nearest = int(places[places <= at].max())
    index = tuple((places == nearest).nonzero()[0].tolist())
    where = "its last" if at > places.max() else f"{element_name(name, index)}, in padding"
    return f"beside {name}: {_elements(at - nearest)} after {where}{more}"


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
        allocations.made.append(Allocation(raw=raw, size=size, dtype=plain.dtype, shape=plain.shape))
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

with torch.device("cpu"):
    _EMPTY(0)
"""PyTorch notes at the first use of a default device which factories take one: here, while none is patched."""
