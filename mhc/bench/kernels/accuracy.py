"""How far results are from float64, and from their bounds; on the device, since the shapes are large.

The same tolerances as the bound gate (`mhc.oracles.bound`), less the float64 reference's own error, 2**-29 of them at most.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mhc.bench.kernels.record import Deviation
from mhc.declared import Declared
from mhc.operator import Operator
from mhc.oracles.bounds.error_number import ErrorNumber
from mhc.oracles.tolerances import read_formula

# Float64 tensors of x's size that are alive at once while the backward's tolerance is built, with room to spare.
COPIES = 32


def allowed(
    table: Operator, tensors: Mapping[str, Tensor | None], scalars: Mapping[str, float], *, recomputes_forward: bool
) -> Mapping[str, ErrorNumber]:
    """Return the float64 value and the error allowed, for each output and gradient that is not absent.

    Args:
        tensors: the inputs and upstream gradients by name, on any one device; they are taken as exact.
        recomputes_forward: as `mhc.oracles.tolerances.tolerances` has it.
    """
    storage = next(value.dtype for value in tensors.values() if value is not None)
    wide = {name: None if tensor is None else tensor.double().contiguous() for name, tensor in tensors.items()}
    read = read_formula(table, wide, storage, scalars, declared=Declared(recomputes_forward=recomputes_forward))
    return {**read.outputs, **read.gradients}


def deviations(
    names: Sequence[str], results: Sequence[Tensor | None], wanted: Mapping[str, ErrorNumber]
) -> Mapping[str, Deviation]:
    """Return the deviation of each result that was returned, in the order of `names`."""
    return {
        name: _deviation(result, wanted[name])
        for name, result in zip(names, results, strict=True)
        if result is not None and name in wanted
    }


def _deviation(result: Tensor, wanted: ErrorNumber) -> Deviation:
    """Return the deviation; an element without a finite bound is not judged, a wrong infinity or NaN is infinitely off."""
    value = result.detach().double()
    error = torch.where(value == wanted.value, 0.0, (value - wanted.value).abs()).nan_to_num(nan=torch.inf)
    error = torch.where(wanted.error.isinf(), 0.0, error)
    ratio = torch.where(error == 0, 0.0, error / wanted.error)
    return Deviation(error=float(error.max()), ratio=float(ratio.max()))
