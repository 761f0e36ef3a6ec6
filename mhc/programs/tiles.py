"""What tile operations compute: copies of parts, fills, reductions, scans and matrix products."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mhc.programs import arithmetic, grammar
from mhc.programs.arithmetic import Invalid
from mhc.programs.grammar import Buffer
from mhc.programs.order import Order

_Env = dict[str, Any]
_Run = Callable[[_Env], Any]


def written(value: Any, name: str) -> Any:
    """Return a value that was read, if it was written before."""
    if value is None:
        raise Invalid(f"{name} is read where nobody wrote")
    return value


def flat(index: Sequence[int], shape: Sequence[int]) -> int:
    """Return where an element lies."""
    place = 0
    for one, size in zip(index, shape, strict=True):
        if not 0 <= one < size:
            raise Invalid(f"no element {list(index)} in {list(shape)}")
        place = place * size + one
    return place


def copy(
    node: grammar.Copy, buffers: Mapping[str, Buffer], order: Order, source_at: Sequence[_Run], target_at: Sequence[_Run]
) -> _Run:
    """Return what copies a part; over the end of a parameter 0 is read, and nothing is written."""
    source, target = buffers[node.source], buffers[node.target]
    for one, at in ((source, source_at), (target, target_at)):
        if len(one.shape) != len(at):
            raise Invalid(f"{one.name} has {len(one.shape)} axes")
        if one.scope == "fragment" and node.extents != one.shape:
            raise Invalid(f"a part of the fragment {one.name}")
    if target.scope == "global" and not target.written:
        raise Invalid(f"{target.name} is an input")
    if source is target:
        raise Invalid(f"{source.name} is copied to itself, and nothing orders the elements")
    convert = arithmetic.converter(source.dtype, target.dtype)
    read_at, written_at = _places(source, node.extents), _places(target, node.extents)

    def run(memory: _Env) -> None:
        before, after = memory[source.name], memory[target.name]
        begin, end = [one(memory) for one in source_at], [one(memory) for one in target_at]
        values = []
        for at in read_at(begin):
            if at is not None:
                order.read(source.name, at)
            values.append(convert(0 if at is None else written(before[at], source.name)))
        for at, value in zip(written_at(end), values, strict=True):
            if at is not None:
                order.wrote(target.name, at, apart=True)
                after[at] = value

    return run


def _places(buffer: Buffer, extents: Sequence[int]) -> Callable[[Sequence[int]], Sequence[int | None]]:
    """Return what says where the elements of a part lie, by where it begins; None over the end of a parameter."""
    offsets = np.indices(extents).reshape(len(extents), -1)
    shape = np.array(buffer.shape)[:, None]
    steps = np.cumprod([1, *buffer.shape[:0:-1]])[::-1]

    def places(begin: Sequence[int]) -> Sequence[int | None]:
        index = offsets + np.array(begin)[:, None]
        beyond = (index >= shape).any(axis=0)
        if (index < 0).any() or (buffer.scope != "global" and beyond.any()):
            raise Invalid(f"a part of {buffer.name} at {list(begin)} lies outside of {list(buffer.shape)}")
        flat_index = (steps @ index).tolist()
        return [None if over else at for over, at in zip(beyond.tolist(), flat_index, strict=True)]

    return places


def operation(node: grammar.Fill | grammar.Reduce | grammar.Scan | grammar.Gemm, buffers: Mapping[str, Buffer]) -> _Run:
    """Return what an operation on whole buffers does."""
    if any(buffers[name].scope not in {"shared", "fragment", "local"} for name in grammar.tile_buffers(node)):
        raise Invalid("a tile operation on a parameter")
    match node:
        case grammar.Fill():
            if node.value.dtype != buffers[node.buffer].dtype:
                raise Invalid(f"{node.value.dtype} is stored in {node.buffer}")
            value, name, size = arithmetic.constant(node.value), node.buffer, buffers[node.buffer].size

            def fill(memory: _Env) -> None:
                memory[name][:] = [value] * size

            return fill
        case grammar.Reduce():
            return _reduce(node, buffers[node.source], buffers[node.target])
        case grammar.Scan():
            return _scan(node, buffers[node.source], buffers[node.target])
        case grammar.Gemm():
            return _gemm(node, buffers[node.a], buffers[node.b], buffers[node.c])


def _lines(shape: Sequence[int], axis: int) -> list[list[int]]:
    """Return the places of the elements along an axis, a list for each line."""
    if axis >= len(shape):
        raise Invalid(f"{list(shape)} has no axis {axis}")
    places = np.arange(int(np.prod(shape))).reshape(shape)
    rows: list[list[int]] = np.moveaxis(places, axis, -1).reshape(-1, shape[axis]).tolist()
    return rows


def _reduce(node: grammar.Reduce, source: Buffer, target: Buffer) -> _Run:
    lines = _lines(source.shape, node.axis)
    rest = (*source.shape[: node.axis], *source.shape[node.axis + 1 :])
    if target.shape not in {rest or (1,), (*rest[: node.axis], 1, *rest[node.axis :])} or source.dtype != target.dtype:
        raise Invalid(f"{target.name} does not fit {source.name} without axis {node.axis}")
    if source.dtype == "bool" or source is target or (node.op.startswith("abs") and source.dtype in grammar.UNSIGNED):
        raise Invalid(f"{node.op} of {source.name}")
    if node.op.startswith("abs") and not node.clear:
        raise Invalid(f"T.reduce_{node.op} always clears")
    fit = arithmetic.fitting(source.dtype)

    def of(values: list[Any]) -> Any:
        if node.op.startswith("abs"):
            values = [fit(abs(one)) for one in values]
        if not node.op.endswith("sum"):
            return max(values) if node.op.endswith("max") else min(values)
        fit(sum(abs(one) for one in values))  # in any order
        return fit(sum(values))

    def run(memory: _Env) -> None:
        before = memory[source.name]
        for place, line in enumerate(lines):
            values = [written(before[one], source.name) for one in line]
            if not node.clear:
                values.append(written(memory[target.name][place], target.name))
            memory[target.name][place] = of(values)

    return run


def _scan(node: grammar.Scan, source: Buffer, target: Buffer) -> _Run:
    lines = _lines(source.shape, node.axis)
    if (source.shape, source.dtype) != (target.shape, target.dtype) or source.dtype == "bool":
        raise Invalid(f"{source.name} is scanned into {target.name}")
    fit = arithmetic.fitting(source.dtype)

    def run(memory: _Env) -> None:
        before = list(memory[source.name])
        for line in lines:
            total, size = 0, 0
            for one in reversed(line) if node.reverse else line:
                value = written(before[one], source.name)
                size = fit(size + abs(value))  # in any order
                total = fit(total + value)
                memory[target.name][one] = total

    return run


def _gemm(node: grammar.Gemm, a: Buffer, b: Buffer, c: Buffer) -> _Run:
    if {len(one.shape) for one in (a, b, c)} != {2}:
        raise Invalid("a matrix has two axes")
    (m, k), (other, n) = a.shape[:: -1 if node.transpose_a else 1], b.shape[:: -1 if node.transpose_b else 1]
    if k != other or c.shape != (m, n) or (a.dtype, c.dtype) not in GEMM_DTYPES or a.dtype != b.dtype:
        raise Invalid(f"{a.name} @ {b.name} is no {c.name}")
    fit = arithmetic.fitting(c.dtype)

    def matrix(memory: _Env, one: Buffer, *, transposed: bool = False) -> np.ndarray[Any, Any]:
        """Return the elements as integers or floats of 64 bits, in which products and sums of them are exact."""
        rows = np.array([written(value, one.name) for value in memory[one.name]]).reshape(one.shape)
        return rows.T if transposed else rows

    def run(memory: _Env) -> None:
        left, right = matrix(memory, a, transposed=node.transpose_a), matrix(memory, b, transposed=node.transpose_b)
        before: Any = 0 if node.clear else matrix(memory, c)
        for bound in (np.abs(left) @ np.abs(right) + np.abs(before)).ravel().tolist():  # of sums in any order
            fit(bound)
        memory[c.name][:] = [fit(one) for one in (left @ right + before).ravel().tolist()]

    return run


GEMM_DTYPES = (("float16", "float32"), ("float16", "float16"), ("int8", "int32"), ("float32", "float32"))
"""Of the operands and of the result."""
