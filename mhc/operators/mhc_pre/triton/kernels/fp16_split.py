"""float32 rows on float16 tensor cores, for the compiler and the interpreter alike.

A row of float32 (a token's dh_mix, a column of phi * gamma, or, in the resident forward, a part of a row of it) is
multiplied by a power of two that takes its largest element into [2**14, 2**15), and each element becomes

    v = h + l / 2**11        h, l float16, each rounded to nearest, off by at most 2**-23 |v|, or 2**-36

and a product keeps hh, and hl and lh in an accumulator of their own: off by at most 2**-21 |a| |b|, where bfloat16 takes six
products for 2**-23. Where that does not hold, what the marks of the two rows say, the product has to be made otherwise:

    ODD      the largest is not in [2**-60, 2**58), so that the factor or a product might overflow; or NaN
    SPREAD   an element is not 0 and below 2**-28 of the largest: 2**-36 is more than 2**-22 of it
    THIN     an element is below 2**-20 of the largest, or 0
    SPARSE   half of the elements or more are below 2**-10 of the largest, or 0

The products of small elements of a SPREAD row are off by at most 2**-50 of the product of both largest, each. Where the sum
of the absolute products is 2**-20 of that or more, this is 2**-30 of it for each, 2**-21.8 for the 288 of n = 16. And so it
is where the other row is not THIN, as the largest of the row meets 2**-20 of the other's at least; or where neither is
SPARSE, as then elements of 2**-10 meet.
"""

import triton
import triton.language as tl

from mhc.operators.mhc_pre.triton.kernels.bf16_split import widen

ODD, SPREAD, THIN, SPARSE = tl.constexpr(1), tl.constexpr(2), tl.constexpr(4), tl.constexpr(8)
ORDER = tl.constexpr(2.0**-11)
INFINITY = tl.constexpr(float("inf"))


@triton.jit
def absolute(v):
    """Of each element; NaN is infinite, compared apart since the interpreter warns of one in a maximum."""
    return tl.where(v == v, tl.abs(v), INFINITY)


@triton.jit
def sizes(v, on, axis: tl.constexpr):
    """Of the elements that are `on` the largest size, the smallest, and the smallest that is not 0."""
    size = absolute(v)
    top = tl.max(tl.where(on, size, 0.0), axis)
    return top, tl.min(tl.where(on, size, INFINITY), axis), tl.min(tl.where(on & (size > 0), size, INFINITY), axis)


@triton.jit
def large(v, on, top, axis: tl.constexpr):
    """How many elements that are `on` are 2**-10 of the largest or more, top [rows, 1] or [1, columns]."""
    return tl.sum(tl.where(on & (absolute(v) >= top * 2.0**-10), 1, 0), axis)


@triton.jit
def scale_fp16(top, least, some, many):
    """A row's factor (0 where it is ODD or all 0), the factor's reciprocal, and the row's marks.

    From its `sizes`, and whether more than half of its elements are `large`.
    """
    fits = (top >= 2.0**-60) & (top < 2.0**58)
    exponent = tl.where(fits, top, 1.0).to(tl.int32, bitcast=True) >> 23
    factor = tl.where(fits, ((268 - exponent) << 23).to(tl.float32, bitcast=True), 0.0)
    back = ((exponent - 14) << 23).to(tl.float32, bitcast=True)
    mark = tl.where(some < top * 2.0**-28, SPREAD, 0) + tl.where(least < top * 2.0**-20, THIN, 0) + tl.where(many, 0, SPARSE)
    return factor, back, tl.where(fits, mark, tl.where(top == 0, 0, ODD))


@triton.jit
def split_fp16(v):
    """A scaled float32 -> (h, l) float16 with v = h + l / 2**11."""
    h = v.to(tl.float16)
    return h, ((v - widen(h, tl.float32)) * 2048.0).to(tl.float16)


@triton.jit
def in_doubt(a, b):
    """Whether the product of rows with these marks has to be made otherwise."""
    lost = ((a & SPREAD) * 2 & (b & THIN)) | ((b & SPREAD) * 2 & (a & THIN))  # SPREAD * 2 is THIN
    return (((a | b) & ODD) > 0) | ((lost > 0) & (((a | b) & SPARSE) > 0))


@triton.jit
def together(marks):
    """The marks that any of a row of them has, [rows] of [rows, columns]."""
    return tl.max(marks & ODD, 1) + tl.max(marks & SPREAD, 1) + tl.max(marks & THIN, 1) + tl.max(marks & SPARSE, 1)
