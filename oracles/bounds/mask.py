"""Booleans of a comparison of error-carrying numbers, and integers that follow from an order of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

EXACT = 2**53
"""Integers up to this magnitude are numbers of float64."""


@dataclass(frozen=True)
class Mask:
    """Booleans, and where rounding may decide otherwise: there an implementation may hold either; of integers, any.

    Of integers `spread` may say how far they may be off, so that 8 + a boolean is 8 or 9: None is as far as they may be.
    """

    value: Tensor
    unsure: Tensor
    dtype: torch.dtype = torch.bool
    spread: Tensor | None = None
    made: ClassVar[int] = 0
    """How many were made so far in this process."""

    def __post_init__(self) -> None:
        Mask.made += 1

    @property
    def error(self) -> Tensor:
        """Return how far what is held may be off: 1 of a boolean, `spread` of an integer."""
        if self.spread is not None:
            return torch.where(self.unsure, self.spread, 0.0)
        return torch.where(self.unsure, 1.0 if self.dtype == torch.bool else torch.inf, 0.0).double()

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Return the mask with `move` applied to each part."""
        spread = None if self.spread is None else move(self.spread)
        return type(self)(move(self.value), move(self.unsure), self.dtype, spread)

    @classmethod
    def of_integers(cls, value: Tensor, error: Tensor) -> "Mask | Tensor":
        """Return integers that may be off by so much, by anything where they may leave their dtype; plain ones if by 0.

        Booleans may be the other one where there is an error.
        """
        error = error.expand(value.shape)
        if not bool((error > 0).any()):
            return value
        if value.dtype == torch.bool:
            return cls(value, error > 0)
        info, held = torch.iinfo(value.dtype), value.double()
        least, most = max(info.min, -EXACT), min(info.max, EXACT)
        fits = (held - error >= least) & (held + error <= most)
        return cls(value, error > 0, value.dtype, torch.where(fits | (error == 0), error, torch.inf))
