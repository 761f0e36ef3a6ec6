"""Operations on elements: what they compute, and their text."""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec.structs import replace

from mhc.programs.grammar import SIGNED, UNSIGNED, bits_of, range_of
from mhc.programs.triton.grammar import FLOATS, Op, argument
from mhc.programs.triton.operation import Operation, dtype_text, infix, operands_text
from mhc.programs.triton.values import Array, Value, bits, converted, require, same, value


def _pair(a: Value, b: Value) -> str:
    """Return the dtype of two operands that broadcast."""
    if a.shape != b.shape:
        try:
            np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            require(False, f"shapes {a.shape} and {b.shape}")
    return same(a, b)


@cache
def promoted(a: str, b: str) -> str:
    """Return the dtype in which operands of two dtypes are computed: the float, else the wider; of one size the unsigned.

    Of float16 and bfloat16 it is float16; a bool takes the other's dtype.
    """
    floats = [one for one in (a, b) if one in FLOATS]
    return max(floats or (a, b), key=lambda one: (one != "bool", bits_of(one), one in {*UNSIGNED, "float16"}))


def _promote(a: Value, b: Value) -> tuple[Value, Value]:
    """Return two operands that broadcast in one dtype."""
    if a.dtype != b.dtype:
        dtype = promoted(a.dtype, b.dtype)
        require(dtype != "bfloat16", "an integer and bfloat16: the documentation and the releases differ")
        a, b = converted(a, dtype), converted(b, dtype)
    _pair(a, b)
    return a, b


def _of_one_sign(node: Op, a: Value, b: Value) -> tuple[Value, Value]:
    """Return two integers in one dtype; both are signed, or both are unsigned."""
    alike = {a.dtype, b.dtype} <= {*SIGNED} or {a.dtype, b.dtype} <= {*UNSIGNED}
    require(alike, f"{node.op} of {a.dtype} and {b.dtype}")
    return _promote(a, b)


def _arithmetic(compute: Callable[[Array, Array], Array]) -> Callable[..., Value]:
    """Return an operation of integers, which wrap around, and of floats."""

    def run(node: Op, a: Value, b: Value) -> Value:
        a, b = _promote(a, b)
        require(a.dtype != "bool", f"{node.op} of bool")
        return value(a.dtype, compute(a.data, b.data))

    return run


def _extreme(compute: Callable[[Array, Array], Array]) -> Callable[..., Value]:
    def run(node: Op, a: Value, b: Value) -> Value:
        require("bfloat16" not in {a.dtype, b.dtype}, f"{node.op} of bfloat16: releases differ")
        return _arithmetic(compute)(node, a, b)

    return run


def _logic(compute: Callable[[Array, Array], Array]) -> Callable[..., Value]:
    def run(node: Op, a: Value, b: Value) -> Value:
        require(not {a.dtype, b.dtype} & {*FLOATS}, f"{node.op} of {a.dtype} and {b.dtype}")
        a, b = _promote(a, b)
        return value(a.dtype, compute(a.data, b.data))

    return run


def _compare(compute: Callable[[Array, Array], Array]) -> Callable[..., Value]:
    def run(node: Op, a: Value, b: Value) -> Value:
        a, b = _promote(a, b)
        return value("bool", compute(a.data, b.data))

    return run


def truncated(a: Array, b: Array) -> tuple[Array, Array]:
    """Return quotient and remainder as C computes them: the quotient is rounded toward 0."""
    quotient, remainder = np.floor_divide(a, b), np.remainder(a, b)
    off = (remainder != 0) & ((a < 0) != (b < 0))
    one = np.ones_like(quotient)
    return np.where(off, quotient + one, quotient), np.where(off, remainder - b, remainder)


def _division(which: int) -> Callable[..., Value]:
    def run(node: Op, a: Value, b: Value) -> Value:
        a, b = _of_one_sign(node, a, b)
        require((b.data != 0).all(), "a division by 0")
        if a.dtype in SIGNED:
            require(not ((a.data == range_of(a.dtype)[0]) & (b.data == -1)).any(), "the least integer divided by -1")
        return value(a.dtype, truncated(a.data, b.data)[which])

    return run


