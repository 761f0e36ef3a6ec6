"""Complex numbers, as a rotary embedding is often written: a pair of numbers, and their arithmetic as that of the pair."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from mhc.oracles.bounds import elementary
from mhc.oracles.bounds.aten.registry import RULES, aten, rule, scalar
from mhc.oracles.bounds.elementary import NoRule
from mhc.oracles.bounds.error_number import ErrorNumber

_DTYPES = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True)
class Complex:
    """A number for the real part and one for the imaginary part, both float32 or both float64."""

    real: ErrorNumber
    imaginary: ErrorNumber

    @property
    def value(self) -> Tensor:
        """Return both values as one complex tensor."""
        return torch.complex(self.real.value, self.imaginary.value)

    @property
    def dtype(self) -> torch.dtype:
        """Return the complex dtype, of twice the bits of its parts'."""
        if self.real.dtype not in _DTYPES:
            raise NoRule(f"complex numbers of {self.real.dtype}")
        return _DTYPES[self.real.dtype]

    @property
    def shape(self) -> torch.Size:
        return self.real.shape

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        """Return the number with `move` applied to both parts."""
        return type(self)(self.real.mapped(move), self.imaginary.mapped(move))

    def __add__(self, other: Any) -> "Complex":
        return Complex(self.real + other.real, self.imaginary + other.imaginary)

    def __sub__(self, other: Any) -> "Complex":
        return Complex(self.real - other.real, self.imaginary - other.imaginary)

    def __mul__(self, other: "Complex | ErrorNumber | float") -> "Complex":
        if not isinstance(other, Complex):
            return Complex(self.real * other, self.imaginary * other)
        return Complex(
            self.real * other.real - self.imaginary * other.imaginary,
            self.real * other.imaginary + self.imaginary * other.real,
        )


def _apart(value: Any, kind: type[ErrorNumber], dtype: torch.dtype) -> Any:
    """Return a complex tensor, or a Python number, as a pair of numbers; what is real as it is."""
    value = scalar(value)
    if isinstance(value, Tensor):
        if not value.is_complex():
            return kind.exact(value.double(), dtype)
        value = value.resolve_conj().to(torch.complex128)
    elif isinstance(value, complex):
        value = torch.tensor(value, dtype=torch.complex128)
    else:
        return value
    held = value.to(_DTYPES.get(dtype, torch.complex64)).to(torch.complex128)
    parts = [kind(exact, (near - exact).abs(), dtype) for exact, near in ((value.real, held.real), (value.imag, held.imag))]
    return Complex(*parts)


def _zero(like: ErrorNumber) -> ErrorNumber:
    return type(like).exact(torch.zeros_like(like.value), like.dtype)


def _paired(function: Callable[[Any, Any], Any], *operations: Any) -> None:
    """Let the rule of an operation on two numbers take complex ones."""
    real = RULES[operations[0].Tensor]

    def apply(func: Any, a: Any, b: Any, **named: Any) -> Any:
        parts = [one.real if isinstance(one, Complex) else one for one in (a, b)]
        number = next((one for one in parts if isinstance(one, ErrorNumber)), None)
        given = any(isinstance(one, (Complex, complex)) or (isinstance(one, Tensor) and one.is_complex()) for one in (a, b))
        if not given or number is None:
            return real(func, a, b, **named)
        if named:
            raise NoRule(f"{', '.join(named)} of complex numbers")
        return function(*(_apart(one, type(number), number.dtype) for one in (a, b)))

    rule(*operations)(apply)


def _both(one: Any, other: Any) -> Complex:
    """Return one as a complex number, whose imaginary part may be 0."""
    if isinstance(one, Complex):
        return one
    like = other.real if isinstance(other, Complex) else other
    number = one if isinstance(one, ErrorNumber) else like._coerce(one)
    return Complex(number, _zero(number))


_paired(lambda a, b: _both(a, b) + _both(b, a), aten.add)
_paired(lambda a, b: _both(a, b) - _both(b, a), aten.sub)
_paired(lambda a, b: a * b if isinstance(a, Complex) else b * a, aten.mul)


