"""The arguments of a call, checked against the operator before any kernel runs."""

import math
from collections.abc import Mapping

from torch import Tensor

from mhc.operator import STORAGE_DTYPES, UNLIMITED, Operator, Wanted

KEPT = 4096
"""Shapes and dtypes of a first argument, for each operator, of which is kept what the others must be."""


def check_arguments(operator: Operator, arguments: Mapping[str, Tensor | None], scalars: Mapping[str, float]) -> None:
    """Raise for invalid arguments before any kernel runs.

    Raises:
        TypeError: an argument is not a tensor, has a dtype that the operator does not accept, or is a scalar that is
            not a number.
        ValueError: a rank, shape, device or scalar is invalid. Messages name the argument, its value and the rule.
    """
    lead = operator.inputs[0].name
    x = _tensor(lead, arguments[lead])
    wanted = _wanted(operator, x)
    device = x.device
    for name, given in arguments.items():
        spec, shape, dtype = wanted[name]
        if isinstance(given, Tensor):
            if given.shape == shape and given.dtype == dtype and given.device == device:
                continue
        elif given is None and spec.optional:
            continue
        value = _tensor(name, given)
        if value.shape != shape:
            symbols = ", ".join(spec.symbols)
            raise ValueError(
                f"{name} has shape {tuple(value.shape)}; must be [{symbols}] = {shape} for {lead} of {tuple(x.shape)}"
            )
        if value.dtype != dtype:
            raise TypeError(f"{name}.dtype is {value.dtype}; must be {dtype} where {lead} is {x.dtype}")
        if value.device != device:
            raise ValueError(f"{name} is on {value.device}; must be on {device}, where {lead} is")
    for name, scalar in scalars.items():
        if isinstance(scalar, bool) or not isinstance(scalar, (int, float)):
            raise TypeError(f"{name} is {scalar!r}; must be a Python float")
        if not (math.isfinite(scalar) and scalar >= 0):
            raise ValueError(f"{name} is {scalar!r}; must be finite and not negative")


def _tensor(name: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is {type(value).__name__}; must be a torch.Tensor")
    return value


def _wanted(operator: Operator, x: Tensor) -> Mapping[str, Wanted]:
    """Return what every argument must be beside x, the first one, which is checked; found once for a shape and dtype."""
    found = operator.wanted.get((x.shape, x.dtype))
    if found is not None:
        return found
    lead = operator.inputs[0]
    if x.dtype not in STORAGE_DTYPES.values():
        raise TypeError(f"{lead.name}.dtype is {x.dtype}; must be one of {', '.join(STORAGE_DTYPES)}")
    if x.dim() != len(lead.symbols):
        raise ValueError(f"{lead.name} has shape {tuple(x.shape)}; must be [{', '.join(lead.symbols)}]")
    chosen = dict(zip(lead.symbols, x.shape, strict=True))
    for axis in operator.axes:
        size = chosen[axis.name]
        if not axis.least <= size <= axis.most:
            allowed = f"at least {axis.least}" if axis.most == UNLIMITED else f"in {axis.least}..{axis.most}"
            raise ValueError(
                f"{lead.name} has shape {tuple(x.shape)}, so {axis.name} = {size}; {axis.name} must be {allowed}"
            )
    sizes = operator.sizes(chosen)
    wanted = {name: (spec, spec.shape(sizes), spec.dtype(x.dtype)) for name, spec in operator.argument_specs.items()}
    if len(operator.wanted) >= KEPT:
        operator.wanted.clear()
    operator.wanted[x.shape, x.dtype] = wanted
    return wanted