def _shift(compute: Callable[[Array, Array], Array]) -> Callable[..., Value]:
    def run(node: Op, a: Value, b: Value) -> Value:
        a, b = _of_one_sign(node, a, b)
        require(((b.data >= 0) & (b.data < bits_of(a.dtype))).all(), f"a shift of {a.dtype} by its size or more")
        return value(a.dtype, compute(a.data, b.data))

    return run


def _umulhi(node: Op, a: Value, b: Value) -> Value:
    """Return the high half of the product, of the operands' bits as unsigned numbers."""
    dtype = _pair(a, b)
    require(dtype in {"int32", "uint32", "int64", "uint64"}, f"umulhi of {dtype}")
    size = bits_of(dtype)
    unsigned = np.dtype(f"uint{size}")
    one, two = (x.data.astype(unsigned).astype(object) for x in (a, b))
    high = np.asarray((one * two) >> size, dtype=object).astype(unsigned)
    return value(dtype, high.astype(np.dtype(dtype)))


def _neg(node: Op, a: Value) -> Value:
    require(a.dtype != "bool", "neg of bool")
    return value(a.dtype, -a.data)


def _invert(node: Op, a: Value) -> Value:
    require(a.dtype not in FLOATS, f"invert of {a.dtype}")
    return value(a.dtype, ~a.data)


def _abs(node: Op, a: Value) -> Value:
    require(a.dtype != "bool", "abs of bool")
    if a.dtype in SIGNED:
        require((a.data != range_of(a.dtype)[0]).all(), "abs of the least integer")
    return value(a.dtype, np.abs(a.data))


def _rounded(compute: Callable[[Array], Array]) -> Callable[..., Value]:
    def run(node: Op, a: Value) -> Value:
        require(a.dtype in {"float32", "float64"}, f"{node.op} of {a.dtype}")
        return value(a.dtype, compute(a.data))

    return run


def _where(node: Op, condition: Value, *operands: Value) -> Value:
    require(condition.dtype == "bool", "a condition that is no bool")
    a, b = _promote(*_with_number(node, operands))
    for one in (a, b):
        _pair(condition, Value("bool", one.data))
    return value(a.dtype, np.where(condition.data, a.data, b.data))


def _fma(node: Op, a: Value, b: Value, c: Value) -> Value:
    dtype = same(a, b, c)
    require(dtype in {"float32", "float64"} and a.shape == b.shape == c.shape, "fma")
    value(dtype, a.data * b.data)
    return value(dtype, a.data * b.data + c.data)


def _clamp(node: Op, a: Value, least: Value, most: Value) -> Value:
    dtype = same(a, least, most)
    require(dtype in {*FLOATS} - {"bfloat16"} and a.shape == least.shape == most.shape, "clamp")
    require((least.data <= most.data).all(), "clamp between bounds in the wrong order")
    return value(dtype, np.minimum(np.maximum(a.data, least.data), most.data))


def _full(node: Op) -> Value:
    if node.dtype in FLOATS:
        return value(node.dtype, np.full(node.shape, float(node.value)))
    least, most = range_of(node.dtype)
    require(isinstance(node.value, int) and least <= node.value <= most, f"{node.value} is no {node.dtype}")
    require(not node.flag or node.dtype != "bool", "a bool as an argument")
    return value(node.dtype, np.full(node.shape, node.value, dtype=np.dtype(node.dtype)))


def _arange(node: Op) -> Value:
    require(len(node.shape) == 1 and isinstance(node.value, int) and 0 <= node.value <= 4096, "arange")
    return value("int32", np.arange(node.value, node.value + node.shape[0], dtype=np.int32))


