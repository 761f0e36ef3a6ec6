"""Booleans of a comparison of error-carrying numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """Booleans, and where rounding may decide otherwise: there an implementation may hold either."""

    value: Tensor
    unsure: Tensor
    dtype: torch.dtype = torch.bool
    made: ClassVar[int] = 0
    """How many were made so far in this process."""

    def __post_init__(self) -> None:
        Mask.made += 1

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Return the mask with `move` applied to both parts."""
        return type(self)(move(self.value), move(self.unsure))
