"""Numbers that are perturbed by their own roundings, and the tolerance that many runs of a function on them give.

A composed bound adds up the errors of all operands as if they were independent and all worst. Where a result depends on the
same operand twice, as softmax or attention do, or where a loop divides by its own sums, most of it cancels. So a run on
`SampledNumber`s moves the value of each operation at random, by a normal deviate with the standard deviation of that
operation's own roundings, and propagates nothing else: the correlations are those of the function. The standard deviation
of a result over `RUNS` such runs, times `SIGMAS`, is its sampled tolerance. It is statistical: docs/tolerances.md names its
assumptions and limits.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from oracles.bounds.error_number import ErrorNumber
from oracles.bounds.reading import Reading, read
from oracles.bounds.rounding import ELEMENTARY, LAMBDA, half_subnormal, unit_roundoff

RUNS = 24
"""Perturbed runs. The standard deviation of one element is then known to 14 %."""
SIGMAS = 8.0
"""Standard deviations that a right implementation does not exceed; with that of one element and of its row pooled."""
_UNIFORM = 3**-0.5  # the standard deviation of a rounding, relative to its largest magnitude


class SampledNumber(ErrorNumber):
    """A float64 value that has been moved at random by each of its roundings. Its error is 0, or infinite as usual."""

    __slots__ = ()

    @classmethod
    def _rounded(cls, value: Tensor, propagated: Tensor | None, dtype: torch.dtype, **rest: Any) -> "ErrorNumber":
        units = rest.get("units", 1.0)
        own = super()._rounded(value, propagated, dtype, **rest).error
        single = isinstance(units, float) and units <= 2 * ELEMENTARY
        return cls._moved(value, own, _UNIFORM if single else 1 / LAMBDA, dtype)

    @classmethod
    def _moved(cls, value: Tensor, own: Tensor, scale: float, dtype: torch.dtype) -> "SampledNumber":
        noise = torch.randn_like(value) * scale * own
        return cls(
            torch.where(own.isfinite() & value.isfinite(), value + noise, value),
            torch.where(own.isfinite(), 0.0, torch.inf).double(),
            dtype,
        )

    def to(self, dtype: torch.dtype) -> "ErrorNumber":
        number = super().to(dtype)
        if unit_roundoff(dtype) <= unit_roundoff(self.dtype):
            return number
        return self._moved(self.value, number.error, _UNIFORM, dtype)


def sampled_errors(
    function: Callable[..., Any],
    arguments: Sequence[Tensor | None],
    scalars: Mapping[str, Any],
    upstream: Sequence[Tensor | None],
    exact: Reading,
    seed: int = 0,
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return the sampled tolerance of each output and each gradient of `exact`, the same function read without noise."""
    outputs, gradients = [
        [None if one is None else torch.zeros_like(one.value) for one in some] for some in (exact.outputs, exact.gradients)
    ]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for _ in range(RUNS):
            run = read(function, arguments, scalars, upstream, SampledNumber)
            for sums, wanted, found in ((outputs, exact.outputs, run.outputs), (gradients, exact.gradients, run.gradients)):
                for at, (one, other) in enumerate(zip(wanted, found, strict=True)):
                    if one is not None and other is not None:
                        sums[at] = sums[at] + (other.value - one.value).square()
    return (
        [_tolerance(one, total) for one, total in zip(exact.outputs, outputs, strict=True)],
        [_tolerance(one, total) for one, total in zip(exact.gradients, gradients, strict=True)],
    )


def _tolerance(number: ErrorNumber | None, squares: Tensor | None) -> Tensor | None:
    """Return the tolerance of each element from the summed squares of its deviations.

    The variance of a single element is uncertain. So that of its row is added, where each element counts relative to its
    composed error, or to its magnitude where some composed error is infinite.
    """
    if number is None or squares is None:
        return None
    variance = squares / RUNS
    if variance.dim():
        shape = number.error if bool(number.error.isfinite().all()) else number.value.abs()
        scale = shape.square()
        relative = torch.where(scale > 0, variance / scale, 0.0).mean(-1, keepdim=True)
        variance = variance + relative * scale
    stored = unit_roundoff(number.dtype) * number.value.abs() + half_subnormal(number.dtype)
    return SIGMAS * variance.sqrt() + stored