def _full_text(node: Op) -> str:
    number: Any = node.value
    if node.dtype == "bool":
        number = bool(number)
    elif node.dtype in FLOATS:
        number = float(number)
    given = argument(node) if node.flag else node.constant or number
    return f"tl.full({list(node.shape)}, {given}, {dtype_text(node.dtype)})"


def _full_like(node: Op, a: Value) -> Value:
    return _full(replace(node, dtype=a.dtype, shape=a.shape))


def _full_like_text(node: Op) -> str:
    return f"tl.full({node.args[0]}.shape, {node.value}, {node.args[0]}.dtype)"


def _arange_text(node: Op) -> str:
    return f"tl.arange({node.value}, {node.constant or node.value + node.shape[0]})"


def _called(name: str) -> Callable[[Op], str]:
    return lambda node: f"{name}({', '.join(node.args)})"


def _cast_text(node: Op) -> str:
    return f"{node.args[0]}.to({dtype_text(node.dtype)})"


def _bitcast_text(node: Op) -> str:
    return f"{node.args[0]}.to({dtype_text(node.dtype)}, bitcast=True)"


def _with_number(node: Op, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return two operands, of which one may be a Python number: it takes the other's dtype."""
    if not node.flag:
        return operands
    require(len(operands) == 1 and operands[0].dtype != "bool", "a number beside these operands")
    number = _full(replace(node, dtype=operands[0].dtype, shape=()))
    return (number, *operands) if node.axis else (*operands, number)


def _where_text(node: Op) -> str:
    condition, *_ = node.args
    return f"tl.where({', '.join((condition, *operands_text(replace(node, args=node.args[1:]))))})"


def _between(compute: Callable[..., Value], sign: str) -> Operation:
    """Return an operation written between its operands, of which one may be a Python number."""

    def run(node: Op, *operands: Value) -> Value:
        return compute(node, *_with_number(node, operands))

    return Operation(run, infix(sign))


ELEMENTWISE: Mapping[str, Operation] = MappingProxyType(
    {
        "add": _between(_arithmetic(np.add), "+"),
        "sub": _between(_arithmetic(np.subtract), "-"),
        "mul": _between(_arithmetic(np.multiply), "*"),
        "minimum": Operation(_extreme(np.minimum), _called("tl.minimum")),
        "maximum": Operation(_extreme(np.maximum), _called("tl.maximum")),
        "floordiv": _between(_division(0), "//"),
        "mod": _between(_division(1), "%"),
        "and": _between(_logic(np.bitwise_and), "&"),
        "or": _between(_logic(np.bitwise_or), "|"),
        "xor": _between(_logic(np.bitwise_xor), "^"),
        "shl": _between(_shift(np.left_shift), "<<"),
        "shr": _between(_shift(np.right_shift), ">>"),
        "umulhi": Operation(_umulhi, _called("tl.umulhi")),
        "lt": _between(_compare(np.less), "<"),
        "le": _between(_compare(np.less_equal), "<="),
        "gt": _between(_compare(np.greater), ">"),
        "ge": _between(_compare(np.greater_equal), ">="),
        "eq": _between(_compare(np.equal), "=="),
        "ne": _between(_compare(np.not_equal), "!="),
        "neg": Operation(_neg, lambda node: f"-{node.args[0]}"),
        "invert": Operation(_invert, lambda node: f"~{node.args[0]}"),
        "abs": Operation(_abs, _called("tl.abs")),
        "floor": Operation(_rounded(np.floor), _called("tl.floor")),
        "ceil": Operation(_rounded(np.ceil), _called("tl.ceil")),
        "cast": Operation(lambda node, a: converted(a, node.dtype), _cast_text),
        "bitcast": Operation(lambda node, a: bits(a, node.dtype), _bitcast_text),
        "where": Operation(_where, _where_text),
        "fma": Operation(_fma, _called("tl.fma")),
        "clamp": Operation(_clamp, _called("tl.clamp")),
        "full": Operation(_full, _full_text),
        "full_like": Operation(_full_like, _full_like_text),
        "arange": Operation(_arange, _arange_text),
    }
)
