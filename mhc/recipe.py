"""Recipe and layout of one tensor of a case: data only, materialised by `mhc.inputs`."""

from dataclasses import dataclass

Index = tuple[int, ...]

RECIPE_KINDS = (
    *("zero", "constant", "normal", "exact", "sign", "alternating"),
    *("row_scaled", "column_scaled", "cancelling", "sparse", "zero_rows", "offset", "masked"),
)

INTEGER_KINDS = (
    *("zero", "constant", "sentinel", "ascending", "consecutive", "row_constant"),
    *("prefix", "suffix", "blocks", "multiples", "repeated", "ends", "uniform"),
)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The positions of a tensor's elements in its storage.

    Attributes:
        order: the dimensions from slowest to fastest in memory; empty for the tensor's own order.
        step: stride of the fastest dimension, in elements; 2 is what `t[..., ::2]` gives.
        pad: unused elements between one row and the next, as in a slice of a wider tensor.
        gap: unused rows between one matrix and the next, as in `t[:, :-1]` of three dimensions.
        offset: elements of storage before the first one.
        expand: dimensions with stride 0, as in `Tensor.expand`; all indices along them share one value.
    """

    order: Index = ()
    step: int = 1
    pad: int = 0
    gap: int = 0
    offset: int = 0
    expand: Index = ()


CONTIGUOUS = Layout()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Values and layout of one tensor.

    The kinds, simplest first; u is pseudo-random, from the tensor's own random stream:

        zero           0
        constant       scale
        normal         scale * N(0, 1), as a sum of twelve uniforms: |value| <= 6*scale
        exact          scale * u, u in {0, +-1, +-1/2, +-1/4}: sums of products of these are exact
        sign           scale * u, u in {+-1}
        alternating    scale * (+1, -1, +1, ...) along the flattened tensor
        row_scaled     scale * 2^u * N(0, 1), one integer u in -12..12 for each row along the last dimension
        column_scaled  the same, one u for each index of the last dimension, shared by all rows
        cancelling     scale * (v, -v, v', -v', ...) along the flattened tensor, v from N(0, 1)
        sparse         scale * N(0, 1) for one element in eight, 0 for the others
        zero_rows      scale * N(0, 1) for every other row along the last dimension, at random; 0 for the others
        offset         scale * (1 + 2^-u N(0, 1)), one integer u in 3..10 for the tensor: a mean far above the deviation
        masked         scale * N(0, 1), but -infinity in a run at the beginning of each row along the last dimension, or at
                       the end of each: of any length, never all of the row

    Of a tensor of integers or booleans, with its range `least..end` and perhaps a sentinel:

        zero           least
        constant       end - 1
        sentinel       the sentinel
        ascending      least, least + 1, ... along each row, and from the beginning after end - 1
        consecutive    the same from one u for each row on; u is so small that the values do not reach the end, if it can be
        row_constant   one value u for each row
        prefix         in each row a run of any length at the beginning is the sentinel, without one least; then u, or
                       end - 1 where there are only two values
        suffix         the same from the end of each row
        blocks         values u, each for a run of elements of the flattened tensor, 8 to 256 on average; where there is a
                       sentinel, one run in three has it
        multiples      multiples of one power of 2 from 8 to 128, as far as the range has them
        repeated       values u, each for a run of elements of the flattened tensor, four on average
        ends           least or end - 1 at random
        uniform        u

    In `row_constant` and the last four, one element in eight is the sentinel where there is one. A tensor that is sorted has
    these values sorted in each row, and offsets have the least and the largest value of the range at its ends; one that is a
    permutation has the order that sorts them.

    `period` repeats the values and `rows` zeroes all but a few rows, so that the reference of a large case stays cheap
    (`mhc.condense`).

    Attributes:
        kind: one of `RECIPE_KINDS`, or for integers and booleans one of `INTEGER_KINDS`.
        seed: seed of the tensor's own random stream; tensors of one case never share a stream.
        scale: multiplies every value; 1 for integers and booleans.
        period: the flattened tensor repeats its first `period` elements; 0: no repetition.
        rows: about this many rows along the last dimension, at least two, keep their values: the first, the last, and
            random others; all other rows are 0. 0: all rows keep their values.
        literals: (index, value) pairs written last, in order, such as a NaN, an infinity or an outlier.
        layout: the memory layout.
    """

    kind: str = "normal"
    seed: int = 0
    scale: float = 1.0
    period: int = 0
    rows: int = 0
    literals: tuple[tuple[Index, float], ...] = ()
    layout: Layout = CONTIGUOUS
