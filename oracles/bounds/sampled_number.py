"""Numbers that are perturbed by their own roundings, and the tolerance that many runs of a function on them give.

A composed bound adds up the errors of all operands as if they were independent and all worst. Where a result depends on the
same operand twice, as in a loop that divides by its own sums, most of it cancels. So a run on `SampledNumber`s moves the
value of each operation by at most that operation's own roundings, and propagates nothing else: the correlations are those of
the function. The standard deviation of a result over `RUNS` such runs, times `SIGMAS`, is its sampled tolerance. It is
statistical: docs/tolerances.md names its assumptions and limits.

A rounding is a function of the digits that are rounded. So in every other run elements that are equal, or equal but for a
power of two or the sign, move alike in one operation, and so do larger numbers to which the same one is added: their errors
add up. In the other runs they do not: sums of equal terms may be taken in different orders, and their errors need not
cancel. A tolerance depends on the function and its arguments alone.

A mean's error cancels in the sum of squares of what it was made of, less the mean. A kernel that updates both with each
element, or merges those of parts, has a mean of its own for each, and their errors do not cancel. So where as many elements
meet a sum as are in it, there are runs in parts, in which each meets one that is rounded by itself. So there are where there
is a softmax: the backward of attention computes the logits anew, and divides by the sum that the forward had; in parts a run
divides by that of the run before. The larger tolerance of the two holds.
"""

import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from mhc.oracles.bounds import derived_scalars, together
from mhc.oracles.bounds.deviation_number import deviation_of_sum
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.reading import COMPUTED_WITH, Reading, RepeatedReader
from mhc.oracles.bounds.rounding import ELEMENTARY, LAMBDA, all_finite, half_subnormal, nan_to_inf, unit_roundoff

Reader = Callable[[type[ErrorNumber]], Reading]
"""Evaluates one function on its arguments, as numbers of a class."""
RUNS = 12
"""Perturbed runs. The standard deviation of one element is then known to 20 %."""
SIGMAS = 8.0
"""Standard deviations that a right implementation does not exceed; with that of one element and of its row pooled."""
UNSURE = 4.0
"""The factor by which the standard deviation of one element may be found too small."""
SLACK = 30.0
"""A composed bound this many times the sampled tolerance is replaced by it."""
_SMALLEST = 2.0**-480
"""The magnitude of the smallest value whose roundings, of 2^-54 of it or more, have squares in the range of float64."""
_SUM = 3**0.5 / LAMBDA
"""The half-width of a uniform move whose standard deviation is that of a sum's roundings, relative to their bound."""
_DIGITS = 24
"""Trailing bits of a float64 that decide no rounding to 24 digits, and may differ from machine to machine."""
_TABLE = 12
"""The logarithm of how many moves there are."""
_FACTOR = 0x1E3779B97F4A7C15
"""Spreads the digits of a value over the upper bits."""


