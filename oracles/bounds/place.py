"""The place in a reference's code at which an operation is read, and that of what autograd derives from it."""

import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

_HERE = Path(__file__).parent
_TORCH = Path(torch.__file__).parent
_FORWARD: dict[int, Hashable] = {}
"""The places of the forward by the numbers of their nodes in autograd's graph."""
UNASKED = object()
found: Any = UNASKED
"""The place that was last asked for."""
_LOOK = object()
_known: Any = _LOOK
"""The place of an operation that is repeated without the reference's code; `UNASKED` where it needed none."""


def frame() -> FrameType | None:
    """Return the innermost frame of code that is neither PyTorch's nor of this package."""
    found: FrameType | None = sys._getframe(1)
    while found is not None and not _of_reference(found.f_code.co_filename):
        found = found.f_back
    return found


def here() -> Hashable:
    """Return the place of the operation that is being read; in a backward, that of the operation it is derived from."""
    global found  # noqa: PLW0603
    if _known is not _LOOK:
        assert _known is not UNASKED, "an operation that is repeated asks for its place, and did not before"
        return _known  # type: ignore[no-any-return]
    node: Any = torch._C._current_autograd_node()  # None outside of a backward
    if node is not None:
        found = _FORWARD.get(node._sequence_nr())
        return found  # type: ignore[no-any-return]
    code = frame()
    found = None if code is None else (code.f_code, code.f_lasti)
    if torch.is_grad_enabled():
        _FORWARD[torch._C._autograd._get_sequence_nr() - 1] = found
    return found  # type: ignore[no-any-return]


@contextmanager
def known() -> Iterator[Callable[[Any], None]]:
    """Let the operations of the block be at places that were found before: give that of each to what the block gets."""
    global _known  # noqa: PLW0603

    def at(place: Any) -> None:
        global _known  # noqa: PLW0603
        _known = place

    try:
        yield at
    finally:
        _known = _LOOK


def forget() -> None:
    """Forget the forward that was read."""
    _FORWARD.clear()


@cache
def _of_reference(file: str) -> bool:
    path = Path(file)
    return path.suffix == ".py" and _HERE not in path.parents and _TORCH not in path.parents
