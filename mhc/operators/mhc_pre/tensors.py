"""Tensors of a launch by name: arguments as kernels want them, and memory for what kernels write."""

import functools
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


def empty_strided(size: tuple[int, ...], stride: tuple[int, ...], like: Tensor, dtype: torch.dtype) -> Tensor:
    """Return uninitialised memory on the device of `like`, which must be the current one if it is a GPU."""
    if like.is_cuda:
        return _GUARDS._empty_strided_cuda(size, stride, dtype)  # type: ignore[no-any-return]
    return torch.empty_strided(size, stride, dtype=dtype, device=like.device)


@functools.lru_cache(maxsize=4096)
def _layouts(shape: torch.Size) -> tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]:
    """Return name, shape and strides of each output, in the order in which implementations return them."""
    B, S, n, D = shape
    M = n * n + 2 * n
    return (
        ("h_in", (B, S, D), (S * D, D, 1)),
        ("h_post", (B, S, n), (S * n, n, 1)),
        ("h_res", (B, S, n, n), (S * n * n, n * n, n, 1)),
        ("inv_rms", (B, S), (S, 1)),
        ("h_mix", (B, S, M), (S * M, M, 1)),
        ("h_pre", (B, S, n), (S * n, n, 1)),
    )


def empty_outputs(x: Tensor, phi: Tensor) -> dict[str, Tensor]:
    """Return memory for the forward's outputs, in the order in which implementations return them."""
    narrow, wide = x.dtype, phi.dtype
    return {
        name: empty_strided(size, stride, x, narrow if name == "h_in" else wide) for name, size, stride in _layouts(x.shape)
    }


def backward_tensors(given: Sequence[Tensor | None]) -> tuple[dict[str, Tensor], tuple[Tensor | None, ...]]:
    """Return what the backward's kernels take, by name, and the gradients in the order of the operator's table.

    given: the arguments in the operator's order. What is strided or misaligned is copied (`dense`). Gradients are empty.
    Without gamma, phi and dphi stand for gamma and dgamma, which kernels then neither read nor write.
    """
    present = [tensor for tensor in given if tensor is not None]
    tensors = dict(zip(PRE.backward_arguments, dense(*present), strict=False))  # only gamma, the last, may be absent
    results = [
        empty_strided(tuple(one.shape), one.stride(), one, one.dtype) if (one := tensors.get(name)) is not None else None
        for name in PRE.forward_arguments
    ]
    gradients = {
        f"d{name}": result for name, result in zip(PRE.forward_arguments, results, strict=True) if result is not None
    }
    return {"gamma": tensors["phi"], "dgamma": gradients["dphi"], **tensors, **gradients}, tuple(results)