class SampledNumber(ErrorNumber):
    """A float64 value that has been moved by each of its roundings. Its error is 0, or infinite as usual.

    The quotient of a sum by a number has the `terms` of the sum.
    """

    operations: ClassVar[Iterator[int]] = itertools.count()
    """Numbers the operations of a run."""
    alike: ClassVar[bool] = True
    """Whether equal elements move alike."""
    divisors: ClassVar["Divisors"]
    """What a function divides by, or multiplies infinity by, in all its runs."""
    in_parts: ClassVar[bool] = False
    """Whether each of the elements that meet a sum, as many as are in it, meets one that is rounded by itself."""
    rounded_by: ClassVar[Tensor | None] = None
    """In a sum of two in a run in which equal elements move alike, the numbers whose digits decide how it is rounded."""
    run: ClassVar[int | None] = None
    """The number of a perturbed run."""
    still: tuple[Tensor, Tensor] | None = None
    """In a run in parts, the value before its own moves, and their half-width."""

    __slots__ = ()

    def _coerce(self, other: Any) -> ErrorNumber:
        return super()._coerce(self._scalar(other) if derived_scalars.errors else other)

    def _scalar(self, other: Any) -> Any:
        """Return a scalar that was computed from others, moved by its error: by the same wherever a run meets it."""
        error = derived_scalars.error_of(other, self.dtype)
        if not error or self.run is None:
            return other
        (digits,) = struct.unpack("q", struct.pack("d", abs(other)))
        return other + math.copysign(error, other) * _mixed(digits ^ self.run) / 2**63

    def sum(self, dim: int) -> "ErrorNumber":
        total = super().sum(dim)
        total.terms = self.shape[dim]
        return total

    def __truediv__(self, other: float) -> "ErrorNumber":
        other = self._scalar(other)
        quotient: Any = super().__truediv__(other)
        quotient.terms = self.terms
        if self.terms and self.still and quotient.still:
            quotient.still = self.still[0] / other, torch.hypot(self.still[1] / other, quotient.still[1])
        return quotient  # type: ignore[no-any-return]

    def __neg__(self) -> "ErrorNumber":
        negative: Any = super().__neg__()
        if self.terms and self.still:
            negative.still = -self.still[0], self.still[1]
        return negative  # type: ignore[no-any-return]

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        moved = super().mapped(move)
        if self.terms:
            moved.still = (move(self.still[0]), move(self.still[1])) if self.still else None
        return moved

    def __add__(self, other: Any) -> "ErrorNumber":
        term: Any = self._coerce(other)
        one, two = self._met_by(term), term._met_by(self)
        SampledNumber.rounded_by = _rounded_by(one.value, two.value) if self.alike else None
        try:
            return ErrorNumber.__add__(one, two)
        finally:
            SampledNumber.rounded_by = None

    __radd__ = __add__

    def other_logsumexp(self, own: Tensor) -> Tensor | None:
        difference = self.divisors.difference(own)
        self.divisors.apart |= bool(difference.any())  # the logits of a softmax of inputs are always the same
        return own + difference if self.in_parts else None

    def _met_by(self, other: ErrorNumber) -> "SampledNumber":
        """Return the number as the elements of another one meet it, to which it is added."""
        if self.terms < 2:
            return self
        shape = torch.broadcast_shapes(self.shape, other.shape)  # type: ignore[no-untyped-call]
        if shape.numel() != self.terms * self.value.numel():
            return self
        self.divisors.apart = True
        if not self.still:
            return self
        value, width = (one.expand(shape) for one in self.still)
        share = _uniform(value, next(self.operations), alike=False)
        moved = torch.addcmul(value, width, share)
        return type(self)(moved, self.error.expand(shape), self.dtype, finite=self.finite, errorless=self.errorless)

    def divisor(self) -> "SampledNumber":
        return self._not_zero(self.divisors.divide())

    def __mul__(self, other: Any) -> ErrorNumber:
        return ErrorNumber.__mul__(*self._factors_of_infinity(other))

    __rmul__ = __mul__

    def __matmul__(self, other: ErrorNumber) -> Any:
        return ErrorNumber.__matmul__(*self._factors_of_infinity(other))

    def _factors_of_infinity(self, other: Any) -> tuple[ErrorNumber, Any]:
        """Return both factors; where one of them has an infinity, the other one should not be 0."""
        place, first = self.divisors.multiply(), self
        number = isinstance(other, SampledNumber)
        if self.finite and (other.finite if number else math.isfinite(other)):
            return self, other
        if bool(other.value.isinf().any()) if number else math.isinf(other):
            first = self._not_zero((*place, "first"))
        if number and bool(self.value.isinf().any()):
            other = other._not_zero((*place, "second"))
        return first, other

    def _not_zero(self, place: tuple[Any, ...]) -> "SampledNumber":
        """Return the number, of which an operation needs to know that it is not 0."""
        self.divisors.add(place, self.value)
        return self

    def rsqrt(self) -> ErrorNumber:
        return ErrorNumber.rsqrt(self.divisor())

    @classmethod
    def _rounded(cls, value: Tensor, propagated: Tensor | None, dtype: torch.dtype, **rest: Any) -> "ErrorNumber":
        units = rest.get("units", 1.0)
        single = isinstance(units, float) and units <= 2 * ELEMENTARY
        return cls._moved(super()._rounded(value, propagated, dtype, **rest), 1.0 if single else _SUM)

    @classmethod
    def _moved(cls, number: ErrorNumber, scale: float) -> "SampledNumber":
        """Return the value moved by at most `scale` times the error, which is the operation's own."""
        value, own = number.value, number.error
        moved = value
        if scale:
            decides, runs = value, together.run_numbers()
            if cls.rounded_by is not None:  # of runs together, in those in which equal elements move alike
                decides = cls.rounded_by if runs is None else torch.where(runs & 1 == 0, cls.rounded_by, value)
            share = _uniform(decides, next(cls.operations), alike=cls.alike)
            moved = torch.addcmul(value, torch.copysign(own, value), share, value=scale)
        if number.finite or (all_finite(value) and all_finite(own)):
            one = cls(moved, torch.zeros_like(value), number.dtype, finite=True, errorless=number.dtype in COMPUTED_WITH)
        else:
            moves = own.isfinite() & value.isfinite()
            error = torch.where(own.isfinite(), 0.0, torch.inf).double()
            one = cls(torch.where(moves, moved, value), error, number.dtype)
        if cls.in_parts:
            one.still = value, torch.where(own.isfinite() & value.isfinite(), own, 0.0) * scale
        return one

    def to(self, dtype: torch.dtype) -> "ErrorNumber":
        number = super().to(dtype)
        return number if unit_roundoff(dtype) <= unit_roundoff(self.dtype) else self._moved(number, 1.0)

    def lost(self, amount: Tensor) -> "ErrorNumber":
        return self._moved(super().lost(amount), 1.0)

    def accumulated(self, partial: Tensor, size: Tensor | float) -> "ErrorNumber":
        return self._moved(ErrorNumber(self.value, self.error, self.dtype).accumulated(partial, size), _SUM)


