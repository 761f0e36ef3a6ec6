"""Philox, the generator of `tl.randint` (Salmon et al., Parallel random numbers: as easy as 1, 2, 3); rounded quotients."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from msgspec.structs import replace

from mhc.programs.grammar import INTEGERS, bits_of, range_of
from mhc.programs.triton.grammar import Op
from mhc.programs.triton.operation import Operation, operands_text
from mhc.programs.triton.values import Array, Value, require, same, value

_ROUNDS = 10
_FACTORS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
_STEPS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}


def philox(counters: Sequence[Array], keys: tuple[int, int], bits: int, rounds: int = _ROUNDS) -> list[Array]:
    """Return four blocks of random unsigned integers of 32 or 64 bits."""
    mask = (1 << bits) - 1
    wide = np.dtype(np.uint64) if bits == 32 else np.dtype(object)  # which holds a product
    a, b, c, d = (one.astype(f"uint{bits}").astype(wide) for one in counters)
    key, other = keys
    for _ in range(rounds):
        first, second = a * _FACTORS[bits][0], c * _FACTORS[bits][1]
        a, b, c, d = (second >> bits) ^ b ^ key, second & mask, (first >> bits) ^ d ^ other, first & mask
        key, other = (key + _STEPS[bits][0]) & mask, (other + _STEPS[bits][1]) & mask
    return [np.asarray(one).astype(f"uint{bits}") for one in (a, b, c, d)]


def _which(node: Op, seed: Value) -> tuple[int, int, int]:
    """Return which of the results is taken, the rounds, and the seed as a number without a sign."""
    require(node.value in {0, 1, 2, 3} and node.axis >= 0, f"result {node.value} of {node.op}")
    require(seed.dtype in INTEGERS and not seed.shape, f"a seed of {seed.dtype}")
    return int(node.value), node.axis or _ROUNDS, int(seed.data) % 2**64


def _randint(node: Op, seed: Value, offset: Value) -> Value:
    which, rounds, number = _which(node, seed)
    require(node.op == "randint4x" or not which, "a further result of randint")
    require(offset.dtype in INTEGERS, f"an offset of {offset.dtype}")
    low = offset.data.astype(np.uint32)
    high = (offset.data >> 32).astype(np.uint32) if bits_of(offset.dtype) > 32 else np.zeros_like(low)
    zero = np.zeros_like(low)
    return value("uint32", philox((low, high, zero, zero), (number % 2**32, number >> 32), 32, rounds)[which])


def _philox(node: Op, seed: Value, a: Value, b: Value, c: Value, d: Value) -> Value:
    which, rounds, number = _which(node, seed)
    dtype = same(a, b, c, d)
    require(dtype in INTEGERS and bits_of(dtype) >= 32 and a.shape, f"philox of {dtype} {a.shape}")
    require(a.shape == b.shape == c.shape == d.shape, "philox of several shapes")
    size = bits_of(dtype)
    keys = (number % 2**32, number >> 32) if size == 32 else (number, 0)
    return value(f"uint{size}", philox([one.data for one in (a, b, c, d)], keys, size, rounds)[which])


def _cdiv(node: Op, *operands: Value) -> Value:
    """Return quotients rounded up, of numbers that are not negative: Triton adds the divisor to the dividend first."""
    if node.flag:
        require(len(operands) == 1 and operands[0].dtype in INTEGERS and isinstance(node.value, int), "a number of cdiv")
        least, most = range_of(operands[0].dtype)
        require(least <= node.value <= most, f"{node.value} is no {operands[0].dtype}")
        number = value(operands[0].dtype, np.asarray(node.value, dtype=operands[0].dtype))
        return _cdiv(replace(node, flag=False), *((number, *operands) if node.axis else (*operands, number)))
    require(len(operands) == 2, "cdiv")
    a, b = operands
    dtype = same(a, b)
    require(dtype in INTEGERS and (a.shape == b.shape or not a.shape or not b.shape), f"cdiv of {dtype} {a.shape} {b.shape}")
    one, two = a.data.astype(object), b.data.astype(object)
    require(np.all(one >= 0) and np.all(two > 0) and np.all(one + two <= range_of(dtype)[1]), "cdiv of these numbers")
    return value(dtype, np.asarray((one + two - 1) // two, dtype=object).astype(dtype))


def _random_text(name: str) -> Callable[[Op], str]:
    """Return what writes the operation; its documentation says int32, where the releases give uint32."""

    def text(node: Op) -> str:
        rounds = f", n_rounds={node.axis}" if node.axis else ""
        which = "" if name == "randint" else f"[{node.value}]"
        cast = "" if name == "philox" else ".to(tl.uint32, bitcast=True)"
        return f"tl.{name}({', '.join(node.args)}{rounds}){which}{cast}"

    return text


NUMBERS: Mapping[str, Operation] = MappingProxyType(
    {
        "cdiv": Operation(_cdiv, lambda node: f"tl.cdiv({', '.join(operands_text(node))})"),
        "randint": Operation(_randint, _random_text("randint")),
        "randint4x": Operation(_randint, _random_text("randint4x")),
        "philox": Operation(_philox, _random_text("philox")),
    }
)
