"""The float64 reference of a case: the formula on float64 tensors, on the CPU."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.dense import dense
from mhc.inputs import Inputs
from mhc.operator import STORAGE_DTYPES


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What is right for one case.

    Attributes:
        outputs: the forward in float64, unrounded, by name.
        gradients: the backward in float64 of exactly those outputs, unrounded; an absent one is None.
        saved: what every implementation's backward is given for the forward's saved tensors: `outputs` rounded once to
            their dtype, so that a backward is judged by itself and not by the forward that ran before it.
    """

    outputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]
    saved: Mapping[str, Tensor]


def widen(inputs: Inputs) -> dict[str, Tensor | None]:
    """The inputs as dense float64 tensors on the CPU; exact, every storage dtype being a subset of float64."""
    return {
        name: None if tensor is None else dense(tensor.detach().to("cpu", torch.float64))[0]
        for name, tensor in inputs.tensors.items()
    }


def reference(inputs: Inputs) -> Reference:
    """Evaluate the operator's formula in float64 on what was materialised (so input rounding is not an error)."""
    table, case = inputs.case.table, inputs.case
    wide = widen(inputs)
    results = table.forward(*(wide[name] for name in table.forward_arguments), **case.scalars)
    outputs = dict(zip((spec.name for spec in table.outputs), results, strict=True))
    arguments = {**wide, **outputs}
    results = table.backward(*(arguments[name] for name in table.backward_arguments), **case.scalars)
    gradients = dict(zip((spec.name for spec in table.gradients), results, strict=True))
    specs = table.argument_specs
    storage = STORAGE_DTYPES[case.dtype]
    saved = {name: outputs[name].to(inputs.device, specs[name].dtype(storage)) for name in table.saved}
    return Reference(outputs=outputs, gradients=gradients, saved=saved)