class Divisors:
    """Numbers that should not be 0, by operation: their sums over runs, and of their squares.

    apart: there is something that runs in parts evaluate apart: a sum that as many elements meet as are in it, or a softmax.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[Any, ...], tuple[Tensor, Tensor, int]] = {}
        self._logsumexps: dict[int, Tensor] = {}
        self.start()
        self.apart = False

    def start(self) -> None:
        """Begin a run."""
        self._divisions = self._multiplications = self._softmaxes = 0

    def seen(self) -> tuple[Any, ...]:
        """Return what the runs up to now had."""
        return dict(self._sums), dict(self._logsumexps), self.apart

    def forget(self, before: tuple[Any, ...]) -> None:
        """Forget what runs had since `seen` returned this."""
        self._sums, self._logsumexps, self.apart = before

    def divide(self) -> tuple[Any, ...]:
        """Return the place of the next division in a run."""
        self._divisions += 1
        return "division", self._divisions

    def multiply(self) -> tuple[Any, ...]:
        """Return the place of the next multiplication in a run."""
        self._multiplications += 1
        return "multiplication", self._multiplications

    def difference(self, logsumexp: Tensor) -> Tensor:
        """Keep the logsumexp of a run's next softmax, and return how far that of the run before is above it, if finite."""
        self._softmaxes += 1
        own = together.runs_of(logsumexp)
        before = torch.cat([self._logsumexps.get(self._softmaxes, own[0]).unsqueeze(0), own[:-1]])
        self._logsumexps[self._softmaxes] = own[-1]
        return together.of_runs((before - own).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))

    def add(self, place: tuple[Any, ...], value: Tensor) -> None:
        """Add the number that a run has at a place, or each of some together."""
        each = together.runs_of(value)
        total, squares, runs = self._sums.get(place, (0.0, 0.0, 0))
        self._sums[place] = total + each.sum(0), squares + each.square().sum(0), runs + len(each)

    def may_vanish(self, place: tuple[Any, ...], value: Tensor) -> Tensor:
        """Return where the number may be 0: it is at most `SIGMAS` standard deviations, around its own value.

        That is so too where it was not seen in each run, as where an infinity is one in this run alone.
        """
        total, squares, runs = self._sums.get(place, (value, value, 0))
        if runs != RUNS:
            return value.isfinite()
        variance = (squares - 2 * value * total) / RUNS + value.square()
        return value.isfinite() & (squares != 0) & ~(SIGMAS**2 * variance < value.square())


