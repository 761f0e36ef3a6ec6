"""The tolerances of a case: the operator's formula, or its plain function, evaluated on error-carrying numbers.

An element with an infinite tolerance is not judged: an intermediate may leave the range of the working precision.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mhc.condense import Condensed
from mhc.declared import AS_REFERENCE, Declared
from mhc.inputs import Inputs
from mhc.operator import STORAGE_DTYPES, Operator, Role, TensorSpec, accumulation_dtype
from mhc.oracles import algorithms, undefined
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.mask import Mask
from mhc.oracles.bounds.reading import RepeatedReader, read, with_factors
from mhc.oracles.bounds.rounding import half_subnormal, largest_magnitude, scalar, unit_roundoff
from mhc.oracles.bounds.sampled_number import sampled
from mhc.oracles.nonfinite import same_class
from mhc.reference import Reference, condensed, judging_device, widen


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """The float64 reference and the allowed error of each output and gradient; an absent gradient is left out.

    sampled: those with elements whose tolerance is a sampled one, and no derived bound.
    """

    outputs: Mapping[str, ErrorNumber]
    gradients: Mapping[str, ErrorNumber]
    sampled: frozenset[str] = frozenset()

    @property
    def results(self) -> Mapping[str, ErrorNumber]:
        """Return outputs and gradients together."""
        return {**self.outputs, **self.gradients}

    def map(self, change: Callable[[str, ErrorNumber], ErrorNumber]) -> "Tolerances":
        """Return tolerances with `change(name, number)` in place of each number."""
        outputs, gradients = (
            {name: change(name, one) for name, one in some.items()} for some in (self.outputs, self.gradients)
        )
        return replace(self, outputs=outputs, gradients=gradients)


def tolerances(
    inputs: Inputs, reference: Reference, *, declared: Declared = AS_REFERENCE, with_quantum: bool = False
) -> Tolerances:
    """Return the operator's formula evaluated on error-carrying numbers, for a large case on its representative tokens.

    Of an operator that was declared by a plain function, a bound far above what its roundings show is replaced by a sampled
    tolerance.

    Args:
        declared: by the implementation, of its stages and roundings.
        with_quantum: track the quantum, so that the tolerance is 0 where every step is exact in any order.
    """
    case, table = inputs.case, inputs.case.table
    storage, few = STORAGE_DTYPES[case.dtype], condensed(inputs)
    specs = table.result_specs
    read = read_formula(
        table,
        widen(inputs if few is None else few.inputs),
        storage,
        case.scalars,
        saved=reference.outputs if few is None else chosen_rows(few, reference.outputs, specs),
        declared=declared,
        with_quantum=with_quantum,
    )
    # The reference has an error too, that of float64; it matters only for float64 cases.
    own = 1 + unit_roundoff(torch.float64) / unit_roundoff(accumulation_dtype(storage))

    allowed = read.map(lambda _, one: ErrorNumber(one.value, one.error * scalar(own), one.dtype, finite=one.finite))
    gradients = _infinite_upstream(inputs, _common_factors(inputs, _underflows(inputs, allowed.gradients)))
    allowed = replace(allowed, gradients=gradients)
    if table.function is not None:
        allowed = allowed.map(undefined.opening(inputs if few is None else few.inputs, allowed.results))
    if few is not None:
        allowed = allowed.map(lambda name, one: expand_number(few, one, specs[name]))
    if table.function is not None:  # of a formula, the reference and the bounds are one piece of code
        allowed = _as_the_reference(allowed, reference)
    judged = {name: ByResidual.of(inputs, name, allowed.outputs[name]) for name in table.residuals}
    return replace(allowed, outputs={**allowed.outputs, **judged})


def _as_the_reference(allowed: Tolerances, reference: Reference) -> Tolerances:
    """Return tolerances that are infinite where a number has another class (finite, infinite, NaN) than the reference.

    A bound may be read from another composition than PyTorch's, such as an inverse times b for a solved system. From an
    infinity on they may part: inf - inf is NaN, and a sum of products of the inverse's elements is not.
    """

    def open_where_they_part(name: str, one: ErrorNumber) -> ErrorNumber:
        if one.finite:
            return one
        value = reference.outputs[name] if name in reference.outputs else reference.gradients.get(name)
        if value is None or value.shape != one.value.shape:
            return one
        true = value.to(one.value.device)
        alike = same_class(true, one.value)
        return one if alike.all() else ErrorNumber(one.value, torch.where(alike, one.error, torch.inf), one.dtype)

    return allowed.map(open_where_they_part)


class ByResidual(ErrorNumber):
    """An output that has no one right value: its tolerance is infinite, and its residual is judged in its place."""

    __slots__ = ("residual",)
    residual: Callable[[Tensor], ErrorNumber]

    @classmethod
    def of(cls, inputs: Inputs, name: str, number: ErrorNumber) -> "ByResidual":
        """Return the number of an output that is judged by its function in `Operator.residuals`."""
        found = cls(number.value, torch.full_like(number.error, torch.inf), number.dtype)
        found.residual = partial(_residual, inputs, name)
        return found

    def mapped(self, move: Callable[[Tensor], Tensor]) -> ErrorNumber:  # type: ignore[override]
        """Return a number that is not judged: the residual is that of the inputs as they are."""
        return ErrorNumber(move(self.value), move(self.error), self.dtype)


def _residual(inputs: Inputs, name: str, got: Tensor) -> ErrorNumber:
    """Return the residual of an output, and the error that it may have."""
    case, table, few = inputs.case, inputs.case.table, condensed(inputs)
    judged = inputs if few is None else few.inputs
    values = widen(judged)
    storage, spec = STORAGE_DTYPES[case.dtype], table.result_specs[name]
    with torch.inference_mode(mode=False):
        output = (got if few is None else few.take(got, spec)).detach().to(judging_device(judged)).clone()
        arguments, _, constant = arguments_of(table, values, storage)
        residual = table.residuals[name]

        def function(*given: Any, **scalars: Any) -> Any:
            return residual(*given, output, **scalars)

        found = read(function, arguments, case.scalars, constant=constant)
    number = found.outputs[0]
    return number if few is None else expand_number(few, number, spec)


def chosen_rows(few: Condensed, values: Mapping[str, Tensor], specs: Mapping[str, TensorSpec]) -> dict[str, Tensor]:
    """Return the rows of the representative tokens, on the device where they are judged."""
    device = judging_device(few.inputs)
    return {name: few.take(value, specs[name]).to(device) for name, value in values.items()}


def expand_number(few: Condensed, number: ErrorNumber, spec: TensorSpec) -> ErrorNumber:
    """Return the number for all tokens from that of the representative ones."""
    return number.mapped(lambda tensor: few.expand(tensor, spec))


def _common_factors(inputs: Inputs, gradients: Mapping[str, ErrorNumber]) -> Mapping[str, ErrorNumber]:
    """Return the gradients without a promised NaN in sums over tokens where a parameter is infinite.

    A common factor may be taken out of the sum: inf * (a - b) is infinite, inf * a - inf * b is NaN.
    """
    table = inputs.case.table
    if all(one.finite for one in gradients.values()):  # no NaN
        return gradients
    common = [inputs.tensors[spec.name] for spec in table.inputs if not table.per_token(spec)]
    if not any(tensor is not None and bool(tensor.isinf().any()) for tensor in common):
        return gradients
    return {
        name: ErrorNumber(one.value, torch.where(one.value.isnan(), torch.inf, one.error), one.dtype)
        if name in table.token_sums
        else one
        for name, one in gradients.items()
    }


def _underflows(inputs: Inputs, gradients: Mapping[str, ErrorNumber]) -> Mapping[str, ErrorNumber]:
    """Return a plain function's gradients with room for an underflow before the upstream gradient is multiplied.

    A loss that computes its gradient in the forward multiplies last; the reference multiplies first.
    """
    if inputs.case.table.function is None or not gradients:
        return gradients
    most = max(map(largest_magnitude, _upstream(inputs)), default=0.0)
    lost = most * half_subnormal(accumulation_dtype(STORAGE_DTYPES[inputs.case.dtype]))
    return {
        name: ErrorNumber(one.value, torch.where(one.error > 0, one.error + lost, one.error), one.dtype, finite=one.finite)
        for name, one in gradients.items()
    }


def _infinite_upstream(inputs: Inputs, gradients: Mapping[str, ErrorNumber]) -> Mapping[str, ErrorNumber]:
    """Return a plain function's gradients without a promise of those that are not finite, where an upstream one is infinite.

    The upstream gradient is a factor of each term: inf * (a - b) is infinite, inf * a - inf * b is NaN.
    """
    if inputs.case.table.function is None or not any(bool(one.isinf().any()) for one in _upstream(inputs)):
        return gradients
    return {
        name: ErrorNumber(one.value, torch.where(one.value.isfinite(), one.error, torch.inf), one.dtype)
        for name, one in gradients.items()
    }


def _upstream(inputs: Inputs) -> list[Tensor]:
    """Return the upstream gradients that are given."""
    given = [inputs.tensors.get(f"d{spec.name}") for spec in inputs.case.table.outputs]
    return [one for one in given if one is not None]


@torch.inference_mode()  # takes a fifth less time than no_grad
def read_formula(
    table: Operator,
    tensors: Mapping[str, Tensor | None],
    storage: torch.dtype,
    scalars: Mapping[str, float],
    *,
    saved: Mapping[str, Tensor] | None = None,
    declared: Declared = AS_REFERENCE,
    with_quantum: bool = False,
    number: type[ErrorNumber] = ErrorNumber,
) -> Tolerances:
    """Evaluate the operator's forward and backward on error-carrying numbers, on the tensors' device.

    Args:
        tensors: the inputs and upstream gradients by name, in float64 and contiguous, taken as exact in their dtypes.
        storage: the dtype of x.
        saved: the values stored for the backward; None for the forward's own.
        declared, with_quantum: as for `tolerances`.
        number: the class of error-carrying numbers.
    """
    if table.function is not None:
        return _read_function(table, tensors, storage, scalars, number, with_quantum=with_quantum, declared=declared)
    number, specs = with_factors(number, declared.matmul), table.argument_specs
    given = {
        name: None
        if value is None
        else _given(number.exact(value, specs[name].dtype(storage), with_quantum=with_quantum), specs[name])
        for name, value in tensors.items()
    }
    results = table.forward(*(given[name] for name in table.forward_arguments), **scalars)
    outputs = dict(zip((spec.name for spec in table.outputs), results, strict=True))
    if not declared.backward:
        return Tolerances(outputs=outputs, gradients={})
    kept = {name: outputs[name] for name in table.saved}
    if not declared.recomputes_forward:
        values = {name: one.value for name, one in kept.items()} if saved is None else saved
        kept = {name: number.stored(values[name], one.dtype, with_quantum=with_quantum) for name, one in kept.items()}
    arguments = {**given, **kept}
    results = table.backward(*(arguments[name] for name in table.backward_arguments), **scalars)
    gradients = zip((spec.name for spec in table.gradients), results, strict=True)
    return Tolerances(outputs=outputs, gradients={name: one for name, one in gradients if one is not None})


def _read_function(
    table: Operator,
    tensors: Mapping[str, Tensor | None],
    storage: torch.dtype,
    scalars: Mapping[str, float],
    number: type[ErrorNumber],
    *,
    with_quantum: bool,
    declared: Declared,
) -> Tolerances:
    """Read the bounds of an operator that was declared by a plain function, or its numbers of another class.

    The error of an element is the largest that one of the operator's `functions` leads to.
    """
    arguments, upstream, constant = arguments_of(table, tensors, storage)
    names, plain = names_of_results(table), number is ErrorNumber and not with_quantum

    def read_one(function: Callable[..., Any]) -> Tolerances:
        with torch.inference_mode(mode=False):
            reader = RepeatedReader(function, arguments, scalars, upstream, constant=constant, declared=declared)
            found, changed = reader(number, with_quantum=with_quantum), frozenset[int]()
            if plain:
                found, changed = sampled(reader, found)
        outputs = {
            spec.name: one if isinstance(one, ErrorNumber) else _plain(one, spec.dtype(storage))
            for spec, one in zip(table.outputs, found.outputs, strict=True)
        }
        gradients = zip(names[len(outputs) :], found.gradients, strict=True)
        return Tolerances(
            outputs=outputs,
            gradients={name: one for name, one in gradients if one is not None},
            sampled=frozenset(names[place] for place in changed),
        )

    assert table.function is not None
    found = read_one(table.function)
    for algorithm in table.algorithms:
        with algorithms.named(table, algorithm, scalars):
            found = _larger(found, read_one(algorithm), compared=plain)
    return found


def _larger(found: Tolerances, other: Tolerances, *, compared: bool) -> Tolerances:
    """Return tolerances with the larger errors of the reference's own and an algorithm's."""
    merged = found.map(lambda name, one: algorithms.larger(name, one, other.results.get(name), compared=compared))
    return replace(merged, sampled=found.sampled | other.sampled)


def _plain(given: Tensor | Mask, dtype: torch.dtype) -> ErrorNumber:
    """Return the number of an output of integers or booleans, kept as they are; where rounding decides, it may be any."""
    value = given.value if isinstance(given, Mask) else given
    held = value.double() if dtype.is_floating_point else value
    error = torch.zeros(value.shape, dtype=torch.float64, device=value.device)
    return ErrorNumber(held, error.masked_fill(given.unsure, torch.inf) if isinstance(given, Mask) else error, dtype)


def arguments_of(
    table: Operator, tensors: Mapping[str, Tensor | None], storage: torch.dtype
) -> tuple[list[Tensor | None], list[Tensor | None], list[int]]:
    """Return a function's arguments, the gradients of its outputs, and the positions of arguments that have no gradient."""
    specs = table.argument_specs
    held = {name: None if one is None else one.to(specs[name].dtype(storage)) for name, one in tensors.items()}
    upstream = [held.get(f"d{spec.name}") for spec in table.outputs] if table.upstream else []
    constant = [at for at, spec in enumerate(table.inputs) if not spec.differentiable]
    return [held[spec.name] for spec in table.inputs], upstream, constant


def names_of_results(table: Operator) -> list[str]:
    """Return the names of the outputs, and then those that the gradients of all inputs have, where they have one."""
    return [*(spec.name for spec in table.outputs), *(f"d{spec.name}" for spec in table.inputs)]


def _given(number: ErrorNumber, spec: TensorSpec) -> ErrorNumber:
    """Return an exact input in its dtype; the formula itself converts tensors in the storage dtype."""
    return number if spec.role is Role.STORAGE else number.to(number.dtype)
