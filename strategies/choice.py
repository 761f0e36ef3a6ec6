"""Cached choices from constant tuples, since Hypothesis inspects each new strategy."""

from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@cache
def choice(options: tuple[T, ...]) -> st.SearchStrategy[T]:
    """Return the strategy that draws one of `options`, simplest first."""
    return st.sampled_from(options)
