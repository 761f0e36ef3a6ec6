"""What is not promised of a plain function beside NaN, infinities, and numbers whose products overflow.

inf - inf and 0 * inf are NaN, and in another order of evaluation there may be neither. A kernel may leave out what it
multiplies by 0, or multiply by 0 what the reference leaves out. docs/tolerances.md lists what follows from that.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mhc.inputs import Inputs, derived
from mhc.operator import STORAGE_DTYPES, Operator, TensorSpec, accumulation_dtype
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.bounds.rounding import all_finite, ceiling, largest_magnitude
from mhc.reference import reference

_OUTLIER = 2.0**60
"""Smaller numbers are drawn as values of whole tensors; their products overflow nowhere."""
_LARGE = 2.0**16
"""The most that stands in place of what is not finite: a mask may add a larger number, and a kernel leave out that part."""


def opening(inputs: Inputs, results: Mapping[str, ErrorNumber]) -> Callable[[str, ErrorNumber], ErrorNumber]:
    """Return a function of a result's name and number, which returns it with an infinite error where nothing is promised.

    That is of

    - a NaN that depends on no NaN of the inputs;
    - a finite gradient that depends on a NaN, or is at the place of one: of `x > 0` and `not x <= 0` one masks it;
    - a gradient of 0 in whose token an upstream gradient is not finite, or overflows as below, if it does not depend on it;
      one that may be a sum is too if it is finite. Where there are no tokens, or the function makes a table, beside NaN and
      infinity in inputs too, but not beside -infinity, as masks have it;
    - where a number's product with other tensors overflows, what depends on it, or is 0: another order may form it, and
      infinity times 0 is NaN.

    An element depends on a place of the inputs if it changes with what stands there.
    """
    table, floating = inputs.case.table, inputs.floating
    special = {name: one for name, one in floating.items() if not all_finite(one)}
    large = overflowing(inputs)
    if not special and not large:
        return lambda _, number: number
    nan = _found({name: one.isnan() for name, one in special.items()})
    upstream = {spec.name for spec in table.upstream} & {*special, *large}
    if not large and not upstream and not nan and not any(bool(one.value.isnan().any()) for one in results.values()):
        return lambda _, number: number
    of_inputs = not table.tokens or bool(table.intermediates())
    places = {
        name: ~floating[name].isfinite() if name in upstream else floating[name].isnan() | floating[name].isposinf()
        for name in {**special, **large}
        if name in upstream or of_inputs
    }
    beyond = _found({name: at | large[name] if name in large else at for name, at in places.items()})
    of_nan, of_large, of_beyond = (_independent(inputs, places) for places in (nan, large, beyond))
    gradients = {spec.name for spec in table.gradients}

    def open_undefined(name: str, number: ErrorNumber) -> ErrorNumber:
        finite = number.value.isfinite()
        undefined = of_nan(name, number, number.value.isnan()) if special else torch.zeros_like(finite)
        if large:
            undefined |= (number.value == 0) | finite & ~of_large(name, number, finite)
        if nan and name in gradients:
            undefined |= finite & _same_place(inputs, table.result_specs[name], nan).to(finite.device)
            undefined |= finite & ~of_nan(name, number, finite)
        if beyond and name in gradients:
            beside = _beside(inputs, table.result_specs[name], beyond).to(undefined.device)
            undefined |= of_beyond(name, number, (finite if _is_summed(table, name) else number.value == 0) & beside)
        if not undefined.any():
            return number
        return ErrorNumber(number.value, torch.where(undefined, torch.inf, number.error), number.dtype)

    return open_undefined


def _found(places: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the places of those tensors that have some."""
    return {name: at for name, at in places.items() if bool(at.any())}


def _is_summed(table: Operator, gradient: str) -> bool:
    """Return whether a gradient may be a sum over what upstream gradients have an element for each, in its token if any."""
    if table.tokens:
        return gradient in table.token_sums or bool(table.intermediates())
    alike = all(table.result_specs[gradient].symbols == spec.symbols for spec in table.upstream)
    return not alike or bool(table.intermediates())


