"""float32 on bfloat16 tensor cores, for the TileLang kernels.

A float32 v is the exact sum

    v = v0 + v1 / 2**8 + v2 / 2**16        v0, v1, v2 bfloat16, each rounded to nearest

and a product keeps the terms of order 0, 1 and 2 (the rest is below 2**-23 of it). With the factors 2**8 the smallest
float32, 2**-149, is as exact as any: bfloat16 ends at 2**-133.
bfloat16 x is its own v0, float16 x ends at v1. Where orders meet in one sum, order 0 alone decides the class of a
non-finite result: 0 * inf and inf - inf between lower terms would make NaN of an infinity.

Two terms leave 2**-16 sum|a||b| of a sum of products, which a sum of TWO_TERMS_FROM = ceil((2**8 / 6)**2) products may.
"""

import tilelang.language as T

BF16_MAX = 3.3895313892515355e38
ORDER_1 = 2.0**-8  # and of order 2: its square
# Terms of x that are not zero.
X_TERMS = {"bfloat16": 1, "float16": 2}


def products(x_terms: int, terms: int) -> list[tuple[int, int]]:
    """(term of x, term of w) of every product whose order is kept."""
    return [(i, j) for i in range(x_terms) for j in range(terms) if i + j < terms]


def emit(calls: list) -> None:
    """Makes statements of calls: the body of a prim_func has no loop over Python's lists."""
    for call in calls:
        T.evaluate(call)


@T.macro
def finite(v):
    """Neither NaN nor infinite."""
    return T.abs(v) < T.infinity("float32")


@T.macro
def nearest(v):
    """A finite float32 as bfloat16; what rounding would take to infinity stays the largest bfloat16."""
    return T.cast(T.min(T.max(v, T.float32(-BF16_MAX)), T.float32(BF16_MAX)), "bfloat16")


@T.macro
def first_term(v):
    """v0; infinities and NaN are in it, and in no other term."""
    clamped = T.min(T.max(v, T.float32(-BF16_MAX)), T.float32(BF16_MAX))
    return T.cast(T.if_then_else(T.abs(v) < T.infinity("float32"), clamped, v), "bfloat16")


@T.macro
def remainder(v, term):
    """(v - term) * 2**8, which the next term rounds; 0 behind infinities and NaN."""
    return T.if_then_else(T.abs(v) < T.infinity("float32"), (v - T.cast(term, "float32")) * T.float32(256.0), T.float32(0.0))


@T.macro
def with_lower(high, low):
    """high + low, the lower orders counted where they are finite."""
    return high + T.if_then_else(T.abs(low) < T.infinity("float32"), low, T.float32(0.0))


@T.macro
def next_remainder(rest):
    """What the second term leaves of `remainder`'s result, times 2**8 again."""
    return (rest - T.cast(nearest(rest), "float32")) * T.float32(256.0)
