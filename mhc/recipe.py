"""How one tensor of a case is made: a value recipe and a memory layout. Data only; `mhc.inputs` carries it out."""

from dataclasses import dataclass

Index = tuple[int, ...]

RECIPE_KINDS = (
    *("zero", "constant", "normal", "exact", "sign", "alternating"),
    *("row_scaled", "column_scaled", "cancelling", "sparse", "zero_rows"),
)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the elements of a tensor lie in its storage.

    Attributes:
        order: the dimensions from slowest to fastest in memory; empty means as they stand.
        step: stride of the fastest dimension, in elements; 2 is what `t[..., ::2]` gives.
        pad: elements between one row and the next, that no index reaches; a slice of a wider tensor.
        offset: elements of storage before the first one.
        expand: dimensions with stride 0, as `Tensor.expand` gives; all positions along them share their values.
    """

    order: Index = ()
    step: int = 1
    pad: int = 0
    offset: int = 0
    expand: Index = ()


CONTIGUOUS = Layout()


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Values and layout of one tensor.

    The kinds, simplest first; u is pseudo-random, from the tensor's own stream:

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

    Large tensors are thinned out, so that the reference stays cheap (`mhc.condense`): `period` repeats the values, `rows`
    leaves all but a few rows zero.

    Attributes:
        kind: one of `RECIPE_KINDS`.
        seed: of the tensor's own random stream; two tensors of one case never share a stream.
        scale: multiplies every value.
        period: the flattened tensor repeats its first so many elements; 0: it does not repeat.
        rows: about this many rows along the last dimension, two at least, keep their values: the first, the last, and others
            at random; all others are 0. 0: all rows keep theirs.
        literals: (index, value) pairs written last, in order; the place for a NaN, an infinity or one outlier.
        layout: where the elements lie.
    """

    kind: str = "normal"
    seed: int = 0
    scale: float = 1.0
    period: int = 0
    rows: int = 0
    literals: tuple[tuple[Index, float], ...] = ()
    layout: Layout = CONTIGUOUS
