"""Scalars of a case as a function gets them, and what it computes from them, which a kernel may compute in float32.

A kernel that is given beta in float32 has 1 - beta from the rounded one: 0.00999999 for beta = 0.99, off by 1e-6 of it.
PyTorch hands an operation plain numbers, so that errors are kept beside, by the magnitude of the number.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

_UNIT = 2.0**-24
"""The unit roundoff of float32."""
_POWER = 4.0
"""Roundings of a power in float32."""
_PLAIN = 12
"""A number of so few bits, such as 1 or 0.25, is taken for a constant of the function, of which no error is kept."""
errors: dict[float, float] | None = None
"""The errors that are kept now, by magnitude."""


@contextmanager
def kept(found: dict[float, float]) -> Iterator[None]:
    """Keep the errors of derived scalars in `found` within the block."""
    global errors  # noqa: PLW0603
    before, errors = errors, found
    try:
        yield
    finally:
        errors = before


def error_of(number: Any, dtype: torch.dtype) -> float:
    """Return how far a number may be off for what it was computed from: 0 where it was not, and in float64."""
    if not errors or dtype == torch.float64 or not isinstance(number, float):
        return 0.0
    return errors.get(abs(number), 0.0)


def tracked(scalars: Mapping[str, Any]) -> dict[str, Any]:
    """Return scalars, of which the floats follow their errors."""
    return {name: _Scalar(value) if type(value) is float else value for name, value in scalars.items()}


class _Scalar(float):
    """A float, and how far it is off where a kernel computes it in float32."""

    error: float

    def __new__(cls, value: float, error: float | None = None) -> "_Scalar":
        made = super().__new__(cls, value)
        made.error = abs(_rounded(value) - value) if error is None else error
        return made

    def _with(self, other: Any, operate: "_Operation", propagated: "_Propagated", roundings: float = 1.0) -> Any:
        """Return the result with a number on the right, and keep its error where both are finite.

        Args:
            propagated: returns the error that those of both operands cause. roundings: of the operation itself.
        """
        if not isinstance(other, (int, float)):
            return NotImplemented
        mine, term = float(self), other if isinstance(other, _Scalar) else _Scalar(float(other))
        value = operate(mine, float(term))
        try:
            error = propagated(mine, self.error, float(term), term.error)
        except ArithmeticError:
            return value
        if not (isinstance(value, float) and math.isfinite(value) and math.isfinite(error)):
            return value
        if error or _rounded(value) != value:
            error += roundings * _UNIT * abs(value)
        if errors is not None and error and not math.ldexp(math.frexp(value)[0], _PLAIN).is_integer():
            errors[abs(value)] = max(error, errors.get(abs(value), 0.0))
        return _Scalar(value, error)

    def _of(self, other: Any, method: str) -> Any:
        """Return the result with a number on the left."""
        return getattr(_Scalar(float(other)), method)(self) if isinstance(other, (int, float)) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b, lambda a, ea, b, eb: ea + eb)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, lambda a, ea, b, eb: ea + eb)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b, lambda a, ea, b, eb: abs(a) * eb + abs(b) * ea + ea * eb)

    def __truediv__(self, other: Any) -> Any:
        def propagated(a: float, ea: float, b: float, eb: float) -> float:
            return (ea + abs(a / b) * eb) / (abs(b) - eb) if abs(b) > eb else math.inf

        return self._with(other, lambda a, b: a / b, propagated)

    def __pow__(self, other: Any, modulo: None = None) -> Any:
        del modulo

        def propagated(a: float, ea: float, b: float, eb: float) -> float:
            ends = [one**two for one in (a - ea, a + ea) for two in (b - eb, b + eb) if one > 0 or two.is_integer()]
            return max((abs(end - a**b) for end in ends), default=0.0)

        return self._with(other, lambda a, b: a**b, propagated, _POWER)

    def __radd__(self, other: Any) -> Any:
        return self._of(other, "__add__")

    def __rsub__(self, other: Any) -> Any:
        return self._of(other, "__sub__")

    def __rmul__(self, other: Any) -> Any:
        return self._of(other, "__mul__")

    def __rtruediv__(self, other: Any) -> Any:
        return self._of(other, "__truediv__")

    def __rpow__(self, other: Any, modulo: None = None) -> Any:
        del modulo
        return self._of(other, "__pow__")

    def __neg__(self) -> "_Scalar":
        return _Scalar(-float(self), self.error)

    def __abs__(self) -> "_Scalar":
        return _Scalar(abs(float(self)), self.error)


_Operation = Callable[[float, float], Any]
_Propagated = Callable[[float, float, float, float], float]
"""Of a, its error, b and its error."""


def _rounded(value: float) -> float:
    """Return a number in float32; infinity where it is too large."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf
