"""Runs of a function on perturbed numbers that are evaluated at once, as one batch of PyTorch's vmap.

On small tensors a run takes as long as its operations take to start, so that a batch of runs takes little longer than one.
What a rule decides by a whole tensor, such as whether all elements are finite, it decides for all runs of the batch.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import _add_batch_dim, get_unwrapped, is_batchedtensor, maybe_get_bdim, maybe_get_level
from torch.overrides import TorchFunctionMode

LARGEST = 1 << 14
"""Elements of a tensor up to which its operations take about as long as they take to start."""
_WHOLE = {Tensor.all, Tensor.any, Tensor.aminmax, Tensor.amax, Tensor.amin, Tensor.max, Tensor.min}
"""What a rule asks of a whole tensor."""
_batch: Tensor | None = None
"""The numbers of the runs of the batch under way, one a run."""


class _Decisions(TorchFunctionMode):
    """Answers what is asked of a whole tensor for all runs together."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if func in _WHOLE and len(args) == 1 and not kwargs and is_batchedtensor(args[0]):
            return func(get_unwrapped(args[0]))
        if func is torch.equal:
            return func(*map(runs_of, args))
        return func(*args, **(kwargs or {}))


def run(function: Callable[[], Sequence[Tensor]], numbers: range, device: torch.device) -> list[Tensor] | None:
    """Return the tensors that `function` returns in each of some runs, stacked; None where runs cannot be together.

    They cannot where values decide a shape, or a decision is made by one element. Whatever is raised, runs one by one show
    whether it is the batch that it comes from.
    """

    def one(number: Tensor) -> list[Tensor]:
        with _under_way(number), _Decisions():
            return list(function())

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")  # an operation that vmap makes run by run
        try:
            return list(torch.func.vmap(one)(torch.arange(numbers.start, numbers.stop, device=device)))
        except Exception:
            return None


@contextmanager
def _under_way(number: Tensor) -> Iterator[None]:
    global _batch  # noqa: PLW0603
    _batch = number
    try:
        yield
    finally:
        _batch = None


def run_numbers() -> Tensor | None:
    """Return the number of each run of the batch under way; None where there is no batch."""
    return _batch


def runs_of(tensor: Tensor) -> Tensor:
    """Return a tensor with the runs of the batch under way as its first dimension, which is 1 where there is no batch."""
    if _batch is None:
        return tensor.unsqueeze(0)
    if not is_batchedtensor(tensor):
        return tensor.expand(get_unwrapped(_batch).numel(), *tensor.shape)
    return get_unwrapped(tensor).movedim(maybe_get_bdim(tensor), 0)


def of_runs(tensor: Tensor) -> Tensor:
    """Return the tensor of which `runs_of` makes this one."""
    return tensor.squeeze(0) if _batch is None else _add_batch_dim(tensor, 0, maybe_get_level(_batch))


def run_by_run(function: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    """Let a function be called for each run of a batch, since values decide its shapes. Ones take the place of a None."""

    @wraps(function)
    def each(terms: Tensor, *rest: Any) -> Tensor | None:
        if _batch is None or not is_batchedtensor(terms):
            return function(terms, *rest)
        found = [function(one, *rest) for one in runs_of(terms)]
        some = [one for one in found if one is not None]
        return of_runs(torch.stack([torch.ones_like(some[0]) if one is None else one for one in found])) if some else None

    return each
