"""Booleans of a comparison of error-carrying numbers, and integers that follow from an order of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """Booleans, and where rounding may decide otherwise: there an implementation may hold either; of integers, any."""

    value: Tensor
    unsure: Tensor
    dtype: torch.dtype = torch.bool
    made: ClassVar[int] = 0
    """How many were made so far in this process."""

    def __post_init__(self) -> None:
        Mask.made += 1

    @property
    def error(self) -> Tensor:
        """Return how far what is held may be off: 1 of a boolean, anything of an integer."""
        return torch.where(self.unsure, 1.0 if self.dtype == torch.bool else torch.inf, 0.0).double()

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Return the mask with `move` applied to both parts."""
        return type(self)(move(self.value), move(self.unsure), self.dtype)
