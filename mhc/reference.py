"""The float64 reference of a case: the formula on float64 tensors, on the host unless the case is large."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from mhc.case import Case
from mhc.condense import Condensed, condense
from mhc.dense import dense
from mhc.dispatch_mode import DispatchMode
from mhc.implementation import place_of, text_of
from mhc.inputs import Inputs
from mhc.operator import STORAGE_DTYPES

Kept = TypeVar("Kept")


class InFloat64(DispatchMode):  # type: ignore[no-untyped-call]
    """Keeps float64 through conversions to another floating dtype, so that a plain function runs in float64 throughout.

    New tensors are float64 too, such as those of `torch.zeros` and of a quotient of integers.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, with float64 for any floating dtype that it names."""
        del types
        named = dict(kwargs or {})
        dtype = named.get("dtype")
        if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
            named["dtype"] = torch.float64
        changed = [torch.float64 if isinstance(one, torch.dtype) and one.is_floating_point else one for one in args]
        result = func(*changed, **named)
        if isinstance(result, Tensor) and result.dtype in _NARROWER and not func._schema.is_mutable:
            wide = [_widened(one) for one in changed] if torch.Tag.pointwise in func.tags else changed
            return func(*wide, **named).double()
        return result


_NARROWER = {torch.float32, torch.bfloat16, torch.float16}


def _widened(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.dtype != torch.bool else value


ON_HOST = 1 << 20
"""A case whose largest tensor has at most this many elements is judged on the host.

Reference and tolerances are hundreds of float64 operations on tensors of that size: about a second on one core at this size,
and proportional to it. On a GPU each operation costs a launch, and some a wait, at any size.
"""


class ReferenceRaised(Exception):
    """Raised where a declared operator's reference, or an algorithm beside it, is at fault, and not the implementation."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The float64 reference of one case.

    Attributes:
        outputs: the forward in float64, unrounded, by name.
        saved: the saved tensors that every implementation's backward receives, on the host: `outputs` rounded once to their
            dtype, so that a backward is judged independently of the forward before it.
        backward: returns `gradients`.
    """

    outputs: Mapping[str, Tensor]
    saved: Mapping[str, Tensor]
    backward: Callable[[], Mapping[str, Tensor | None]]

    @functools.cached_property
    def gradients(self) -> Mapping[str, Tensor | None]:
        """Return the backward in float64 of the unrounded outputs, by name; an absent one is None. Few gates need it."""
        return self.backward()


def condensed(inputs: Inputs) -> Condensed | None:
    """Return the representative tokens of a large case, None where it is judged whole; computed once per inputs."""
    return _once(inputs, "condensed", lambda: condense(inputs, judging_device(inputs)))


def widen(inputs: Inputs) -> Mapping[str, Tensor | None]:
    """Return the inputs as dense tensors on the judging device; floats in float64, which contains all storage dtypes.

    Small ones for a formula, which writes into no argument, are computed once per inputs.
    """
    device = judging_device(inputs)
    if inputs.case.table.function is not None or device.type != "cpu":
        return _in_float64(inputs, device)
    return _once(inputs, "wide", lambda: _in_float64(inputs, device))


def _once(inputs: Inputs, name: str, make: Callable[[], Kept]) -> Kept:
    """Return what `make` returns, made once per inputs and name."""
    kept = inputs.__dict__  # a cache: inputs never change
    if name not in kept:
        kept[name] = make()
    found: Kept = kept[name]
    return found


@torch.inference_mode(mode=False)  # for whoever asks next, in whatever mode
def _in_float64(inputs: Inputs, device: torch.device) -> Mapping[str, Tensor | None]:
    there = {name: None if one is None else one.detach().to(device) for name, one in inputs.tensors.items()}
    return {
        name: None if one is None else dense(one.double() if one.is_floating_point() else one)[0]
        for name, one in there.items()
    }


def judging_device(inputs: Inputs) -> torch.device:
    """Return the device of reference, tolerances and comparisons: the host, or for a large case the device of its run."""
    largest = max((tensor.numel() for tensor in inputs.tensors.values() if tensor is not None), default=0)
    return inputs.device if largest > ON_HOST else torch.device("cpu")


def reference(inputs: Inputs) -> Reference:
    """Return the operator's formula evaluated in float64 on the materialised inputs, so that input rounding is no error.

    A large case whose tokens repeat is evaluated on its representative tokens (`mhc.condense`).
    """
    few = condensed(inputs)
    if few is None:
        return _evaluate(inputs)
    found, specs = _evaluate(few.inputs), inputs.case.table.result_specs
    return Reference(
        outputs={name: few.expand(value, specs[name]) for name, value in found.outputs.items()},
        saved={name: few.expand(value, specs[name]).cpu() for name, value in found.saved.items()},
        backward=lambda: {
            name: None if value is None else few.expand(value, specs[name]) for name, value in found.gradients.items()
        },
    )


def _evaluate(inputs: Inputs) -> Reference:
    table, case = inputs.case.table, inputs.case
    wide = widen(inputs)
    # a formula is not differentiated by autograd
    mode = torch.inference_mode if table.function is None else InFloat64
    with mode():
        try:
            results = table.forward(*(wide[name] for name in table.forward_arguments), **case.scalars)
        except Exception as error:
            if table.function is None:
                raise
            raised = how_raised(f"the reference {case.operator}", error, case.scalars)
            raise ReferenceRaised(f"{raised}: mend it, or declare sizes, values and scalars that it takes") from error
    outputs = dict(zip((spec.name for spec in table.outputs), results, strict=True))
    specs = table.argument_specs
    storage = STORAGE_DTYPES[case.dtype]
    saved = {name: outputs[name].to("cpu", specs[name].dtype(storage)) for name in table.saved}

    @torch.inference_mode(mode=False)  # whoever asks, in whatever mode
    def backward() -> Mapping[str, Tensor | None]:
        with mode():
            return _gradients(case, {**widen(inputs), **outputs})

    return Reference(outputs=outputs, saved=saved, backward=backward)


def how_raised(what: str, error: Exception, scalars: Mapping[str, float]) -> str:
    """Return what a function raised, where, and for which scalars."""
    place, given = place_of(error), ", ".join(f"{name} = {value}" for name, value in scalars.items())
    raised = f"{what} raises {type(error).__name__}: {text_of(error)}"
    return raised + (f" ({place})" if place else "") + (f", where {given}" if given else "")


def _gradients(case: Case, arguments: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
    """Return the backward of the case's operator."""
    table = case.table
    results = table.backward(*(arguments[name] for name in table.backward_arguments), **case.scalars)
    return dict(zip((spec.name for spec in table.gradients), results, strict=True))
