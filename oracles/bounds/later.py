"""A tensor, or what belongs to one, that is computed when it is asked for, and once.

It may be computed of others of its kind, which hang together in chains as long as a function's loops: those are computed
first, one after the other.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Later(Generic[Result]):
    """What `make` returns for the results of `inside`, of which each may be None, and stays that."""

    __slots__ = ("_inside", "_make", "_result")

    def __init__(self, make: Callable[..., Result], *inside: "Callable[[], Any] | None") -> None:
        self._make: Callable[..., Result] | None = make
        self._inside = inside
        self._result: Result

    def __call__(self) -> Result:
        waiting: list[Later[Any]] = [self]
        while waiting:
            one = waiting[-1]
            before = [part for part in one._inside if isinstance(part, Later) and part._make is not None]
            if before:
                waiting += before
                continue
            waiting.pop()
            if one._make is not None:
                one._result = one._make(*(None if part is None else part() for part in one._inside))
                one._make, one._inside = None, ()  # nothing that went into it is kept
        return self._result
