"""Copies between the host and the device of a run.

Inputs are made and results are judged on the host; only the implementation runs on its device. For small tensors, waiting
for a GPU costs more than the copy itself, and still more on a shared GPU. So copies start together, with one wait for all.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mhc.inputs import Inputs, front


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Copies on a device, each in memory of its own.

    Attributes:
        tensors: inputs, upstream gradients and saved tensors by name, laid out as on the host; absent ones are None.
        memory: the whole allocation of each tensor.
        guarded: the same behind what lies in front of it (`mhc.inputs.front`), if anything can; before: this on the host, as
            it was placed.
    """

    tensors: Mapping[str, Tensor | None]
    memory: Mapping[str, Tensor]
    guarded: Mapping[str, Tensor]
    before: Mapping[str, Tensor]

    def view(self, name: str) -> Tensor:
        """Return a tensor as a view of what `before` has of it."""
        tensor = self.tensors[name]
        assert tensor is not None
        ahead = self.before[name].numel() - self.memory[name].numel()
        return self.before[name].as_strided(tensor.shape, tensor.stride(), ahead + tensor.storage_offset())


def place(inputs: Inputs, saved: Mapping[str, Tensor]) -> Placed:
    """Return copies of `inputs` and of the forward's `saved` tensors on `inputs.device`.

    The copies are complete on return, so that no stream of the run waits for them.
    """
    originals = {**inputs.storages, **saved}
    views = {**inputs.tensors, **saved}
    before = {}
    for name, whole in originals.items():
        view = views[name]
        assert view is not None
        guard = front(view) if inputs.device.type in _GUARDED else front(view)[:0]
        before[name] = torch.cat((guard, whole.reshape(-1)))
    guarded = {name: _copy(one, inputs.device) for name, one in before.items()}
    _wait([inputs.device])
    memory = {name: _behind(one, originals[name].shape) for name, one in guarded.items()}
    tensors = {
        name: None if view is None else memory[name].as_strided(view.shape, view.stride(), view.storage_offset())
        for name, view in inputs.tensors.items()
    }
    tensors |= {name: memory[name] for name in saved}
    return Placed(tensors=tensors, memory=memory, guarded=guarded, before=before)


def _behind(guarded: Tensor, shape: torch.Size) -> Tensor:
    """Return the end of an allocation as a contiguous tensor whose storage begins with it, as if it had been made alone."""
    ahead = (guarded.numel() - math.prod(shape)) * guarded.element_size()
    if not ahead:
        return guarded.view(shape)
    end: torch.UntypedStorage = guarded.untyped_storage()[ahead:]
    alone = _EMPTY(0, dtype=guarded.dtype, device=guarded.device)
    alone.set_(end, 0, (math.prod(shape),), (1,))
    return alone.view(shape)


def rewrite(memory: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values into allocations on a device, in place; there are values for each, in its shape."""
    for name, allocation in memory.items():
        allocation.copy_(values[name])


def fetch(tensors: Iterable[Tensor], compared: Iterable[Tensor] = ()) -> list[Tensor]:
    """Return copies on the host in new memory, also of tensors that are on the host.

    Args:
        compared: further tensors, which are only looked at before anything else runs: not copied where they are on the host.

    Raises:
        RuntimeError: the device is lost.
    """
    there, others = list(tensors), list(compared)
    here = [_copy(tensor.detach(), _HOST) for tensor in there]
    here += [tensor.detach() if tensor.is_cpu else _copy(tensor.detach(), _HOST) for tensor in others]
    _wait([tensor.device for tensor in (*there, *others) if not tensor.is_cpu])
    return here


_GUARDED = frozenset({"cpu", "cuda"})
"""Types of devices on which part of an allocation can be a storage of its own."""

_EMPTY = torch.empty  # the original, also while memory is poisoned
_HOST = torch.device("cpu")


def _copy(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a tensor on a device; it may not be complete before `_wait`."""
    if type(tensor) is Tensor and tensor.is_cpu and device.type == "cpu":
        return tensor.clone()  # half the time of `to`
    return tensor.to(device, non_blocking=True, copy=True)


def _wait(devices: Iterable[torch.device]) -> None:
    for device in {device for device in devices if device.type == "cuda"}:
        torch.cuda.synchronize(device)
