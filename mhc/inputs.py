"""Materialise a case as tensors, with the same bits on every machine.

Values are built in float64 on the CPU from a counter-based integer generator (Philox, whose raw stream NumPy keeps stable)
by integer arithmetic and exact float64 operations only: no logarithm, no cosine, no function whose last bit depends on a
library. They are then rounded to the tensor's dtype (to 16-bit dtypes through float32, as PyTorch does) and laid out.
`tests/checksums.json` holds the expected checksums. `mhc.placement` copies the tensors to the device of a run.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mhc.case import Case
from mhc.memory import BAND
from mhc.operator import STORAGE_DTYPES
from mhc.recipe import Layout
from mhc.values import values_of

_TAIL = 1024  # elements after the last one, to detect access past the end
_FRONT = 1 << 16  # at most, elements before the first one


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The tensors of a case on the host: the operator's inputs and upstream gradients; an absent optional tensor is None.

    `storages` holds the whole allocation of each tensor. Elements that no index reaches, also those after the last element,
    are NaN, of integers the largest, to detect reads outside the tensor. Implementations receive copies on `device`
    (`mhc.placement.place`), so that their writes cannot change the reference.
    """

    case: Case
    device: torch.device
    tensors: Mapping[str, Tensor | None]
    storages: Mapping[str, Tensor]

    @property
    def floating(self) -> dict[str, Tensor]:
        """Return those of floating-point numbers that are there."""
        return {name: one for name, one in self.tensors.items() if one is not None and one.is_floating_point()}


def materialise(case: Case, device: torch.device | str = "cpu") -> Inputs:
    """Return the tensors of `case` for a run on `device`; deterministic, with the same bits on every machine."""
    tensors: dict[str, Tensor | None] = {}
    storages: dict[str, Tensor] = {}
    for spec in case.table.drawn:
        recipe = case.tensors.get(spec.name)
        if recipe is None:
            tensors[spec.name] = None
            continue
        shape = spec.shape(case.sizes)
        values = values_of(recipe, spec, case.sizes, spec.dtype(STORAGE_DTYPES[case.dtype]))
        storage, strides = _lay_out(values, recipe.layout)
        storages[spec.name] = storage
        tensors[spec.name] = storage.as_strided(shape, strides, recipe.layout.offset)
    return Inputs(case=case, device=torch.device(device), tensors=tensors, storages=storages)


def derived(
    inputs: Inputs,
    tensors: Mapping[str, Tensor | None],
    *,
    lead: tuple[int, ...] | None = None,
    scalars: Mapping[str, float] | None = None,
) -> Inputs:
    """Return inputs with `tensors` in place of those of the same names, each in a new allocation.

    The returned case has the shape, dtype, scalars and schedules; its recipes are defaults and do not describe the values.
    Other tensors are shared with `inputs`. `lead` has other sizes of the axes of tokens; then every tensor with these axes
    must be replaced.
    """
    every, table = {**inputs.tensors, **tensors}, inputs.case.table
    specs, tokens = table.argument_specs, [name for name in table.tokens if name in inputs.case.sizes]
    case = replace(
        inputs.case,
        sizes=inputs.case.sizes if lead is None else {**inputs.case.sizes, **dict(zip(tokens, lead, strict=True))},
        scalars=inputs.case.scalars if scalars is None else scalars,
        tensors={name: specs[name].recipe() for name, tensor in every.items() if tensor is not None},
    )
    storages = {name: inputs.storages[name] for name, tensor in inputs.tensors.items() if tensor is not None}
    placed = dict(every)
    for name, tensor in tensors.items():
        if tensor is not None:
            storages[name], placed[name] = _with_tail(tensor)
    return Inputs(case=case, device=inputs.device, tensors=placed, storages=storages)


def edited(inputs: Inputs, edits: Mapping[str, Callable[[Tensor], object]]) -> Inputs:
    """Return a copy of `inputs` with some tensors edited in place, each by its function; layouts stay."""
    tensors, storages = dict(inputs.tensors), dict(inputs.storages)
    for name, edit in edits.items():
        tensor = inputs.tensors[name]
        if tensor is not None:
            storages[name] = inputs.storages[name].clone()
            copy = storages[name].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            edit(copy)
            tensors[name] = copy
    return replace(inputs, tensors=tensors, storages=storages)