class UnmovedNumber(SampledNumber):
    """The same without moves, after the other runs.

    The error is infinite after a division by what may be 0 in them, and after a product of that and infinity.
    """

    __slots__ = ()

    def _not_zero(self, place: tuple[Any, ...]) -> SampledNumber:
        vanishes = self.divisors.may_vanish(place, self.value)
        beyond = torch.inf if place[0] == "division" else self.value.abs().clamp(min=half_subnormal(self.dtype))
        error = torch.where(vanishes, self.error.clamp(min=beyond), self.error)
        return type(self)(self.value, error, self.dtype)

    @classmethod
    def _moved(cls, number: ErrorNumber, scale: float) -> SampledNumber:
        return super()._moved(number, 0.0)


class SampledDeviationNumber(SampledNumber):
    """The same, with sums moved by the standard deviation of their roundings in any order, for the precision gate."""

    truncates: ClassVar[bool] = False

    __slots__ = ()

    def sum(self, dim: int) -> "ErrorNumber":
        return self._summed(self.value.sum(dim), self.value.square().sum(dim), (self.value != 0).sum(dim).double(), 0.0)

    def _product(self, other: ErrorNumber) -> "ErrorNumber":
        squares = self.value.square() @ other.value.square()
        count = (self.value != 0).double() @ (other.value != 0).double()
        return self._summed(self.value @ other.value, squares, count, squares)

    def _summed(self, value: Tensor, squares: Tensor, count: Tensor, products: Tensor | float) -> ErrorNumber:
        own = deviation_of_sum(value, squares, count, self.dtype, products=products, truncates=self.truncates)
        return self._moved(ErrorNumber(value, own, self.dtype), 3**0.5)


def _rounded_by(a: Tensor, b: Tensor) -> Tensor | None:
    """Return the numbers whose digits decide how a + b is rounded; None where those of the sum do.

    If the same number is added to many that are larger, and stay between the same powers of two, all are rounded alike: they
    are whole multiples of the unit to which the sums are rounded.
    """
    few, many = (a, b) if a.numel() < b.numel() else (b, a)
    if few.numel() == many.numel():
        return None
    total = a + b
    between = 1 + total.frexp().exponent * 2.0**-20  # a factor that sums between other powers of two do not share
    return torch.where((few != 0) & (few.abs() < many.abs()), few * between, total)


def _uniform(value: Tensor, operation: int, *, alike: bool) -> Tensor:
    """Return numbers in [-1, 1) that are a hash of the operation and of the digits of each value, without sign and exponent.

    alike: equal digits have equal numbers, wherever they are; of runs together, in every other one.
    """
    run = together.run_numbers()
    values = value if run is None else together.runs_of(value)
    digits = (values.view(torch.int64) & (1 << 52) - 1).bitwise_right_shift_(_DIGITS)
    if run is None:
        if not alike:
            digits += _places(value.shape, value.device)
        digits.bitwise_xor_(_mixed(operation))
    else:
        runs, places = together.runs_of(run).reshape(-1, *[1] * value.dim()), _places(value.shape, value.device)
        digits += places * (runs & 1) if alike else places
        digits.bitwise_xor_(_mixed_by_run(operation, value.device)[runs])
    share = _table(value.device).take(digits.mul_(_FACTOR).bitwise_right_shift_(64 - _TABLE))
    return share if run is None else together.of_runs(share)


@lru_cache(maxsize=1 << 14)
def _mixed_by_run(operation: int, device: torch.device) -> Tensor:
    """Return the hashes of an operation in all perturbed runs."""
    return torch.tensor([_mixed(at << 32 | operation) for at in range(RUNS)], device=device)


