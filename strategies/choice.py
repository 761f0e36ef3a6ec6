"""Choices out of a tuple that is the same for every case, made once: Hypothesis inspects each strategy that is made."""

from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@cache
def choice(options: tuple[T, ...]) -> st.SearchStrategy[T]:
    """One of `options`, simplest first."""
    return st.sampled_from(options)
