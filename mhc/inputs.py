"""Materialise a case as tensors, with the same bits on every machine.

Values are built in float64 on the CPU from a counter-based integer generator (Philox, whose raw stream NumPy keeps stable)
by integer arithmetic and exact float64 operations only: no logarithm, no cosine, no function whose last bit depends on a
library. They are then rounded to the tensor's dtype (to 16-bit dtypes through float32, as PyTorch does) and laid out.
`tests/checksums.json` holds the expected checksums. `mhc.placement` copies the tensors to the device of a run.
"""

import hashlib
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mhc.case import Case
from mhc.memory import BAND
from mhc.operator import STORAGE_DTYPES, TensorSpec, Values
from mhc.recipe import Layout, Recipe

_SCALE_STREAM = 1 << 32
_ROW_STREAM = 1 << 33
_SCALE_RANGE = 12
_TAIL = 1024  # elements after the last one, to detect access past the end


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
        values = _values(recipe, spec, case.sizes, spec.dtype(STORAGE_DTYPES[case.dtype]))
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
    """Return a copy of `inputs` with bands of the byte `fill` around each allocation; layouts and alignment stay."""
    tensors, storages = dict(inputs.tensors), dict(inputs.storages)
    for name, tensor in inputs.tensors.items():
        if tensor is not None:
            storage = inputs.storages[name]
            band = BAND // storage.element_size()
            raw = torch.empty((2 * band + storage.numel()) * storage.element_size(), dtype=torch.uint8)
            byte = 1 if storage.dtype == torch.bool else fill  # the only byte besides 0 that a copy of booleans keeps
            whole = raw.fill_(byte).view(storage.dtype)
            whole[band : band + storage.numel()].copy_(storage)
            storages[name] = whole
            tensors[name] = whole.as_strided(tensor.shape, tensor.stride(), band + tensor.storage_offset())
    return replace(inputs, tensors=tensors, storages=storages)


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


def plain_values(spec: TensorSpec, sizes: Mapping[str, int]) -> Tensor:
    """Return simple different values of a tensor of integers or booleans."""
    return _values(Recipe(kind="ascending"), spec, sizes, spec.dtype(torch.float32))


def checksum(tensor: Tensor) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the elements in index order, independent of the layout."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]


def _raw(seed: int, stream: int, count: int) -> np.ndarray:
    """Return `count` unsigned 64-bit integers of the random stream (seed, stream)."""
    generator = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))
    return np.asarray(generator.random_raw(count), dtype=np.uint64)


def _normal(seed: int, stream: int, count: int) -> np.ndarray:
    """Return N(0, 1) values as sums of twelve 32-bit uniforms minus 6 (Irwin-Hall): exact in float64, multiples of 2^-32."""
    raw = _raw(seed, stream, 6 * count).reshape(6, count)
    total = ((raw & np.uint64(0xFFFFFFFF)) + (raw >> np.uint64(32))).sum(axis=0, dtype=np.uint64)
    return np.asarray((total.astype(np.float64) - 6.0 * 2.0**32) * 2.0**-32)


def _powers(seed: int, stream: int, count: int) -> np.ndarray:
    """Return powers 2^u, u uniform in -12..12 (to within 2^-59)."""
    exponents = (_raw(seed, stream | _SCALE_STREAM, count) % np.uint64(2 * _SCALE_RANGE + 1)).astype(np.int64)
    return np.asarray(np.ldexp(1.0, exponents - _SCALE_RANGE))


def _one_in(many: int, seed: int, stream: int, count: int) -> np.ndarray:
    """Return 1 for one element in `many`, at random, and 0 for the others."""
    return np.asarray((_raw(seed, stream | _SCALE_STREAM, count) % np.uint64(many) == 0).astype(np.float64))


def _alternating(count: int) -> np.ndarray:
    """Return 1, -1, 1, ..."""
    return np.asarray(1.0 - 2.0 * (np.arange(count) % 2))


