"""Values of the evaluator: blocks of elements with a dtype of Triton. Floats are held as float64, and are exact."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mhc.programs.arithmetic import LARGEST, QUANTUM, Invalid
from mhc.programs.grammar import INTEGERS, UNSIGNED, bits_of, range_of
from mhc.programs.triton.grammar import FLOATS

Array = np.ndarray[Any, Any]

NUMPY: Mapping[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in INTEGERS},
    **{name: np.dtype("float64") for name in FLOATS},
    "bool": np.dtype("bool"),
}
"""What holds the elements of a dtype here."""
MEMORY: Mapping[str, np.dtype[Any]] = {name: np.dtype("float32" if name == "bfloat16" else name) for name in NUMPY}
"""What holds the elements of a buffer; NumPy has no bfloat16."""
_QUANTUM = {"bfloat16": 4, **QUANTUM}
_LARGEST = {"bfloat16": 64, **LARGEST}
LARGEST_BLOCK = 4096


@dataclass(frozen=True)
class Value:
    """A block of elements, or one element, of shape `()`."""

    dtype: str
    data: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)


@dataclass(frozen=True)
class Described(Value):
    """A descriptor of a buffer, which no operation takes: `data` has the sizes."""

    buffer: str
    block: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Pointed(Value):
    """Pointers to elements of a buffer, which no operation takes: `data` has the places. The dtype names the buffer."""


def value(dtype: str, data: Any) -> Value:
    """Return a block of a dtype.

    Raises:
        Invalid: a float is not exact, or the block is too large.
    """
    array = np.asarray(data)
    if array.size > LARGEST_BLOCK:
        raise Invalid(f"a block of {array.size} elements")
    if dtype in FLOATS:
        array = array.astype(np.float64)
        exact(array, dtype)
    assert array.dtype == NUMPY[dtype], f"{array.dtype} for {dtype}"
    return Value(dtype, array)


def exact(array: Array, dtype: str) -> None:
    """Require floats of which a few sum up exactly in any order.

    Raises:
        Invalid: one may be rounded in the dtype.
    """
    scaled = array * _QUANTUM[dtype]
    if not (np.abs(array) <= _LARGEST[dtype]).all() or (scaled != np.floor(scaled)).any():
        raise Invalid(f"a float that may be rounded in {dtype}")


def same(*values: Value) -> str:
    """Return the dtype that all have.

    Raises:
        Invalid: they have several.
    """
    dtypes = {one.dtype for one in values}
    if len(dtypes) > 1:
        raise Invalid(f"operands of {', '.join(sorted(dtypes))}")
    return values[0].dtype


def require(holds: Any, reason: str) -> None:
    """Refuse what has no one meaning.

    Raises:
        Invalid: with the reason, where it does not hold.
    """
    if not holds:
        raise Invalid(reason)


def converted(one: Value, dtype: str) -> Value:
    """Return a block in another dtype: integers wrap around, floats become integers toward 0, and floats the nearest.

    Raises:
        Invalid: a float is out of range, or a result is not exact.
    """
    if dtype == "bool":
        return Value("bool", one.data != 0)
    if one.dtype in FLOATS and dtype in INTEGERS:
        least, most = range_of(dtype)
        whole = np.trunc(one.data)
        require(((whole >= least) & (whole <= most)).all(), f"a float that is no {dtype}")
        return value(dtype, whole.astype(NUMPY[dtype]))
    return value(dtype, rounded(one.data, dtype) if one.dtype in FLOATS else one.data.astype(NUMPY[dtype]))


def rounded(array: Array, dtype: str) -> Array:
    """Return floats rounded to the nearest of a dtype, of two to the even one."""
    if dtype == "float16":
        return array.astype(np.float16).astype(np.float64)
    if dtype == "bfloat16":
        mantissa, exponent = np.frexp(array)
        return np.asarray(np.ldexp(np.rint(mantissa * 256), exponent - 8))
    return array


def bits(one: Value, dtype: str) -> Value:
    """Return the same bits in another dtype of the same size.

    Raises:
        Invalid: the sizes differ; a float is 0, whose sign nobody promises; or the bits are no exact float.
    """
    require("bool" not in {one.dtype, dtype} and bits_of(one.dtype) == bits_of(dtype), f"{one.dtype} as bits of {dtype}")
    require(one.dtype not in FLOATS or (one.data != 0).all(), "the bits of a float that is 0")
    raw = from_raw(to_raw(one.data, one.dtype), dtype)
    require(dtype not in FLOATS or np.isfinite(raw).all(), "bits of a float that is not finite")
    return value(dtype, raw.astype(NUMPY[dtype]))


def to_raw(array: Array, dtype: str) -> Array:
    """Return elements as they lie in memory; of bfloat16, the upper half of a float32."""
    elements = array.astype(MEMORY[dtype])
    return (elements.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else elements


def from_raw(raw: Array, dtype: str) -> Array:
    """Return the elements of a dtype that lie in memory as an array, whose dtype does not matter."""
    return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else raw.view(MEMORY[dtype])


def is_integer(one: Value) -> bool:
    """Return whether its elements are integers, and no bools."""
    return one.dtype in INTEGERS


def widened(dtype: str, *, unsigned: bool) -> str:
    """Return the dtype in which a reduction of small integers is computed.

    Args:
        unsigned: small unsigned integers, and bools, become uint32, as in a sum; they become int32 in `tl.max` and `tl.min`.
    """
    if dtype == "bool" or (dtype in INTEGERS and bits_of(dtype) < 32):
        return "uint32" if unsigned and dtype in {"bool", *UNSIGNED} else "int32"
    return dtype
