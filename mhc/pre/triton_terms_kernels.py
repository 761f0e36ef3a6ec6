"""float32 on bfloat16 tensor cores: a number as a sum of bfloat16 terms, for the compiler and the interpreter alike."""

import triton
import triton.language as tl

BF16_MAX = tl.constexpr(3.3895313892515355e38)
# The interpreter's casts between bfloat16 and float32 truncate and lose subnormals, and its dot reads bfloat16 as
# integers.
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


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
def terms(v, TERMS: tl.constexpr):
    """v as a sum of TERMS bfloat16 numbers (three of them are float32); 0 where v is not finite."""
    v = tl.where(finite(v), v, 0.0)
    parts = ()
    for _ in tl.static_range(TERMS):
        term = narrow(tl.minimum(tl.maximum(v, -BF16_MAX), BF16_MAX), tl.bfloat16)
        v = v - widen(term, tl.float32)
        parts = parts + (term,)
    return parts


@triton.jit
def head(v, term):
    """The first term of v, NaN and infinity kept."""
    return tl.where(finite(v), term, narrow(v, tl.bfloat16))


@triton.jit
def dot(a, b, acc):
    """acc + a @ b; by multiplication and sum where the tensor cores have no such type."""
    if a.dtype == tl.float64:
        return acc + tl.sum(a[:, :, None] * b[None, :, :], axis=1)
    elif INTERPRETED:
        return tl.dot(widen(a, tl.float32), widen(b, tl.float32), acc)
    else:
        return tl.dot(a, b, acc)
