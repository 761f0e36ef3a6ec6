"""float32 on bfloat16 tensor cores, for the compiler and the interpreter alike.

A float32 v is the exact sum

    v = v0 + v1 / 2**8 + v2 / 2**16        v0, v1, v2 bfloat16, each rounded to nearest

and a product keeps the terms of order 0, 1 and 2 (the rest is below 2**-23 of it). With the factors 2**8 the smallest
float32, 2**-149, is as exact as any: bfloat16 ends at 2**-133.
bfloat16 x is its own v0, float16 x ends at v1. Where orders meet in one sum, order 0 alone decides the class of a
non-finite result: 0 * inf and inf - inf between lower terms would make NaN of an infinity.
"""

import triton
import triton.language as tl

BF16_MAX = tl.constexpr(3.3895313892515355e38)
ORDER_1 = tl.constexpr(2.0**-8)
ORDER_2 = tl.constexpr(2.0**-16)
# The interpreter's casts between bfloat16 and float32 truncate and lose subnormals, and its dot reads bfloat16 as
# integers.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def scalar(value, dtype: tl.constexpr):
    """A float argument in a tensor's dtype; Triton's interpreter hands it over as Python's float, which adapts."""
    if INTERPRETED:
        return value
    return value.to(dtype)


@triton.jit
def narrow(v, dtype: tl.constexpr):
    """v rounded to nearest, ties to even."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = v.to(tl.int32, bitcast=True)
        bits = tl.where(v == v, bits + 0x7FFF + ((bits >> 16) & 1), 0x7FC00000)
        return (bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    else:
        return v.to(dtype)


@triton.jit
def widen(v, dtype: tl.constexpr):
    """v in a wider type, exactly."""
    if INTERPRETED and v.dtype == tl.bfloat16:
        return (v.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return v.to(dtype)


@triton.jit
def finite(v):
    """Neither NaN nor infinite."""
    return tl.abs(v) < float("inf")


@triton.jit
def nearest(v):
    """float32 -> bfloat16; what rounding would take to infinity stays the largest bfloat16, and NaN is not kept."""
    return narrow(tl.minimum(tl.maximum(v, -BF16_MAX), BF16_MAX), tl.bfloat16)


@triton.jit
def split_bf16(v):
    """float32 -> (v0, v1, v2) bfloat16 with v = v0 + v1 / 2**8 + v2 / 2**16; infinities and NaN sit in v0 alone."""
    v0 = tl.where(finite(v), nearest(v), narrow(v, tl.bfloat16))
    rest = tl.where(finite(v), v - widen(v0, tl.float32), 0.0) * 256.0
    v1 = nearest(rest)
    return v0, v1, nearest((rest - widen(v1, tl.float32)) * 256.0)


@triton.jit
def unscaled(v1, v2):
    """v1 / 2**8 and v2 / 2**16 as bfloat16, which loses what is under 2**-133."""
    return narrow(widen(v1, tl.float32) * ORDER_1, tl.bfloat16), narrow(widen(v2, tl.float32) * ORDER_2, tl.bfloat16)


@triton.jit
def add_orders(acc0, acc1, acc2):
    """acc0 + acc1 / 2**8 + acc2 / 2**16, where the lower orders are finite."""
    small = acc1 * ORDER_1 + acc2 * ORDER_2
    return acc0 + tl.where(finite(small), small, 0.0)


@triton.jit
def two_bf16(v):
    """float16 values, widened: the first two terms of `split_bf16`, which are all, without its care for infinities.

    v1 of an infinity is NaN. For compiled kernels, in whose loops that care costs.
    """
    v0 = v.to(tl.bfloat16)
    return v0, ((v - v0.to(tl.float32)) * 256.0).to(tl.bfloat16)


@triton.jit
def dot(a, b, acc):
    """acc + a @ b; whole float64 and float32 without tensor cores, which have no such types."""
    if a.dtype == tl.float64:
        return acc + tl.sum(a[:, :, None] * b[None, :, :], axis=1)
    elif INTERPRETED:
        return tl.dot(widen(a, tl.float32), widen(b, tl.float32), acc)
    elif a.dtype == tl.float32:
        return tl.dot(a, b, acc, input_precision="ieee")
    else:
        return tl.dot(a, b, acc)
