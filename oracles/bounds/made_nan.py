"""Whether nothing is promised of what an order of NaN decides: of `x > 0` and `not x <= 0` one holds for it.

In a forward it is so where the reference makes the NaN: inf - inf may be infinity in another order of evaluation.
A NaN that is given must be propagated. A gradient has either side of the choice.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

_open = False


def is_open() -> bool:
    """Return whether comparisons of NaN are open."""
    return _open


def all_made(given: Sequence[Tensor | None]) -> bool:
    """Return whether each NaN of a forward is made: none is given."""
    return not any(one is not None and one.dtype.is_floating_point and bool(one.isnan().any()) for one in given)


@contextmanager
def opened(*, made: bool = True) -> Iterator[None]:
    """Have comparisons of NaN be open within the block.

    Args:
        made: each NaN is made of other numbers.
    """
    global _open  # noqa: PLW0603
    before, _open = _open, made
    try:
        yield
    finally:
        _open = before
