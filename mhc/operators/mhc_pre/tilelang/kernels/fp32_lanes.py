"""How the warps of the TileLang kernels for float32 x move 128 columns of a row: four a lane.

V elements at once, 4 where rows are multiples of 16 bytes, else 1. A row is given by the place `at` of its first column in a
tensor of `size` elements; columns from the columns-th on are beside it.
"""

import tilelang.language as T

COLUMNS = 128


def column_of(lane, c, V):
    """The c-th of a lane's columns: neighbours where four are loaded at once, else such that lanes load side by side."""
    return lane * 4 + c if V == 4 else c * 32 + lane


@T.macro
def copy_row(tile, slot, r, source, size, at, lane, columns, there, V):
    """tile[slot, r, :] = a row, by a warp, on its way; zeros beside it, and where not `there`."""
    for v in T.unroll(4 // V):
        T.ptx_cp_async(
            T.access_ptr(tile[slot, r, column_of(lane, v, V)], "w", V),
            T.access_ptr(T.Tensor((size,), "float32", source.data)[at + column_of(lane, v, V)], "r", V),
            4 * V,
            there and (column_of(lane, v, V) < columns),
        )


@T.macro
def store_4(to, size, at, lane, columns, values, first, words, V):
    """A lane's four columns of a row = values[first .. first + 4]; words [4] of uint32 is scratch."""
    if V == 4:
        if lane * 4 < columns:
            for c in T.unroll(4):
                words[c] = T.reinterpret(values[first + c], "uint32")
            # an assignment of four elements nvcc takes apart again
            T.stg128(T.Tensor((size // 4, 4), "uint32", to.data)[at // 4 + lane, 0:4], words[T.Ramp(0, 1, 4)])
    else:
        for c in T.unroll(4):
            if column_of(lane, c, V) < columns:
                T.Tensor((size,), "float32", to.data)[at + column_of(lane, c, V)] = values[first + c]


@T.macro
def take_4(values, first, source, size, at, lane, columns, V):
    """values[first .. first + 4] = a lane's four columns of a row; what is beside it stays as it was."""
    place = T.alloc_var("int64")  # by itself: an int64 in a vector's index is taken for a vector
    for v in T.unroll(4 // V):
        if column_of(lane, v, V) < columns:
            place = (at + column_of(lane, v, V)) // V
            for e in T.vectorized(V):
                values[first + v * V + e] = T.Tensor((size // V, V), "float32", source.data)[place, e]
