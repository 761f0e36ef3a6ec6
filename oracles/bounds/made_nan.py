"""Whether nothing is promised of what an order of NaN decides: of `x > 0` and `not x <= 0` one holds for it.

In a forward it is so where the reference makes the NaN: inf - inf may be infinity in another order of evaluation.
A NaN that is given must be propagated. A gradient has either side of the choice.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_open = False
_found = 0


def without_order(*sides: Any) -> Tensor | None:
    """Return where comparisons of two sides are open; None where none is."""
    global _found  # noqa: PLW0603
    if not _open:
        return None
    first, second = (torch.as_tensor(one).isnan() for one in sides)
    at = first | second
    if not bool(at.any()):
        return None
    _found += 1
    return at


def found() -> int:
    """Return how often comparisons were open so far in this process."""
    return _found


def all_made(given: Sequence[Tensor | None]) -> bool:
    """Return whether each NaN of a forward is made: none is given."""
    return not any(one is not None and one.dtype.is_floating_point and bool(one.isnan().any()) for one in given)


@contextmanager
def opened(now: bool) -> Iterator[None]:
    """Have comparisons of NaN be open within the block, or have none be."""
    global _open  # noqa: PLW0603
    before, _open = _open, now
    try:
        yield
    finally:
        _open = before
