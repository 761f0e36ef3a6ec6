"""Tensors of a launch by name: arguments as kernels want them, and memory for what kernels write."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_pre.table import PRE

OUTPUTS = tuple(spec.name for spec in PRE.outputs)

_F = TypeVar("_F", bound=Callable[..., Any])


def on_its_device(function: _F) -> _F:
    """Return the function such that the device of x, its first argument, is the current one while it runs."""

    @functools.wraps(function)
    def run(x: Tensor, *rest: Any, **keywords: Any) -> Any:
        if x.is_cuda and x.get_device() != torch.cuda.current_device():
            with torch.cuda.device(x.get_device()):
                return function(x, *rest, **keywords)
        return function(x, *rest, **keywords)

    return run  # type: ignore[return-value]  # it has the signature of `function`


def frozen(schedule: Mapping[str, ScheduleValue] | None) -> tuple[tuple[str, ScheduleValue], ...]:
    """Return a pinned schedule as a key of a cache."""
    return tuple(sorted(schedule.items())) if schedule else ()


def empty_outputs(x: Tensor, phi: Tensor) -> dict[str, Tensor]:
    """Return memory for the forward's outputs, in the order in which implementations return them."""
    B, S, n, D = x.shape
    empty = phi.new_empty
    return {
        "h_in": x.new_empty((B, S, D)), "h_post": empty((B, S, n)), "h_res": empty((B, S, n, n)), "inv_rms": empty((B, S)),
        "h_mix": empty((B, S, n * n + 2 * n)), "h_pre": empty((B, S, n)),
    }  # fmt: skip


def backward_tensors(given: Sequence[Tensor | None]) -> tuple[dict[str, Tensor], tuple[Tensor | None, ...]]:
    """Return what the backward's kernels take, by name, and the gradients in the order of the operator's table.

    given: the arguments in the operator's order. What is strided or misaligned is copied (`dense`). Gradients are empty.
    Without gamma, phi and dphi stand for gamma and dgamma, which kernels then neither read nor write.
    """
    present = [tensor for tensor in given if tensor is not None]
    tensors = dict(zip(PRE.backward_arguments, dense(*present), strict=False))  # only gamma, the last, may be absent
    like = torch.empty_like  # of what is contiguous: it costs half of new_empty
    results = [like(tensors[name]) if name in tensors else None for name in PRE.forward_arguments]
    gradients = {
        f"d{name}": result for name, result in zip(PRE.forward_arguments, results, strict=True) if result is not None
    }
    return {"gamma": tensors["phi"], "dgamma": gradients["dphi"], **tensors, **gradients}, tuple(results)
