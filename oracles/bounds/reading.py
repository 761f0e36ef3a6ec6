"""Reads a plain PyTorch function on error-carrying numbers: its outputs, and its gradients by autograd."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from mhc.declaration import beside
from mhc.declared import AS_REFERENCE, Declared
from mhc.oracles.bounds import derived_scalars, made_nan, place, resampled, tape, together  # noqa: F401  # importing resampled registers its compositions
from mhc.oracles.bounds.carried import Carried, UnreadableReference
from mhc.oracles.bounds.composed import Composed
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.made import Made
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.rounding import ceiling

Number = TypeVar("Number", bound=ErrorNumber)
COMPUTED_WITH = {torch.float32, torch.float64}
"""Dtypes of inputs that are computed with as they are; others are converted first."""


@dataclass(frozen=True)
class Reading:
    """The numbers of a function's outputs, and of the gradients of its differentiable arguments: None for the others.

    decided: rounding may decide the outcome of a comparison.
    """

    outputs: tuple[Any, ...]
    gradients: tuple[ErrorNumber | None, ...]
    decided: bool


def with_factors(number: type[Number], precision: str) -> type[Number]:
    """Return the class of numbers with a declared precision of the factors of matrix products."""
    if precision == number.factors:
        return number
    return cast(type[Number], type(number.__name__, (number,), {"__slots__": (), "factors": precision}))


def read(
    function: Callable[..., Any],
    arguments: Sequence[Tensor | None],
    scalars: Mapping[str, Any],
    upstream: Sequence[Tensor | None] = (),
    number: type[ErrorNumber] = ErrorNumber,
    *,
    constant: Collection[int] = (),
    with_quantum: bool = False,
    declared: Declared = AS_REFERENCE,
    record: tape.Tape | None = None,
) -> Reading:
    """Evaluate `function` on numbers that hold `arguments` without an error.

    Args:
        arguments: tensors in the dtypes that an implementation gets; those of integers and booleans stay plain.
        upstream: gradients of the outputs in order, None for an output without one; without any, no gradient is read.
            Nor is any read where none is `declared`.
        number: the class of the numbers.
        constant: the positions of arguments that have no gradient.
        with_quantum: track the quantum of the arguments.
        declared: by the implementation that is judged, of its stages and roundings.
        record: what is done is recorded there.

    Raises:
        UnreadableReference: an operation has no rule.
    """
    options: dict[str, Any] = {"constant": constant, "with_quantum": with_quantum, "declared": declared, "record": record}
    once = partial(_read, function, arguments, scalars, upstream, number, **options)
    found = made_nan.found()
    try:
        return once(opens=(made_nan.all_made(arguments), True))
    except UnreadableReference:
        if made_nan.found() == found:
            raise
    if record is not None:  # what is open has no rule there
        record.begin()
    return once(opens=(False, False))


def _read(
    function: Callable[..., Any],
    arguments: Sequence[Tensor | None],
    scalars: Mapping[str, Any],
    upstream: Sequence[Tensor | None],
    number: type[ErrorNumber],
    *,
    constant: Collection[int],
    with_quantum: bool,
    declared: Declared,
    record: tape.Tape | None,
    opens: tuple[bool, bool],
) -> Reading:
    """Do what `read` does. opens: whether comparisons of NaN are open in the forward, and in the backward."""
    masks = Mask.made
    place.forget()
    number = with_factors(number, declared.matmul)
    upstream = upstream if declared.backward else ()

    def carried(tensor: Tensor | None, *, requires_grad: bool) -> Any:
        if tensor is None:
            return None
        if not tensor.dtype.is_floating_point:
            return tensor.clone() if tensor.is_inference() else tensor  # autograd keeps no tensor of inference mode

        def make(number: type[ErrorNumber]) -> Carried:
            held = number.exact(tensor.detach().double(), tensor.dtype, with_quantum=with_quantum)
            if tensor.dtype in COMPUTED_WITH and bool((held.value.abs() > ceiling(tensor.dtype)).any()):
                held = held.to(tensor.dtype)  # nothing is promised of what is so near to an overflow
            return Carried(held, requires_grad)

        return tape.made(make, number)

    if record is not None:
        record.opens = opens
    with tape.recorded(record), derived_scalars.kept({} if record is None else record.scalars):
        with (
            made_nan.opened(opens[0]),
            number.forward(),
            torch.set_grad_enabled(bool(upstream)),
            sdpa_kernel(SDPBackend.MATH),
        ):
            given = [carried(one, requires_grad=bool(upstream) and at not in constant) for at, one in enumerate(arguments)]
            with beside(arguments), Made(number), Composed():
                results = function(*given, **derived_scalars.tracked(scalars))
        if record is not None:
            record.end_forward()
        outputs = tuple(results) if isinstance(results, (list, tuple)) else (results,)
        leaves = [one for at, one in enumerate(given) if isinstance(one, Carried) and at not in constant]
        gradients: list[Carried | None] = [None] * len(given)
        pairs = [
            (one, gradient)
            for one, gradient in zip(outputs, upstream, strict=False)
            if gradient is not None and one.requires_grad  # in this case it may depend on no input that has a gradient
        ]
        if pairs and leaves:
            weights = [carried(gradient, requires_grad=False) for _, gradient in pairs]
            with made_nan.opened(opens[1]):
                found = torch.autograd.grad([one for one, _ in pairs], leaves, weights, allow_unused=True)
            by_leaf = {id(leaf): one if isinstance(one, Carried) else None for leaf, one in zip(leaves, found, strict=True)}
            gradients = [by_leaf.get(id(one)) for one in given]
    if record is not None:
        record.end(outputs, gradients)
    return _reading(outputs, gradients, masks)


def _reading(outputs: Sequence[Any], gradients: Sequence[Any], masks: int) -> Reading:
    """Return the numbers of what was read; masks: how many there were before."""
    numbers, derived = (
        tuple(one.number if isinstance(one, Carried) else one for one in each) for each in (outputs, gradients)
    )
    return Reading(numbers, derived, Mask.made > masks)


class RepeatedReader:
    """Reads a function on the same arguments as numbers of one class after the other, as `read` does.

    After the first time, what that did is repeated, where all of it was recorded.
    """

    def __init__(self, function: Callable[..., Any], *given: Any, declared: Declared = AS_REFERENCE, **named: Any) -> None:
        self._read: Callable[..., Reading] = partial(read, function, *given, declared=declared, **named)
        self._factors = declared.matmul
        self._recorded: tape.Tape | None = None
        self._one_by_one = False

    def __call__(self, number: type[ErrorNumber], *, with_quantum: bool = False) -> Reading:
        """Return the numbers of a class."""
        if with_quantum:  # what is read so is never repeated
            return self._read(number=number, with_quantum=True)
        if self._recorded is None:
            self._recorded = tape.Tape()
            return self._read(number=number, record=self._recorded)
        if not self._recorded.repeatable:
            return self._read(number=number)
        masks = Mask.made
        with derived_scalars.kept(self._recorded.scalars):
            outputs, gradients = self._recorded.repeat(with_factors(number, self._factors))
        return _reading(outputs, gradients, masks)

    def together(self, number: type[ErrorNumber], runs: range) -> Reading | None:
        """Return the numbers of several runs, with those as the first dimension; None where they cannot be together."""
        recorded = self._recorded
        if self._one_by_one or recorded is None or not recorded.repeatable:
            return None
        if recorded.scalars or recorded.largest > together.LARGEST:
            return None
        kinds: list[Any] = []

        def run() -> list[Tensor]:
            outputs, gradients = recorded.repeat(with_factors(number, self._factors))
            reading = _reading(outputs, gradients, 0)
            kinds[:] = reading.outputs, reading.gradients
            return [part for one in (*reading.outputs, *reading.gradients) for part in _parts(one)]

        found = together.run(run, runs, recorded.device)
        if found is None:
            self._one_by_one = True  # a batch that failed is not tried again
            return None
        stacked = iter(found)
        outputs, gradients = (tuple(_with_parts(one, stacked) for one in each) for each in kinds)
        return Reading(outputs, gradients, decided=False)


def _parts(one: Any) -> list[Tensor]:
    return [one.value, one.error] if isinstance(one, ErrorNumber) else []


def _with_parts(one: Any, parts: Iterator[Tensor]) -> Any:
    return type(one)(next(parts), next(parts), one.dtype) if isinstance(one, ErrorNumber) else one
