"""Cached choices from constant tuples, since Hypothesis inspects each new strategy."""

from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def choice(options: tuple[T, ...]) -> st.SearchStrategy[T]:
    """Return the strategy that draws one of `options`, simplest first."""
    return _made(options, tuple(map(type, options)))


@cache
def _made(options: tuple[Any, ...], types: tuple[type, ...]) -> st.SearchStrategy[Any]:
    """Return the strategy; (1,), (1.0,) and (True,) are equal, and have one each by their types."""
    return st.sampled_from(options)