def _mixed(number: int) -> int:
    """Return a hash of an integer, of 64 bits with a sign (splitmix64)."""
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        number = (number + 0x9E3779B97F4A7C15) % 2**64
        number = (number ^ number >> 30) * factor % 2**64
    number ^= number >> 31
    return number - (number >> 63 << 64)


@cache
def _table(device: torch.device) -> Tensor:
    """Return 2^`_TABLE` numbers in [-1, 1), in no order."""
    numbers = [_mixed(at) / 2**63 for at in range(1 << _TABLE)]
    return torch.tensor(numbers, dtype=torch.float64, device=device)


@lru_cache(maxsize=64)
def _places(shape: torch.Size, device: torch.device) -> Tensor:
    """Return the number of each element, above the digits that `_uniform` takes."""
    return torch.arange(shape.numel(), device=device).reshape(shape) << 52 - _DIGITS


def sampled(reader: Reader, composed: Reading) -> tuple[Reading, frozenset[int]]:
    """Return `composed` with the sampled tolerance where its own is far above that, and the places of what was changed.

    Places count outputs before gradients. Nothing is changed where rounding may decide a comparison: another branch is a
    jump, which few runs show. Runs in parts do not decide what is changed.
    """
    numbers = [*composed.outputs, *composed.gradients]
    if composed.decided or not any(_wide(one) for one in numbers):
        return composed, frozenset()
    squares: list[Any] = [None] * len(numbers)
    divisors = Divisors()
    for at, run in enumerate(_runs(reader, SampledNumber, divisors, first=True)):
        _add(squares, numbers, run)
        if at == 0 and not any(
            _far(one, square) for one, square in zip(numbers, squares, strict=True) if square is not None
        ):
            return composed, frozenset()
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for place, (one, square) in enumerate(zip(numbers, squares, strict=True)):
        if square is None:
            continue
        tolerance = _tolerance(one, square)
        far = one.value.isfinite() & (one.error > SLACK * tolerance) & ~_too_small(one) & ~_cancelled(one, square)
        if bool(far.any()):
            found[place] = tolerance, far
    if found and divisors.apart:
        kind = type("InParts", (SampledNumber,), {"__slots__": (), "in_parts": True})
        squares = _squares(reader, kind, numbers)
        for place, (tolerance, far) in found.items():
            one = numbers[place]
            found[place] = torch.maximum(tolerance, _tolerance(one, squares[place])).minimum(one.error), far
    for place, (tolerance, far) in found.items():
        one = numbers[place]
        numbers[place] = ErrorNumber(one.value, torch.where(far, tolerance, one.error), one.dtype)
    outputs = len(composed.outputs)
    return replace(composed, outputs=tuple(numbers[:outputs]), gradients=tuple(numbers[outputs:])), frozenset(found)


def sampled_deviations(reader: Reader, composed: Reading, *, truncates: bool) -> list[Tensor | None]:
    """Return the standard deviation of the error of each output and gradient of `composed`, None where there is none.

    truncates: sums may run on units that round toward zero.
    """
    numbers = [*composed.outputs, *composed.gradients]
    kind = type("Truncating", (SampledDeviationNumber,), {"__slots__": (), "truncates": truncates})
    return [
        None if square is None else nan_to_inf(_variance(one, square / RUNS).sqrt())
        for one, square in zip(numbers, _squares(reader, kind, numbers), strict=True)
    ]


def _tolerance(one: ErrorNumber, square: Tensor) -> Tensor:
    """Return the sampled tolerance of a number from the sum of squared distances in all runs."""
    return nan_to_inf(SIGMAS * _variance(one, square / RUNS).sqrt() + _stored(one))