def _values(recipe: Recipe, spec: TensorSpec, sizes: Mapping[str, int], dtype: torch.dtype) -> Tensor:
    """Return the values in `dtype`, rounded once; expanded dimensions share their values."""
    shape = spec.shape(sizes)
    compact = tuple(1 if dim in recipe.layout.expand and size else size for dim, size in enumerate(shape))
    columns = compact[-1] if compact else 1
    count, rows = math.prod(compact), math.prod(compact[:-1])
    stream = zlib.crc32(spec.name.encode())

    def fresh(rows: int) -> Tensor:
        if spec.values is None:
            return _scaled(recipe, stream, rows, columns, dtype)
        return torch.from_numpy(_integers(recipe, stream, rows, columns, spec.values, spec.values.range(sizes))).to(dtype)

    kept = _kept_rows(recipe, stream, rows)
    if kept is not None:
        values = torch.zeros(rows, columns, dtype=dtype)
        values[torch.from_numpy(kept)] = fresh(len(kept))
    elif 0 < recipe.period < count:
        values = fresh(-(-recipe.period // columns)).flatten()[: recipe.period].repeat(-(-count // recipe.period))[:count]
    else:
        values = fresh(rows)
    values = values.reshape(compact)
    for index, value in recipe.literals:
        at = tuple(min(i, size - 1) for i, size in zip(index, compact, strict=True))
        values[at] = torch.tensor(value, dtype=torch.float64).to(dtype)
    return values.expand(shape)


def _kept_rows(recipe: Recipe, stream: int, rows: int) -> np.ndarray | None:
    """Return the rows that keep their values, in order; None if all do."""
    if not 0 < recipe.rows < rows:
        return None
    others = _raw(recipe.seed, stream | _ROW_STREAM, recipe.rows) % np.uint64(rows)
    return np.unique(np.append(others[: max(0, recipe.rows - 2)], [0, rows - 1]).astype(np.int64))


def _scaled(recipe: Recipe, stream: int, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Return so many rows of values, [rows, columns], rounded to `dtype`."""
    return torch.from_numpy(_base(recipe, stream, rows, columns).reshape(rows, columns) * recipe.scale).to(dtype)


def _base(recipe: Recipe, stream: int, rows: int, columns: int) -> np.ndarray:
    """Return the values of so many rows before they are scaled, in float64, flattened or as [rows, columns]."""
    count, seed = rows * columns, recipe.seed
    match recipe.kind:
        case "zero":
            return np.zeros(count)
        case "constant":
            return np.ones(count)
        case "normal":
            return _normal(seed, stream, count)
        case "exact":
            choices = np.array([0.0, 1.0, -1.0, 0.5, -0.5, 0.25, -0.25])
            return np.asarray(choices[(_raw(seed, stream, count) % np.uint64(len(choices))).astype(np.int64)])
        case "sign":
            return np.asarray(1.0 - 2.0 * (_raw(seed, stream, count) % np.uint64(2)).astype(np.float64))
        case "alternating":
            return _alternating(count)
        case "row_scaled":
            return np.asarray(_normal(seed, stream, count).reshape(rows, columns) * _powers(seed, stream, rows)[:, None])
        case "column_scaled":
            return np.asarray(_normal(seed, stream, count).reshape(rows, columns) * _powers(seed, stream, columns))
        case "cancelling":
            return np.asarray(np.repeat(_normal(seed, stream, (count + 1) // 2), 2)[:count] * _alternating(count))
        case "sparse":
            return np.asarray(_normal(seed, stream, count) * _one_in(8, seed, stream, count))
        case "zero_rows":
            kept = _one_in(2, seed, stream, rows)[:, None]
            return np.asarray(_normal(seed, stream, count).reshape(rows, columns) * kept)
        case unknown:
            raise ValueError(f"recipe kind {unknown!r} has no rule here, though RECIPE_KINDS lists it")


def _integers(recipe: Recipe, stream: int, rows: int, columns: int, values: Values, inside: range) -> np.ndarray:
    """Return so many rows of integers, [rows, columns]."""
    found = _unordered(recipe, stream, rows, columns, inside, values.sentinel).reshape(rows, columns)
    if values.sentinel is not None and recipe.kind in {"row_constant", "repeated", "ends", "uniform"}:
        missing = _one_in(8, recipe.seed, stream, rows * columns).reshape(rows, columns)
        found = np.where(missing == 1, values.sentinel, found)
    match values.order:
        case "sorted":
            return np.sort(found, axis=-1)
        case "permutation":
            return np.argsort(found, axis=-1, kind="stable")
    return found


def _unordered(recipe: Recipe, stream: int, rows: int, columns: int, inside: range, sentinel: int | None) -> np.ndarray:
    """Return so many rows of integers in `inside`, flattened, before a sentinel is written and they are put in order."""
    count, seed = rows * columns, recipe.seed

    def uniform(some: int) -> np.ndarray:
        return inside.start + (_raw(seed, stream, some) % np.uint64(max(1, len(inside)))).astype(np.int64)

    match recipe.kind:
        case "zero":
            return np.full(count, inside.start)
        case "constant":
            return np.full(count, inside.stop - 1)
        case "sentinel":
            return np.full(count, inside.start if sentinel is None else sentinel)
        case "ascending":
            return np.tile(inside.start + np.arange(columns) % max(1, len(inside)), rows)
        case "row_constant":
            return np.repeat(uniform(rows), columns)
        case "repeated":
            begins = np.cumsum(_raw(seed, stream | _ROW_STREAM, count) % np.uint64(4) == 0)
            return np.asarray(uniform(count + 1)[begins])
        case "ends":
            first = _raw(seed, stream, count) % np.uint64(2) == 0
            return np.where(first, inside.start, inside.stop - 1)
        case "uniform":
            return uniform(count)
        case unknown:
            raise ValueError(f"recipe kind {unknown!r} has no rule here, though INTEGER_KINDS lists it")


def _strides(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """Return the element strides of `layout`; 0 for expanded dimensions."""
    strides = [0] * len(shape)
    next_stride = layout.step
    moved = 0
    for dim in reversed(layout.order or range(len(shape))):
        if dim in layout.expand:
            continue
        strides[dim] = next_stride
        next_stride = next_stride * max(shape[dim], 1) + (layout.pad if moved == 0 else 0)
        moved += 1
    return tuple(strides)


def _lay_out(values: Tensor, layout: Layout) -> tuple[Tensor, tuple[int, ...]]:
    """Return an allocation with `values` laid out in it and `_outside` elsewhere, and the strides of the view."""
    shape = tuple(values.shape)
    strides = _strides(shape, layout)
    reach = 0 if values.numel() == 0 else 1 + sum((size - 1) * by for size, by in zip(shape, strides, strict=True))
    storage = torch.full((layout.offset + reach + _TAIL,), _outside(values.dtype), dtype=values.dtype)
    compact = tuple(1 if dim in layout.expand and size else size for dim, size in enumerate(shape))
    source = values[tuple(slice(0, size) for size in compact)]
    storage.as_strided(compact, strides, layout.offset).copy_(source)
    return storage, strides
