"""Maps of where a tensor is wrong: error / bound over its rows and columns, in at most 64 x 64 cells, as text.

The tensor is seen as a matrix: its last axis are the columns, all other axes together the rows. A cell is a block of
elements whose sides are powers of two, as those of most tiles are, so that the edges of tiles are edges of cells. Its
letter says the largest error / bound in it.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import pad

MOST = 64
"""Cells in a row and in a column."""
EDGES = (0.1, 1.0, 10.0, 100.0, 1e4, 1e8)
"""Between the letters of `SCALE`."""
SCALE = ".-12345"
"""Letters of cells by error / bound: at most 0.1, at most 1, ..., more than 1e8 (also where the bound is 0)."""
CLASS, NOT_JUDGED = "N", "?"
"""Letters of cells with NaN or an infinity where the reference has another class, and without a judged element."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Row = Annotated[str, Meta(pattern=r"\A[-.1-5N?]{1,64}\Z")]


@dataclass(frozen=True, kw_only=True)
class ErrorMap:
    """Where a tensor is wrong.

    Attributes:
        shape: of the tensor. cells: a letter for each block of elements, row by row.
        wrong: number of elements that fail. judged: number of elements with a finite bound.
        rows, columns: the first and the last with an element that fails.

    Raises:
        ValueError: the cells are not those of the shape, or no element fails inside of it.
    """

    shape: Annotated[tuple[Count, ...], Meta(max_length=16)]
    cells: Annotated[tuple[Row, ...], Meta(max_length=MOST)]
    wrong: Count
    judged: Count
    rows: tuple[Count, Count]
    columns: tuple[Count, Count]

    def __post_init__(self) -> None:
        height, width = self.matrix
        there = [math.ceil(height / block(height)), math.ceil(width / block(width))] if height * width else None
        if there != [len(self.cells), len(self.cells[0]) if self.cells else 0] or len(set(map(len, self.cells))) != 1:
            raise ValueError(f"cells do not fit the shape {list(self.shape)}")
        inside = all(0 <= a <= b < size for (a, b), size in ((self.rows, height), (self.columns, width)))
        if not inside or not 0 < self.wrong <= self.judged <= height * width:
            raise ValueError(f"wrong elements are not inside of the shape {list(self.shape)}")

    @property
    def matrix(self) -> tuple[int, int]:
        """Return the numbers of rows and columns of the tensor as a matrix."""
        return matrix(self.shape)


def matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the numbers of rows and columns of a tensor as a matrix."""
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def block(size: int) -> int:
    """Return how many rows or columns a cell has, of `size` of them."""
    return 1 << max(0, math.ceil(size / MOST) - 1).bit_length()


@torch.inference_mode()
def error_map(ratio: Tensor, wrong_class: Tensor | None = None) -> ErrorMap:
    """Return the map of a tensor with elements that fail.

    Args:
        ratio: |error| / bound of each element, negative where it is not judged; above 1 it fails.
        wrong_class: where an element fails since it is NaN or infinite and the reference is not, or the reverse.
    """
    shape = tuple(ratio.shape)
    ratio = ratio.reshape(matrix(shape))
    classes = torch.zeros_like(ratio, dtype=torch.bool) if wrong_class is None else wrong_class.reshape(ratio.shape)
    fails = (ratio > 1) | classes
    largest = _largest(ratio)
    levels = torch.bucketize(largest, torch.tensor(EDGES, dtype=ratio.dtype, device=ratio.device))
    levels = torch.where(largest < 0, len(SCALE), levels)
    levels = torch.where(_largest(classes.to(torch.uint8)) > 0, len(SCALE) + 1, levels)
    letters = SCALE + NOT_JUDGED + CLASS
    rows, columns = (fails.any(dim).nonzero().flatten() for dim in (1, 0))
    return ErrorMap(
        shape=shape,
        cells=tuple("".join(letters[level] for level in row) for row in levels.tolist()),
        wrong=int(fails.sum()),
        judged=int(((ratio >= 0) | classes).sum()),
        rows=(int(rows[0]), int(rows[-1])),
        columns=(int(columns[0]), int(columns[-1])),
    )


def difference_map(wrong: Tensor) -> ErrorMap:
    """Return the map of a tensor whose elements must be equal to others, and are not where `wrong`."""
    return error_map(torch.where(wrong, torch.inf, 0.0))


def _largest(values: Tensor) -> Tensor:
    """Return the largest of each block; the last blocks may be smaller."""
    height, width = (block(size) for size in values.shape)
    below, right = -values.shape[0] % height, -values.shape[1] % width
    if below or right:
        values = pad(values, (0, right, 0, below), value=-1 if values.is_floating_point() else 0)
    rows, columns = values.shape[0] // height, values.shape[1] // width
    return values.reshape(rows, height, columns, width).amax((1, 3))
