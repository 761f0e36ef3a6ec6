"""The values of one tensor of a case, from its recipe: the same bits on every machine."""

import math
import threading
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mhc.operator import TensorSpec, Values
from mhc.recipe import Recipe

_SCALE_STREAM = 1 << 32
_ROW_STREAM = 1 << 33
_WHOLE_STREAM = 1 << 34
_SCALE_RANGE = 12
_WITH_SENTINEL = frozenset({"row_constant", "multiples", "repeated", "ends", "uniform"})  # in one element of eight


def values_of(recipe: Recipe, spec: TensorSpec, sizes: Mapping[str, int], dtype: torch.dtype) -> Tensor:
    """Return the values in `dtype`, rounded once; expanded dimensions share their values."""
    shape = spec.shape(sizes)
    compact = tuple(1 if dim in recipe.layout.expand and size else size for dim, size in enumerate(shape))
    columns = compact[-1] if compact else 1
    count, rows = math.prod(compact), math.prod(compact[:-1])
    stream = zlib.crc32(spec.name.encode())

    def fresh(rows: int) -> Tensor:
        if spec.values is None:
            scaled = _base(recipe, stream, rows, columns).reshape(rows, columns) * recipe.scale
            return _rounded(scaled, spec.within, dtype)
        shown = min(columns, recipe.period or columns)  # a longer row would have its runs where it is cut off
        return torch.from_numpy(_integers(recipe, stream, rows, shown, spec.values, spec.values.range(sizes))).to(dtype)

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
    if spec.finite:
        values = values.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
    return values if compact == shape else values.expand(shape)


def plain_values(spec: TensorSpec, sizes: Mapping[str, int]) -> Tensor:
    """Return simple different values of a tensor of integers or booleans."""
    return values_of(Recipe(kind="ascending"), spec, sizes, spec.dtype(torch.float32))


_PHILOX, _PHILOX_LOCK = np.random.Philox(key=0), threading.Lock()
"""One generator for every stream: to make a new one takes ten times as long as to give it another key."""
_AT_START: Any = _PHILOX.state
_HALF = np.uint64(32)


def _restarted(seed: int, stream: int) -> np.random.Philox:
    """Return the generator at the start of the random stream (seed, stream). The caller holds its lock."""
    _AT_START["state"]["key"][:] = seed, stream
    _PHILOX.state = _AT_START
    return _PHILOX


def _raw(seed: int, stream: int, count: int) -> np.ndarray:
    """Return `count` unsigned 64-bit integers of the random stream (seed, stream)."""
    with _PHILOX_LOCK:
        return np.asarray(_restarted(seed, stream).random_raw(count), dtype=np.uint64)


def _number(recipe: Recipe, stream: int, below: int) -> int:
    """Return a random number of the tensor as a whole: the low bits of drawn seeds are not equally frequent."""
    return int(_raw(recipe.seed, stream | _WHOLE_STREAM, 1)[0] % np.uint64(below))


def _normal(seed: int, stream: int, count: int) -> np.ndarray:
    """Return N(0, 1) values as sums of twelve 32-bit uniforms minus 6 (Irwin-Hall): exact in float64, multiples of 2^-32."""
    total, high = np.zeros((2, count), dtype=np.uint64)
    with _PHILOX_LOCK:
        generator = _restarted(seed, stream)
        for _ in range(6):
            raw = np.asarray(generator.random_raw(count), dtype=np.uint64)  # a sixth at a time: it may fit into the cache
            total += raw
            raw >>= _HALF
            high += raw
    total -= high << _HALF  # modulo 2^64: the sum of the low halves
    total += high
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


def _kept_rows(recipe: Recipe, stream: int, rows: int) -> np.ndarray | None:
    """Return the rows that keep their values, in order; None if all do."""
    if not 0 < recipe.rows < rows:
        return None
    others = _raw(recipe.seed, stream | _ROW_STREAM, recipe.rows) % np.uint64(rows)
    return np.unique(np.append(others[: max(0, recipe.rows - 2)], [0, rows - 1]).astype(np.int64))


