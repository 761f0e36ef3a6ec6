"""float32 rows on float16 tensor cores, for the TileLang kernels: of a product of two float32 three of float16.

A row of float32 (a token's dh_mix, a column of phi * gamma) is multiplied by a power of two that takes its largest element
into [2**14, 2**15), and each element becomes

    v = h + l / 2**11        h, l float16, each rounded to nearest, off by at most 2**-23 |v|, or 2**-36

A product keeps hh, and hl and lh in an accumulator of their own. Where float16 has no room, the marks of the two rows say:

    ODD      the largest is not in [2**-60, 2**58), so that the factor or a product might overflow; or NaN
    SPREAD   an element is not 0 and below 2**-28 of the largest
    THIN     an element is below 2**-20 of the largest, or 0
    SPARSE   half of the elements or more are below 2**-10 of the largest, or 0

`mhc.operators.mhc_pre.triton.kernels.fp16_split` says why a product is right where `in_doubt` is false.
"""

import tilelang.language as T

ODD, SPREAD, THIN, SPARSE = 1, 2, 4, 8
ORDER = 2.0**-11
LARGE = 2.0**-10  # of the largest


# Plain functions, which give expressions.
def size_of(v):
    """|v|, and infinity of NaN."""
    return T.if_then_else(T.abs(v) <= T.infinity("float32"), T.abs(v), T.infinity("float32"))


def fits(top):
    """Whether a row whose largest size is `top` has a factor."""
    return T.And(top >= 2.0**-60, top < 2.0**58)


def _exponent(top):
    return T.reinterpret(T.if_then_else(fits(top), top, T.float32(1)), "int32") >> 23


def factor_of(top):
    """What a row is multiplied by; 0 where it is ODD or all 0."""
    return T.if_then_else(fits(top), T.reinterpret((268 - _exponent(top)) << 23, "float32"), T.float32(0))


def back_of(top):
    """What takes the factor back."""
    return T.reinterpret((_exponent(top) - 14) << 23, "float32")


def marks_of(sizes, many):
    """A row's marks. sizes: of all its elements (`measure`); many: more than half are large."""
    top, least, some = sizes[0], sizes[1], sizes[2]
    mark = (
        T.if_then_else(some < top * 2.0**-28, SPREAD, 0)
        + T.if_then_else(least < top * 2.0**-20, THIN, 0)
        + T.if_then_else(many, 0, SPARSE)
    )
    return T.if_then_else(fits(top), mark, T.if_then_else(top == 0, 0, ODD))


def in_doubt(a, b):
    """Whether the product of rows with these marks has to be made otherwise."""
    lost = ((a & SPREAD) * (THIN // SPREAD) & b & THIN) | ((b & SPREAD) * (THIN // SPREAD) & a & THIN)
    return T.Or(((a | b) & ODD) > 0, T.And(lost > 0, ((a | b) & SPARSE) > 0))


@T.macro
def combine(sizes, top, least, some):
    """sizes of what they are of and of what the others are of."""
    sizes[0] = T.max(sizes[0], top)
    sizes[1] = T.min(sizes[1], least)
    sizes[2] = T.min(sizes[2], some)


@T.macro
def measure(sizes, v):
    """sizes = largest size, smallest, and smallest that is not 0, of what they are of and v."""
    size = T.alloc_var("float32")
    size = size_of(v)
    combine(sizes, size, size, T.if_then_else(size > 0, size, T.infinity("float32")))


@T.macro
def nothing_measured(sizes):
    """sizes of no element."""
    sizes[0] = 0.0
    sizes[1] = T.infinity("float32")
    sizes[2] = T.infinity("float32")


@T.macro
def split(v, terms):
    """terms = h, l of a scaled float32."""
    terms[0] = T.cast(v, "float16")
    terms[1] = T.cast((v - T.cast(terms[0], "float32")) * 2048.0, "float16")