def banded(inputs: Inputs, fill: int) -> Inputs:
    """Return a copy of `inputs` with bands of the byte `fill` around each allocation, and that byte where no index reaches.

    Layouts and alignment stay.
    """
    tensors, storages = dict(inputs.tensors), dict(inputs.storages)
    for name, tensor in inputs.tensors.items():
        if tensor is not None:
            storage = inputs.storages[name]
            band = BAND // storage.element_size()
            raw = torch.empty((2 * band + storage.numel()) * storage.element_size(), dtype=torch.uint8)
            byte = 1 if storage.dtype == torch.bool else fill  # the only byte besides 0 that a copy of booleans keeps
            whole = raw.fill_(byte).view(storage.dtype)
            kept = slice(band, band + storage.numel())
            whole[kept] = torch.where(reached(storage, tensor), storage, whole[kept])
            storages[name] = whole
            tensors[name] = whole.as_strided(tensor.shape, tensor.stride(), band + tensor.storage_offset())
    return replace(inputs, tensors=tensors, storages=storages)


def front(tensor: Tensor) -> Tensor:
    """Return what lies in front of the allocation of a tensor while it is placed, to detect access before its first element.

    These are at least `_TAIL` elements, and index -1 of any axis lies in them unless it is more than `_FRONT` elements away.
    A multiple of `_TAIL` keeps the alignment of what follows.
    """
    farthest = max(tensor.stride(), default=1)
    return _filled(_TAIL * min(_FRONT // _TAIL, -(-max(farthest, 1) // _TAIL)), tensor.dtype)


@functools.lru_cache(maxsize=64)
def _filled(count: int, dtype: torch.dtype) -> Tensor:
    return torch.full((count,), _outside(dtype), dtype=dtype)


def reached(storage: Tensor, tensor: Tensor) -> Tensor:
    """Return which elements of an allocation are those of its view."""
    found = torch.zeros(storage.numel(), dtype=torch.bool)
    sizes = [min(size, 1) if by == 0 else size for size, by in zip(tensor.shape, tensor.stride(), strict=True)]
    found.as_strided(sizes, tensor.stride(), tensor.storage_offset()).fill_(True)
    return found


def _with_tail(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return an allocation with a tail of `_outside`, and the contiguous copy of `tensor` at its beginning."""
    storage = tensor.new_full((tensor.numel() + _TAIL,), _outside(tensor.dtype))
    placed = storage[: tensor.numel()].view(tensor.shape)
    placed.copy_(tensor)
    return storage, placed


def _outside(dtype: torch.dtype) -> float:
    """Return what elements hold that no index reaches: NaN, or the largest integer, an index outside of any tensor."""
    if dtype.is_floating_point:
        return math.nan
    return 1 if dtype == torch.bool else torch.iinfo(dtype).max


def checksum(tensor: Tensor) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the elements in index order, independent of the layout."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def _strides(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """Return the element strides of `layout`; 0 for expanded dimensions."""
    strides = [0] * len(shape)
    stored = [dim for dim in reversed(layout.order or range(len(shape))) if dim not in layout.expand]
    next_stride = layout.step
    for at, dim in enumerate(stored):
        strides[dim] = next_stride
        next_stride *= max(shape[dim], 1) + (layout.gap if at == 1 else 0)
        next_stride += layout.pad if at == 0 else 0
    return tuple(strides)


def _lay_out(values: Tensor, layout: Layout) -> tuple[Tensor, tuple[int, ...]]:
    """Return an allocation with `values` laid out in it and `_outside` elsewhere, and the strides of the view."""
    shape = tuple(values.shape)
    strides = _strides(shape, layout)
    reach = 0 if values.numel() == 0 else 1 + sum((size - 1) * by for size, by in zip(shape, strides, strict=True))
    storage = torch.full((layout.offset + reach + _TAIL,), _outside(values.dtype), dtype=values.dtype)
    compact = tuple(1 if dim in layout.expand and size else size for dim, size in enumerate(shape))
    source = values if compact == shape else values[tuple(slice(0, size) for size in compact)]
    storage.as_strided(compact, strides, layout.offset).copy_(source)
    return storage, strides