def _rounded(values: np.ndarray, within: tuple[float, float] | None, dtype: torch.dtype) -> Tensor:
    """Return values rounded to `dtype`; those outside of a range are reflected at its ends."""
    if within is None:
        return torch.from_numpy(values).to(dtype)
    least, most = within
    if math.isinf(most):
        reflected = 2 * least - values
    elif math.isinf(least):
        reflected = 2 * most - values
    else:
        width = most - least
        reflected = least + np.abs(np.mod(values - most, 2 * width) - width)
    inside = np.where((values >= least) & (values <= most), values, reflected)
    rounded = torch.from_numpy(inside).to(dtype)
    beyond = (rounded.double() > most).to(dtype) - (rounded.double() < least).to(dtype)
    return torch.where(beyond != 0, rounded.nextafter(-beyond * math.inf), rounded)


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
        case "offset":
            return np.asarray(1.0 + np.ldexp(_normal(seed, stream, count), -3 - _number(recipe, stream, 8)))
        case "masked":
            values = _normal(seed, stream, count).reshape(rows, columns)
            masked = _runs(recipe, stream, rows, columns, columns - 1, last=_number(recipe, stream, 2) == 1)
            return np.where(masked, -np.inf, values)
        case unknown:
            raise ValueError(f"recipe kind {unknown!r} has no rule here, though RECIPE_KINDS lists it")


def _runs(recipe: Recipe, stream: int, rows: int, columns: int, longest: int, *, last: bool) -> np.ndarray:
    """Return where each row has its run of 0 to `longest` elements: at its beginning, or at its end."""
    lengths = (_raw(recipe.seed, stream | _ROW_STREAM, rows) % np.uint64(max(0, longest) + 1)).astype(np.int64)
    places = np.arange(columns)[::-1] if last else np.arange(columns)
    return np.asarray(places[None, :] < lengths[:, None])


def _integers(recipe: Recipe, stream: int, rows: int, columns: int, values: Values, inside: range) -> np.ndarray:
    """Return so many rows of integers, [rows, columns]."""
    found = _unordered(recipe, stream, rows, columns, inside, values.sentinel).reshape(rows, columns)
    if values.sentinel is not None and recipe.kind in _WITH_SENTINEL:
        missing = _one_in(8, recipe.seed, stream, rows * columns).reshape(rows, columns)
        found = np.where(missing == 1, values.sentinel, found)
    match values.order:
        case "sorted":
            return np.sort(found)
        case "offsets":
            found = np.sort(found)
            found[:, -1:], found[:, :1] = max(inside.start, inside.stop - 1), inside.start
            return found
        case "permutation":
            return np.argsort(found, axis=-1, kind="stable")
    return found


def _blocks(recipe: Recipe, stream: int, count: int, mean: int) -> np.ndarray:
    """Return for each element the number of its run, of runs with a mean length."""
    return np.cumsum(_raw(recipe.seed, stream | _ROW_STREAM, count) % np.uint64(mean) == 0)


def _unordered(recipe: Recipe, stream: int, rows: int, columns: int, inside: range, sentinel: int | None) -> np.ndarray:
    """Return so many rows of integers in `inside`, flattened or not, before they are put in order."""
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
        case "consecutive":
            first = _raw(seed, stream, rows) % np.uint64(max(1, len(inside) - columns + 1))
            return np.asarray(inside.start + (first.astype(np.int64)[:, None] + np.arange(columns)) % max(1, len(inside)))
        case "row_constant":
            return np.repeat(uniform(rows), columns)
        case "prefix" | "suffix":
            missing = inside.start if sentinel is None else sentinel
            others = np.full(count, inside.stop - 1) if len(inside) <= 2 else uniform(count)
            return np.where(
                _runs(recipe, stream, rows, columns, columns, last=recipe.kind == "suffix"),
                missing,
                others.reshape(rows, columns),
            )
        case "blocks":
            of_block = uniform(count + 1)
            if sentinel is not None:
                of_block = np.where(_one_in(3, seed, stream, count + 1) == 1, sentinel, of_block)
            return np.asarray(of_block[_blocks(recipe, stream, count, 8 << _number(recipe, stream, 6))])
        case "multiples":
            found = uniform(count)
            return np.asarray(np.maximum(found - found % (8 << _number(recipe, stream, 5)), inside.start))
        case "repeated":
            return np.asarray(uniform(count + 1)[_blocks(recipe, stream, count, 4)])
        case "ends":
            first = _raw(seed, stream, count) % np.uint64(2) == 0
            return np.where(first, inside.start, inside.stop - 1)
        case "uniform":
            return uniform(count)
        case unknown:
            raise ValueError(f"recipe kind {unknown!r} has no rule here, though INTEGER_KINDS lists it")
