"""Implementations in eager PyTorch, whose backward is autograd's."""

from collections.abc import Callable
from typing import Any

from mhc.implementation import Implementation
from mhc.operator import STORAGE_DTYPES, Operator


def eager(
    operator: Operator,
    name: str = "golden",
    function: Callable[..., Any] | None = None,
    dtypes: tuple[str, ...] = tuple(STORAGE_DTYPES),
) -> Implementation:
    """Return the implementation `OPERATOR.NAME` of an operator by a function; without one, by its own reference."""
    return Implementation(
        name=f"{operator.name}.{name}",
        operator=operator,
        function=function or operator.function,
        devices=("cpu", "cuda"),
        dtypes=dtypes,
    )
