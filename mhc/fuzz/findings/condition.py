"""Conditions on a case, as data: what confines a known finding to the cases that it explains."""

import functools
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from mhc.case import Case
from mhc.inputs import materialise


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Everything that is given must hold.

    Attributes:
        dtypes: of x, by name: one of these.
        least: (symbol, size): the case has at least that many.
        below: (tensor, magnitude): one of these tensors has an element that is not 0 and smaller than that.

    Raises:
        ValueError: nothing is given, which would hold of every case.
    """

    dtypes: tuple[str, ...] = ()
    least: tuple[tuple[str, int], ...] = ()
    below: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if not (self.dtypes or self.least or self.below):
            raise ValueError("a condition must say something: without one, an entry is of every case")
        names = [*self.dtypes, *(name for name, _ in (*self.least, *self.below))]
        limits = [limit for _, limit in (*self.least, *self.below)]
        if not all(isinstance(one, str) for one in names) or not all(type(one) in {int, float} for one in limits):
            raise TypeError("a condition must be of names and numbers")

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """What `document` wrote, as JSON gives it back.

        Raises:
            TypeError, ValueError: it has other fields.
        """
        if not isinstance(document, Mapping):
            raise TypeError("a condition must be an object")
        pairs: dict[str, Any] = {name: tuple(map(tuple, document.get(name, ()))) for name in ("least", "below")}
        return cls(**{**document, "dtypes": tuple(document.get("dtypes", ())), **pairs})

    @property
    def document(self) -> dict[str, Any]:
        """Its fields as JSON values, those that say something."""
        return {name: value for name, value in asdict(self).items() if value}

    def holds(self, case: Case) -> bool:
        """Whether `case` is one of those meant."""
        if self.dtypes and case.dtype not in self.dtypes:
            return False
        if any(case.sizes[symbol] < size for symbol, size in self.least):
            return False
        return not self.below or any(_smallest(case).get(name, math.inf) < limit for name, limit in self.below)

    def __str__(self) -> str:
        parts = [" or ".join(self.dtypes), *(f"{symbol} >= {size}" for symbol, size in self.least)]
        tensors: dict[float, list[str]] = {}
        for name, limit in self.below:
            tensors.setdefault(limit, []).append(name)
        small = " or ".join(f"{', '.join(names)} below {_power(limit)}" for limit, names in tensors.items())
        return " and ".join(filter(None, [*parts, small]))


def _power(value: float) -> str:
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{value:g}"


@functools.lru_cache(maxsize=4)
def _smallest(case: Case) -> Mapping[str, float]:
    """The smallest magnitude that is not 0 in each tensor of a case, where there is one."""
    smallest = {}
    for name, tensor in materialise(case).tensors.items():
        if tensor is not None:
            magnitudes = tensor.double().abs()
            magnitudes = magnitudes[magnitudes > 0]
            if magnitudes.numel():
                smallest[name] = float(magnitudes.min())
    return smallest