def overflowing(inputs: Inputs) -> Mapping[str, Tensor]:
    """Return by tensor the places of outliers whose product with the largest elements of the other tensors overflows."""
    floating = inputs.floating
    outliers = _found({name: one.isfinite() & (one.abs() >= _OUTLIER) for name, one in floating.items()})
    if not outliers:
        return {}
    limit = ceiling(accumulation_dtype(STORAGE_DTYPES[inputs.case.dtype]))
    most = {name: max(1.0, largest_magnitude(one)) for name, one in floating.items()}
    others = {name: math.prod(size for other, size in most.items() if other != name) for name in outliers}
    return _found({name: at & (floating[name].double().abs() * others[name] > limit) for name, at in outliers.items()})


def _same_place(inputs: Inputs, gradient: TensorSpec, places: Mapping[str, Tensor]) -> Tensor:
    """Return the elements of a gradient with the index of one of the places, on all axes that the two have in common."""
    case = inputs.case
    axes, found = gradient.present(case.sizes), torch.zeros(gradient.shape(case.sizes), dtype=torch.bool)
    for name, at in places.items():
        own = case.table.argument_specs[name].present(case.sizes)
        shared = [one for one in own if one in axes]
        if not shared or len({*own}) < len(own) or len({*axes}) < len(axes):
            continue
        alone = [dim for dim, one in enumerate(own) if one not in axes]
        kept = at.any(alone) if alone else at
        kept = kept.permute([shared.index(one) for one in axes if one in shared])
        found |= kept.reshape([size if one in shared else 1 for one, size in zip(axes, found.shape, strict=True)]).cpu()
    return found


def _independent(inputs: Inputs, places: Mapping[str, Tensor]) -> Callable[[str, ErrorNumber, Tensor], Tensor]:
    """Return a function that returns where, among some elements, a result does not depend on certain places of the inputs.

    It does not where it is the same with 1 there and with -0.5, and with numbers that are large beside the others, which a
    saturated softmax needs, of both signs in turns, which what compares them needs.
    """
    specs, results = inputs.case.table.argument_specs, list[Mapping[str, Tensor | None]]()

    def result(which: int) -> Mapping[str, Tensor | None]:
        if which == len(results):
            tensors = {name: _replaced(inputs.tensors[name], at, specs[name], which) for name, at in places.items()}
            found = reference(derived(inputs, tensors))
            results.append({**found.outputs, **found.gradients})
        return results[which]

    def independent(name: str, number: ErrorNumber, among: Tensor) -> Tensor:
        for which in range(1, 4 if places else 0):
            if not among.any():
                break
            one, other = result(which - 1)[name], result(which)[name]
            assert one is not None
            assert other is not None
            among = among & ((one == other) | (one.isnan() & other.isnan())).to(among.device)
        return among

    return independent


def _replaced(tensor: Tensor | None, places: Tensor, spec: TensorSpec, which: int) -> Tensor:
    """Return a tensor with finite values at some places."""
    assert tensor is not None
    possible = [
        value for value in (1.0, -0.5, 0.25, 3.0, *(spec.within or ())) if spec.may_be(value) and math.isfinite(value)
    ]
    if which < 2:
        values = torch.tensor(possible[min(which, len(possible) - 1)], dtype=tensor.dtype)
    else:
        large = min(2 * largest_magnitude(tensor) + 1, _LARGE, torch.finfo(tensor.dtype).max)
        signs = 1 - 2 * ((torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape) + which) % 2)
        values = (large * signs).clamp(*(spec.within or (None, large))).to(tensor.dtype)
    return torch.where(places, values, tensor)


def _beside(inputs: Inputs, gradient: TensorSpec, places: Mapping[str, Tensor]) -> Tensor:
    """Return the elements of a gradient in whose token a place of an upstream gradient is; all, if it is no token's."""
    table, lead = inputs.case.table, inputs.case.lead
    if not lead or not table.per_token(gradient):
        return torch.ones((), dtype=torch.bool)
    found = torch.zeros(lead, dtype=torch.bool)
    for name, at in places.items():
        if table.per_token(table.argument_specs[name]):
            found = found | at.reshape(*lead, math.prod(at.shape[len(lead) :])).any(-1).to(found.device)
        else:
            found = found | at.any().to(found.device)
    return found.reshape(*lead, *(1 for _ in gradient.shape(inputs.case.sizes)[len(lead) :]))
