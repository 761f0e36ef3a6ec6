"""Operations that move elements and compute none: what they give, and their text."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from mhc.programs.triton.grammar import Op
from mhc.programs.triton.operation import Operation
from mhc.programs.triton.values import Value, is_integer, require, same, value


def _axis(node: Op, a: Value) -> int:
    require(0 <= node.axis < len(a.shape), f"axis {node.axis} of {a.shape}")
    return node.axis


def _expand_dims(node: Op, a: Value) -> Value:
    require(0 <= node.axis <= len(a.shape) < 4, f"axis {node.axis} of {a.shape}")
    require(a.shape or not node.flag, "an index of one element")
    return value(a.dtype, np.expand_dims(a.data, node.axis))


def _broadcast_to(node: Op, a: Value) -> Value:
    fits = len(a.shape) == len(node.shape) and all(one in {1, two} for one, two in zip(a.shape, node.shape, strict=True))
    require(fits or not a.shape, f"{a.shape} to {node.shape}")
    return value(a.dtype, np.broadcast_to(a.data, node.shape).copy())


def _reshape(node: Op, a: Value) -> Value:
    require(a.shape and math.prod(node.shape) == a.data.size and node.shape, f"{a.shape} to {node.shape}")
    return value(a.dtype, a.data.reshape(node.shape))


def _permute(node: Op, a: Value) -> Value:
    require(len(a.shape) > 1 and sorted(node.axes) == list(range(len(a.shape))), f"axes {node.axes} of {a.shape}")
    return value(a.dtype, np.ascontiguousarray(np.transpose(a.data, node.axes)))


def _ravel(node: Op, a: Value) -> Value:
    require(a.shape, "ravel of one element")
    return value(a.dtype, a.data.reshape(-1))


def _join(node: Op, a: Value, b: Value) -> Value:
    require(a.shape == b.shape and len(a.shape) < 4, f"join of {a.shape} and {b.shape}")
    return value(same(a, b), np.stack([a.data, b.data], axis=-1))


def _split(node: Op, a: Value) -> Value:
    require(a.shape and a.shape[-1] == 2 and node.value in {0, 1}, f"split of {a.shape}")
    return value(a.dtype, a.data[..., int(node.value)].copy())


def _interleave(node: Op, a: Value, b: Value) -> Value:
    require(a.shape and a.shape == b.shape, f"interleave of {a.shape} and {b.shape}")
    joined = np.stack([a.data, b.data], axis=-1)
    return value(same(a, b), joined.reshape(*a.shape[:-1], 2 * a.shape[-1]))


def _cat(node: Op, a: Value, b: Value) -> Value:
    require(a.shape == b.shape, f"cat of {a.shape} and {b.shape}")
    return value(same(a, b), np.concatenate([a.data, b.data], axis=_axis(node, a)))


def _flip(node: Op, a: Value) -> Value:
    return value(a.dtype, np.flip(a.data, _axis(node, a)).copy())


def _gather(node: Op, a: Value, index: Value) -> Value:
    axis = _axis(node, a)
    rest = [tuple(size for at, size in enumerate(one.shape) if at != axis) for one in (a, index)]
    require(is_integer(index) and len(a.shape) == len(index.shape) and rest[0] == rest[1], "gather of these shapes")
    require(((index.data >= 0) & (index.data < a.shape[axis])).all(), "gather out of bounds")
    return value(a.dtype, np.take_along_axis(a.data, index.data.astype(np.int64), axis))


def _swizzle2d(node: Op, i: Value, j: Value) -> Value:
    """Return rows or columns: places are counted down the columns of each group of rows; the last may have fewer."""
    require(len(node.shape) == 3 and node.value in {0, 1} and i.shape == j.shape, "swizzle2d of these shapes")
    require(i.dtype == j.dtype == "int32", "swizzle2d of indices that are no int32")
    rows, columns, group = (np.int32(one) for one in node.shape)
    inside = (i.data >= 0) & (i.data < rows) & (j.data >= 0) & (j.data < columns)
    require(inside.all(), "swizzle2d of an element that is not in the matrix")
    first = i.data - i.data % group
    height, place = np.minimum(group, rows - first), i.data % group * columns + j.data
    return value("int32", place // height if node.value else first + place % height)


def _expand_dims_text(node: Op) -> str:
    if node.flag:
        return f"{node.args[0]}[{':, ' * node.axis}None{'' if node.axis else ', :'}]"
    return f"tl.expand_dims({node.args[0]}, {node.axis})"


def _split_text(node: Op) -> str:
    return f"tl.split({node.args[0]})[{node.value}]"


def _swizzle2d_text(node: Op) -> str:
    return f"tl.swizzle2d({', '.join(node.args)}, {', '.join(map(str, node.shape))})[{node.value}]"


def _with(name: str, more: Callable[[Op], str]) -> Callable[[Op], str]:
    return lambda node: f"tl.{name}({', '.join((*node.args, *filter(None, [more(node)])))})"


SHAPES: Mapping[str, Operation] = MappingProxyType(
    {
        "expand_dims": Operation(_expand_dims, _expand_dims_text),
        "broadcast_to": Operation(_broadcast_to, _with("broadcast_to", lambda node: f"{list(node.shape)}")),
        "reshape": Operation(_reshape, _with("reshape", lambda node: f"{list(node.shape)}")),
        "permute": Operation(_permute, _with("permute", lambda node: f"{list(node.axes)}")),
        "ravel": Operation(_ravel, _with("ravel", lambda node: "")),
        "join": Operation(_join, _with("join", lambda node: "")),
        "split": Operation(_split, _split_text),
        "interleave": Operation(_interleave, _with("interleave", lambda node: "")),
        "cat": Operation(_cat, _with("cat", lambda node: f"dim={node.axis}")),
        "swizzle2d": Operation(_swizzle2d, _swizzle2d_text),
        "flip": Operation(_flip, _with("flip", lambda node: f"{node.axis}")),
        "gather": Operation(_gather, _with("gather", lambda node: f"{node.axis}")),
    }
)