def _runs(
    reader: Reader, kind: type[SampledNumber], divisors: Divisors | None = None, *, first: bool = False
) -> Iterator[Reading]:
    """Yield perturbed runs of a function, in every other one of which equal elements move alike, and one unmoved run.

    They are together where they can be, but for the first one if that is asked for alone. The first dimension of what is
    yielded is the runs' then.
    """
    divisors = divisors or Divisors()

    def run(at: int) -> type[SampledNumber]:
        base = kind if at < RUNS else UnmovedNumber
        operations, number = itertools.count(at << 32), at if at < RUNS else None
        own = {"operations": operations, "alike": at % 2 == 0, "divisors": divisors, "run": number}
        divisors.start()
        return type("Run", (base,), {"__slots__": (), **own})

    begun = int(first)
    yield from (reader(run(at)) for at in range(begun))
    if isinstance(reader, RepeatedReader):
        before = divisors.seen()
        rest = reader.together(run(0), range(begun, RUNS))
        if rest is None:
            divisors.forget(before)
        else:
            yield rest
            begun = RUNS
    yield from (reader(run(at)) for at in range(begun, RUNS + 1))


def _squares(reader: Reader, kind: type[SampledNumber], numbers: Sequence[Any]) -> list[Any]:
    """Return the sums over all runs of the squared distances from `numbers`; None for what is no number."""
    squares: list[Any] = [None] * len(numbers)
    for run in _runs(reader, kind):
        _add(squares, numbers, run)
    return squares


def _add(squares: list[Any], numbers: Sequence[Any], run: Reading) -> None:
    """Add the squared distances of a run, or of some together, from `numbers`, infinite where nothing is promised."""
    for place, (one, moved) in enumerate(zip(numbers, [*run.outputs, *run.gradients], strict=True)):
        if isinstance(one, ErrorNumber) and isinstance(moved, ErrorNumber):
            square = nan_to_inf((moved.value - one.value).square() + moved.error)
            square = square.sum(0) if square.dim() > one.value.dim() else square
            squares[place] = square if squares[place] is None else squares[place] + square


def _wide(one: Any) -> bool:
    """Return whether a composed bound can be `SLACK` times the sampled tolerance, which is at least one rounding."""
    if not isinstance(one, ErrorNumber):
        return False
    return bool((one.value.isfinite() & (one.error > SLACK * _stored(one))).any())


def _far(one: ErrorNumber, square: Tensor) -> bool:
    """Return whether one run suggests that some composed bounds are `SLACK` times the sampled tolerance."""
    finite = one.error.isfinite()
    if bool((one.value.isfinite() & ~finite & square.isfinite()).any()):
        return True
    relative = torch.where(finite & (one.error > 0), square / one.error.square(), 0.0)
    return float(relative.sum()) < float((relative > 0).sum()) / (SIGMAS * SLACK) ** 2


def _variance(one: ErrorNumber, variance: Tensor) -> Tensor:
    """Return the variance of each element with what 12 runs may have missed.

    The variance of a single element is uncertain. So that of its row is added, where each element counts relative to its
    composed error, or to its magnitude where some composed error is infinite; and the mean of its row's, at most `UNSURE`
    times its own.
    """
    if variance.dim():
        row = torch.where(variance.isfinite(), variance, 0.0).mean(-1, keepdim=True)
        unsure = torch.minimum(row, UNSURE**2 * variance)
        scale = (one.error if bool(one.error.isfinite().all()) else one.value.abs()).square()
        relative = torch.where(scale > 0, variance / scale, 0.0)
        judged = relative.isfinite()
        pooled = torch.where(judged, relative, 0.0).sum(-1, keepdim=True) / judged.sum(-1, keepdim=True).clamp(min=1)
        variance = variance + pooled * scale + unsure
    return variance


def _too_small(one: ErrorNumber) -> Tensor:
    """Return where squares of deviations are below the range of float64, as they can be of a result in float64 alone."""
    return (one.value != 0) & (one.value.abs() < _SMALLEST)


def _cancelled(one: ErrorNumber, square: Tensor) -> Tensor:
    """Return where each run gives exactly 0, as the gradient of a maximum that is subtracted; another formula need not."""
    return (one.value == 0) & (square == 0) & one.error.isfinite()


def _stored(one: ErrorNumber) -> Tensor:
    return unit_roundoff(one.dtype) * one.value.abs() + half_subnormal(one.dtype)
