"""One tensor of an operator, by its name, shape in symbols and dtype, and the values that a case may give it."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import torch

from mhc import expression
from mhc.recipe import INTEGER_KINDS, RECIPE_KINDS, Recipe

STORAGE_DTYPES: Mapping[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
}


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of parameters, sums and gates for a case of `dtype`: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Role(Enum):
    """What dtype a tensor has: one of a case's two floating-point dtypes, or one of its own."""

    STORAGE = "storage"  # the dtype of the case
    ACCUMULATE = "accumulate"  # float64 where the case is float64, else float32
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"


FIXED: Mapping[Role, torch.dtype] = {
    **{role: getattr(torch, role.value) for role in (Role.INT8, Role.UINT8, Role.INT16, Role.INT32, Role.INT64)},
    Role.BOOL: torch.bool,
}
Order = Literal["", "sorted", "offsets", "permutation"]


@dataclass(frozen=True)
class Values:
    """The values that an integer or boolean tensor may have; False is 0 and True is 1.

    Attributes:
        least, end: expressions (`mhc.expression`); a value is at least `least` and less than `end`.
        sentinel: one more value, such as the class of a target that does not count.
        order: along the last axis "sorted", "offsets" (sorted, the first the least and the last the largest value), or
            "permutation"; or "".
    """

    least: str = "0"
    end: str = "2"
    sentinel: int | None = None
    order: Order = ""

    @property
    def uneven(self) -> bool:
        """Return whether the elements of a row must differ, so that no layout may repeat one along it."""
        return self.order in {"offsets", "permutation"}

    @property
    def symbols(self) -> frozenset[str]:
        """Return the symbols on which the range depends."""
        return frozenset((*expression.symbols(self.least), *expression.symbols(self.end)))

    def range(self, sizes: Mapping[str, int]) -> range:
        """Return the values without the sentinel."""
        return range(expression.evaluate(self.least, sizes), expression.evaluate(self.end, sizes))

    def may_be(self, value: float, sizes: Mapping[str, int]) -> bool:
        """Return whether an element may have a value: the sentinel, or one of the range.

        A range is compared with its ends: Python looks for a float among all of its values, one after the other.
        """
        inside = self.range(sizes)
        return value == self.sentinel or (float(value).is_integer() and inside.start <= value < inside.stop)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of an operator: its name, its shape in the operator's symbols, and its dtype's role.

    Attributes:
        optional: a case may leave it out; then it is None.
        values: of an input of integers or booleans.
        within: the least and the largest value of an input of floating-point numbers, either may be infinite; None for any.
        differentiable: an input has a gradient, an output an upstream gradient; never of integers or booleans.
        finite: an input of floating-point numbers, or the upstream gradient of an output, has no NaN and no infinity.
    """

    name: str
    symbols: tuple[str, ...]
    role: Role = Role.ACCUMULATE
    optional: bool = False
    values: Values | None = None
    differentiable: bool = True
    within: tuple[float, float] | None = None
    finite: bool = False

    def __post_init__(self) -> None:
        if not self.floating:
            object.__setattr__(self, "differentiable", False)

    @property
    def floating(self) -> bool:
        """Return whether its elements are floating-point numbers, and not integers or booleans."""
        return self.role not in FIXED

    @functools.cached_property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds that its recipe may have."""
        if self.values is None:
            return tuple(kind for kind in RECIPE_KINDS if kind != "masked" or self.may_be(-math.inf))
        without = {"consecutive", "multiples"} if self.role is Role.BOOL else set()
        without |= {"sentinel"} if self.values.sentinel is None else set()
        return tuple(kind for kind in INTEGER_KINDS if kind not in without)

    def may_be(self, value: float) -> bool:
        """Return whether an element of floating-point numbers may have a value; a range excludes no NaN."""
        if self.finite and not math.isfinite(value):
            return False
        return self.within is None or math.isnan(value) or self.within[0] <= value <= self.within[1]

    def nearest(self, value: float, sizes: Mapping[str, int]) -> float:
        """Return the value, or the nearest one that an element may have at these sizes."""
        if self.values is None:
            return value if self.may_be(value) or self.within is None else min(max(value, self.within[0]), self.within[1])
        if value == self.values.sentinel:
            return value
        inside = self.values.range(sizes)
        return float(min(max(value, inside.start), inside.stop - 1))

    def recipe(self, seed: int = 0) -> Recipe:
        """Return a recipe of its usual kind."""
        return Recipe(kind="normal" if self.floating else "uniform", seed=seed)

    def present(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the symbol of each axis for given symbol sizes."""
        return [one for one in self.symbols if one in sizes or one.isdigit()]

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape for given symbol sizes; a symbol of digits is that number, one without a size has no axis."""
        return tuple([sizes[one] if one in sizes else int(one) for one in self.present(sizes)])

    def dtype(self, storage: torch.dtype) -> torch.dtype:
        """Return the dtype in a case of a storage dtype."""
        return self._dtypes[storage]

    @functools.cached_property
    def _dtypes(self) -> Mapping[torch.dtype, torch.dtype]:
        if not self.floating:
            return dict.fromkeys(STORAGE_DTYPES.values(), FIXED[self.role])
        of_storage = self.role is Role.STORAGE
        return {one: one if of_storage else accumulation_dtype(one) for one in STORAGE_DTYPES.values()}
