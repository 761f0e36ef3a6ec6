"""Tensors of a launch by name: arguments as kernels want them, and memory for what kernels write."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from mhc.case import ScheduleValue
from mhc.dense import dense
from mhc.operators.mhc_pre.table import PRE

_GUARDS: Any = torch._C._dynamo.guards
"""Where PyTorch keeps the factory that code of Inductor calls: on a GPU it takes half the time of `new_empty`."""

OUTPUTS = tuple(spec.name for spec in PRE.outputs)

_F = TypeVar("_F", bound=Callable[..., Any])
_Sizes = tuple[int, ...]


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


def allocator(like: Tensor) -> Callable[[_Sizes, _Sizes, torch.dtype], Tensor]:
    """Return what makes an uninitialised tensor of a shape, strides and dtype on the device of `like`.

    A GPU must be the current one.
    """
    if like.is_cuda:
        return _GUARDS._empty_strided_cuda  # type: ignore[no-any-return]
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=like.device)


def empty_outputs(x: Tensor) -> dict[str, Tensor]:
    """Return memory for the forward's outputs, in the order in which implementations return them."""
    allocate = allocator(x)
    return {name: allocate(*layout) for name, layout in _layouts(x.shape, x.dtype, "outputs").items()}


def backward_tensors(given: Sequence[Tensor | None]) -> tuple[dict[str, Tensor], tuple[Tensor | None, ...]]:
    """Return what the backward's kernels take, by name, and the gradients in the order of the operator's table.

    given: the arguments in the operator's order. What is strided or misaligned is copied (`dense`). Gradients are empty.
    Without gamma, phi and dphi stand for gamma and dgamma, which kernels then neither read nor write.
    """
    present = [tensor for tensor in given if tensor is not None]
    tensors = dict(zip(PRE.backward_arguments, dense(*present), strict=False))  # only gamma, the last, may be absent
    x, absent = tensors["x"], given[-1] is None
    allocate, layouts = allocator(x), _layouts(x.shape, x.dtype, "gradients")
    gradients = {name: allocate(*layout) for name, layout in layouts.items() if not (absent and name == "dgamma")}
    if absent:
        return {**tensors, **gradients, "gamma": tensors["phi"], "dgamma": gradients["dphi"]}, (*gradients.values(), None)
    return {**tensors, **gradients}, tuple(gradients.values())


@functools.lru_cache(maxsize=4096)
def _layouts(shape: torch.Size, dtype: torch.dtype, results: str) -> dict[str, tuple[_Sizes, _Sizes, torch.dtype]]:
    """Return shape, strides and dtype of the "outputs" or "gradients", dense, by name, for x of a shape and dtype."""
    sizes = PRE.sizes(dict(zip(PRE.inputs[0].symbols, shape, strict=True)))
    found = {}
    for spec in getattr(PRE, results):
        size = spec.shape(sizes)
        found[spec.name] = size, tuple(math.prod(size[i + 1 :]) for i in range(len(size))), spec.dtype(dtype)
    return found
