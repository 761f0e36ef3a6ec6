"""The float64 reference of a case: the formula on float64 tensors, on the host unless the case is large."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.condense import Condensed, condense
from mhc.dense import dense
from mhc.inputs import Inputs
from mhc.operator import STORAGE_DTYPES

ON_HOST = 1 << 20
"""Elements of a case's largest tensor up to which it is judged on the host.

Reference and tolerances are hundreds of operations in float64 on tensors of that size: about a second on one core, and in
proportion to it beyond. On a GPU each is a launch, and some are waits, whatever the size.
"""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What is right for one case.

    Attributes:
        outputs: the forward in float64, unrounded, by name.
        gradients: the backward in float64 of exactly those outputs, unrounded; an absent one is None.
        saved: what every implementation's backward is given for the forward's saved tensors: `outputs` rounded once to
            their dtype, so that a backward is judged by itself and not by the forward that ran before it; on the host.
    """

    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]
    saved: Mapping[str, Tensor]


def condensed(inputs: Inputs) -> Condensed | None:
    """The tokens that stand for all of a large case where it is judged; None where it is judged whole. Made once."""
    kept = inputs.__dict__  # a cache: inputs never change
    if "condensed" not in kept:
        kept["condensed"] = condense(inputs, judging_device(inputs))
    found: Condensed | None = kept["condensed"]
    return found


def widen(inputs: Inputs) -> dict[str, Tensor | None]:
    """The inputs as dense float64 tensors, where they are judged; exact, every storage dtype being a subset of float64."""
    device = judging_device(inputs)
    return {
        name: None if tensor is None else dense(tensor.detach().to(device).double())[0]
        for name, tensor in inputs.tensors.items()
    }


def judging_device(inputs: Inputs) -> torch.device:
    """Where reference, tolerances and comparisons of a case are: on the host, or a large one's where it runs."""
    largest = max((tensor.numel() for tensor in inputs.tensors.values() if tensor is not None), default=0)
    return inputs.device if largest > ON_HOST else torch.device("cpu")


def reference(inputs: Inputs) -> Reference:
    """Evaluate the operator's formula in float64 on what was materialised (so input rounding is not an error).

    A large case whose tokens repeat is evaluated on those that differ (`mhc.condense`).
    """
    few = condensed(inputs)
    if few is None:
        return _evaluate(inputs)
    found, specs = _evaluate(few.inputs), inputs.case.table.result_specs
    return Reference(
        outputs={name: few.expand(value, specs[name]) for name, value in found.outputs.items()},
        gradients={
            name: None if value is None else few.expand(value, specs[name]) for name, value in found.gradients.items()
        },
        saved={name: few.expand(value, specs[name]).cpu() for name, value in found.saved.items()},
    )


def _evaluate(inputs: Inputs) -> Reference:
    table, case = inputs.case.table, inputs.case
    wide = widen(inputs)
    results = table.forward(*(wide[name] for name in table.forward_arguments), **case.scalars)
    outputs = dict(zip((spec.name for spec in table.outputs), results, strict=True))
    arguments = {**wide, **outputs}
    results = table.backward(*(arguments[name] for name in table.backward_arguments), **case.scalars)
    gradients = dict(zip((spec.name for spec in table.gradients), results, strict=True))
    specs = table.argument_specs
    storage = STORAGE_DTYPES[case.dtype]
    saved = {name: outputs[name].to("cpu", specs[name].dtype(storage)) for name in table.saved}
    return Reference(outputs=outputs, gradients=gradients, saved=saved)
