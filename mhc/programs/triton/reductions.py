"""Operations along an axis: reductions, scans, sorting, histograms and products of matrices."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from mhc.programs.triton.grammar import FLOATS, Op
from mhc.programs.triton.operation import Operation
from mhc.programs.triton.values import Array, Value, converted, exact, is_integer, require, same, value, widened

COMBINE: Mapping[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {
        "add": np.add,
        "mul": np.multiply,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "min": np.minimum,
        "max": np.maximum,
        "left": lambda a, b: a,
        "right": lambda a, b: b,
    }
)
COMBINE_TEXT: Mapping[str, str] = MappingProxyType(
    {
        "add": "a + b",
        "mul": "a * b",
        "and": "a & b",
        "or": "a | b",
        "xor": "a ^ b",
        "min": "tl.minimum(a, b)",
        "max": "tl.maximum(a, b)",
        "left": "a",
        "right": "b",
    }
)
COMBINE_PAIRS: Mapping[str, Callable[..., tuple[Array, Array]]] = MappingProxyType(
    {
        "each": lambda a, b, c, d: (a + c, np.maximum(b, d)),
        "largest": lambda a, b, c, d: _chosen((a > c) | ((a == c) & (b < d)), (a, b), (c, d)),
        "linear": lambda a, b, c, d: (a * c, b * c + d),
    }
)
PAIRS_TEXT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "each": ("return a + c, tl.maximum(b, d)",),
        "largest": ("left = (a > c) | ((a == c) & (b < d))", "return tl.where(left, a, c), tl.where(left, b, d)"),
        "linear": ("return a * c, b * c + d",),
    }
)
_BITS = ("and", "or", "xor")


def _chosen(left: Array, one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.where(left, one[0], other[0]), np.where(left, one[1], other[1])


def _checked(node: Op, a: Value, combine: str) -> None:
    """Require a combination that has one result in every order."""
    require(a.dtype != "bool" or combine in {*_BITS, "left", "right"}, f"{node.op} of bool by {combine}")
    require(a.dtype != "bfloat16" or combine not in {"min", "max"}, f"{combine} of bfloat16: releases differ")
    require(a.dtype not in FLOATS or combine not in {*_BITS, "mul"}, f"{combine} of {a.dtype}")
    if a.dtype in FLOATS and combine == "add":
        exact(np.abs(a.data).sum(axis=None if node.axis < 0 else node.axis), a.dtype)


def _reduced(node: Op, a: Value, combine: str) -> Value:
    require(a.shape and -1 <= node.axis < len(a.shape), f"axis {node.axis} of {a.shape}")
    require(combine not in {"left", "right"}, "a reduction that depends on the order")
    _checked(node, a, combine)
    data = a.data
    axes = range(len(a.shape)) if node.axis < 0 else [node.axis]
    for axis in reversed(axes):
        moved = np.moveaxis(data, axis, 0)
        result = moved[0]
        for one in moved[1:]:
            result = COMBINE[combine](result, one)
        data = np.expand_dims(result, axis) if node.flag else result
    return value(a.dtype, np.asarray(data))


def _pairs(node: Op, a: Value, b: Value) -> Value:
    """Return one of the two results of a reduction or a scan of pairs."""
    require(0 <= node.axis < len(a.shape) and a.shape == b.shape, f"axis {node.axis} of {a.shape} and {b.shape}")
    require(node.combine in COMBINE_PAIRS and node.value in {0, 1}, f"two operands of {node.op} by {node.combine}")
    require(node.op != "reduce" or node.combine != "linear", "a reduction that depends on the order")
    whole = is_integer(a) and is_integer(b)
    require(whole or (node.combine == "largest" and "bool" not in {a.dtype, b.dtype}), f"{a.dtype} and {b.dtype}")
    require(node.combine != "linear" or a.dtype == b.dtype, f"{a.dtype} and {b.dtype}")
    one, two = (np.moveaxis(each.data, node.axis, 0) for each in (a, b))
    backwards = node.flag and node.op != "reduce"
    pairs = list(zip(one, two, strict=True))[:: -1 if backwards else 1]
    results = [pairs[0]]
    for pair in pairs[1:]:
        results.append(COMBINE_PAIRS[node.combine](*results[-1], *pair))
    which = int(node.value)
    if node.op == "reduce":
        last = np.asarray(results[-1][which])
        return value((a, b)[which].dtype, np.expand_dims(last, node.axis) if node.flag else last)
    stacked = np.stack([one[which] for one in results[:: -1 if backwards else 1]])
    return value((a, b)[which].dtype, np.ascontiguousarray(np.moveaxis(stacked, 0, node.axis)))


def _own_function(single: Callable[..., Value]) -> Callable[..., Value]:
    def run(node: Op, a: Value, b: Value | None = None) -> Value:
        require(b is not None or node.combine not in COMBINE_PAIRS, f"{node.combine} of single elements")
        return single(node, a, node.combine) if b is None else _pairs(node, a, b)

    return run


def _sum(node: Op, a: Value) -> Value:
    return _reduced(node, converted(a, widened(a.dtype, unsigned=True)), "add")


def _extreme(combine: str) -> Callable[..., Value]:
    def run(node: Op, a: Value) -> Value:
        require(a.dtype != "bfloat16", f"{node.op} of {a.dtype}")
        wide = "float32" if a.dtype == "float16" else widened(a.dtype, unsigned=False)
        return _reduced(node, converted(a, wide), combine)

    return run


def _by_bits(combine: str) -> Callable[..., Value]:
    def run(node: Op, a: Value) -> Value:
        require(is_integer(a) or a.dtype == "bool", f"{node.op} of {a.dtype}")
        return _reduced(node, a, combine)

    return run


def _arg(find: Callable[..., Any]) -> Callable[..., Value]:
    """Return what finds the first index of an extreme element."""

    def run(node: Op, a: Value) -> Value:
        require(0 <= node.axis < len(a.shape), f"{node.op} along {node.axis} of {a.shape}")
        found = find(a.data, axis=node.axis, keepdims=node.flag)
        return value("int32", np.asarray(found).astype(np.int32))

    return run


def _scanned(node: Op, a: Value, combine: str) -> Value:
    require(0 <= node.axis < len(a.shape), f"axis {node.axis} of {a.shape}")
    _checked(node, a, combine)
    moved = np.moveaxis(a.data, node.axis, 0)
    moved = moved[::-1] if node.flag else moved
    results = [moved[0]]
    for one in moved[1:]:
        results.append(COMBINE[combine](results[-1], one))
    stacked = np.stack(results[::-1] if node.flag else results)
    return value(a.dtype, np.ascontiguousarray(np.moveaxis(stacked, 0, node.axis)))


def _cumsum(node: Op, a: Value) -> Value:
    require(a.dtype != "bfloat16", f"cumsum of {a.dtype}")
    return _scanned(node, converted(a, widened(a.dtype, unsigned=True)), "add")


def _cumprod(node: Op, a: Value) -> Value:
    require(is_integer(a) and widened(a.dtype, unsigned=True) == a.dtype, f"cumprod of {a.dtype}: releases differ")
    return _scanned(node, a, "mul")


def _sort(node: Op, a: Value) -> Value:
    require(a.shape and a.dtype != "bool", f"sort of {a.dtype}")
    ascending = np.sort(a.data, axis=-1)
    return value(a.dtype, ascending[..., ::-1].copy() if node.flag else ascending)


def _topk(node: Op, a: Value) -> Value:
    require(a.shape and a.dtype != "bool", f"topk of {a.dtype}")
    k = node.value
    require(isinstance(k, int) and 1 <= k <= a.shape[-1] and k & (k - 1) == 0, f"topk({k}) of {a.shape}")
    return value(a.dtype, np.sort(a.data, axis=-1)[..., ::-1][..., : int(k)].copy())


def _histogram(node: Op, a: Value, mask: Value | None = None) -> Value:
    bins = node.value
    require(isinstance(bins, int) and 1 <= bins <= 256 and bins & (bins - 1) == 0, f"{bins} bins")
    require(a.dtype in {"int32", "uint32"} and len(a.shape) == 1, f"histogram of {a.dtype} {a.shape}")
    require(mask is None or (mask.dtype == "bool" and mask.shape in {(), (1,), a.shape}), "a mask of a histogram")
    counted = a.data if mask is None else a.data[np.broadcast_to(mask.data, a.shape)]
    require(((a.data >= 0) & (a.data < bins)).all(), "histogram of an element without a bin")
    return value("int32", np.bincount(counted, minlength=int(bins)).astype(np.int32))


def _dot(node: Op, a: Value, b: Value, c: Value) -> Value:
    """Return `a @ b + c`; with TF32, elements must have at most 11 significant bits.

    Instructions for integers saturate (`.satfinite`), and so does a partial sum of theirs.
    """
    dtype = same(a, b)
    wide = {"int8": "int32", "float16": "float32", "bfloat16": "float32", "float32": "float32"}
    require(dtype in wide and c.dtype == wide[dtype], f"dot of {dtype}, added to {c.dtype}")
    require(len(a.shape) == len(b.shape) and len(a.shape) in {2, 3}, f"dot of {a.shape} and {b.shape}")
    fits = a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2] and c.shape == (*a.shape[:-1], b.shape[-1])
    require(fits and min(*a.shape[-2:], *b.shape[-2:]) >= 16, f"dot of {a.shape} and {b.shape}")
    require(dtype != "int8" or a.shape[-1] >= 32, "dot of int8 along fewer than 32 elements")
    if dtype == "int8":
        partial = np.abs(a.data.astype(np.int64)) @ np.abs(b.data.astype(np.int64)) + np.abs(c.data.astype(np.int64))
        require((partial < 1 << 31).all(), "a product of int8 that may leave int32")
        return value("int32", a.data.astype(np.int32) @ b.data.astype(np.int32) + c.data)
    for one in (a, b):
        require((np.abs(one.data) <= 16).all(), "a factor that may be rounded in TF32")
    exact(np.abs(a.data) @ np.abs(b.data) + np.abs(c.data), "float32")
    products = a.data[..., :, :, None] * b.data[..., None, :, :]
    exact(products, "float32")
    return value("float32", a.data @ b.data + c.data)


def _axis_text(node: Op) -> str:
    return f"axis={node.constant or (None if node.axis < 0 else node.axis)}"


def _reduction(name: str) -> Callable[[Op], str]:
    kept = ", keep_dims=True"
    return lambda node: f"tl.{name}({node.args[0]}, {_axis_text(node)}{kept if node.flag else ''})"


def _scan(name: str) -> Callable[[Op], str]:
    return lambda node: f"tl.{name}({node.args[0]}, {_axis_text(node)}{', reverse=True' if node.flag else ''})"


def _own(name: str, option: str) -> Callable[[Op], str]:
    """Return what writes an operation with a function of the program's own."""
    kept = f", {option}=True"

    def text(node: Op) -> str:
        operands, which = node.args[0], ""
        if len(node.args) > 1:
            operands, which = f"({', '.join(node.args)})", f"[{node.value}]"
        return f"tl.{name}({operands}, {_axis_text(node)}, combine_fn={node.combine}_{kept if node.flag else ''}){which}"

    return text