def _quotient(a: Any, b: Any) -> Complex:
    if isinstance(b, Complex):
        size = b.real * b.real + b.imaginary * b.imaginary
        product = _both(a, b) * Complex(b.real, -b.imaginary)
        return Complex(elementary.quotient(product.real, size), elementary.quotient(product.imaginary, size))
    if isinstance(b, ErrorNumber):
        return Complex(elementary.quotient(a.real, b), elementary.quotient(a.imaginary, b))
    return Complex(a.real / b, a.imaginary / b)


_paired(_quotient, aten.div)


def _extended(function: Callable[..., Any], *operations: Any) -> None:
    """Let the rule of an operation on one number, or on several, take complex ones."""

    def extend(real: Callable[..., Any]) -> Callable[..., Any]:
        def apply(func: Any, a: Any, *rest: Any, **named: Any) -> Any:
            if any(isinstance(one, Complex) for one in (a, *rest)):
                return function(func, a, *rest, real=real, **named)
            return real(func, a, *rest, **named)

        return apply

    for operation in operations:
        for overload in [getattr(operation, name) for name in operation.overloads()]:
            if overload in RULES:
                RULES[overload] = extend(RULES[overload])


def _each(func: Any, a: Complex, *rest: Any, real: Callable[..., Any], **named: Any) -> Complex:
    return Complex(real(func, a.real, *rest, **named), real(func, a.imaginary, *rest, **named))


def _matrix_product(func: Any, a: Any, b: Any, *, real: Callable[..., Any]) -> Complex:
    """Return a product of matrices, each of whose parts is a sum of two products of theirs."""
    number = (a if isinstance(a, Complex) else b).real
    one, other = (_apart(factor, type(number), number.dtype) for factor in (a, b))
    one, other = _both(one, other), _both(other, one)
    return Complex(
        real(func, one.real, other.real) - real(func, one.imaginary, other.imaginary),
        real(func, one.real, other.imaginary) + real(func, one.imaginary, other.real),
    )


def _absolute(func: Any, a: Complex, *, real: Callable[..., Any]) -> ErrorNumber:
    return elementary.hypot(a.real, a.imaginary)


def _exponential(func: Any, a: Complex, *, real: Callable[..., Any]) -> Complex:
    return _at_angle(real(func, a.real), a.imaginary)


def _at_angle(size: Any, angle: ErrorNumber) -> Complex:
    """Return the complex number of a magnitude and an angle."""
    cosine, sine = (RULES[one](one, angle) for one in (aten.cos.default, aten.sin.default))
    return Complex(size * cosine, size * sine)


def _unit(func: Any, a: Complex, *, real: Callable[..., Any]) -> Complex:
    """Return a / |a|, and 0 for 0."""
    size = elementary.hypot(a.real, a.imaginary)
    zero = size.value == 0
    size = elementary.chosen(type(size).exact(torch.ones_like(size.value), size.dtype), size, zero)
    return Complex(elementary.quotient(a.real, size), elementary.quotient(a.imaginary, size))


_extended(_unit, aten.sgn)
_extended(_each, aten.neg, aten.sum)
_extended(_matrix_product, aten.mm, aten.bmm, aten.matmul)
_extended(_absolute, aten.abs)
_extended(_exponential, aten.exp)


@rule(aten.view_as_complex)
def _as_complex(func: Any, a: ErrorNumber) -> Complex:
    return Complex(a.mapped(lambda tensor: tensor[..., 0]), a.mapped(lambda tensor: tensor[..., 1]))


@rule(aten.view_as_real)
def _as_real(func: Any, a: Complex) -> ErrorNumber:
    return type(a.real).joined([a.real, a.imaginary], lambda tensors: torch.stack(tensors, -1))


@rule(aten.complex)
def _complex(func: Any, a: ErrorNumber, b: ErrorNumber) -> Complex:
    return Complex(a, b)


@rule(aten.polar)
def _polar(func: Any, size: Any, angle: Any) -> Complex:
    number = size if isinstance(size, ErrorNumber) else angle
    return _at_angle(*(_apart(one, type(number), number.dtype) for one in (size, angle)))


@rule(aten._conj, aten._conj_physical, aten.conj_physical)
def _conjugate(func: Any, a: Any) -> Any:
    return Complex(a.real, -a.imaginary) if isinstance(a, Complex) else a


@rule(aten.angle)
def _angle(func: Any, a: Any) -> ErrorNumber:
    if not isinstance(a, Complex):
        raise NoRule("the angle of a real number")
    return elementary.angle(a.imaginary, a.real)