def _sort_text(node: Op) -> str:
    return f"tl.sort({node.args[0]}{', descending=True' if node.flag else ''})"


def _histogram_text(node: Op) -> str:
    masked = f", mask={node.args[1]}" if len(node.args) > 1 else ""
    return f"tl.histogram({node.args[0]}, {node.value}{masked})"


def _dot_text(node: Op) -> str:
    a, b, c = node.args
    precision = "tf32" if node.flag else "ieee"
    return f'tl.dot({a}, {b}, {c}, input_precision="{precision}", out_dtype={c}.dtype)'


REDUCTIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "sum": Operation(_sum, _reduction("sum")),
        "max": Operation(_extreme("max"), _reduction("max")),
        "min": Operation(_extreme("min"), _reduction("min")),
        "xor_sum": Operation(_by_bits("xor"), _reduction("xor_sum")),
        "reduce_or": Operation(_by_bits("or"), _reduction("reduce_or")),
        "argmax": Operation(_arg(np.argmax), _reduction("argmax")),
        "argmin": Operation(_arg(np.argmin), _reduction("argmin")),
        "reduce": Operation(_own_function(_reduced), _own("reduce", "keep_dims")),
        "cumsum": Operation(_cumsum, _scan("cumsum")),
        "cumprod": Operation(_cumprod, _scan("cumprod")),
        "associative_scan": Operation(_own_function(_scanned), _own("associative_scan", "reverse")),
        "sort": Operation(_sort, _sort_text),
        "topk": Operation(_topk, lambda node: f"tl.topk({node.args[0]}, {node.value})"),
        "histogram": Operation(_histogram, _histogram_text),
        "dot": Operation(_dot, _dot_text),
    }
)
